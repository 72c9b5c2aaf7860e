/* forward.c: one function for prompt and decode, run by every worker over its own slices.
 *
 *   x = embedding[token]
 *   per layer:  x += Wo attention(rope(Wq n), rope(Wk n), Wv n),  n = norm(x)
 *               x += Wdown (act(Wgate n) * (Wup n)),              n = norm(x)
 *   logits = Woutput norm(x)
 *
 * with the steps besides (biases, norms of heads and of outputs, factors, windows, soft caps, experts)
 * that a model's weights and keys ask for. Between two barriers nothing returns, breaks or branches on
 * what only one worker knows. A row of a matrix is summed by one worker, and attention is cut at
 * absolute positions and joined in their order: the number of workers never changes a bit. */
#include "fmath.h"
#include "forward_parts.h"

/* ---- products ---- */

void forward_norm(const struct model *m, const struct norm *norm, const float *x, float *y) {
  if (m->layer_norm) KERNELS.layer_norm(x, norm->w, norm->b, y, m->d_model, m->norm_eps);
  else KERNELS.rms_norm(x, norm->w, y, m->d_model, m->norm_eps);
}

/* Activations of n rows of x, for the products of `needs`. A single row each worker makes for
 * itself, which is cheaper than a barrier; several are shared out. norm: comes first, where it has
 * weights. */
static void make_act(struct run *r, const float *x, size_t stride, uint32_t n_cols, uint32_t n, const struct norm *norm,
                     uint32_t needs) {
  struct forward *f = r->f;
  const bool own = n == 1;
  KERNELS.act_place(&r->act, own ? r->w->act : f->act, n_cols, n, needs);
  const struct slice rows = own ? (struct slice){0, 1} : slice_of(r, n);
  if (norm && norm->w) {
    float *y = own ? r->w->xn : f->y;
    for (uint32_t t = rows.from; t < rows.to; t++) forward_norm(f->m, norm, x + t * stride, y + t * stride);
    x = y;
  }
  KERNELS.act_make(&r->act, x, stride, n_cols, rows.from, rows.to, needs, f->m->precision);
  if (!own) team_barrier();
}

void forward_mat(const struct run *r, const struct weight *w, uint32_t matrix, const struct act *act, struct slice rows,
                 float *y, size_t stride, uint32_t n) {
  const struct mat_kernels *k = w->kernels;
  const uint32_t from = rows.from / k->group_rows, to = (rows.to + k->group_rows - 1) / k->group_rows;
  const uint8_t *packed = w->packed + matrix * packed_bytes(k, w->n_rows, w->n_cols);
  k->mat(packed + from * packed_bytes(k, k->group_rows, w->n_cols), act, y + rows.from, stride, to - from, w->n_cols, n,
         r->w->mat_scratch);
}

void forward_residual(const struct run *r, struct slice cols, const float *bias, const struct norm *post) {
  const struct forward *f = r->f;
  const float scale = f->m->residual_scale;
  const uint32_t n = cols.to - cols.from;
  for (uint32_t t = 0; t < f->n; t++) {
    float *x = f->x + (size_t)t * f->d_stride + cols.from, *y = f->y + (size_t)t * f->d_stride + cols.from;
    if (bias) KERNELS.add(y, bias + cols.from, n);
    if (post->w) continue;
    if (scale == 1) KERNELS.add(x, y, n);
    else KERNELS.add_scaled(x, y, scale, n);
  }
}

void forward_post_norm(const struct run *r, const struct norm *post) {
  const struct forward *f = r->f;
  if (!post->w) return;
  team_barrier();
  const struct slice rows = slice_of(r, f->n);
  for (uint32_t t = rows.from; t < rows.to; t++) {
    float *y = f->y + (size_t)t * f->d_stride;
    forward_norm(f->m, post, y, y);
    KERNELS.add_scaled(f->x + (size_t)t * f->d_stride, y, f->m->residual_scale, f->m->d_model);
  }
}

