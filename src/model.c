/* model.c: keys, then tensors, then where their bytes go. */
#include "model.h"

#include "fmath.h"

const struct arch archs[N_ARCHS] = {
#define ARCH(name, rope) {#name, ROPE_##rope},
#include "arch.def"
#undef ARCH
};

/* ---- tensors as a table ---- */

/* Row counts and lengths are named, so that a table can state a tensor's shape. */
enum size { ONE, D_MODEL, D_FF, N_VOCAB, Q_ROWS, KV_ROWS, ROPE_PAIR_COUNT, N_SIZES };
enum need { REQUIRED, OPTIONAL };
struct tensor_row {
  const char *name;
  enum part_kind kind;
  enum need need;
  enum size n_rows, n_cols;
  size_t field; /* of struct layer or struct model: a struct weight, or float * for a vector */
};

#define MATRIX(name, need, rows, cols, owner, field) {name, PART_MATRIX, need, rows, cols, offsetof(struct owner, field)}
#define VECTOR(name, need, cols, owner, field) {name, PART_VECTOR, need, ONE, cols, offsetof(struct owner, field)}

/* blk.N.NAME, in order of use */
static const struct tensor_row layer_tensors[] = {
    VECTOR("attn_norm.weight", REQUIRED, D_MODEL, layer, attn_norm),
    MATRIX("attn_q.weight", REQUIRED, Q_ROWS, D_MODEL, layer, wq),
    MATRIX("attn_k.weight", REQUIRED, KV_ROWS, D_MODEL, layer, wk),
    MATRIX("attn_v.weight", REQUIRED, KV_ROWS, D_MODEL, layer, wv),
    VECTOR("attn_q.bias", OPTIONAL, Q_ROWS, layer, bq),
    VECTOR("attn_k.bias", OPTIONAL, KV_ROWS, layer, bk),
    VECTOR("attn_v.bias", OPTIONAL, KV_ROWS, layer, bv),
    MATRIX("attn_output.weight", REQUIRED, D_MODEL, Q_ROWS, layer, wo),
    VECTOR("attn_output.bias", OPTIONAL, D_MODEL, layer, bo),
    VECTOR("ffn_norm.weight", REQUIRED, D_MODEL, layer, ffn_norm),
    MATRIX("ffn_gate.weight", REQUIRED, D_FF, D_MODEL, layer, w_gate),
    MATRIX("ffn_up.weight", REQUIRED, D_FF, D_MODEL, layer, w_up),
    MATRIX("ffn_down.weight", REQUIRED, D_MODEL, D_FF, layer, w_down),
};
static const struct tensor_row output_tensors[] = {
    VECTOR("output_norm.weight", REQUIRED, D_MODEL, model, output_norm),
    MATRIX("output.weight", OPTIONAL, N_VOCAB, D_MODEL, model, output),
};
static const struct tensor_row embedding_tensor[] = {
    /* untied: looked up only, so it stays as in the file; tied: becomes the output matrix */
    {"token_embd.weight", PART_ROWS, REQUIRED, N_VOCAB, D_MODEL, offsetof(struct model, embedding)},
};
static const struct tensor_row rope_tensors[] = {
    VECTOR("rope_freqs.weight", OPTIONAL, ROPE_PAIR_COUNT, model, rope_factors),
};

/* Tensors that some files carry and nothing needs: frequencies that the keys give as well. */
static const char *const harmless[] = {"rotary_emb.inv_freq", "attn_rot_embd.weight", "rope.freqs"};

struct binder {
  struct model *m;
  const struct gguf *g;
  uint64_t sizes[N_SIZES];
  uint32_t *part_of; /* [n_tensors] the part that a tensor became, or UINT32_MAX */
};

static bool is_float(uint32_t quant) { return quant == QUANT_F32 || quant == QUANT_F16 || quant == QUANT_BF16; }

