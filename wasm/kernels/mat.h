/* mat.h: products of packed weights and activations: the loops that all types share.
 *
 * R16: 16 rows interleaved, block of columns after block, scales inside the block: decode reads one
 * sequential stream and needs no horizontal sum. A quantised type gives a struct mat_form; everything
 * around its two inner functions stands here, once for decode and once for prefill.
 *
 * Bits: block sums are exact integers; then, per block in order of k, c += f32(sum) * (d * dx), and
 * with minima c += m * (dx * sum of x). Float types add w * x in order of k. So neither the number of
 * tokens nor the split of rows changes a bit. */
#pragma once
#include "../../src/kernels.h"
#include "../vec.h"

extern const struct mat_kernels mat_f32, mat_f16, mat_bf16;
/* any activations, as int16 */
extern const struct mat_kernels mat_q8_0, mat_q4_0, mat_q4_1, mat_q5_0, mat_q5_1, mat_iq4_nl;
extern const struct mat_kernels mat_q2_k, mat_q3_k, mat_q4_k, mat_q5_k, mat_q6_k, mat_iq4_xs;
#if VEC_HAS_RELAXED
/* 8-bit activations by the int8 dot */
extern const struct mat_kernels mat_q4_0_u7, mat_q4_1_u7, mat_q5_0_u7, mat_q5_1_u7;
extern const struct mat_kernels mat_q2_k_u7, mat_q3_k_u7, mat_q4_k_u7, mat_q5_k_u7, mat_q6_k_u7;
#define MAT_FAST(type) mat_##type##_u7
#else
#define MAT_FAST(type) mat_##type
#endif
#if VEC_HAS_DOT
/* 8-bit activations beside weights of 8 bits, 15-bit ones beside weights of 4, by two int8 dots each */
extern const struct mat_kernels mat_q8_0_signs, mat_q4_0_halves, mat_q4_1_halves;
#define MAT_SIGNS(type) mat_##type##_signs
#define MAT_HALVES(type) mat_##type##_halves
#else
#define MAT_SIGNS(type) mat_##type
#define MAT_HALVES(type) mat_##type
#endif

/* A core alone keeps few lines of memory on their way, and what fetches ahead starts anew at every page: so a matrix is
 * read in so many runs side by side, one block of each in turn (decode of real models: 1.6 times as fast on a Xeon with
 * 260 MiB of L3). */
enum { MAT_RUNS = 4 };

/* Prefill unpacks columns of a group of each run, so many at a time, for all tokens: the panels stay in L2. */
enum { PANEL_BLOCKS = 32, PANEL_COLS = 1024 };
struct mat_panel {
  union {
    int16_t i16[PANEL_BLOCKS][16][16][2]; /* block, pair of columns in the order of q16, row: w less its offset */
    uint8_t u7[PANEL_BLOCKS][8][16][4];   /* block, four columns, row: the unsigned value */
  };
  const uint8_t *packed; /* the panel's first block, for types that need no unpacking */
  float d[PANEL_BLOCKS][16], m[PANEL_BLOCKS][16];
};
_Static_assert(MAT_RUNS * sizeof(struct mat_panel) <= MAT_SCRATCH, "scratch");

/* s[4 i + v] += products of one block of rows 4v .. 4v + 3 of n runs, 1 or form->n_runs, whose weights stand at
 * w + i * run: four int32, or with u7 eight int16 that are yet to be added in pairs. mask: constant of the form. */
typedef void mat_dot(int n, v128_t *s, const uint8_t *w, size_t run, const struct act *x, size_t block, v128_t mask);
/* Products of one run for block b of the panel and two tokens: s[0..3] is the token whose block of x is b0, s[4..7]
 * that of b1. More than 8 accumulators spill in V8. */
typedef void mat_dot_tile(v128_t s[8], const struct mat_panel *p, size_t b, const struct act *x, size_t b0, size_t b1);
/* One block of weights to block b of the panel. */
typedef void mat_unpack(struct mat_panel *p, size_t b, const uint8_t *w, v128_t mask);

struct mat_form {
  uint32_t block_bytes; /* 16 f16 d, with minima 16 f16 m, then the weights */
  int32_t bias;         /* stored value less the weight: 8 in q4_0 */
  bool min, u7, signs;  /* signs: x as ACT_SIGNS */
  int n_runs;           /* that dot takes at a time: 2 where they can share what it loads of x, else 1 */
  enum vec_constant mask;
  mat_dot *dot;
  mat_dot_tile *dot_tile;
  mat_unpack *unpack;
};

INLINE size_t mat_weights_off(const struct mat_form *f) { return f->min ? 64 : 32; }