/* x += W act + bias */
static void mat_residual(const struct run *r, const struct weight *w, const float *bias, const struct norm *post) {
  for (struct row_share s = row_share(r, w->n_rows); next_rows(&s);) {
    forward_mat(r, w, 0, &r->act, s.rows, r->f->y, r->f->d_stride, r->f->n);
    forward_residual(r, s.rows, bias, post);
  }
  forward_post_norm(r, post);
}

/* ---- before the layers ---- */

/* Sines and cosines of row t's position. In double: at position 100,000 a float angle is off by 5e-3. */
static void place_angles(const struct forward *f, uint32_t t) {
  const uint32_t pairs = f->m->rope_dim / 2;
  for (uint32_t j = 0; j < f->m->n_ropes; j++) {
    const struct rope *rope = &f->m->ropes[j];
    const size_t at = ((size_t)j * f->max_batch + t) * pairs;
    for (uint32_t i = 0; i < pairs; i++) {
      double s, c;
      fmath_sincos(f->rows[t].pos * rope->freqs[i], &s, &c);
      f->rope_c[at + i] = (float)(c * (double)rope->magnitude);
      f->rope_s[at + i] = (float)(s * (double)rope->magnitude);
    }
  }
}

/* Row i of a table as it stands in the file. */
static void look_up(const uint8_t *rows, uint32_t quant, uint32_t i, uint32_t n_cols, float *out) {
  const struct quant *q = &quants[quant];
  q->to_float(rows + (uint64_t)i * (n_cols / q->items * q->bytes), out, n_cols);
}

static void embed(const struct run *r) {
  const struct forward *f = r->f;
  const struct model *m = f->m;
  const struct slice rows = slice_of(r, f->n);
  for (uint32_t t = rows.from; t < rows.to; t++) {
    float *x = f->x + (size_t)t * f->d_stride, *y = f->y + (size_t)t * f->d_stride;
    const uint32_t token = (uint32_t)f->rows[t].token;
    if (m->tied) m->output.kernels->row_to_float(m->output.packed, token, m->d_model, x);
    else look_up(m->embedding, m->embedding_quant, token, m->d_model, x);
    if (m->embed_scale != 1) KERNELS.scale(x, m->embed_scale, m->d_model);
    if (m->positions) {
      look_up(m->positions, m->positions_quant, f->rows[t].pos, m->d_model, y);
      KERNELS.add(x, y, m->d_model);
    }
    place_angles(f, t);
  }
}

/* ---- heads ---- */

/* The rows of three matrices as one range of work. */
static void project_qkv(const struct run *r, const struct layer *y) {
  struct forward *f = r->f;
  const uint32_t q = (uint32_t)align_up(y->wq.n_rows, ROW_UNIT), kv = (uint32_t)align_up(y->wk.n_rows, ROW_UNIT);
  const struct {
    const struct weight *w;
    float *to;
    size_t stride;
    uint32_t start;
  } parts[] = {{&y->wq, f->q, f->q_stride, 0}, {&y->wk, f->k, f->kv_stride, q}, {&y->wv, f->v, f->kv_stride, q + kv}};
  for (struct row_share s = row_share(r, q + 2 * kv); next_rows(&s);)
    for (uint32_t i = 0; i < LM_COUNT(parts); i++) {
      const uint32_t start = parts[i].start, end = start + parts[i].w->n_rows;
      const uint32_t from = LM_MAX(s.rows.from, start), to = LM_MIN(s.rows.to, end);
      if (from < to)
        forward_mat(r, parts[i].w, 0, &r->act, (struct slice){from - start, to - start}, parts[i].to, parts[i].stride,
                    f->n);
    }
}

static void rotate(const struct forward *f, const struct layer *y, float *x, uint32_t row) {
  const struct model *m = f->m;
  if (!y->has_rope) return;
  const size_t at = ((size_t)(y->is_local ? f->max_batch : 0) + row) * (m->rope_dim / 2);
  if (m->arch->rope == ROPE_PAIRS) KERNELS.rope_pairs(x, f->rope_c + at, f->rope_s + at, 1, m->head_dim, m->rope_dim);
  else KERNELS.rope_halves(x, f->rope_c + at, f->rope_s + at, 1, m->head_dim, m->rope_dim);
}