/* Binds one tensor to *field_at; absent and optional: leaves it null. */
static int bind_tensor(struct binder *b, const char *name, const struct tensor_row *row, uint8_t *owner) {
  struct model *m = b->m;
  const struct gguf_tensor *t = gguf_find_tensor(b->g, text_of(name));
  if (!t && row->need == OPTIONAL) return LM_OK;
  if (!t) LM_FAIL(FORMAT, "tensor %s is missing", name);
  const uint64_t n_rows = b->sizes[row->n_rows], n_cols = b->sizes[row->n_cols];
  if (t->dims[0] != n_cols || t->dims[1] != n_rows || t->dims[2] != 1 || t->dims[3] != 1)
    LM_FAIL(FORMAT, "tensor %s is %u x %u x %u x %u, but the model's keys say %u x %u", name, t->dims[0], t->dims[1],
            t->dims[2], t->dims[3], n_cols, n_rows);
  const struct quant *q = &quants[t->quant];
  b->part_of[t - b->g->tensors] = m->n_parts;
  struct part *part = &m->parts[m->n_parts++];
  *part = (struct part){t, row->kind, n_rows, n_cols, 0, (uint8_t **)(void *)(owner + row->field)};
  switch (row->kind) {
    case PART_MATRIX: {
      struct weight *w = (struct weight *)(void *)(owner + row->field);
      *w = (struct weight){KERNELS.mat(t->quant, m->precision), t->quant, (uint32_t)n_rows, (uint32_t)n_cols, 0};
      if (!w->kernels) LM_FAIL(UNSUPPORTED, "tensor %s is of type %s, for which there is no kernel", name, q->name);
      part->kernels = w->kernels;
      part->to = &w->packed;
      m->token_bytes += packed_bytes(w->kernels, n_rows, n_cols);
      m->token_macs += n_rows * n_cols;
      break;
    }
    case PART_ROWS:
      if (!q->to_float) LM_FAIL(UNSUPPORTED, "tensor %s is of type %s, which is not read", name, q->name);
      m->embedding_quant = t->quant;
      break;
    case PART_VECTOR:
      if (!is_float(t->quant)) LM_FAIL(UNSUPPORTED, "tensor %s is of type %s; a vector must be F32, F16 or BF16", name, q->name);
  }
  return LM_OK;
}

/* A tensor that nothing bound would change the maths unseen. */
static int check_all_bound(const struct binder *b) {
  for (uint64_t i = 0; i < b->g->n_tensors; i++) {
    const struct gguf_tensor *t = &b->g->tensors[i];
    bool known = b->part_of[i] != UINT32_MAX;
    for (uint32_t j = 0; j < LM_COUNT(harmless) && !known; j++) {
      const struct text end = text_of(harmless[j]);
      known = t->name.n >= end.n && !__builtin_memcmp(t->name.bytes + t->name.n - end.n, end.bytes, (size_t)end.n);
    }
    if (!known) LM_FAIL(UNSUPPORTED, "tensor %t is not part of architecture %s as this engine knows it", &t->name, b->m->arch->name);
  }
  return LM_OK;
}

static int bind_table(struct binder *b, const struct tensor_row *rows, size_t n, const char *prefix, void *owner) {
  for (size_t i = 0; i < n; i++) {
    char name[96];
    text_format(name, sizeof name, "%s%s", prefix, rows[i].name);
    LM_TRY(bind_tensor(b, name, &rows[i], owner));
  }
  return LM_OK;
}

