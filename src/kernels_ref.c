/* kernels_ref.c: the reference: each kernel as its definition says, in plain C, on rows as they stand
 * in the file, with float activations and sums in double. Any type of quant.def that has to_float works.
 * It is what the packed kernels are measured against, and the `ref` build. */
#include "kernels.h"

enum { REF_COLS = MAT_SCRATCH / sizeof(float) }; /* columns of one row decoded at a time; % 256 = 0 */

static void ref_mat(uint32_t quant, const uint8_t *w, const struct act *x, float *y, size_t y_stride,
                    uint32_t n_rows, uint32_t n_cols, uint32_t n_tokens, float *row) {
  const struct quant *q = &quants[quant];
  for (uint32_t r = 0; r < n_rows; r++)
    for (uint32_t k = 0; k < n_cols; k += REF_COLS) {
      const uint32_t n = LM_MIN(n_cols - k, (uint32_t)REF_COLS);
      q->to_float(w, row, n);
      w += (size_t)(n / q->items) * q->bytes;
      for (uint32_t t = 0; t < n_tokens; t++) {
        const float *xt = x->f + (size_t)t * x->n_cols + k;
        double sum = k ? y[t * y_stride + r] : 0;
        for (uint32_t i = 0; i < n; i++) sum += (double)row[i] * xt[i];
        y[t * y_stride + r] = (float)sum;
      }
    }
}

static void ref_pack(uint32_t quant, const uint8_t *file, uint8_t *packed, uint32_t n_cols) {
  copy_bytes(packed, file, (size_t)(n_cols / quants[quant].items) * quants[quant].bytes);
}

static void ref_row_to_float(uint32_t quant, const uint8_t *packed, uint32_t row, uint32_t n_cols, float *out) {
  const struct quant *q = &quants[quant];
  q->to_float(packed + (size_t)row * (n_cols / q->items) * q->bytes, out, n_cols);
}

/* The functions of struct mat_kernels do not say which type they serve: one set for each row. */
#define QUANT(name, id, items, bytes) \
  static void ref_mat_##name(const uint8_t *w, const struct act *x, float *y, size_t y_stride, uint32_t n_groups, \
                             uint32_t n_cols, uint32_t n_tokens, void *scratch) { \
    ref_mat(QUANT_##name, w, x, y, y_stride, n_groups, n_cols, n_tokens, scratch); \
  } \
  static void ref_pack_##name(const uint8_t *file, size_t row_bytes, uint8_t *packed, uint32_t n_rows, \
                              uint32_t n_cols) { \
    (void)row_bytes, (void)n_rows; /* a group is one row */ \
    ref_pack(QUANT_##name, file, packed, n_cols); \
  } \
  static void ref_row_to_float_##name(const uint8_t *packed, uint32_t row, uint32_t n_cols, float *out) { \
    ref_row_to_float(QUANT_##name, packed, row, n_cols, out); \
  } \
  static const struct mat_kernels ref_##name = {1, items, bytes, 0, ACT_F32, \
                                                ref_pack_##name, ref_row_to_float_##name, ref_mat_##name};
#define QUANT_NAMED(name, id, items, bytes)
#include "quant.def"
#undef QUANT
#undef QUANT_NAMED

static const struct mat_kernels *ref_mat_kernels(uint32_t quant, uint32_t precision) {
  (void)precision;
  switch (quant) {
#define QUANT(name, id, items, bytes) case QUANT_##name: return &ref_##name;
#define QUANT_NAMED(name, id, items, bytes)
#include "quant.def"
#undef QUANT
#undef QUANT_NAMED
    default: return 0;
  }
}

static size_t ref_act_bytes(uint32_t n_cols, uint32_t n_tokens, uint32_t needs) {
  (void)needs;
  return (size_t)align_up(n_cols, PAD_COLS) * n_tokens * sizeof(float);
}

static void ref_act_place(struct act *a, void *mem, uint32_t n_cols, uint32_t n_tokens, uint32_t needs) {
  (void)n_tokens, (void)needs;
  *a = (struct act){.f = mem, .n_cols = (uint32_t)align_up(n_cols, PAD_COLS)};
}

static void ref_act_make(const struct act *a, const float *x, size_t x_stride, uint32_t n_cols, uint32_t t0,
                         uint32_t t1, uint32_t needs, uint32_t precision) {
  (void)needs, (void)precision;
  for (size_t t = t0; t < t1; t++) {
    float *to = a->f + t * a->n_cols;
    copy_bytes(to, x + t * x_stride, n_cols * sizeof *to);
    zero_bytes(to + n_cols, (a->n_cols - n_cols) * sizeof *to);
  }
}

/* e^x for x <= 709: 2^n e^r with |r| <= ln 2 / 2 and the series to r^13, which ends below 1e-16. */
static double ref_exp(double x) {
  if (x != x || x < -700) return x != x ? x : 0;
  const double t = x * 1.4426950408889634, n = (double)(int)(t + (t < 0 ? -0.5 : 0.5));
  const double r = x - n * 0.6931471803691238 - n * 1.9082149292705877e-10;
  double sum = 1;
  for (int i = 13; i > 0; i--) sum = 1 + sum * r / i;
  const uint64_t bits = (uint64_t)(1023 + (int)n) << 52;
  double scale;
  copy_bytes(&scale, &bits, sizeof scale);
  return sum * scale;
}

static void ref_rms_norm(const float *x, const float *w, float *y, uint32_t n, float eps) {
  double sum = 0;
  for (uint32_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
  const double scale = 1 / __builtin_sqrt(sum / n + (double)eps);
  for (uint32_t i = 0; i < n; i++) y[i] = (float)(x[i] * scale * w[i]);
}

static void ref_layer_norm(const float *x, const float *w, const float *b, float *y, uint32_t n, float eps) {
  double mean = 0, variance = 0;
  for (uint32_t i = 0; i < n; i++) mean += x[i] / (double)n;
  for (uint32_t i = 0; i < n; i++) variance += (x[i] - mean) * (x[i] - mean) / n;
  const double scale = 1 / __builtin_sqrt(variance + (double)eps);
  for (uint32_t i = 0; i < n; i++) y[i] = (float)((x[i] - mean) * scale * w[i] + (b ? (double)b[i] : 0));
}

static double ref_sigmoid(double x) { return 1 / (1 + ref_exp(LM_MIN(-x, 700.0))); }

static void ref_activate(enum activation kind, const float *g, const float *u, float *y, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    const double x = g[i];
    const double z = kind == ACTIVATION_SILU ? x : 1.5957691216057308 * (x + 0.044715 * x * x * x);
    y[i] = (float)(x * ref_sigmoid(z) * (u ? (double)u[i] : 1));
  }
}

static double ref_soft_cap_of(double x, double cap) { return cap * (2 * ref_sigmoid(2 * x / cap) - 1); }

static void ref_soft_cap(float *y, float cap, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) y[i] = (float)ref_soft_cap_of(y[i], cap);
}