/* Bias, norm and rotation of one head of queries or keys. */
static void finish_head(const struct forward *f, const struct layer *y, float *x, const float *bias, const float *norm,
                        uint32_t row) {
  const uint32_t dim = f->m->head_dim;
  if (bias) KERNELS.add(x, bias, dim);
  if (norm && !f->m->norm_whole_rows) KERNELS.rms_norm(x, norm, x, dim, f->m->norm_eps);
  rotate(f, y, x, row);
}

/* Heads of all rows one after the other; keys and values go into the cache. */
static void store_heads(const struct run *r, const struct layer *y, uint32_t l) {
  const struct forward *f = r->f;
  const struct model *m = f->m;
  const uint32_t dim = m->head_dim, per_row = m->n_heads + m->n_kv_heads;
  const struct slice heads = slice_of(r, f->n * per_row);
  for (uint32_t i = heads.from; i < heads.to; i++) {
    const uint32_t t = i / per_row, h = i % per_row;
    if (h < m->n_heads) {
      finish_head(f, y, f->q + (size_t)t * f->q_stride + h * dim, y->bq ? y->bq + h * dim : 0, y->q_norm, t);
      continue;
    }
    const uint32_t g = h - m->n_heads;
    const struct row *row = &f->rows[t];
    float *k = f->k + (size_t)t * f->kv_stride + g * dim, *v = f->v + (size_t)t * f->kv_stride + g * dim;
    finish_head(f, y, k, y->bk ? y->bk + g * dim : 0, y->k_norm, t);
    if (y->bv) KERNELS.add(v, y->bv + g * dim, dim);
    const uint32_t chunk = row->pos / KV_CHUNK, at = row->pos % KV_CHUNK;
    KERNELS.kv_store_key(f->kv->type, k, kv_rows(f->kv, row->seq, chunk, l, 0, g), at, dim);
    KERNELS.kv_store_value(f->kv->type, v, kv_rows(f->kv, row->seq, chunk, l, 1, g), at, dim);
  }
}

/* Norms of queries and keys over all heads at once. */
static void norm_whole_rows(const struct run *r, const struct layer *y) {
  const struct forward *f = r->f;
  const struct slice rows = slice_of(r, f->n);
  for (uint32_t t = rows.from; t < rows.to; t++) {
    float *q = f->q + (size_t)t * f->q_stride, *k = f->k + (size_t)t * f->kv_stride;
    KERNELS.rms_norm(q, y->q_norm, q, y->wq.n_rows, f->m->norm_eps);
    KERNELS.rms_norm(k, y->k_norm, k, y->wk.n_rows, f->m->norm_eps);
  }
  team_barrier();
}

/* ---- feed-forward ---- */

void forward_hidden(const struct run *r, const struct layer *y, uint32_t expert, const struct act *act,
                    struct slice cols, uint32_t first, uint32_t n_rows) {
  const struct forward *f = r->f;
  const bool gated = y->w_gate.kernels != 0;
  float *gate = f->gate + (size_t)first * f->ff_stride, *up = f->up + (size_t)first * f->ff_stride;
  if (gated) forward_mat(r, &y->w_gate, expert, act, cols, gate, f->ff_stride, n_rows);
  forward_mat(r, &y->w_up, expert, act, cols, up, f->ff_stride, n_rows);
  for (uint32_t t = 0; t < n_rows; t++) {
    float *h = gate + (size_t)t * f->ff_stride + cols.from, *u = up + (size_t)t * f->ff_stride + cols.from;
    const uint32_t n = cols.to - cols.from;
    if (y->b_gate) KERNELS.add(h, y->b_gate + cols.from, n);
    if (y->b_up) KERNELS.add(u, y->b_up + cols.from, n);
    KERNELS.activate(f->m->arch->act, gated ? h : u, gated ? u : 0, h, n);
  }
}