/* The embedding first: its row count is the vocabulary's size. */
static int bind_embedding(struct binder *b) {
  struct model *m = b->m;
  const struct gguf_tensor *t = gguf_find_tensor(b->g, text_of(embedding_tensor->name));
  if (!t) LM_FAIL(FORMAT, "tensor %s is missing", embedding_tensor->name);
  if (t->dims[1] > 1 << 24) LM_FAIL(FORMAT, "tensor %s has %u rows, too many for a vocabulary", embedding_tensor->name, t->dims[1]);
  m->n_vocab = (uint32_t)t->dims[1];
  b->sizes[N_VOCAB] = m->n_vocab;
  const struct gguf_key *tokens = gguf_find(b->g, text_of("tokenizer.ggml.tokens"));
  if (tokens && (tokens->type != GGUF_ARRAY || tokens->element != GGUF_STRING))
    LM_FAIL(FORMAT, "key tokenizer.ggml.tokens is no array of strings");
  if (tokens && tokens->count != m->n_vocab)
    LM_FAIL(FORMAT, "key tokenizer.ggml.tokens has %u pieces, but %s has %u rows", tokens->count, embedding_tensor->name,
            (uint64_t)m->n_vocab);
  m->tied = !gguf_find_tensor(b->g, text_of("output.weight"));
  if (!m->tied) return bind_table(b, embedding_tensor, 1, "", m);
  struct tensor_row row = *embedding_tensor;
  row.kind = PART_MATRIX, row.field = offsetof(struct model, output);
  return bind_table(b, &row, 1, "", m);
}

static int bind_tensors(struct binder *b, struct arena *a) {
  struct model *m = b->m;
  const uint64_t n = m->n_layers;
  if (n > b->g->n_tensors) LM_FAIL(FORMAT, "%s.block_count is %u, but the file has only %u tensors", m->arch->name, n, b->g->n_tensors);
  m->layers = arena_take(a, n * sizeof *m->layers);
  m->parts = arena_take(a, (b->g->n_tensors + 1) * sizeof *m->parts);
  m->by_offset = arena_take(a, b->g->n_tensors * sizeof *m->by_offset);
  b->part_of = arena_take(a, b->g->n_tensors * sizeof *b->part_of);
  if (!m->layers || !m->parts || !m->by_offset || !b->part_of) LM_FAIL(MEMORY, "no memory for the tables of %u layers", n);
  zero_bytes(m->layers, (size_t)n * sizeof *m->layers);
  for (uint64_t i = 0; i < b->g->n_tensors; i++) b->part_of[i] = UINT32_MAX;
  LM_TRY(bind_embedding(b));
  LM_TRY(bind_table(b, rope_tensors, LM_COUNT(rope_tensors), "", m));
  for (uint32_t l = 0; l < n; l++) {
    char prefix[24];
    text_format(prefix, sizeof prefix, "blk.%u.", (uint64_t)l);
    LM_TRY(bind_table(b, layer_tensors, LM_COUNT(layer_tensors), prefix, &m->layers[l]));
  }
  LM_TRY(bind_table(b, output_tensors, LM_COUNT(output_tensors), "", m));
  return check_all_bound(b);
}

/* ---- keys ---- */

/* "ARCH.NAME" of the model's architecture. */
struct key { char name[96]; };
static struct key key_of(const struct model *m, const char *name) {
  struct key k;
  text_format(k.name, sizeof k.name, "%s.%s", m->arch->name, name);
  return k;
}

static int required_u32(const struct model *m, const struct gguf *g, const char *name, uint32_t least, uint32_t most, uint32_t *out) {
  const struct key k = key_of(m, name);
  const int got = gguf_u32(g, k.name, out);
  if (got < 0) return got;
  if (!got) LM_FAIL(FORMAT, "key %s is missing", k.name);
  if (*out < least || *out > most)
    LM_FAIL(FORMAT, "key %s is %u, not between %u and %u", k.name, (uint64_t)*out, (uint64_t)least, (uint64_t)most);
  return LM_OK;
}

static int optional_u32(const struct model *m, const struct gguf *g, const char *name, uint32_t *out) {
  const struct key k = key_of(m, name);
  return gguf_u32(g, k.name, out);
}

static int optional_f32(const struct model *m, const struct gguf *g, const char *name, float *out) {
  const struct key k = key_of(m, name);
  return gguf_f32(g, k.name, out);
}

