/* forward.c: one function for prompt and decode, run by every worker over its own slices.
 *
 *   x = embedding[token]
 *   per layer:  x += Wo attention(rope(Wq n), rope(Wk n), Wv n),  n = norm(x)
 *               x += Wdown (silu(Wgate n) * (Wup n)),             n = norm(x)
 *   logits = Woutput norm(x)
 *
 * Between two barriers nothing returns, breaks or branches on what only one worker knows. A row of
 * a matrix is summed by one worker, and attention is cut at absolute positions and joined in
 * their order: the number of workers never changes a bit. */
#include "forward.h"

#include "fmath.h"
#include "team.h"

/* ---- buffers ---- */

#define BATCH_BUDGET ((uint64_t)5 << 20)   /* bytes of the buffers of one batch */
#define LOGITS_BUDGET ((uint64_t)2 << 20)
#define PARTIALS_MAX ((uint64_t)1 << 20)   /* floats: 4 MiB */

static uint32_t stride_of(uint64_t n) { return (uint32_t)align_up(n, 64); }


/* Bytes of activations of n tokens, whichever product they are for. */
static uint64_t act_most(const struct model *m, uint32_t n) {
  uint64_t most = KERNELS.act_bytes(m->d_model, n, m->output.kernels->needs);
  for (uint32_t l = 0; l < m->n_layers; l++) {
    const struct layer *y = &m->layers[l];
    const uint32_t qkv = y->wq.kernels->needs | y->wk.kernels->needs | y->wv.kernels->needs;
    const uint64_t bytes[] = {
        KERNELS.act_bytes(m->d_model, n, qkv),
        KERNELS.act_bytes(y->wo.n_cols, n, y->wo.kernels->needs),
        KERNELS.act_bytes(m->d_model, n, y->w_gate.kernels->needs | y->w_up.kernels->needs),
        KERNELS.act_bytes(m->d_ff, n, y->w_down.kernels->needs),
    };
    for (uint32_t i = 0; i < LM_COUNT(bytes); i++) most = LM_MAX(most, bytes[i]);
  }
  return most;
}

void forward_open(struct forward *f, const struct model *m, struct kv *kv, uint32_t n_workers) {
  *f = (struct forward){.m = m, .kv = kv, .n_workers = n_workers};
  f->d_stride = stride_of(m->d_model);
  f->q_stride = stride_of((uint64_t)m->n_heads * m->head_dim);
  f->kv_stride = stride_of((uint64_t)m->n_kv_heads * m->head_dim);
  f->ff_stride = stride_of(m->d_ff);
  f->vocab_stride = stride_of(m->n_vocab);
  const uint32_t group = m->n_heads / m->n_kv_heads;
  f->n_splits = (group + ATTEND_VECTORS - 1) / ATTEND_VECTORS;
  f->group_heads = (group + f->n_splits - 1) / f->n_splits;
  const uint64_t row = 8 * ((uint64_t)f->d_stride + f->q_stride + f->kv_stride + f->ff_stride) + act_most(m, 1);
  f->max_batch = (uint32_t)LM_MIN(256, LM_MAX(16, BATCH_BUDGET / row / 16 * 16));
  f->max_all = (uint32_t)LM_MIN(64, LM_MAX(8, LOGITS_BUDGET / 4 / f->vocab_stride));
  f->n_partials = LM_MIN(PARTIALS_MAX, (uint64_t)m->n_kv_heads * f->n_splits * align_up(f->group_heads, 4) * kv->max_chunks * (m->head_dim + 2));
}