static void feed_forward(struct run *r, const struct layer *y) {
  const struct forward *f = r->f;
  const struct model *m = f->m;
  make_act(r, y->is_parallel ? f->side : f->x, f->d_stride, m->d_model, f->n, &y->ffn_norm, ffn_needs(y));
  for (struct row_share s = row_share(r, m->d_ff); next_rows(&s);) forward_hidden(r, y, 0, &r->act, s.rows, 0, f->n);
  team_barrier();
  make_act(r, f->gate, f->ff_stride, m->d_ff, f->n, 0, weight_needs(&y->w_down));
  mat_residual(r, &y->w_down, y->b_down, &y->ffn_post_norm);
  team_barrier();
}

/* Keeps the normed input of a feed-forward part that stands beside attention, before x changes. */
static void keep_side_input(const struct run *r, const struct layer *y) {
  const struct forward *f = r->f;
  const struct slice rows = slice_of(r, f->n);
  for (uint32_t t = rows.from; t < rows.to; t++)
    forward_norm(f->m, &y->attn_norm, f->x + (size_t)t * f->d_stride, f->side + (size_t)t * f->d_stride);
}

/* ---- the pass ---- */

/* Behind the last layer's attention only rows count whose logits are wanted: they move to the front. */
static void drop_rows(const struct run *r, const struct layer *y) {
  struct forward *f = r->f;
  const size_t d = f->d_stride, q = f->q_stride, bytes = sizeof(float);
  for (uint32_t i = 0; i < f->n_keep && r->i == 0; i++) { /* keep ascends: no row is overwritten before it has moved */
    const uint32_t from = f->keep[i];
    if (from == i) continue;
    copy_bytes(f->x + i * d, f->x + from * d, d * bytes);
    copy_bytes(f->att + i * q, f->att + from * q, q * bytes);
    if (y->is_parallel) copy_bytes(f->side + i * d, f->side + from * d, d * bytes);
  }
  if (r->i == 0) f->n = f->n_keep;
  team_barrier();
}

/* Logits of the kept rows. */
static void output(struct run *r) {
  const struct forward *f = r->f;
  const struct model *m = f->m;
  make_act(r, f->x, f->d_stride, m->d_model, f->n_keep, &m->output_norm, m->output.kernels->needs);
  for (struct row_share s = row_share(r, m->n_vocab); next_rows(&s);) {
    const uint32_t n = s.rows.to - s.rows.from;
    forward_mat(r, &m->output, 0, &r->act, s.rows, f->logits, f->vocab_stride, f->n_keep);
    for (uint32_t t = 0; t < f->n_keep; t++) {
      float *logits = f->logits + (size_t)t * f->vocab_stride + s.rows.from;
      if (m->logit_scale != 1) KERNELS.scale(logits, m->logit_scale, n);
      if (m->logit_soft_cap != 0) KERNELS.soft_cap(logits, m->logit_soft_cap, n);
    }
  }
}

static void run_rows(void *data, uint32_t i, uint32_t n_workers) {
  struct forward *f = data;
  const struct model *m = f->m;
  struct run r = {.f = f, .w = &f->workers[i], .i = i, .n_workers = n_workers};
  embed(&r);
  team_barrier();
  for (uint32_t l = 0; l < m->n_layers; l++) {
    const struct layer *y = &m->layers[l];
    if (y->is_parallel) keep_side_input(&r, y);
    make_act(&r, f->x, f->d_stride, m->d_model, f->n, y->attn_norm_2.w ? &y->attn_norm_2 : &y->attn_norm, qkv_needs(y));
    project_qkv(&r, y);
    team_barrier();
    if (y->q_norm && m->norm_whole_rows) norm_whole_rows(&r, y);
    store_heads(&r, y, l);
    team_barrier();
    const bool last = l + 1 == m->n_layers;
    if (last && !f->n_keep) return; /* the cache has all it needs */
    attention(&r, l);
    team_barrier();
    if (last) drop_rows(&r, y);
    make_act(&r, f->att, f->q_stride, y->wo.n_cols, f->n, 0, weight_needs(&y->wo));
    mat_residual(&r, &y->wo, y->bo, &y->attn_post_norm);
    team_barrier();
    if (y->router.kernels) feed_experts(&r, y);
    else feed_forward(&r, y);
  }
  output(&r);
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