/* The bias leaves with the start value. int16 lanes may wrap on the way: they end within 16,257. */
INLINE v128_t mat_start(const struct mat_form *f, const struct act *x, size_t block) {
  if (f->signs) return v_load_splat(x->n + block);
  if (!f->bias) return v_i32(0);
  return f->u7 && !VEC_HAS_DOT ? v_load_splat(x->b8 + 2 * block) : v_i32(-f->bias * x->s[block]);
}

/* sums[i] += one block of n runs times x; w: the first run's. */
INLINE void mat_decode_block(const struct mat_form *f, const int n, const uint8_t *w, size_t run, const struct act *x,
                             size_t b, v128_t mask, v128_t (*sums)[4]) {
  const v128_t f16_bits = v_constant(F16_BITS), two112 = v_constant(TWO112), ones = v_constant(ONES16);
  const v128_t dx = v_load_splat(x->d + b), start = mat_start(f, x, b);
  v128_t s[8];
  UNROLLED for (int v = 0; v < 4 * n; v++) s[v] = start;
  f->dot(n, s, w + mat_weights_off(f), run, x, b, mask);
  UNROLLED for (int v = 0; v < 4 * n; v++) {
    const uint8_t *d = w + v / 4 * run + v % 4 * 8;
    v128_t *c = &sums[v / 4][v % 4];
    *c = v_add(*c, v_mul(v_from_i32(f->u7 ? v_sums8(s[v], ones) : s[v]), v_mul(v_load_f16(d, f16_bits, two112), dx)));
    if (f->min) *c = v_add(*c, v_mul(v_load_f16(d + 32, f16_bits, two112), v_load_splat(x->ds + b)));
  }
}

/* y[16 * n_groups] of token t. */
INLINE void mat_decode(const struct mat_form *f, const uint8_t *w, const struct act *x, uint32_t t, float *y,
                       uint32_t n_groups, size_t n_blocks) {
  const v128_t mask = v_constant(f->mask);
  while (n_groups) {
    const uint32_t n_runs = LM_MIN(n_groups, (uint32_t)MAT_RUNS), n = n_groups / n_runs;
    const size_t run = n * n_blocks * f->block_bytes;
    for (uint32_t g = 0; g < n; g++, y += 16) {
      v128_t sums[MAT_RUNS][4];
      UNROLLED for (int i = 0; i < MAT_RUNS * 4; i++) sums[i / 4][i % 4] = v_i32(0);
      for (size_t b = t * n_blocks; b < (t + 1) * n_blocks; b++, w += f->block_bytes) {
        uint32_t i = 0;
        ROLLED for (; i + f->n_runs <= n_runs; i += f->n_runs)
          mat_decode_block(f, f->n_runs, w + i * run, run, x, b, mask, sums + i);
        if (i < n_runs) mat_decode_block(f, 1, w + i * run, run, x, b, mask, sums + i);
      }
      for (uint32_t i = 0; i < n_runs; i++)
        UNROLLED for (int v = 0; v < 4; v++) v_store(y + 16 * (size_t)(i * n) + 4 * v, sums[i][v]);
    }
    w += (n_runs - 1) * run, y += 16 * (size_t)((n_runs - 1) * n), n_groups -= n_runs * n;
  }
}

INLINE void mat_dot_tile_i16(v128_t s[8], const struct mat_panel *p, size_t b, const struct act *x, size_t b0,
                             size_t b1) {
  const int16_t *w = p->i16[b][0][0], *q0 = x->q16 + 32 * b0, *q1 = x->q16 + 32 * b1;
  ROLLED for (int i = 0; i < 16; i++, w += 32, q0 += 2, q1 += 2) {
    const v128_t x0 = v_load_splat(q0), x1 = v_load_splat(q1);
    UNROLLED for (int v = 0; v < 4; v++) {
      const v128_t wv = v_load(w + 8 * v);
      s[v] = v_add32(s[v], v_dot16(x0, wv));
      s[v + 4] = v_add32(s[v + 4], v_dot16(x1, wv));
    }
  }
}

#if VEC_HAS_RELAXED
/* q0, q1: the tokens' 32 bytes. */
INLINE void mat_dot_tile_bytes(v128_t s[8], const struct mat_panel *p, size_t b, const int8_t *q0, const int8_t *q1) {
  const uint8_t *w = p->u7[b][0][0];
  ROLLED for (int i = 0; i < 8; i++, w += 64, q0 += 4, q1 += 4) {
    const v128_t x0 = v_load_splat(q0), x1 = v_load_splat(q1);
    UNROLLED for (int v = 0; v < 4; v++) {
      const v128_t wv = v_load(w + 16 * v);
      s[v] = v_add_dot8(s[v], x0, wv);
      s[v + 4] = v_add_dot8(s[v + 4], x1, wv);
    }
  }
}