/* Keys that change the maths in a way that is not there. */
static int refuse_unknown_maths(const struct model *m, const struct gguf *g) {
  const struct key causal = key_of(m, "attention.causal");
  bool is_causal = true;
  LM_TRY(gguf_bool(g, causal.name, &is_causal));
  if (!is_causal) LM_FAIL(UNSUPPORTED, "key %s is false: attention to later tokens is not supported", causal.name);
  uint32_t value_length = m->head_dim, n_experts = 0;
  LM_TRY(optional_u32(m, g, "attention.value_length", &value_length));
  if (value_length != m->head_dim)
    LM_FAIL(UNSUPPORTED, "heads with key_length %u and value_length %u: they must be equal", (uint64_t)m->head_dim, (uint64_t)value_length);
  LM_TRY(optional_u32(m, g, "expert_count", &n_experts));
  if (n_experts) LM_FAIL(UNSUPPORTED, "key %s.expert_count is %u: mixtures of experts are not supported", m->arch->name, (uint64_t)n_experts);
  return LM_OK;
}

static int read_shape(struct model *m, const struct gguf *g) {
  LM_TRY(required_u32(m, g, "block_count", 1, 1 << 16, &m->n_layers));
  LM_TRY(required_u32(m, g, "embedding_length", 1, 1 << 20, &m->d_model));
  LM_TRY(required_u32(m, g, "feed_forward_length", 1, 1 << 22, &m->d_ff));
  LM_TRY(required_u32(m, g, "attention.head_count", 1, 1 << 14, &m->n_heads));
  LM_TRY(required_u32(m, g, "context_length", 1, UINT32_MAX, &m->n_ctx_train));
  m->n_kv_heads = m->n_heads;
  LM_TRY(optional_u32(m, g, "attention.head_count_kv", &m->n_kv_heads));
  if (!m->n_kv_heads || m->n_heads % m->n_kv_heads)
    LM_FAIL(FORMAT, "%u query heads cannot share %u key/value heads", (uint64_t)m->n_heads, (uint64_t)m->n_kv_heads);
  const int own = optional_u32(m, g, "attention.key_length", &m->head_dim);
  if (own < 0) return own;
  if (!own) {
    if (m->d_model % m->n_heads)
      LM_FAIL(FORMAT, "embedding length %u is no multiple of the %u heads", (uint64_t)m->d_model, (uint64_t)m->n_heads);
    m->head_dim = m->d_model / m->n_heads;
  }
  if (m->head_dim % 8 || !m->head_dim || m->head_dim > 1024)
    LM_FAIL(UNSUPPORTED, "heads of size %u: a multiple of 8 up to 1024 is needed", (uint64_t)m->head_dim);
  const struct key eps = key_of(m, "attention.layer_norm_rms_epsilon");
  const int has_eps = gguf_f32(g, eps.name, &m->norm_eps);
  if (has_eps < 0) return has_eps;
  if (!has_eps) LM_FAIL(FORMAT, "key %s is missing", eps.name);
  if (!(m->norm_eps >= 0 && m->norm_eps < 1)) LM_FAIL(FORMAT, "key %s is %g, not between 0 and 1", eps.name, (double)m->norm_eps);
  return refuse_unknown_maths(m, g);
}

/* ---- rotary frequencies ---- */

/* YaRN (Peng et al. 2023): dimensions that turn more than beta_fast times within the original
 * context keep their frequency, those below beta_slow turns are interpolated, with a ramp between;
 * the magnitude grows by 0.1 log(factor). */
struct rope_scaling {
  enum { SCALE_NONE, SCALE_LINEAR, SCALE_YARN, SCALE_LLAMA3 } kind;
  float factor, extrapolation, magnitude, beta_fast, beta_slow, low_turns, high_turns;
  uint32_t original_context;
};

