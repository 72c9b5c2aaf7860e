/* model_tensors.c: every tensor of the file finds its place in the model, by a table. */
#include "model_parts.h"

/* Row counts and lengths are named, so that a table can state a tensor's shape. */
enum size {
  NOTHING, ONE, D_MODEL, D_FF, N_VOCAB, N_POSITIONS, N_EXPERTS, Q_NORM, K_NORM, Q_ROWS, KV_ROWS, QKV_ROWS, K_START,
  V_START, DOUBLE_FF, ROPE_PAIR_COUNT, N_SIZES
};
enum need { REQUIRED, OPTIONAL };

/* One tensor, or some rows of a fused one: those from `start` on. */
struct tensor_row {
  const char *name;
  enum part_kind kind;
  enum need need;
  enum size n_rows, n_cols;
  size_t field; /* of struct layer or struct model: a struct weight, or a pointer */
  const char *fused;
  enum size fused_rows, start; /* rows of the fused tensor (items, of a vector) */
  enum size n_matrices;
};

#define WEIGHT(name, need, rows, cols, field) \
  {name, PART_MATRIX, need, rows, cols, offsetof(struct layer, field), 0, 0, 0, ONE}
#define FUSED(name, need, rows, cols, field, fused, fused_rows, start) \
  {name, PART_MATRIX, need, rows, cols, offsetof(struct layer, field), fused, fused_rows, start, ONE}
#define EXPERTS(name, rows, cols, field) \
  {name, PART_MATRIX, OPTIONAL, rows, cols, offsetof(struct layer, field), 0, 0, 0, N_EXPERTS}
#define VECTOR(name, need, cols, field) \
  {name, PART_VECTOR, need, ONE, cols, offsetof(struct layer, field), 0, 0, 0, ONE}
#define FUSED_VECTOR(name, cols, field, fused, fused_cols, start) \
  {name, PART_VECTOR, OPTIONAL, ONE, cols, offsetof(struct layer, field), fused, fused_cols, start, ONE}

/* blk.N.NAME, in order of use; a fused tensor's rows stand together. */
static const struct tensor_row layer_tensors[] = {
    VECTOR("attn_norm.weight", OPTIONAL, D_MODEL, attn_norm.w),
    VECTOR("attn_norm.bias", OPTIONAL, D_MODEL, attn_norm.b),
    VECTOR("attn_norm_2.weight", OPTIONAL, D_MODEL, attn_norm_2.w),
    VECTOR("attn_norm_2.bias", OPTIONAL, D_MODEL, attn_norm_2.b),
    FUSED("attn_q.weight", REQUIRED, Q_ROWS, D_MODEL, wq, "attn_qkv.weight", QKV_ROWS, NOTHING),
    FUSED("attn_k.weight", REQUIRED, KV_ROWS, D_MODEL, wk, "attn_qkv.weight", QKV_ROWS, K_START),
    FUSED("attn_v.weight", REQUIRED, KV_ROWS, D_MODEL, wv, "attn_qkv.weight", QKV_ROWS, V_START),
    FUSED_VECTOR("attn_q.bias", Q_ROWS, bq, "attn_qkv.bias", QKV_ROWS, NOTHING),
    FUSED_VECTOR("attn_k.bias", KV_ROWS, bk, "attn_qkv.bias", QKV_ROWS, K_START),
    FUSED_VECTOR("attn_v.bias", KV_ROWS, bv, "attn_qkv.bias", QKV_ROWS, V_START),
    VECTOR("attn_q_norm.weight", OPTIONAL, Q_NORM, q_norm),
    VECTOR("attn_k_norm.weight", OPTIONAL, K_NORM, k_norm),
    WEIGHT("attn_output.weight", REQUIRED, D_MODEL, Q_ROWS, wo),
    VECTOR("attn_output.bias", OPTIONAL, D_MODEL, bo),
    VECTOR("post_attention_norm.weight", OPTIONAL, D_MODEL, attn_post_norm.w),
    VECTOR("ffn_norm.weight", OPTIONAL, D_MODEL, ffn_norm.w),
    VECTOR("ffn_norm.bias", OPTIONAL, D_MODEL, ffn_norm.b),
    WEIGHT("ffn_gate_inp.weight", OPTIONAL, N_EXPERTS, D_MODEL, router),
    FUSED("ffn_gate.weight", OPTIONAL, D_FF, D_MODEL, w_gate, "ffn_up.weight", DOUBLE_FF, NOTHING),
    FUSED("ffn_up.weight", OPTIONAL, D_FF, D_MODEL, w_up, "ffn_up.weight", DOUBLE_FF, D_FF),
    EXPERTS("ffn_gate_exps.weight", D_FF, D_MODEL, w_gate),
    EXPERTS("ffn_up_exps.weight", D_FF, D_MODEL, w_up),
    VECTOR("ffn_gate.bias", OPTIONAL, D_FF, b_gate),
    VECTOR("ffn_up.bias", OPTIONAL, D_FF, b_up),
    WEIGHT("ffn_down.weight", OPTIONAL, D_MODEL, D_FF, w_down),
    EXPERTS("ffn_down_exps.weight", D_MODEL, D_FF, w_down),
    VECTOR("ffn_down.bias", OPTIONAL, D_MODEL, b_down),
    VECTOR("post_ffw_norm.weight", OPTIONAL, D_MODEL, ffn_post_norm.w),
};