INLINE void mat_dot_tile_u7(v128_t s[8], const struct mat_panel *p, size_t b, const struct act *x, size_t b0,
                            size_t b1) {
  mat_dot_tile_bytes(s, p, b, x->q + 32 * b0, x->q + 32 * b1);
}

#endif

#if VEC_HAS_DOT
/* 15 bits as 128 hi + lo. The panel holds unsigned values: the bias leaves here. */
INLINE void mat_dot_tile_halves(v128_t s[8], const struct mat_panel *p, size_t b, const struct act *x, size_t b0,
                                size_t b1, int32_t bias) {
  mat_dot_tile_bytes(s, p, b, x->hi + 32 * b0, x->hi + 32 * b1);
  UNROLLED for (int v = 0; v < 8; v++) s[v] = v_add32(v_i32(-bias * x->s[v < 4 ? b0 : b1]), v_shl32(s[v], 7));
  mat_dot_tile_bytes(s, p, b, x->lo + 32 * b0, x->lo + 32 * b1);
}
#endif

INLINE void mat_unpack_block(const struct mat_form *f, struct mat_panel *p, size_t b, const uint8_t *w) {
  const v128_t f16_bits = v_constant(F16_BITS), two112 = v_constant(TWO112);
  f->unpack(p, b, w + mat_weights_off(f), v_constant(f->mask));
  UNROLLED for (int v = 0; v < 4; v++) {
    v_store(p->d[b] + 4 * v, v_load_f16(w + 8 * v, f16_bits, two112));
    if (f->min) v_store(p->m[b] + 4 * v, v_load_f16(w + 32 + 8 * v, f16_bits, two112));
  }
}

/* c += block b of the panel times blocks b0 and b1 of x, those of two tokens. */
INLINE void mat_tile_block(const struct mat_form *f, const struct mat_panel *p, size_t b, const struct act *x,
                           size_t b0, size_t b1, v128_t c[8]) {
  const v128_t ones = v_constant(ONES16), d0 = v_load_splat(x->d + b0), d1 = v_load_splat(x->d + b1);
  v128_t s[8];
  s[0] = s[1] = s[2] = s[3] = f->u7 ? mat_start(f, x, b0) : v_i32(0);
  s[4] = s[5] = s[6] = s[7] = f->u7 ? mat_start(f, x, b1) : v_i32(0);
  f->dot_tile(s, p, b, x, b0, b1);
  UNROLLED for (int v = 0; v < 4; v++) {
    const v128_t d = v_load(p->d[b] + 4 * v);
    c[v] = v_add(c[v], v_mul(v_from_i32(f->u7 ? v_sums8(s[v], ones) : s[v]), v_mul(d, d0)));
    c[v + 4] = v_add(c[v + 4], v_mul(v_from_i32(f->u7 ? v_sums8(s[v + 4], ones) : s[v + 4]), v_mul(d, d1)));
    if (f->min) c[v] = v_add(c[v], v_mul(v_load(p->m[b] + 4 * v), v_load_splat(x->ds + b0)));
    if (f->min) c[v + 4] = v_add(c[v + 4], v_mul(v_load(p->m[b] + 4 * v), v_load_splat(x->ds + b1)));
  }
}

/* 16 sums of two tokens; nothing yet before block 0. */
INLINE void mat_load_sums(v128_t c[8], const float *y0, const float *y1, size_t k) {
  UNROLLED for (int v = 0; v < 4; v++) {
    c[v] = k ? v_load(y0 + 4 * v) : v_i32(0);
    c[v + 4] = k ? v_load(y1 + 4 * v) : v_i32(0);
  }
}

INLINE void mat_store_sums(const v128_t c[8], float *y0, float *y1) {
  UNROLLED for (int v = 0; v < 4; v++) v_store(y0 + 4 * v, c[v]), v_store(y1 + 4 * v, c[v + 4]);
}

/* n blocks of the panel, from block k of the group on, against tokens t and t + 1. */
INLINE void mat_tile(const struct mat_form *f, const struct mat_panel *p, const struct act *x, uint32_t t,
                     size_t n_blocks, size_t k, size_t n, float *y0, float *y1) {
  const size_t b0 = t * n_blocks + k;
  v128_t c[8];
  mat_load_sums(c, y0, y1, k);
  for (size_t b = 0; b < n; b++) mat_tile_block(f, p, b, x, b0 + b, b0 + n_blocks + b, c);
  mat_store_sums(c, y0, y1);
}

/* The same for the first tokens and a group of each run, unpacked meanwhile: what is computed between two blocks hides
 * the time that memory takes. keep: to p[run], for tokens to come; else each block takes the place of the one before,
 * which stays in L1 (2 tokens 1.24 times as fast). w: block k of the first run; y: its sums of token 0. */