static void place_worker(struct worker *w, const struct model *m, struct arena *a) {
  const uint64_t vectors = (uint64_t)ATTEND_VECTORS * m->head_dim * sizeof(float);
  const uint64_t scalars = ATTEND_VECTORS * sizeof(float);
  w->xn = arena_take(a, (uint64_t)stride_of(m->d_model) * sizeof(float));
  w->act = arena_take(a, act_most(m, 1));
  w->mat_scratch = arena_take(a, MAT_SCRATCH);
  w->q = arena_take(a, vectors);
  w->o = arena_take(a, vectors);
  w->chunk_o = arena_take(a, vectors);
  w->max = arena_take(a, scalars);
  w->sum = arena_take(a, scalars);
  w->chunk_max = arena_take(a, scalars);
  w->chunk_sum = arena_take(a, scalars);
  w->n_seen = arena_take(a, scalars);
  w->attend_scratch = arena_take(a, KERNELS.attend_scratch(m->head_dim));
}

void forward_place(struct forward *f, struct arena *a) {
  const uint64_t n = f->max_batch, floats = sizeof(float);
  f->x = arena_take(a, n * f->d_stride * floats);
  f->y = arena_take(a, n * f->d_stride * floats);
  f->q = arena_take(a, n * f->q_stride * floats);
  f->att = arena_take(a, n * f->q_stride * floats);
  f->k = arena_take(a, n * f->kv_stride * floats);
  f->v = arena_take(a, n * f->kv_stride * floats);
  f->gate = arena_take(a, n * f->ff_stride * floats);
  f->up = arena_take(a, n * f->ff_stride * floats);
  f->rope_c = arena_take(a, n * f->m->rope_dim / 2 * floats);
  f->rope_s = arena_take(a, n * f->m->rope_dim / 2 * floats);
  f->act = arena_take(a, act_most(f->m, f->max_batch));
  f->logits = arena_take(a, (uint64_t)f->max_all * f->vocab_stride * floats);
  f->partials = arena_take(a, f->n_partials * floats);
  f->rows = arena_take(a, n * sizeof *f->rows);
  f->blocks = arena_take(a, n * sizeof *f->blocks);
  f->keep = arena_take(a, f->max_all * sizeof *f->keep);
  for (uint32_t i = 0; i < f->n_workers; i++) place_worker(&f->workers[i], f->m, a);
}

/* ---- products ---- */

/* What one worker knows while it runs. */
struct run {
  struct forward *f;
  struct worker *w;
  uint32_t i, n_workers;
  struct act act; /* of the coming product */
};

static struct slice slice_of(const struct run *r, uint32_t n_items) { return team_slice(n_items, r->i, r->n_workers); }

/* Activations of n rows of x, for the products of `needs`. A single row each worker makes for
 * itself, which is cheaper than a barrier; several are shared out. norm: weights of an RMSNorm that
 * comes first, or null. */
static void make_act(struct run *r, const float *x, size_t stride, uint32_t n_cols, uint32_t n, const float *norm, uint32_t needs) {
  struct forward *f = r->f;
  const bool own = n == 1;
  KERNELS.act_place(&r->act, own ? r->w->act : f->act, n_cols, n, needs);
  const struct slice rows = own ? (struct slice){0, 1} : slice_of(r, n);
  if (norm) {
    float *y = own ? r->w->xn : f->y;
    for (uint32_t t = rows.from; t < rows.to; t++) KERNELS.rms_norm(x + t * stride, norm, y + t * stride, n_cols, f->m->norm_eps);
    x = y;
  }
  KERNELS.act_make(&r->act, x, stride, n_cols, rows.from, rows.to, needs, f->m->precision);
  if (!own) team_barrier();
}

/* This worker's rows of a matrix: whole groups of every packed layout. */
enum { ROW_UNIT = 16 };
static struct slice row_slice(const struct run *r, uint32_t n_rows) {
  const struct slice units = slice_of(r, (n_rows + ROW_UNIT - 1) / ROW_UNIT);
  return (struct slice){units.from * ROW_UNIT, LM_MIN(units.to * ROW_UNIT, n_rows)};
}