#define OF_MODEL(name, kind, need, rows, cols, field) \
  {name, kind, need, rows, cols, offsetof(struct model, field), 0, 0, 0, ONE}
static const struct tensor_row embedding_tensor =
    OF_MODEL("token_embd.weight", PART_ROWS, REQUIRED, N_VOCAB, D_MODEL, embedding);
static const struct tensor_row tied_tensor =
    OF_MODEL("token_embd.weight", PART_MATRIX, REQUIRED, N_VOCAB, D_MODEL, output);
static const struct tensor_row positions_tensor =
    OF_MODEL("position_embd.weight", PART_ROWS, OPTIONAL, N_POSITIONS, D_MODEL, positions);
static const struct tensor_row rope_tensors[] = {
    OF_MODEL("rope_freqs.weight", PART_VECTOR, OPTIONAL, ONE, ROPE_PAIR_COUNT, rope_factors),
    OF_MODEL("rope_factors_short.weight", PART_VECTOR, OPTIONAL, ONE, ROPE_PAIR_COUNT, rope_factors),
    OF_MODEL("rope_factors_long.weight", PART_VECTOR, OPTIONAL, ONE, ROPE_PAIR_COUNT, rope_factors),
};
static const struct tensor_row output_tensors[] = {
    OF_MODEL("output_norm.weight", PART_VECTOR, REQUIRED, ONE, D_MODEL, output_norm.w),
    OF_MODEL("output_norm.bias", PART_VECTOR, OPTIONAL, ONE, D_MODEL, output_norm.b),
    OF_MODEL("output.weight", PART_MATRIX, OPTIONAL, N_VOCAB, D_MODEL, output),
};

/* Tensors that some files carry and nothing needs: frequencies that the keys give as well. */
static const char *const harmless[] = {"rotary_emb.inv_freq", "attn_rot_embd.weight", "rope.freqs"};

struct binder {
  struct model *m;
  const struct gguf *g;
  uint64_t sizes[N_SIZES];
  /* [n_tensors] the first of the parts that a tensor became, and how many follow each other */
  struct bound {
    uint32_t part, n_parts;
  } *bound;
};

static bool is_float(uint32_t quant) { return quant == QUANT_F32 || quant == QUANT_F16 || quant == QUANT_BF16; }

