/* kv.c: see kv.h. */
#include "kv.h"

const struct kv_shape kv_shapes[N_KV_TYPES] = {
#define KV_TYPE(id, name, items, bytes, row) {name, items, bytes, row},
#include "kv.def"
#undef KV_TYPE
};

void kv_open(struct kv *kv, struct arena *a, uint32_t type, uint32_t n_layers, uint32_t n_kv_heads,
             uint32_t head_dim, uint32_t n_ctx) {
  *kv = (struct kv){
      .type = type, .n_layers = n_layers, .n_kv_heads = n_kv_heads, .head_dim = head_dim, .n_ctx = n_ctx, .arena = a};
  kv->max_chunks = (n_ctx + KV_CHUNK - 1) / KV_CHUNK;
  kv->row_bytes = head_dim / kv_shapes[type].items * kv_shapes[type].bytes + kv_shapes[type].row;
  kv->chunk_bytes = (uint64_t)n_layers * 2 * n_kv_heads * KV_CHUNK * kv->row_bytes;
}

/* A chunk from the pool, else from the arena; its users are set to 1. UINT32_MAX: no memory. */
static uint32_t take_chunk(struct kv *kv) {
  uint32_t i = kv->n_chunks;
  if (kv->n_used < kv->n_chunks)
    for (i = 0; kv->chunks[i].users; i++) {}
  else {
    uint8_t *bytes = arena_take(kv->arena, kv->chunk_bytes);
    if (!bytes) return UINT32_MAX;
    kv->chunks[i].bytes = bytes;
    kv->n_chunks++;
  }
  kv->chunks[i].users = 1;
  kv->n_used++;
  return i;
}

static void release_chunk(struct kv *kv, uint32_t i) {
  if (!--kv->chunks[i].users) kv->n_used--;
}

void kv_place(struct kv *kv, struct arena *a) {
  const uint64_t n = (uint64_t)KV_SEQS * kv->max_chunks;
  kv->chunks = arena_take(a, n * sizeof *kv->chunks);
  uint32_t *tables = arena_take(a, n * sizeof *tables);
  for (uint32_t i = 0; i < KV_SEQS; i++) kv->seqs[i].table = tables + (uint64_t)i * kv->max_chunks;
  uint8_t *first = arena_take(a, kv->chunk_bytes);
  if (a->counting) return;
  kv->chunks[0] = (struct kv_chunk){first, 0};
  kv->n_chunks = 1;
}

int kv_new(struct kv *kv) {
  for (int i = 0; i < KV_SEQS; i++)
    if (!kv->seqs[i].used) {
      kv->seqs[i].used = true;
      return i;
    }
  return -1;
}

int kv_fork(struct kv *kv, uint32_t seq) {
  const int i = kv_new(kv);
  if (i < 0) return i;
  const struct kv_seq *from = &kv->seqs[seq];
  struct kv_seq *to = &kv->seqs[i];
  to->pos = from->pos;
  to->n_chunks = (from->pos + KV_CHUNK - 1) / KV_CHUNK;
  for (uint32_t c = 0; c < to->n_chunks; c++) {
    to->table[c] = from->table[c];
    kv->chunks[to->table[c]].users++;
  }
  return i;
}

void kv_drop(struct kv *kv, uint32_t seq) {
  kv_rewind(kv, seq, 0);
  kv->seqs[seq].used = false;
}

void kv_rewind(struct kv *kv, uint32_t seq, uint32_t pos) {
  struct kv_seq *s = &kv->seqs[seq];
  s->pos = pos;
  while (s->n_chunks > (pos + KV_CHUNK - 1) / KV_CHUNK) release_chunk(kv, s->table[--s->n_chunks]);
}

bool kv_reserve(struct kv *kv, uint32_t seq, uint32_t n) {
  struct kv_seq *s = &kv->seqs[seq];
  const uint32_t first = s->pos / KV_CHUNK, end = (s->pos + n + KV_CHUNK - 1) / KV_CHUNK;
  if (first < s->n_chunks && kv->chunks[s->table[first]].users > 1) { /* shared and about to be written */
    const uint32_t own = take_chunk(kv);
    if (own == UINT32_MAX) return false;
    copy_bytes(kv->chunks[own].bytes, kv->chunks[s->table[first]].bytes, (size_t)kv->chunk_bytes);
    release_chunk(kv, s->table[first]);
    s->table[first] = own;
  }
  while (s->n_chunks < end) {
    const uint32_t chunk = take_chunk(kv);
    if (chunk == UINT32_MAX) {
      kv_rewind(kv, seq, s->pos);
      return false;
    }
    s->table[s->n_chunks++] = chunk;
  }
  return true;
}