/* The given rows of y = W x, for n tokens. */
static void mat(struct run *r, const struct weight *w, struct slice rows, float *y, size_t stride, uint32_t n) {
  if (rows.from >= rows.to) return;
  const struct mat_kernels *k = w->kernels;
  const uint32_t from = rows.from / k->group_rows, to = (rows.to + k->group_rows - 1) / k->group_rows;
  k->mat(w->packed + from * packed_bytes(k, k->group_rows, w->n_cols), &r->act, y + rows.from, stride, to - from, w->n_cols, n,
         r->w->mat_scratch);
}

/* x += W act + bias */
static void mat_residual(struct run *r, const struct weight *w, const float *bias) {
  struct forward *f = r->f;
  const struct slice rows = row_slice(r, w->n_rows);
  mat(r, w, rows, f->y, f->d_stride, f->n);
  if (rows.from >= rows.to) return;
  for (uint32_t t = 0; t < f->n; t++) {
    float *x = f->x + (size_t)t * f->d_stride + rows.from;
    KERNELS.add(x, f->y + (size_t)t * f->d_stride + rows.from, rows.to - rows.from);
    if (bias) KERNELS.add(x, bias + rows.from, rows.to - rows.from);
  }
}

/* ---- steps ---- */

static void embed(struct run *r) {
  const struct forward *f = r->f;
  const struct model *m = f->m;
  const struct quant *q = &quants[m->embedding_quant];
  const uint32_t pairs = m->rope_dim / 2;
  const struct slice rows = slice_of(r, f->n);
  for (uint32_t t = rows.from; t < rows.to; t++) {
    float *x = f->x + (size_t)t * f->d_stride;
    const uint32_t token = (uint32_t)f->rows[t].token;
    if (!m->tied) q->to_float(m->embedding + (uint64_t)token * (m->d_model / q->items * q->bytes), x, m->d_model);
    else m->output.kernels->row_to_float(m->output.packed, token, m->d_model, x);
    for (uint32_t i = 0; i < pairs; i++) { /* in double: at position 100,000 a float angle is off by 5e-3 */
      double s, c;
      fmath_sincos(f->rows[t].pos * m->rope_freqs[i], &s, &c);
      f->rope_c[(size_t)t * pairs + i] = (float)(c * (double)m->rope_magnitude);
      f->rope_s[(size_t)t * pairs + i] = (float)(s * (double)m->rope_magnitude);
    }
  }
}

/* The rows of three matrices as one range of work. */
static void project_qkv(struct run *r, const struct layer *y) {
  struct forward *f = r->f;
  const uint32_t q = (uint32_t)align_up(y->wq.n_rows, ROW_UNIT), kv = (uint32_t)align_up(y->wk.n_rows, ROW_UNIT);
  const struct {
    const struct weight *w;
    float *to;
    size_t stride;
    uint32_t start;
  } parts[] = {{&y->wq, f->q, f->q_stride, 0}, {&y->wk, f->k, f->kv_stride, q}, {&y->wv, f->v, f->kv_stride, q + kv}};
  const struct slice mine = row_slice(r, q + 2 * kv);
  for (uint32_t i = 0; i < LM_COUNT(parts); i++) {
    const uint32_t start = parts[i].start, end = start + parts[i].w->n_rows;
    const uint32_t from = LM_MAX(mine.from, start), to = LM_MIN(mine.to, end);
    if (from < to) mat(r, parts[i].w, (struct slice){from - start, to - start}, parts[i].to, parts[i].stride, f->n);
  }
}

static void rotate(const struct forward *f, float *x, uint32_t row) {
  const struct model *m = f->m;
  const float *c = f->rope_c + (size_t)row * (m->rope_dim / 2), *s = f->rope_s + (size_t)row * (m->rope_dim / 2);
  if (m->arch->rope == ROPE_PAIRS) KERNELS.rope_pairs(x, c, s, 1, m->head_dim, m->rope_dim);
  else KERNELS.rope_halves(x, c, s, 1, m->head_dim, m->rope_dim);
}