static int bind_matrix(struct model *m, struct part *part, struct weight *w, const char *name) {
  *w = (struct weight){KERNELS.mat(part->quant, m->precision), part->quant, (uint32_t)part->n_rows,
                       (uint32_t)part->n_cols, 0};
  if (!w->kernels)
    LM_FAIL(UNSUPPORTED, "tensor %s is of type %s, for which there is no kernel", name, quants[part->quant].name);
  part->kernels = w->kernels;
  part->to = &w->packed;
  /* of several experts only those in use are read for a token */
  const uint64_t used = part->n_matrices > 1 ? m->n_experts_used : 1;
  m->token_bytes += used * packed_bytes(w->kernels, part->n_rows, part->n_cols);
  m->token_macs += used * part->n_rows * part->n_cols;
  return LM_OK;
}

/* The tensor that holds a row of the table: its own, or a fused one. Null: neither is there. */
static const struct gguf_tensor *find_tensor(const struct binder *b, const char *prefix, const struct tensor_row *row,
                                             char *name, uint32_t size, bool *is_fused) {
  *is_fused = false;
  if (row->fused) {
    text_format(name, size, "%s%s", prefix, row->fused);
    const struct gguf_tensor *t = gguf_find_tensor(b->g, text_of(name));
    const uint32_t dim = row->kind == PART_VECTOR ? 0 : 1;
    *is_fused = t && t->dims[dim] == b->sizes[row->fused_rows];
    if (*is_fused) return t;
  }
  text_format(name, size, "%s%s", prefix, row->name);
  return gguf_find_tensor(b->g, text_of(name));
}

/* Binds one row of a table; absent and optional: leaves the field null. */
static int bind_row(struct binder *b, const char *prefix, const struct tensor_row *row, void *owner) {
  struct model *m = b->m;
  char name[96];
  bool fused;
  const struct gguf_tensor *t = find_tensor(b, prefix, row, name, sizeof name, &fused);
  if (!t && row->need == OPTIONAL) return LM_OK;
  if (!t) LM_FAIL(FORMAT, "tensor %s is missing", name);
  const uint64_t n_rows = b->sizes[row->n_rows], n_cols = b->sizes[row->n_cols], n_matrices = b->sizes[row->n_matrices];
  const uint64_t all_cols = fused && row->kind == PART_VECTOR ? b->sizes[row->fused_rows] : n_cols;
  const uint64_t all_rows = fused && row->kind != PART_VECTOR ? b->sizes[row->fused_rows] : n_rows;
  if (t->dims[0] != all_cols || t->dims[1] != all_rows || t->dims[2] != n_matrices || t->dims[3] != 1)
    LM_FAIL(FORMAT, "tensor %s is %u x %u x %u x %u, but the model's keys say %u x %u x %u", name, t->dims[0],
            t->dims[1], t->dims[2], t->dims[3], all_cols, all_rows, n_matrices);
  const struct quant *q = &quants[t->quant];
  struct bound *bound = &b->bound[t - b->g->tensors];
  if (!bound->n_parts) bound->part = m->n_parts;
  bound->n_parts++;
  if (m->n_parts == m->max_parts) LM_FAIL(FORMAT, "tensor %s is one too many", name);
  struct part *part = &m->parts[m->n_parts++];
  const uint64_t row_bytes = n_cols / q->items * q->bytes;
  const uint64_t start = !fused                     ? 0
                         : row->kind == PART_VECTOR ? b->sizes[row->start] * q->bytes
                                                    : b->sizes[row->start] * row_bytes;
  *part = (struct part){t->offset + start, row_bytes, n_rows, n_cols, n_matrices, row->kind, t->quant, 0,
                        (uint8_t **)(void *)((uint8_t *)owner + row->field)};
  *part->to = (uint8_t *)part; /* not null: it is there; its address comes with model_place */
  if (row->kind == PART_MATRIX) return bind_matrix(m, part, (struct weight *)(void *)part->to, name);
  if (row->kind == PART_ROWS && !q->to_float)
    LM_FAIL(UNSUPPORTED, "tensor %s is of type %s, which is not read", name, q->name);
  if (row->kind == PART_VECTOR && !is_float(t->quant))
    LM_FAIL(UNSUPPORTED, "tensor %s is of type %s; a vector must be F32, F16 or BF16", name, q->name);
  return LM_OK;
}