static int read_scaling(const struct model *m, const struct gguf *g, struct rope_scaling *s) {
  *s = (struct rope_scaling){SCALE_NONE, 1, 1, 1, 32, 1, 1, 4, m->n_ctx_train};
  const struct key k = key_of(m, "rope.scaling.type");
  struct text type = text_of("none");
  LM_TRY(gguf_text(g, k.name, &type));
  int given = optional_f32(m, g, "rope.scaling.factor", &s->factor);
  if (!given) given = optional_f32(m, g, "rope.scale_linear", &s->factor);
  if (given < 0) return given;
  if (text_equal(type, text_of("yarn"))) s->kind = SCALE_YARN;
  else if (text_equal(type, text_of("llama3"))) s->kind = SCALE_LLAMA3;
  else if (text_equal(type, text_of("linear"))) s->kind = SCALE_LINEAR;
  else if (!text_equal(type, text_of("none")))
    LM_FAIL(UNSUPPORTED, "key %s is \"%t\"; none, linear, yarn and llama3 are supported", k.name, &type);
  else if (given && !gguf_find(g, text_of(k.name))) s->kind = SCALE_LINEAR; /* older files: a factor alone */
  if (!(s->factor > 0 && s->factor < 1e6f)) LM_FAIL(FORMAT, "the rope scaling factor is %g", (double)s->factor);
  LM_TRY(optional_u32(m, g, "rope.scaling.original_context_length", &s->original_context));
  LM_TRY(optional_f32(m, g, "rope.scaling.attn_factor", &s->magnitude));
  LM_TRY(optional_f32(m, g, "rope.scaling.yarn_ext_factor", &s->extrapolation));
  LM_TRY(optional_f32(m, g, "rope.scaling.yarn_attn_factor", &s->magnitude));
  LM_TRY(optional_f32(m, g, "rope.scaling.yarn_beta_fast", &s->beta_fast));
  LM_TRY(optional_f32(m, g, "rope.scaling.yarn_beta_slow", &s->beta_slow));
  LM_TRY(optional_f32(m, g, "rope.scaling.low_freq_factor", &s->low_turns));
  LM_TRY(optional_f32(m, g, "rope.scaling.high_freq_factor", &s->high_turns));
  if (!s->original_context || !(s->beta_fast > 0) || !(s->beta_slow > 0) || !(s->high_turns > s->low_turns))
    LM_FAIL(FORMAT, "the keys %s.rope.scaling.* contradict each other", m->arch->name);
  return LM_OK;
}

#define TWO_PI 6.283185307179586

/* The dimension whose pair turns `turns` times within the original context. */
static double yarn_dimension(const struct model *m, const struct rope_scaling *s, double turns) {
  return m->rope_dim * fmath_log(s->original_context / (turns * TWO_PI)) / (2 * fmath_log(m->rope_theta));
}

static double scale_frequency(const struct model *m, const struct rope_scaling *s, uint32_t i, double freq) {
  switch (s->kind) {
    case SCALE_LINEAR: return freq / s->factor;
    case SCALE_YARN: {
      const double low = LM_MAX(0, fmath_floor(yarn_dimension(m, s, s->beta_fast)));
      const double high = LM_MIN(m->rope_dim - 1, fmath_ceil(yarn_dimension(m, s, s->beta_slow)));
      const double ramp = (i - low) / LM_MAX(0.001, high - low);
      const double keep = (1 - LM_MIN(1, LM_MAX(0, ramp))) * s->extrapolation;
      return freq / s->factor * (1 - keep) + freq * keep;
    }
    case SCALE_LLAMA3: {
      const double turns = s->original_context * freq / TWO_PI;
      if (turns > s->high_turns) return freq;
      if (turns < s->low_turns) return freq / s->factor;
      const double smooth = (turns - s->low_turns) / (s->high_turns - s->low_turns);
      return (1 - smooth) * freq / s->factor + smooth * freq;
    }
    default: return freq;
  }
}

