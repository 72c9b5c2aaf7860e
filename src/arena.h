/* arena.h: all memory of an instance, taken from one end in order of lifetime and never given back
 * (KV chunks return to their pool). Blocks are 64-byte aligned and not cleared. */
#pragma once
#include "base.h"

struct arena {
  uint8_t *base;
  uint64_t used;
  bool counting; /* take addresses only: how a plan is made by the code that will carry it out */
};

void arena_open(struct arena *a);
/* A block of n bytes, or null when memory cannot grow so far. May grow memory. */
void *arena_take(struct arena *a, uint64_t n);
/* Appends n bytes to the last block, whose end is at a->used: they are contiguous with it. False
 * when memory cannot grow so far. May grow memory. */
bool arena_extend(struct arena *a, uint64_t n);
/* Back to an earlier state of `used`; what was taken since is void. */
void arena_cut(struct arena *a, uint64_t used);
