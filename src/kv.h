/* kv.h: the key/value cache. A chunk holds KV_CHUNK positions of all layers:
 *
 *   [layer][k | v][n_kv_heads][KV_CHUNK x head_dim]     in the cache's type and the kernels' order
 *
 * A sequence is a table of chunks. Chunks are counted: a fork shares them all, and whoever writes
 * to a shared one first copies it. Growth appends a chunk to the arena, nothing ever moves, and
 * what a sequence gives back goes to the pool. */
#pragma once
#include "arena.h"
#include "kernels.h"

enum { KV_SEQS = 32 };

struct kv_shape {
  const char *name;
  uint32_t items, bytes; /* values and bytes per block */
  uint32_t row;          /* bytes beside the blocks of a row */
};
extern const struct kv_shape kv_shapes[N_KV_TYPES];

struct kv_seq {
  bool used;
  uint32_t pos;      /* tokens in it */
  uint32_t n_chunks; /* of its table; they reach at least to pos */
  uint32_t *table;   /* [max_chunks] indices into chunks */
};

struct kv {
  uint32_t type;
  uint32_t n_layers, n_kv_heads, head_dim;
  uint32_t n_ctx, max_chunks;   /* per sequence */
  uint64_t row_bytes;           /* of one position of one head */
  uint64_t chunk_bytes;
  struct arena *arena;
  struct kv_chunk {
    uint8_t *bytes;
    uint32_t users;
  } *chunks;                    /* [KV_SEQS * max_chunks] */
  uint32_t n_chunks;            /* taken from the arena so far */
  uint32_t n_used;              /* held by sequences */
  struct kv_seq seqs[KV_SEQS];
};

/* Sizes only; no memory. */
void kv_open(struct kv *kv, struct arena *a, uint32_t type, uint32_t n_layers, uint32_t n_kv_heads,
             uint32_t head_dim, uint32_t n_ctx);
/* Takes the tables and the first chunk, or only counts them. */
void kv_place(struct kv *kv, struct arena *a);

/* A free sequence or -1. */
int kv_new(struct kv *kv);
int kv_fork(struct kv *kv, uint32_t seq);
void kv_drop(struct kv *kv, uint32_t seq);
/* Forgets all from pos on, and chunks behind it. */
void kv_rewind(struct kv *kv, uint32_t seq, uint32_t pos);
/* Makes positions pos .. pos + n - 1 writable: chunks of its own. False when there is no memory;
 * the sequence's tokens are as before in either case. May grow memory. */
bool kv_reserve(struct kv *kv, uint32_t seq, uint32_t n);

/* One head's keys (which = 0) or values (1) of a chunk. */
static inline uint8_t *kv_rows(const struct kv *kv, uint32_t seq, uint32_t chunk, uint32_t layer, uint32_t which,
                               uint32_t head) {
  uint8_t *bytes = kv->chunks[kv->seqs[seq].table[chunk]].bytes;
  return bytes + (((uint64_t)layer * 2 + which) * kv->n_kv_heads + head) * KV_CHUNK * kv->row_bytes;
}