static int read_rope(struct model *m, const struct gguf *g, struct arena *a) {
  m->rope_dim = m->head_dim;
  LM_TRY(optional_u32(m, g, "rope.dimension_count", &m->rope_dim));
  if (!m->rope_dim || m->rope_dim % 2 || m->rope_dim > m->head_dim)
    LM_FAIL(FORMAT, "key %s.rope.dimension_count is %u: it must be even and at most the head size %u", m->arch->name,
            (uint64_t)m->rope_dim, (uint64_t)m->head_dim);
  m->rope_theta = 10000;
  LM_TRY(optional_f32(m, g, "rope.freq_base", &m->rope_theta));
  if (!(m->rope_theta > 1 && m->rope_theta < 1e30f))
    LM_FAIL(FORMAT, "key %s.rope.freq_base is %g: it must be a number above 1", m->arch->name, (double)m->rope_theta);
  struct rope_scaling s;
  LM_TRY(read_scaling(m, g, &s));
  m->rope_magnitude = 1;
  if (s.kind == SCALE_YARN) {
    m->rope_magnitude = s.magnitude;
    if (s.extrapolation != 0) m->rope_magnitude *= (float)(1 + 0.1 * fmath_log(s.factor));
  }
  m->rope_freqs = arena_take(a, m->rope_dim / 2 * sizeof *m->rope_freqs);
  if (!m->rope_freqs) LM_FAIL(MEMORY, "no memory for %u rotary frequencies", (uint64_t)m->rope_dim / 2);
  for (uint32_t i = 0; i < m->rope_dim / 2; i++)
    m->rope_freqs[i] = scale_frequency(m, &s, i, fmath_pow(m->rope_theta, -2.0 * i / m->rope_dim));
  return LM_OK;
}

/* ---- binding ---- */

static int choose_context(struct model *m, uint32_t n_ctx) {
  if (n_ctx > 1 << 20) LM_FAIL(ARGUMENT, "a context of %u tokens: at most 1048576", (uint64_t)n_ctx);
  m->n_ctx = n_ctx ? n_ctx : LM_MIN(m->n_ctx_train, 8192);
  return LM_OK;
}

static uint64_t part_bytes(const struct part *p) {
  switch (p->kind) {
    case PART_MATRIX: return packed_bytes(p->kernels, p->n_rows, p->n_cols);
    case PART_ROWS: return p->tensor->bytes + 16; /* readable beyond the last row */
    default: return align_up(p->n_cols, 16) * sizeof(float);
  }
}

static uint64_t row_bytes(const struct part *p) { return p->tensor->bytes / p->n_rows; }
static uint64_t group_rows(const struct part *p) { return p->kind == PART_MATRIX ? p->kernels->group_rows : 1; }

/* Parts in file order, taken from the order of the file's tensors; and their sizes. */
static void plan_parts(struct model *m, const struct binder *b) {
  uint32_t n = 0;
  for (uint64_t i = 0; i < b->g->n_tensors; i++) {
    const uint32_t part = b->part_of[b->g->tensors_by_offset[i]];
    if (part != UINT32_MAX) m->by_offset[n++] = part;
  }
  for (uint32_t i = 0; i < m->n_parts; i++) {
    const struct part *p = &m->parts[i];
    m->weight_bytes += align_up(part_bytes(p), 64);
    m->staging_bytes = LM_MAX(m->staging_bytes, group_rows(p) * row_bytes(p) + 16);
  }
}

