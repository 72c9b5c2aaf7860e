/* act.c: activations as the weights' kernels want them: floats, or integers with one scale per 32 and
 * the sums that the kernels start from.
 *
 * Per 32 for all types: of a product with 1 % of outliers the relative error is 0.85 % with 8 bits,
 * against 1.9 % with one scale per 256. */
#include "../vec.h"
#include "../../src/lm.h"
#include "set.h"

/* Runs `place` for each form in needs, in the order in memory, each 64-byte aligned. */
#define ACT_FORMS(place) \
  do { \
    if (needs & ACT_F32) place(f, n); \
    if (needs & ACT_I16) place(q16, n); \
    if (needs & ACT_I8) place(q, n); \
    if (needs & ~(uint32_t)ACT_F32) { \
      place(d, n / 32); \
      place(ds, n / 32); \
      place(s, n / 32); \
    } \
    if (needs & ACT_I8) place(b8, n / 16); \
    if (needs & ACT_SIGNS) { \
      place(pos, n); \
      place(neg, n); \
      place(n, n / 32); \
    } \
    if (needs & ACT_HALVES) { \
      place(hi, n); \
      place(lo, n); \
    } \
    if (needs & ACT_SUM16) place(s16, n / 16); \
    if ((needs & ACT_SUM16) && (needs & ACT_I8)) place(b32, n / 8); \
    if (needs & ACT_MIN) { \
      place(m, n / 32); \
      place(dm, n / 256); \
    } \
  } while (0)

size_t act_bytes(uint32_t n_cols, uint32_t n_tokens, uint32_t needs) {
  const struct act *a = 0;
  const size_t n = (size_t)align_up(n_cols, PAD_COLS) * n_tokens;
  size_t bytes = 0;
#define PLACE(field, count) bytes += (size_t)align_up((count) * sizeof *a->field, 64)
  ACT_FORMS(PLACE);
#undef PLACE
  return bytes;
}

void act_place(struct act *a, void *mem, uint32_t n_cols, uint32_t n_tokens, uint32_t needs) {
  uint8_t *at = mem;
  *a = (struct act){.n_cols = (uint32_t)align_up(n_cols, PAD_COLS)};
  const size_t n = (size_t)a->n_cols * n_tokens;
#define PLACE(field, count) a->field = (void *)at, at += align_up((count) * sizeof *a->field, 64)
  ACT_FORMS(PLACE);
#undef PLACE
}

/* Those of 16 columns each. */
INLINE void act_sums16(const struct act *a, size_t at, const v128_t sums[2], uint32_t needs) {
  UNROLLED for (int h = 0; h < 2; h++) {
    const int32_t s0 = v_lane32(sums[h], 0) + v_lane32(sums[h], 2), s1 = v_lane32(sums[h], 1) + v_lane32(sums[h], 3);
    a->s16[at + h] = s0 + s1;
    if (needs & ACT_I8) a->b32[2 * (at + h)] = (int16_t)(-32 * s0), a->b32[2 * (at + h) + 1] = (int16_t)(-32 * s1);
  }
}

/* v: 32 integers. */
INLINE void act_signs(const struct act *a, size_t b, const v128_t v[8], v128_t ones) {
  v128_t sums = v_i32(0);
  UNROLLED for (int h = 0; h < 2; h++) {
    v128_t pos[4], neg[4];
    UNROLLED for (int i = 0; i < 4; i++) {
      pos[i] = v_max32(v[4 * h + i], v_i32(0));
      neg[i] = v_sub32(pos[i], v[4 * h + i]);
    }
    const v128_t low = v_narrow32(neg[0], neg[1]), high = v_narrow32(neg[2], neg[3]);
    sums = v_add32(sums, v_add32(v_dot16(low, ones), v_dot16(high, ones)));
    v_store(a->pos + 32 * b + 16 * h, v_narrow16(v_narrow32(pos[0], pos[1]), v_narrow32(pos[2], pos[3])));
    v_store(a->neg + 32 * b + 16 * h, v_narrow16(low, high));
  }
  a->n[b] = v_lane32(sums, 0) + v_lane32(sums, 1) + v_lane32(sums, 2) + v_lane32(sums, 3);
}

INLINE void act_halves(const struct act *a, size_t b, const v128_t v[8]) {
  const v128_t low = v_i32(127);
  UNROLLED for (int h = 0; h < 2; h++) {
    v128_t hi[4], lo[4];
    UNROLLED for (int i = 0; i < 4; i++) hi[i] = v_shr32(v[4 * h + i], 7), lo[i] = v_and(v[4 * h + i], low);
    v_store(a->hi + 32 * b + 16 * h, v_narrow16(v_narrow32(hi[0], hi[1]), v_narrow32(hi[2], hi[3])));
    v_store(a->lo + 32 * b + 16 * h, v_narrow16(v_narrow32(lo[0], lo[1]), v_narrow32(lo[2], lo[3])));
  }
}