/* A tensor that nothing bound would change the maths unseen. */
static int check_all_bound(const struct binder *b) {
  for (uint64_t i = 0; i < b->g->n_tensors; i++) {
    const struct gguf_tensor *t = &b->g->tensors[i];
    bool known = b->bound[i].n_parts;
    for (uint32_t j = 0; j < LM_COUNT(harmless) && !known; j++) {
      const struct text end = text_of(harmless[j]);
      known = t->name.n >= end.n && !__builtin_memcmp(t->name.bytes + t->name.n - end.n, end.bytes, (size_t)end.n);
    }
    if (!known)
      LM_FAIL(UNSUPPORTED, "tensor %t is not part of architecture %s as this engine knows it", &t->name,
              b->m->arch->name);
  }
  return LM_OK;
}

/* The embedding first: its row count is the vocabulary's size. */
static int bind_embedding(struct binder *b) {
  struct model *m = b->m;
  const char *name = embedding_tensor.name;
  const struct gguf_tensor *t = gguf_find_tensor(b->g, text_of(name));
  if (!t) LM_FAIL(FORMAT, "tensor %s is missing", name);
  if (t->dims[1] > 1 << 24) LM_FAIL(FORMAT, "tensor %s has %u rows, too many for a vocabulary", name, t->dims[1]);
  m->n_vocab = (uint32_t)t->dims[1];
  b->sizes[N_VOCAB] = m->n_vocab;
  const struct gguf_key *tokens = gguf_find(b->g, text_of("tokenizer.ggml.tokens"));
  if (tokens && (tokens->type != GGUF_ARRAY || tokens->element != GGUF_STRING))
    LM_FAIL(FORMAT, "key tokenizer.ggml.tokens is no array of strings");
  if (tokens && tokens->count != m->n_vocab)
    LM_FAIL(FORMAT, "key tokenizer.ggml.tokens has %u pieces, but %s has %u rows", tokens->count, name,
            (uint64_t)m->n_vocab);
  m->tied = !gguf_find_tensor(b->g, text_of("output.weight"));
  m->embedding_quant = t->quant;
  return bind_row(b, "", m->tied ? &tied_tensor : &embedding_tensor, m);
}

/* Learned positions; they bound the context. */
static int bind_positions(struct binder *b) {
  struct model *m = b->m;
  const struct gguf_tensor *t = gguf_find_tensor(b->g, text_of(positions_tensor.name));
  if (!t) return LM_OK;
  b->sizes[N_POSITIONS] = t->dims[1];
  m->positions_quant = t->quant;
  m->n_positions = (uint32_t)LM_MIN(t->dims[1], UINT32_MAX);
  if (m->n_ctx > m->n_positions)
    LM_FAIL(ARGUMENT, "a context of %u tokens, but tensor %s has %u positions", (uint64_t)m->n_ctx,
            positions_tensor.name, t->dims[1]);
  return bind_row(b, "", &positions_tensor, m);
}

/* Divisors of the frequencies: one set for all contexts, or one up to the original length and one beyond;
 * a set that is not used counts as known. */
