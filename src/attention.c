/* attention.c: work is cut into tasks: the queries of one block of rows that share a KV head, so that
 * keys and values are read once for all of them. A task walks the chunks of its sequence's cache;
 * partial results are joined in the chunks' order, whoever made them. */
#include "forward_parts.h"

struct task {
  const struct block *block;
  uint32_t kv_head, head, n_heads; /* first query head and how many */
  uint32_t n_vectors;              /* n_rows * n_heads: vector = row * n_heads + head */
  struct slice chunks;             /* that its rows see */
};

static struct task task_of(const struct forward *f, uint32_t l, uint32_t i) {
  const struct model *m = f->m;
  const uint32_t group = m->n_heads / m->n_kv_heads, split = i % f->n_splits, kv_head = i / f->n_splits % m->n_kv_heads;
  const struct block *block = &f->blocks[i / f->n_splits / m->n_kv_heads];
  struct task t = {.block = block, .kv_head = kv_head, .head = kv_head * group + split * f->group_heads};
  t.n_heads = LM_MIN(f->group_heads, group - split * f->group_heads);
  t.n_vectors = block->n_rows * t.n_heads;
  const uint32_t end = f->rows[block->row].pos + 1, last = f->rows[block->row + block->n_rows - 1].pos;
  const uint32_t from = m->layers[l].is_local && end > m->window ? end - m->window : 0;
  t.chunks = (struct slice){from / KV_CHUNK, last / KV_CHUNK + 1};
  return t;
}

static void gather_queries(const struct run *r, const struct task *t) {
  const struct forward *f = r->f;
  const uint32_t n = t->n_heads * f->m->head_dim;
  for (uint32_t i = 0; i < t->block->n_rows; i++)
    copy_bytes(r->w->q + (size_t)i * n, f->q + (size_t)(t->block->row + i) * f->q_stride + t->head * f->m->head_dim,
               n * sizeof(float));
}

static uint32_t in_chunk(int64_t pos) { return (uint32_t)LM_MIN(KV_CHUNK, LM_MAX(0, pos)); }

/* A task's queries against one chunk. */
static void attend_task_chunk(const struct run *r, const struct task *t, uint32_t l, uint32_t chunk, float *o,
                              float *max, float *sum) {
  const struct forward *f = r->f;
  const struct row *rows = f->rows + t->block->row;
  for (uint32_t i = 0; i < t->n_vectors; i++) {
    const int64_t end = (int64_t)rows[i / t->n_heads].pos + 1 - (int64_t)chunk * KV_CHUNK;
    r->w->n_seen[i] = in_chunk(end);
    r->w->first[i] = f->m->layers[l].is_local ? in_chunk(end - f->m->window) : 0;
  }
  const struct attend a = {
      .q = r->w->q, .first = r->w->first, .n_seen = r->w->n_seen, .n_vectors = t->n_vectors,
      .head_dim = f->m->head_dim, .kv_type = f->kv->type, .k = kv_rows(f->kv, rows->seq, chunk, l, 0, t->kv_head),
      .v = kv_rows(f->kv, rows->seq, chunk, l, 1, t->kv_head), .scale = f->m->attn_scale,
      .soft_cap = f->m->attn_soft_cap, .o = o, .max = max, .sum = sum, .scratch = r->w->attend_scratch};
  KERNELS.attend(&a);
}

static void finish_task(const struct run *r, const struct task *t, const float *o, const float *sum) {
  const struct forward *f = r->f;
  const uint32_t n = t->n_heads, dim = f->m->head_dim;
  for (uint32_t i = 0; i < t->block->n_rows; i++)
    KERNELS.attend_finish(o + (size_t)i * n * dim, sum + i * n,
                          f->att + (size_t)(t->block->row + i) * f->q_stride + t->head * dim, n, dim);
}

static void attend_task(const struct run *r, uint32_t l, uint32_t i) {
  const struct worker *w = r->w;
  const struct task t = task_of(r->f, l, i);
  gather_queries(r, &t);
  attend_task_chunk(r, &t, l, t.chunks.from, w->o, w->max, w->sum);
  for (uint32_t c = t.chunks.from + 1; c < t.chunks.to; c++) {
    attend_task_chunk(r, &t, l, c, w->chunk_o, w->chunk_max, w->chunk_sum);
    KERNELS.attend_fold(w->o, w->max, w->sum, w->chunk_o, w->chunk_max, w->chunk_sum, t.n_vectors, r->f->m->head_dim);
  }
  finish_task(r, &t, w->o, w->sum);
}

static void attend_tasks(const struct run *r, uint32_t l, uint32_t n_tasks) {
  for (struct team_share s = share_of(r, n_tasks); team_take(&s);)
    for (uint32_t i = s.got.from; i < s.got.to; i++) attend_task(r, l, i);
}

/* Chunk i % n_chunks of task i / n_chunks, to its place among the partial results. */
static void attend_partial(const struct run *r, uint32_t l, uint32_t i, uint32_t slot) {
  const struct forward *f = r->f;
  const struct task t = task_of(f, l, i / f->n_chunks);
  const uint32_t chunk = i % f->n_chunks, dim = f->m->head_dim;
  if (chunk < t.chunks.from || chunk >= t.chunks.to) return;
  float *o = f->partials + (size_t)i * slot * (dim + 2), *max = o + (size_t)slot * dim;
  gather_queries(r, &t);
  attend_task_chunk(r, &t, l, chunk, o, max, max + slot);
}

/* Few tasks over long contexts: each chunk of each task for itself, joined afterwards. slot: vectors
 * that a partial result has room for. */
static void attend_chunks(const struct run *r, uint32_t l, uint32_t n_tasks, uint32_t slot) {
  const struct forward *f = r->f;
  const uint32_t dim = f->m->head_dim, n_chunks = f->n_chunks;
  const size_t size = (size_t)slot * (dim + 2); /* o, max, sum */
  for (struct team_share s = share_of(r, n_tasks * n_chunks); team_take(&s);)
    for (uint32_t i = s.got.from; i < s.got.to; i++) attend_partial(r, l, i, slot);
  team_barrier();
  for (uint32_t i = r->i; i < n_tasks; i += r->n_workers) {
    const struct task t = task_of(f, l, i);
    float *first = f->partials + ((size_t)i * n_chunks + t.chunks.from) * size, *max = first + (size_t)slot * dim;
    for (uint32_t c = 1; c < t.chunks.to - t.chunks.from; c++) {
      const float *o = first + c * size, *o_max = o + (size_t)slot * dim;
      KERNELS.attend_fold(first, max, max + slot, o, o_max, o_max + slot, t.n_vectors, dim);
    }
    finish_task(r, &t, first, max + slot);
  }
}

/* Either way gives the same bits. */
void attention(const struct run *r, uint32_t l) {
  const struct forward *f = r->f;
  const uint32_t n_tasks = f->n_blocks * f->m->n_kv_heads * f->n_splits;
  uint32_t slot = 0;
  for (uint32_t i = 0; i < f->n_blocks; i++) slot = LM_MAX(slot, f->blocks[i].n_rows * f->group_heads);
  slot = (uint32_t)align_up(slot, 4); /* kernels store whole vectors */
  const uint64_t needed = (uint64_t)n_tasks * f->n_chunks * slot * (f->m->head_dim + 2);
  if (r->n_workers > 1 && f->n_chunks > 1 && n_tasks < 4 * r->n_workers && needed <= f->n_partials)
    attend_chunks(r, l, n_tasks, slot);
  else attend_tasks(r, l, n_tasks);
}