/* Heads of all rows one after the other: biases, rotation, and keys and values into the cache. */
static void store_heads(struct run *r, const struct layer *y, uint32_t l) {
  const struct forward *f = r->f;
  const struct model *m = f->m;
  const uint32_t dim = m->head_dim, per_row = m->n_heads + m->n_kv_heads;
  const struct slice heads = slice_of(r, f->n * per_row);
  for (uint32_t i = heads.from; i < heads.to; i++) {
    const uint32_t t = i / per_row, h = i % per_row;
    if (h < m->n_heads) {
      float *q = f->q + (size_t)t * f->q_stride + h * dim;
      if (y->bq) KERNELS.add(q, y->bq + h * dim, dim);
      rotate(f, q, t);
      continue;
    }
    const uint32_t g = h - m->n_heads;
    const struct row *row = &f->rows[t];
    float *k = f->k + (size_t)t * f->kv_stride + g * dim, *v = f->v + (size_t)t * f->kv_stride + g * dim;
    if (y->bk) KERNELS.add(k, y->bk + g * dim, dim);
    if (y->bv) KERNELS.add(v, y->bv + g * dim, dim);
    rotate(f, k, t);
    const uint32_t chunk = row->pos / KV_CHUNK;
    const uint64_t at = row->pos % KV_CHUNK * f->kv->row_bytes;
    KERNELS.kv_store(f->kv->type, k, kv_rows(f->kv, row->seq, chunk, l, 0, g) + at, dim);
    KERNELS.kv_store(f->kv->type, v, kv_rows(f->kv, row->seq, chunk, l, 1, g) + at, dim);
  }
}

/* ---- attention ---- */

/* The queries of one block of rows that share a KV head (or a part of its group). */
struct task {
  const struct block *block;
  uint32_t kv_head, head, n_heads; /* first query head and how many */
  uint32_t n_vectors;              /* n_rows * n_heads: vector = row * n_heads + head */
};

static struct task task_of(const struct forward *f, uint32_t i) {
  const struct model *m = f->m;
  const uint32_t group = m->n_heads / m->n_kv_heads, split = i % f->n_splits;
  const uint32_t kv_head = i / f->n_splits % m->n_kv_heads;
  struct task t = {&f->blocks[i / f->n_splits / m->n_kv_heads], kv_head, kv_head * group + split * f->group_heads, 0, 0};
  t.n_heads = LM_MIN(f->group_heads, group - split * f->group_heads);
  t.n_vectors = t.block->n_rows * t.n_heads;
  return t;
}

static void gather_queries(struct run *r, const struct task *t) {
  const struct forward *f = r->f;
  const uint32_t n = t->n_heads * f->m->head_dim;
  for (uint32_t i = 0; i < t->block->n_rows; i++)
    copy_bytes(r->w->q + (size_t)i * n, f->q + (size_t)(t->block->row + i) * f->q_stride + t->head * f->m->head_dim, n * sizeof(float));
}

/* Attention of a task's queries to one chunk. */
static void attend_task_chunk(struct run *r, const struct task *t, uint32_t l, uint32_t chunk, float *o, float *max, float *sum) {
  const struct forward *f = r->f;
  const struct row *rows = f->rows + t->block->row;
  for (uint32_t i = 0; i < t->n_vectors; i++) {
    const int64_t seen = (int64_t)rows[i / t->n_heads].pos + 1 - (int64_t)chunk * KV_CHUNK;
    r->w->n_seen[i] = (uint32_t)LM_MIN(KV_CHUNK, LM_MAX(0, seen));
  }
  const struct attend a = {
      .q = r->w->q, .n_seen = r->w->n_seen, .n_vectors = t->n_vectors, .head_dim = f->m->head_dim,
      .kv_type = f->kv->type, .k = kv_rows(f->kv, rows->seq, chunk, l, 0, t->kv_head),
      .v = kv_rows(f->kv, rows->seq, chunk, l, 1, t->kv_head),
      .scale = (float)(1 / fmath_sqrt(f->m->head_dim)),
      .o = o, .max = max, .sum = sum, .scratch = r->w->attend_scratch};
  KERNELS.attend(&a);
}