static void ref_scale(float *y, float factor, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) y[i] *= factor;
}

static void ref_add_scaled(float *y, const float *x, float factor, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) y[i] += x[i] * factor;
}

static void ref_add(float *y, const float *x, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) y[i] += x[i];
}

static void ref_turn(float *a, float *b, float c, float s) {
  const double x = *a, y = *b;
  *a = (float)(x * c - y * s);
  *b = (float)(y * c + x * s);
}

static void ref_rope_pairs(float *x, const float *c, const float *s, uint32_t n_heads, uint32_t head_dim,
                           uint32_t rope_dim) {
  for (uint32_t h = 0; h < n_heads; h++, x += head_dim)
    for (uint32_t i = 0; i < rope_dim / 2; i++) ref_turn(x + 2 * i, x + 2 * i + 1, c[i], s[i]);
}

static void ref_rope_halves(float *x, const float *c, const float *s, uint32_t n_heads, uint32_t head_dim,
                            uint32_t rope_dim) {
  for (uint32_t h = 0; h < n_heads; h++, x += head_dim)
    for (uint32_t i = 0; i < rope_dim / 2; i++) ref_turn(x + i, x + i + rope_dim / 2, c[i], s[i]);
}

/* Position t of rows of head_dim values. */
static uint8_t *ref_row(uint32_t kv_type, const void *rows, uint32_t t, uint32_t head_dim) {
  static const uint8_t sizes[N_KV_TYPES][3] = {
#define KV_TYPE(id, name, items, bytes, row) {items, bytes, row},
#include "kv.def"
#undef KV_TYPE
  };
  return (uint8_t *)rows + (size_t)t * (head_dim / sizes[kv_type][0] * sizes[kv_type][1] + sizes[kv_type][2]);
}

/* Integers up to KV_Q16_MOST, then their scale. */
static void ref_q16_store(const float *x, uint8_t *row, uint32_t n) {
  uint32_t bits = 0; /* of the largest magnitude; NaN is above all */
  for (uint32_t i = 0; i < n; i++) bits = LM_MAX(bits, f32_bits(x[i]) & 0x7fffffff);
  const float most = f32_from_bits(bits), scale = most / KV_Q16_MOST;
  const float inverse = most > 0x1p-111f ? KV_Q16_MOST / most : 0, round = 0x1.8p23f;
  for (uint32_t i = 0; i < n; i++) {
    const int16_t q = (int16_t)(int32_t)(f32_bits(x[i] * inverse + round) - f32_bits(round));
    copy_bytes(row + i * sizeof q, &q, sizeof q);
  }
  copy_bytes(row + n * sizeof(int16_t), &scale, sizeof scale);
}

static void ref_q16_load(const uint8_t *row, uint32_t n, float *out) {
  float scale;
  copy_bytes(&scale, row + n * sizeof(int16_t), sizeof scale);
  for (uint32_t i = 0; i < n; i++) out[i] = scale * (float)(int16_t)read_u16(row + i * sizeof(int16_t));
}

