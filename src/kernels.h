/* kernels.h: the shape sheet of everything that costs time. A build has one set of kernels:
 * kernels_ref (kernels_ref.c: plain C, float activations, any type by way of to_float; the oracle)
 * or kernels_simd (wasm/kernels: packed weights over vec.h, on SIMD128, relaxed SIMD or the
 * emulation). The set is replaced whole, so layouts never mix.
 *
 * K = n_cols = row length. All buffers are 64-byte aligned, made by the caller, and padded so that
 * kernels may write whole groups of rows and read whole blocks of columns. Kernels allocate
 * nothing, keep nothing and cannot fail. "Bits": in every back end, for any split of rows and any
 * number of tokens, an output has the same bits (docs/numerics.md), floats in relaxed apart. */
#pragma once
#include "base.h"
#include "quant.h"

/* Activations of n tokens in the forms that the weights' kernels ask for (MAT.needs), each padded
 * to PAD_COLS columns with zeros. Forms not asked for are null. One scale per 32 columns:
 * fast x = round(v * 127 / max), high x = round(v * 16383 / max), ties to even. */
enum {
  ACT_F32 = 1,  /* f */
  ACT_I16 = 2,  /* q16, d, ds, s */
  ACT_I8 = 4,   /* q, d, ds, s, b8: precision fast only */
  ACT_SUM16 = 8, /* besides these: s16, with ACT_I8 also b32 */
  ACT_MIN = 16, /* besides these: m, dm; K % 256 = 0 */
  ACT_SIGNS = 32, /* pos, neg, n, d: precision fast only */
  ACT_HALVES = 64, /* hi, lo, d, ds, s */
  PAD_COLS = 32
};
struct act {
  float *f;           /* [n][K]       the values themselves */
  int16_t *q16;       /* [n][K]       x in the order 0 2 1 3 within each four */
  int8_t *q;          /* [n][K] */
  float *d;           /* [n][K/32]    max / 127 or max / 16383 */
  float *ds;          /* [n][K/32]    d * sum of x */
  int32_t *s;         /* [n][K/32]    sum of x */
  int16_t *b8;        /* [n][K/32][2] -8 * (sum of x over k = 0,1 mod 4 | over k = 2,3 mod 4) */
  int32_t *s16;       /* [n][K/16]    sum of x */
  int16_t *b32;       /* [n][K/16][2] -32 * (as b8) */
  int8_t *pos, *neg;  /* [n][K]       x = pos - neg, one of them 0 */
  int32_t *n;         /* [n][K/32]    sum of neg */
  int8_t *hi, *lo;    /* [n][K]       x = 128 hi + lo, lo in 0..127 */
  int16_t *m;         /* [n][K/32]    round(ds / dm) */
  float *dm;          /* [n][K/256]   largest |ds| / 32767 */
  uint32_t n_cols;    /* K, padded */
};

/* The same activations from token t on. */
static inline struct act act_from(const struct act *a, size_t t) {
  const size_t k = t * a->n_cols;
  return (struct act){.f = a->f ? a->f + k : 0, .q16 = a->q16 ? a->q16 + k : 0, .q = a->q ? a->q + k : 0,
                      .d = a->d ? a->d + k / 32 : 0, .ds = a->ds ? a->ds + k / 32 : 0, .s = a->s ? a->s + k / 32 : 0,
                      .b8 = a->b8 ? a->b8 + k / 16 : 0, .s16 = a->s16 ? a->s16 + k / 16 : 0,
                      .b32 = a->b32 ? a->b32 + k / 8 : 0, .pos = a->pos ? a->pos + k : 0,
                      .neg = a->neg ? a->neg + k : 0, .n = a->n ? a->n + k / 32 : 0,
                      .hi = a->hi ? a->hi + k : 0, .lo = a->lo ? a->lo + k : 0, .m = a->m ? a->m + k / 32 : 0,
                      .dm = a->dm ? a->dm + k / 256 : 0, .n_cols = a->n_cols};
}

/* Kernels for one weight type in one precision. */
struct mat_kernels {
  uint32_t group_rows;  /* rows that are interleaved; rows of a matrix are padded to it */
  uint32_t block_cols;  /* columns of one packed block; K is padded to it */
  uint32_t block_bytes; /* bytes of one packed block: group_rows x block_cols weights */
  uint32_t header_bytes; /* bytes before the first block of each group */
  uint32_t needs;       /* ACT_...: the forms of x that mat reads */
  /* file: n_rows (1 .. group_rows) rows as in the file, row_bytes apart, readable 16 bytes past
   * the end; packed: one group. Missing rows and columns become zeros. */
  void (*pack)(const uint8_t *file, size_t row_bytes, uint8_t *packed, uint32_t n_rows, uint32_t n_cols);
  /* One row of a packed matrix as floats, for look-ups in a tied embedding. Values as to_float. */
  void (*row_to_float)(const uint8_t *packed, uint32_t row, uint32_t n_cols, float *out);
  /* y[t][r] = sum over k of w[r][k] x[t][k]: n_groups groups from w on, tokens 0 .. n_tokens - 1.
   * y: [n_tokens] rows, y_stride floats apart, n_groups * group_rows of each written.
   * scratch: one per thread, MAT_SCRATCH bytes. */
  void (*mat)(const uint8_t *w, const struct act *x, float *y, size_t y_stride, uint32_t n_groups,
              uint32_t n_cols, uint32_t n_tokens, void *scratch);
};
enum { MAT_SCRATCH = 160 * 1024 };