static void finish_task(struct run *r, const struct task *t, const float *o, const float *sum) {
  const struct forward *f = r->f;
  const uint32_t n = t->n_heads, dim = f->m->head_dim;
  for (uint32_t i = 0; i < t->block->n_rows; i++)
    KERNELS.attend_finish(o + (size_t)i * n * dim, sum + i * n,
                          f->att + (size_t)(t->block->row + i) * f->q_stride + t->head * dim, n, dim);
}

static uint32_t chunks_of(const struct forward *f, const struct task *t) {
  return f->rows[t->block->row + t->block->n_rows - 1].pos / KV_CHUNK + 1;
}

/* Whole tasks, round robin: neighbours cost the same, later rows of a prompt more. */
static void attend_tasks(struct run *r, uint32_t l, uint32_t n_tasks) {
  const struct worker *w = r->w;
  for (uint32_t i = r->i; i < n_tasks; i += r->n_workers) {
    const struct task t = task_of(r->f, i);
    gather_queries(r, &t);
    attend_task_chunk(r, &t, l, 0, w->o, w->max, w->sum);
    for (uint32_t c = 1; c < chunks_of(r->f, &t); c++) {
      attend_task_chunk(r, &t, l, c, w->chunk_o, w->chunk_max, w->chunk_sum);
      KERNELS.attend_fold(w->o, w->max, w->sum, w->chunk_o, w->chunk_max, w->chunk_sum, t.n_vectors, r->f->m->head_dim);
    }
    finish_task(r, &t, w->o, w->sum);
  }
}

/* Few tasks over long contexts: each chunk of each task for itself, joined afterwards in order. */
static void attend_chunks(struct run *r, uint32_t l, uint32_t n_tasks, uint32_t slot) {
  const struct forward *f = r->f;
  const uint32_t dim = f->m->head_dim, n_chunks = f->n_chunks;
  const struct slice mine = slice_of(r, n_tasks * n_chunks);
  for (uint32_t i = mine.from; i < mine.to; i++) {
    const struct task t = task_of(f, i / n_chunks);
    if (i % n_chunks >= chunks_of(f, &t)) continue;
    float *o = f->partials + (size_t)i * slot * (dim + 2), *max = o + (size_t)slot * dim, *sum = max + slot;
    gather_queries(r, &t);
    attend_task_chunk(r, &t, l, i % n_chunks, o, max, sum);
  }
  team_barrier();
  for (uint32_t i = r->i; i < n_tasks; i += r->n_workers) {
    const struct task t = task_of(f, i);
    float *first = f->partials + (size_t)i * n_chunks * slot * (dim + 2);
    for (uint32_t c = 1; c < chunks_of(f, &t); c++) {
      float *o = first + (size_t)c * slot * (dim + 2), *max = o + (size_t)slot * dim;
      KERNELS.attend_fold(first, first + (size_t)slot * dim, first + (size_t)slot * dim + slot, o, max, max + slot, t.n_vectors, dim);
    }
    finish_task(r, &t, first, first + (size_t)slot * dim + slot);
  }
}

/* Either way gives the same bits. */
static void attention(struct run *r, uint32_t l) {
  const struct forward *f = r->f;
  const uint32_t n_tasks = f->n_blocks * f->m->n_kv_heads * f->n_splits;
  uint32_t slot = 0; /* vectors of the largest task, in fours: kernels store whole vectors */
  for (uint32_t i = 0; i < f->n_blocks; i++) slot = LM_MAX(slot, f->blocks[i].n_rows * f->group_heads);
  slot = (uint32_t)align_up(slot, 4);
  const uint64_t needed = (uint64_t)n_tasks * f->n_chunks * slot * (f->m->head_dim + 2);
  if (r->n_workers > 1 && f->n_chunks > 1 && n_tasks < 4 * r->n_workers && needed <= f->n_partials)
    attend_chunks(r, l, n_tasks, slot);
  else attend_tasks(r, l, n_tasks);
}