static int bind_rope(struct binder *b) {
  struct model *m = b->m;
  if (!m->n_ropes) return LM_OK;
  const bool is_long = m->n_ctx > m->scaling.original_context, given = overridden(m, OVERRIDE_ROPE_SCALING);
  for (uint32_t i = 0; i < LM_COUNT(rope_tensors); i++) {
    const struct gguf_tensor *t = gguf_find_tensor(b->g, text_of(rope_tensors[i].name));
    const bool unused = given || (i && is_long != (i == 2));
    if (!t) continue;
    if (unused) {
      b->bound[t - b->g->tensors].n_parts = UINT32_MAX;
      continue;
    }
    LM_TRY(bind_row(b, "", &rope_tensors[i], m));
    m->rope_factors_name = rope_tensors[i].name;
  }
  if (m->scaling.kind == SCALE_LONGROPE && !m->rope_factors)
    LM_FAIL(FORMAT, "tensor %s is missing: the rope scaling is longrope", rope_tensors[is_long ? 2 : 1].name);
  return LM_OK;
}

static bool complete_norm(const struct norm *n) { return n->w || !n->b; }

/* Parts that must come together. */
static int check_layer(const struct model *m, const struct layer *y, uint64_t l) {
  const bool experts = y->router.kernels != 0, gated = y->w_gate.kernels != 0;
  if (!y->w_up.kernels || !y->w_down.kernels)
    LM_FAIL(FORMAT, "tensor blk.%u.ffn_%s.weight is missing", l, y->w_up.kernels ? "down" : "up");
  if (!gated && !m->layer_norm)
    LM_FAIL(FORMAT, "tensor blk.%u.ffn_gate.weight is missing", l); /* without: gpt2, falcon */
  if (experts != (m->n_experts > 0) || (experts && !gated))
    LM_FAIL(FORMAT, "block %u has %s, but the keys count %u experts", l, experts ? "a router" : "no router",
            (uint64_t)m->n_experts);
  if (experts && (y->b_gate || y->b_up || y->b_down))
    LM_FAIL(UNSUPPORTED, "block %u has biases of experts, which are not supported", l);
  if (!y->q_norm != !y->k_norm) LM_FAIL(FORMAT, "block %u has a norm of queries or keys without the other", l);
  if (y->q_norm && m->norm_whole_rows && (y->bq || y->bk))
    LM_FAIL(UNSUPPORTED, "block %u has biases and a norm over all heads, which is not supported", l);
  const bool pre = y->attn_norm.w, post = y->attn_post_norm.w && y->ffn_post_norm.w;
  if (!pre && !post) LM_FAIL(FORMAT, "tensor blk.%u.attn_norm.weight is missing", l);
  if (pre && !y->ffn_norm.w && !m->layer_norm) LM_FAIL(FORMAT, "tensor blk.%u.ffn_norm.weight is missing", l);
  if (!complete_norm(&y->attn_norm) || !complete_norm(&y->attn_norm_2) || !complete_norm(&y->ffn_norm))
    LM_FAIL(FORMAT, "block %u has the bias of a norm without its weight", l);
  return LM_OK;
}

static int bind_layer(struct binder *b, uint32_t l) {
  struct model *m = b->m;
  struct layer *y = &m->layers[l];
  char prefix[24];
  text_format(prefix, sizeof prefix, "blk.%u.", (uint64_t)l);
  for (uint32_t i = 0; i < LM_COUNT(layer_tensors); i++) LM_TRY(bind_row(b, prefix, &layer_tensors[i], y));
  LM_TRY(check_layer(m, y, l));
  y->is_local = m->window && l % m->arch->local.of < m->arch->local.n;
  y->has_rope = m->n_ropes && !(m->arch->no_rope && (l + 1) % m->arch->no_rope == 0);
  y->is_parallel = y->attn_norm.w && !y->ffn_norm.w;
  return LM_OK;
}

uint64_t part_bytes(const struct part *p) {
  switch (p->kind) {
    case PART_MATRIX: return p->n_matrices * packed_bytes(p->kernels, p->n_rows, p->n_cols);
    case PART_ROWS: return p->n_rows * p->row_bytes + 16; /* readable beyond the last row */
    default: return align_up(p->n_cols, 16) * sizeof(float);
  }
}