static void ref_kv_store(uint32_t kv_type, const float *x, void *rows, uint32_t t, uint32_t head_dim) {
  uint8_t *row = ref_row(kv_type, rows, t, head_dim);
  switch (kv_type) {
    case KV_F32: copy_bytes(row, x, head_dim * sizeof *x); break;
    case KV_Q8_0: quant_from_float_Q8_0(x, row, head_dim); break;
    case KV_Q4_0: quant_from_float_Q4_0(x, row, head_dim); break;
    case KV_Q16: ref_q16_store(x, row, head_dim); break;
    default:
      for (uint32_t i = 0; i < head_dim; i++) {
        const f16 h = f16_from_f32(x[i]);
        ((f16 *)row)[i] = h & 0x7c00 ? h : h & 0x8000;
      }
  }
}

static void ref_kv_load(uint32_t kv_type, const void *rows, uint32_t t, uint32_t head_dim, float *out) {
  const uint8_t *row = ref_row(kv_type, rows, t, head_dim);
  switch (kv_type) {
    case KV_F32: copy_bytes(out, row, head_dim * sizeof *out); break;
    case KV_Q8_0: quant_to_float_Q8_0(row, out, head_dim); break;
    case KV_Q4_0: quant_to_float_Q4_0(row, out, head_dim); break;
    case KV_Q16: ref_q16_load(row, head_dim, out); break;
    default: quant_to_float_F16(row, out, head_dim);
  }
}

static size_t ref_attend_scratch(uint32_t head_dim) {
  return head_dim * (sizeof(double) + sizeof(float)) + KV_CHUNK * sizeof(float);
}

static void ref_attend(const struct attend *a) {
  const uint32_t D = a->head_dim;
  double *out = a->scratch;
  float *row = (float *)(out + D), *score = row + D;
  for (uint32_t i = 0; i < a->n_vectors; i++) {
    const float *q = a->q + (size_t)i * D;
    float max = -__builtin_inff();
    double sum = 0;
    for (uint32_t t = a->first[i]; t < a->n_seen[i]; t++) {
      double dot = 0;
      ref_kv_load(a->kv_type, a->k, t, D, row);
      for (uint32_t d = 0; d < D; d++) dot += (double)q[d] * row[d];
      score[t] = (float)(a->soft_cap != 0 ? ref_soft_cap_of(dot * a->scale, a->soft_cap) : dot * a->scale);
      max = LM_MAX(max, score[t]);
    }
    zero_bytes(out, D * sizeof *out);
    for (uint32_t t = a->first[i]; t < a->n_seen[i]; t++) {
      const double weight = ref_exp((double)score[t] - max);
      sum += weight;
      ref_kv_load(a->kv_type, a->v, t, D, row);
      for (uint32_t d = 0; d < D; d++) out[d] += weight * row[d];
    }
    a->max[i] = max, a->sum[i] = (float)sum;
    for (uint32_t d = 0; d < D; d++) a->o[(size_t)i * D + d] = (float)out[d];
  }
}

static void ref_attend_fold(float *o, float *max, float *sum, const float *bo, const float *bmax, const float *bsum,
                            uint32_t n_vectors, uint32_t head_dim) {
  for (uint32_t i = 0; i < n_vectors; i++, o += head_dim, bo += head_dim) {
    if (bsum[i] == 0) continue;
    const double top = LM_MAX(max[i], bmax[i]), wa = ref_exp(max[i] - top), wb = ref_exp(bmax[i] - top);
    max[i] = (float)top;
    sum[i] = (float)(sum[i] * wa + bsum[i] * wb);
    for (uint32_t d = 0; d < head_dim; d++) o[d] = (float)(o[d] * wa + bo[d] * wb);
  }
}

static void ref_attend_finish(const float *o, const float *sum, float *out, uint32_t n_vectors, uint32_t head_dim) {
  for (uint32_t i = 0; i < n_vectors; i++)
    for (uint32_t d = 0; d < head_dim; d++) out[i * head_dim + d] = o[i * head_dim + d] / sum[i];
}

const struct kernels kernels_ref = {
  .name = "ref",
  .mat = ref_mat_kernels,
  .act_bytes = ref_act_bytes,
  .act_place = ref_act_place,
  .act_make = ref_act_make,
  .rms_norm = ref_rms_norm,
  .layer_norm = ref_layer_norm,
  .activate = ref_activate,
  .add = ref_add,
  .scale = ref_scale,
  .add_scaled = ref_add_scaled,
  .soft_cap = ref_soft_cap,
  .rope_pairs = ref_rope_pairs,
  .rope_halves = ref_rope_halves,
  .kv_store_key = ref_kv_store,
  .kv_store_value = ref_kv_store,
  .attend_scratch = ref_attend_scratch,
  .attend = ref_attend,
  .attend_fold = ref_attend_fold,
  .attend_finish = ref_attend_finish,
};