/* Bytes of one packed matrix. */
static inline uint64_t packed_bytes(const struct mat_kernels *k, uint64_t n_rows, uint64_t n_cols) {
  const uint64_t groups = (n_rows + k->group_rows - 1) / k->group_rows;
  return groups * (k->header_bytes + (n_cols + k->block_cols - 1) / k->block_cols * k->block_bytes);
}

/* Types of KV cache, rows of kv.def. */
enum kv_type {
#define KV_TYPE(id, name, items, bytes, row) KV_##id,
#include "kv.def"
#undef KV_TYPE
  N_KV_TYPES
};

/* q16: integers of 14 bits in 16, x = q * scale with one scale per row, an f32: max |x| / KV_Q16_MOST. 32 products of
 * two of them fit an int32, and they are as near as f16. NaN or infinity in a row is one of all its numbers. */
enum { KV_Q16_MOST = 8191 };

/* Non-linearities of the feed-forward part: x / (1 + e^-x), and the tanh form of GELU,
 * x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))). */
enum activation { ACTIVATION_SILU, ACTIVATION_GELU };

/* Queries of one KV head against one chunk. Vector i (a query head of some row) sees the positions
 * first[i] .. n_seen[i] - 1 of the chunk, n_seen[i] <= KV_CHUNK; with none such a vector gets
 * max = -inf, sum = 0, o = 0. What stands behind the largest n_seen does not matter. */
enum { KV_CHUNK = 256, ATTEND_VECTORS = 64 };
struct attend {
  const float *q;          /* [n_vectors][head_dim] */
  const uint32_t *first, *n_seen; /* [n_vectors] */
  uint32_t n_vectors;      /* 1 .. ATTEND_VECTORS */
  uint32_t head_dim;       /* % 8 = 0 */
  uint32_t kv_type;
  const void *k, *v;       /* rows of KV_CHUNK positions in kv_type, in an order of the set's own */
  float scale;
  float soft_cap;          /* a score s becomes cap tanh(s / cap); 0: stays s */
  float *o;                /* [n_vectors][head_dim]: sum of weight * v, not yet divided */
  float *max, *sum;        /* [n_vectors]: largest score, sum of exp(score - max) */
  void *scratch;           /* attend_scratch(head_dim) bytes, one per thread */
};

struct kernels {
  const char *name;
  /* Kernels for rows of a type; 0: none, the type is refused. */
  const struct mat_kernels *(*mat)(uint32_t quant, uint32_t precision);

  /* Bytes that act_place needs for n tokens; n_cols is padded by them. */
  size_t (*act_bytes)(uint32_t n_cols, uint32_t n_tokens, uint32_t needs);
  void (*act_place)(struct act *a, void *mem, uint32_t n_cols, uint32_t n_tokens, uint32_t needs);
  /* Fills tokens t0 .. t1 - 1 of a from x: token t's n_cols floats stand at x + t * x_stride. */
  void (*act_make)(const struct act *a, const float *x, size_t x_stride, uint32_t n_cols, uint32_t t0,
                   uint32_t t1, uint32_t needs, uint32_t precision);

  /* y = x / sqrt(mean of x^2 + eps) * w; y may be x. [n] each, any n >= 1. */
  void (*rms_norm)(const float *x, const float *w, float *y, uint32_t n, float eps);
  /* y = (x - mean) / sqrt(variance + eps) * w + b; b may be null, y may be x. */
  void (*layer_norm)(const float *x, const float *w, const float *b, float *y, uint32_t n, float eps);
  /* y = activation(g) * u, or without u where that is null; y may be g or u. */
  void (*activate)(enum activation kind, const float *g, const float *u, float *y, uint32_t n);
  /* y += x; y *= factor; y += x * factor; y = cap tanh(y / cap) */
  void (*add)(float *y, const float *x, uint32_t n);
  void (*scale)(float *y, float factor, uint32_t n);
  void (*add_scaled)(float *y, const float *x, float factor, uint32_t n);
  void (*soft_cap)(float *y, float cap, uint32_t n);
  /* The first rope_dim of each head turn, rope_dim even: pairs (2i, 2i + 1) or halves
   * (i, i + rope_dim / 2). x: [n_heads][head_dim]; c, s: [rope_dim / 2] cosines and sines. */
  void (*rope_pairs)(float *x, const float *c, const float *s, uint32_t n_heads, uint32_t head_dim, uint32_t rope_dim);
  void (*rope_halves)(float *x, const float *c, const float *s, uint32_t n_heads, uint32_t head_dim, uint32_t rope_dim);

  /* Stores a key or value of head_dim floats as position t of its rows (struct attend). f16: nearest, ties to
   * even, saturating at 65504; subnormals become zero. */
  void (*kv_store_key)(uint32_t kv_type, const float *x, void *rows, uint32_t t, uint32_t head_dim);
  void (*kv_store_value)(uint32_t kv_type, const float *x, void *rows, uint32_t t, uint32_t head_dim);
  size_t (*attend_scratch)(uint32_t head_dim);
  void (*attend)(const struct attend *a);
  /* Joins a later partial result b into a; in order of chunks, so bits do not depend on threads.
   * Either may be empty (max = -inf, sum = 0). o: [n_vectors][head_dim]. */
  void (*attend_fold)(float *o, float *max, float *sum, const float *bo, const float *bmax, const float *bsum,
                      uint32_t n_vectors, uint32_t head_dim);
  /* out[h] = o[h] / sum[h]: the weighted mean. */
  void (*attend_finish)(const float *o, const float *sum, float *out, uint32_t n_vectors, uint32_t head_dim);
};
extern const struct kernels kernels_ref, kernels_simd;

/* The set of this build. */
#ifndef LM_KERNELS
#define LM_KERNELS kernels_simd
#endif
#define KERNELS LM_KERNELS