/* ---- the pass ---- */

static void feed_forward(struct run *r, const struct layer *y) {
  struct forward *f = r->f;
  make_act(r, f->x, f->d_stride, f->m->d_model, f->n, y->ffn_norm, y->w_gate.kernels->needs | y->w_up.kernels->needs);
  const struct slice rows = row_slice(r, f->m->d_ff);
  mat(r, &y->w_gate, rows, f->gate, f->ff_stride, f->n);
  mat(r, &y->w_up, rows, f->up, f->ff_stride, f->n);
  for (uint32_t t = 0; t < f->n && rows.from < rows.to; t++) {
    float *h = f->gate + (size_t)t * f->ff_stride + rows.from;
    KERNELS.silu_mul(h, f->up + (size_t)t * f->ff_stride + rows.from, h, rows.to - rows.from);
  }
  team_barrier();
  make_act(r, f->gate, f->ff_stride, f->m->d_ff, f->n, 0, y->w_down.kernels->needs);
  mat_residual(r, &y->w_down, 0);
  team_barrier();
}

/* Logits of the kept rows, moved to the front of x first. */
static void output(struct run *r) {
  struct forward *f = r->f;
  const struct model *m = f->m;
  if (r->i == 0) /* keep is ascending, so no row is overwritten before it is moved */
    for (uint32_t i = 0; i < f->n_keep; i++)
      if (f->keep[i] != i) copy_bytes(f->x + (size_t)i * f->d_stride, f->x + (size_t)f->keep[i] * f->d_stride, m->d_model * sizeof(float));
  team_barrier();
  make_act(r, f->x, f->d_stride, m->d_model, f->n_keep, m->output_norm, m->output.kernels->needs);
  mat(r, &m->output, row_slice(r, m->n_vocab), f->logits, f->vocab_stride, f->n_keep);
}

static void run_rows(void *data, uint32_t i, uint32_t n_workers) {
  struct forward *f = data;
  const struct model *m = f->m;
  struct run r = {.f = f, .w = &f->workers[i], .i = i, .n_workers = n_workers};
  embed(&r);
  team_barrier();
  for (uint32_t l = 0; l < m->n_layers; l++) {
    const struct layer *y = &m->layers[l];
    make_act(&r, f->x, f->d_stride, m->d_model, f->n, y->attn_norm, y->wq.kernels->needs | y->wk.kernels->needs | y->wv.kernels->needs);
    project_qkv(&r, y);
    team_barrier();
    store_heads(&r, y, l);
    team_barrier();
    attention(&r, l);
    team_barrier();
    make_act(&r, f->att, f->q_stride, y->wo.n_cols, f->n, 0, y->wo.kernels->needs);
    mat_residual(&r, &y->wo, y->bo);
    team_barrier();
    feed_forward(&r, y);
  }
  if (f->n_keep) output(&r);
}

/* Cuts the batch where the sequence changes, and every so many rows. */
static void make_blocks(struct forward *f) {
  const uint32_t most = ATTEND_VECTORS / f->group_heads;
  f->n_blocks = f->n_chunks = 0;
  for (uint32_t t = 0; t < f->n; t++) {
    struct block *last = f->n_blocks ? &f->blocks[f->n_blocks - 1] : 0;
    if (last && f->rows[last->row].seq == f->rows[t].seq && last->n_rows < most) last->n_rows++;
    else f->blocks[f->n_blocks++] = (struct block){t, 1};
    f->n_chunks = LM_MAX(f->n_chunks, f->rows[t].pos / KV_CHUNK + 1);
  }
}

void forward_run(struct forward *f) {
  make_blocks(f);
  team_run(run_rows, f);
}
