/* attend.h: what attention over a chunk of floats (attend.c) and of integers (attend_ints.c, attend_q16.c) share.
 *
 * A chunk, of q16 aside, is read in runs of 8 positions, taken in turn from its two halves: memory answers two streams
 * side by side faster than one or four. Vectors (the query heads that share the KV head, times the rows of a prompt)
 * go in groups of four, whose sums stay in registers. */
#pragma once
#include "exp.h"
#include "set.h"

enum { RUN = 8, RUNS = 2, BLOCK = RUN * RUNS, GROUP = 4 };

/* Which of a chunk's runs in memory position t is in. */
INLINE uint32_t attend_run(uint32_t t) { return t % BLOCK / RUN * (KV_CHUNK / BLOCK) + t / BLOCK; }

/* call, with N = n as a constant */
#define FOR_GROUP(n, call) \
  switch (n) { \
    case 1: { enum { N = 1 }; call; break; } \
    case 2: { enum { N = 2 }; call; break; } \
    case 3: { enum { N = 3 }; call; break; } \
    default: { enum { N = 4 }; call; } \
  }

/* Positions from .. to - 1 of a chunk. */
struct attend_span {
  uint32_t from, to;
};

/* All that vectors i .. i + n - 1 see. */
INLINE struct attend_span attend_span(const struct attend *a, uint32_t i, uint32_t n) {
  struct attend_span all = {KV_CHUNK, 0};
  for (uint32_t h = i; h < i + n; h++) all.from = LM_MIN(all.from, a->first[h]), all.to = LM_MAX(all.to, a->n_seen[h]);
  return all;
}

/* Scores of vector i to weights times `scale`, and their sum without it; lanes that it does not see hold anything. */
void attend_softmax(const struct attend *a, uint32_t i, float *s, float scale);

size_t attend_q16_scratch(uint32_t head_dim);
void attend_q16_chunk(const struct attend *a);
void attend_q16_store(bool is_value, const float *x, void *rows, uint32_t t, uint32_t head_dim);
size_t attend_ints_scratch(uint32_t head_dim);
void attend_ints_chunk(const struct attend *a);
void attend_ints_store(uint32_t kv_type, bool is_value, const float *x, void *rows, uint32_t t, uint32_t head_dim);