enum { MAT_FIRST = 8 };
INLINE void mat_first_tiles(const struct mat_form *f, struct mat_panel *p, const uint8_t *w, const struct act *x,
                            size_t n_blocks, size_t k, size_t n, float *y, size_t y_stride, uint32_t n_tokens,
                            uint32_t n_runs, uint32_t run_groups, bool keep) {
  const size_t run = run_groups * n_blocks * f->block_bytes, y_run = 16 * (size_t)run_groups;
  v128_t sums[MAT_RUNS][MAT_FIRST / 2][8];
  for (uint32_t i = 0; i < n_runs; i++) {
    for (uint32_t t = 0; t < n_tokens; t += 2)
      mat_load_sums(sums[i][t / 2], y + i * y_run + t * y_stride, y + i * y_run + (t + 1) * y_stride, k);
  }
  for (size_t b = 0; b < n; b++, w += f->block_bytes)
    ROLLED for (uint32_t i = 0; i < n_runs; i++) {
      struct mat_panel *to = keep ? p + i : p;
      const size_t at = keep ? b : 0;
      to->packed = w + i * run - at * f->block_bytes;
      mat_unpack_block(f, to, at, w + i * run);
      size_t bt = k + b;
      ROLLED for (uint32_t t = 0; t < n_tokens; t += 2, bt += 2 * n_blocks)
        mat_tile_block(f, to, at, x, bt, bt + n_blocks, sums[i][t / 2]);
    }
  for (uint32_t i = 0; i < n_runs; i++)
    for (uint32_t t = 0; t < n_tokens; t += 2)
      mat_store_sums(sums[i][t / 2], y + i * y_run + t * y_stride, y + i * y_run + (t + 1) * y_stride);
}

/* An even number of tokens. */
INLINE void mat_prefill(const struct mat_form *f, const uint8_t *w, const struct act *x, float *y, size_t y_stride,
                        uint32_t n_groups, size_t n_blocks, uint32_t n_tokens, struct mat_panel *p) {
  const uint32_t n_first = LM_MIN(n_tokens, (uint32_t)MAT_FIRST);
  while (n_groups) {
    const uint32_t n_runs = LM_MIN(n_groups, (uint32_t)MAT_RUNS), n_each = n_groups / n_runs;
    for (uint32_t g = 0; g < n_each; g++)
      for (size_t k = 0; k < n_blocks; k += PANEL_BLOCKS) {
        const size_t n = LM_MIN(n_blocks - k, (size_t)PANEL_BLOCKS);
        float *yg = y + 16 * (size_t)g;
        mat_first_tiles(f, p, w + (g * n_blocks + k) * f->block_bytes, x, n_blocks, k, n, yg, y_stride, n_first, n_runs,
                        n_each, n_first < n_tokens);
        for (uint32_t i = 0; i < n_runs; i++, yg += 16 * (size_t)n_each)
          for (uint32_t t = n_first; t < n_tokens; t += 2)
            mat_tile(f, p + i, x, t, n_blocks, k, n, yg + t * y_stride, yg + (t + 1) * y_stride);
      }
    w += n_runs * n_each * n_blocks * f->block_bytes, y += 16 * (size_t)(n_runs * n_each), n_groups -= n_runs * n_each;
  }
}

/* Groups that decode takes of one token before the next token's turn: so many that they are still in L2 then. */
enum { MAT_SLICE = 128 * 1024 };
INLINE uint32_t mat_slice(uint32_t n_groups, size_t group_bytes, uint32_t n_tokens) {
  const size_t rounds = MAT_SLICE / (MAT_RUNS * group_bytes);
  return n_tokens == 1 ? n_groups : LM_MIN(n_groups, MAT_RUNS * (uint32_t)LM_MAX(rounds, (size_t)1));
}

/* mat of struct mat_kernels: pairs of tokens by tiles, which pay from four tokens on, what is left by decode. */
INLINE void mat_quantised(const struct mat_form *f, const uint8_t *w, const struct act *x, float *y, size_t y_stride,
                          uint32_t n_groups, uint32_t n_cols, uint32_t n_tokens, struct mat_panel *p) {
  const size_t n_blocks = n_cols / 32;
  const size_t group_bytes = n_blocks * f->block_bytes;
  const uint32_t even = n_tokens < 4 ? 0 : n_tokens & ~1u;
  if (even) mat_prefill(f, w, x, y, y_stride, n_groups, n_blocks, even, p);
  const uint32_t slice = mat_slice(n_groups, group_bytes, n_tokens - even);
  for (uint32_t g = 0; g < n_groups; g += slice)
    for (uint32_t t = even; t < n_tokens; t++)
      mat_decode(f, w + g * group_bytes, x, t, y + t * y_stride + 16 * (size_t)g, LM_MIN(slice, n_groups - g),
                 n_blocks);
}