int model_bind(struct model *m, const struct gguf *g, struct arena *a, uint32_t n_ctx, uint32_t precision) {
  *m = (struct model){.precision = precision};
  struct text name = {0};
  const int got = gguf_text(g, "general.architecture", &name);
  if (got < 0) return got;
  if (!got) LM_FAIL(FORMAT, "key general.architecture is missing");
  for (uint32_t i = 0; i < N_ARCHS; i++)
    if (text_equal(name, text_of(archs[i].name))) m->arch = &archs[i];
  if (!m->arch) LM_FAIL(UNSUPPORTED, "architecture \"%t\" is not supported", &name);
  LM_TRY(read_shape(m, g));
  LM_TRY(choose_context(m, n_ctx));
  LM_TRY(read_rope(m, g, a));
  struct binder b = {.m = m, .g = g, .sizes = {[ONE] = 1, [D_MODEL] = m->d_model, [D_FF] = m->d_ff, [ROPE_PAIR_COUNT] = m->rope_dim / 2}};
  b.sizes[Q_ROWS] = (uint64_t)m->n_heads * m->head_dim;
  b.sizes[KV_ROWS] = (uint64_t)m->n_kv_heads * m->head_dim;
  LM_TRY(bind_tensors(&b, a));
  plan_parts(m, &b);
  return LM_OK;
}

void model_place(struct model *m, struct arena *a) {
  for (uint32_t i = 0; i < m->n_parts; i++) *m->parts[i].to = arena_take(a, part_bytes(&m->parts[i]));
}

/* ---- intake ---- */

/* Puts the rows of one group, complete, where they belong. */
static void place_rows(const struct part *p, uint64_t row, uint64_t n_rows, const uint8_t *bytes) {
  uint8_t *to = *p->to;
  switch (p->kind) {
    case PART_MATRIX: {
      const struct mat_kernels *k = p->kernels;
      const uint64_t group_bytes = packed_bytes(k, k->group_rows, p->n_cols);
      k->pack(bytes, (size_t)row_bytes(p), to + row / k->group_rows * group_bytes, (uint32_t)n_rows, (uint32_t)p->n_cols);
      break;
    }
    case PART_ROWS: copy_bytes(to + row * row_bytes(p), bytes, (size_t)row_bytes(p)); break;
    case PART_VECTOR: quants[p->tensor->quant].to_float(bytes, (float *)(void *)to, (uint32_t)p->n_cols);
  }
}

/* Takes bytes of part p from *bytes; whole groups straight from there, others through staging. */
static void take_group(struct intake *in, const struct part *p, const uint8_t **bytes, uint64_t *n) {
  const uint64_t rows = LM_MIN(group_rows(p), p->n_rows - in->row), want = rows * row_bytes(p);
  uint64_t used = want;
  if (!in->filled && *n >= want) place_rows(p, in->row, rows, *bytes);
  else {
    used = LM_MIN(want - in->filled, *n);
    copy_bytes(in->staging + in->filled, *bytes, (size_t)used);
    in->filled += used;
    if (in->filled == want) place_rows(p, in->row, rows, in->staging);
  }
  *bytes += used, *n -= used, in->at += used;
  if (in->filled && in->filled < want) return;
  in->filled = 0;
  in->row += rows;
}

int intake_feed(struct intake *in, struct model *m, const uint8_t *bytes, uint64_t n) {
  while (in->part < m->n_parts) {
    const struct part *p = &m->parts[m->by_offset[in->part]];
    if (in->row == p->n_rows) {
      in->part++, in->row = 0;
      continue;
    }
    if (!n) return LM_MORE;
    if (in->at < p->tensor->offset) { /* padding, or a tensor that nothing needs */
      const uint64_t skip = LM_MIN(p->tensor->offset - in->at, n);
      bytes += skip, n -= skip, in->at += skip;
      continue;
    }
    take_group(in, p, &bytes, &n);
  }
  return LM_DONE;
}

int model_finish(struct model *m) {
  if (!m->rope_factors) return LM_OK;
  for (uint32_t i = 0; i < m->rope_dim / 2; i++) {
    if (!(m->rope_factors[i] > 0)) LM_FAIL(FORMAT, "tensor rope_freqs.weight holds %g at %u", (double)m->rope_factors[i], (uint64_t)i);
    m->rope_freqs[i] /= (double)m->rope_factors[i];
  }
  return LM_OK;
}