uint64_t part_group_rows(const struct part *p) { return p->kind == PART_MATRIX ? p->kernels->group_rows : 1; }

/* Parts in file order, taken from the order of the file's tensors; and their sizes. */
static void plan_parts(struct model *m, const struct binder *b) {
  uint32_t n = 0;
  for (uint64_t i = 0; i < b->g->n_tensors; i++) {
    const struct bound *bound = &b->bound[b->g->tensors_by_offset[i]];
    for (uint32_t j = 0; j < bound->n_parts && bound->n_parts != UINT32_MAX; j++) m->by_offset[n++] = bound->part + j;
  }
  for (uint32_t i = 0; i < m->n_parts; i++) {
    const struct part *p = &m->parts[i];
    m->weight_bytes += align_up(part_bytes(p), 64);
    m->staging_bytes = LM_MAX(m->staging_bytes, part_group_rows(p) * p->row_bytes + 16);
  }
}

/* Whether the norms of queries and keys are as long as a head or as all heads: the first block tells. */
static void choose_head_norm(struct binder *b) {
  const struct gguf_tensor *t = gguf_find_tensor(b->g, text_of("blk.0.attn_q_norm.weight"));
  const bool whole = b->m->norm_whole_rows = t && t->dims[0] != b->m->head_dim;
  b->sizes[Q_NORM] = whole ? b->sizes[Q_ROWS] : b->m->head_dim;
  b->sizes[K_NORM] = whole ? b->sizes[KV_ROWS] : b->m->head_dim;
}

int model_bind_tensors(struct model *m, const struct gguf *g, struct arena *a) {
  const uint64_t n = m->n_layers;
  struct binder b = {.m = m, .g = g,
                     .sizes = {[ONE] = 1, [D_MODEL] = m->d_model, [D_FF] = m->d_ff, [DOUBLE_FF] = 2 * (uint64_t)m->d_ff,
                               [N_EXPERTS] = m->n_experts, [ROPE_PAIR_COUNT] = m->rope_dim / 2}};
  b.sizes[Q_ROWS] = b.sizes[K_START] = (uint64_t)m->n_heads * m->head_dim;
  b.sizes[KV_ROWS] = (uint64_t)m->n_kv_heads * m->head_dim;
  b.sizes[V_START] = b.sizes[Q_ROWS] + b.sizes[KV_ROWS];
  b.sizes[QKV_ROWS] = b.sizes[V_START] + b.sizes[KV_ROWS];
  if (n > g->n_tensors)
    LM_FAIL(FORMAT, "key %s.block_count is %u, but the file has only %u tensors", m->arch->name, n, g->n_tensors);
  m->max_parts = (uint32_t)(4 * g->n_tensors); /* a fused tensor becomes three */
  m->layers = arena_take(a, n * sizeof *m->layers);
  m->parts = arena_take(a, m->max_parts * sizeof *m->parts);
  m->by_offset = arena_take(a, m->max_parts * sizeof *m->by_offset);
  b.bound = arena_take(a, g->n_tensors * sizeof *b.bound);
  if (!m->layers || !m->parts || !m->by_offset || !b.bound) LM_FAIL(MEMORY, "no memory for the tables of %u blocks", n);
  zero_bytes(m->layers, (size_t)(n * sizeof *m->layers));
  zero_bytes(b.bound, (size_t)(g->n_tensors * sizeof *b.bound));
  choose_head_norm(&b);
  LM_TRY(bind_embedding(&b));
  LM_TRY(bind_positions(&b));
  LM_TRY(bind_rope(&b));
  for (uint32_t l = 0; l < n; l++) LM_TRY(bind_layer(&b, l));
  for (uint32_t i = 0; i < LM_COUNT(output_tensors); i++) LM_TRY(bind_row(&b, "", &output_tensors[i], m));
  LM_TRY(check_all_bound(&b));
  plan_parts(m, &b);
  return LM_OK;
}