/* 32 values to integers: v * top / max, ties to even; nothing but zeros where that would overflow. A
 * NaN is the largest of all, becomes the scale and so reaches the product. */
INLINE void act_quantise(const struct act *a, size_t b, const float *x, float top, uint32_t needs) {
  const v128_t round = v_constant(ROUND), ones = v_constant(ONES16);
  v128_t v[8], max = v_i32(0);
  UNROLLED for (int i = 0; i < 8; i++) {
    v[i] = v_load(x + 4 * i);
    max = v_max32(max, v_abs(v[i]));
  }
  max = v_max32(max, v_shuffle32(max, max, 2, 3, 0, 1));
  max = v_max32(max, v_shuffle32(max, max, 1, 0, 3, 2));
  const float m = v_lane(max, 0);
  const v128_t inverse = v_f32(m > 0x1p-112f ? top / m : 0);
  UNROLLED for (int i = 0; i < 8; i++) v[i] = v_sub32(v_add(v_mul(v[i], inverse), round), round);

  v128_t sums[2]; /* of columns 0..15 and 16..31; lanes 0, 2: columns 0,1 mod 4; lanes 1, 3: columns 2,3 mod 4 */
  UNROLLED for (int h = 0; h < 2; h++) {
    const v128_t low = v_narrow32(v[4 * h], v[4 * h + 1]), high = v_narrow32(v[4 * h + 2], v[4 * h + 3]);
    sums[h] = v_add32(v_dot16(low, ones), v_dot16(high, ones));
    if (needs & ACT_I16) {
      v_store(a->q16 + 32 * b + 16 * h, v_shuffle16(low, 0, 2, 1, 3, 4, 6, 5, 7));
      v_store(a->q16 + 32 * b + 16 * h + 8, v_shuffle16(high, 0, 2, 1, 3, 4, 6, 5, 7));
    }
    if (needs & ACT_I8) v_store(a->q + 32 * b + 16 * h, v_narrow16(low, high));
  }
  const v128_t all = v_add32(sums[0], sums[1]);
  const int32_t s0 = v_lane32(all, 0) + v_lane32(all, 2), s1 = v_lane32(all, 1) + v_lane32(all, 3);
  a->d[b] = m / top;
  a->ds[b] = a->d[b] * (float)(s0 + s1);
  a->s[b] = s0 + s1;
  if (needs & ACT_I8) a->b8[2 * b] = (int16_t)(-8 * s0), a->b8[2 * b + 1] = (int16_t)(-8 * s1);
  if (needs & ACT_SUM16) act_sums16(a, 2 * b, sums, needs);
  if (VEC_HAS_DOT && (needs & ACT_SIGNS)) act_signs(a, b, v, ones);
  if (VEC_HAS_DOT && (needs & ACT_HALVES)) act_halves(a, b, v);
}

/* The sums of eight blocks as int16 of one scale, so that the minima of K-quants meet them in integers. */
INLINE void act_minima(const struct act *a, size_t b) {
  const v128_t round = v_constant(ROUND), ds0 = v_load(a->ds + 8 * b), ds1 = v_load(a->ds + 8 * b + 4);
  const float top = v_max_lane(v_pmax(v_abs(ds0), v_abs(ds1)));
  const v128_t inverse = v_f32(top > 0x1p-111f ? 32767 / top : 0);
  a->dm[b] = top / 32767;
  v_store(a->m + 8 * b, v_narrow32(v_sub32(v_add(v_mul(ds0, inverse), round), round),
                                   v_sub32(v_add(v_mul(ds1, inverse), round), round)));
}

void act_make(const struct act *a, const float *x, size_t x_stride, uint32_t n_cols, uint32_t t0, uint32_t t1,
              uint32_t needs, uint32_t precision) {
  const float top = precision == LM_FAST ? 127 : 16383;
  for (size_t t = t0; t < t1; t++)
    for (size_t k = 0; k < a->n_cols; k += PAD_COLS) {
      const float *from = x + t * x_stride + k;
      const size_t at = t * a->n_cols + k;
      float last[PAD_COLS];
      if (n_cols - k < PAD_COLS) {
        zero_bytes(last, sizeof last);
        copy_bytes(last, from, (n_cols - k) * sizeof *last);
        from = last;
      }
      if (needs & ACT_F32) copy_bytes(a->f + at, from, sizeof last);
      if (needs & ~(uint32_t)ACT_F32) act_quantise(a, at / 32, from, top, needs);
      if ((needs & ACT_MIN) && at % 256 == 256 - PAD_COLS) act_minima(a, at / 256);
    }
}
