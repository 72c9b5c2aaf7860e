/* attend_q16.c: attention over a chunk of q16, in integers. Keys, values, queries and weights are integers of 14
 * bits in 16, so that 32 products of two of them fit an int32; a query has one scale, and the weights of a span of 32
 * positions, times the scales of the values that they meet, have one. Such sums are exact, so neither order nor
 * company can change a bit.
 *
 * A chunk is read from STREAMS places in turn, line by line: memory answers them side by side. A block holds the
 * SLOTS positions of a span that one of them gives: their scales (f32), then
 *
 *   keys [D/2][SLOTS][2]   values [SLOTS/2][D][2]
 *
 * int16. A score stays in its lane, no horizontal sums; all registers are sums of one query, since reading a span
 * again for the next, from L1, costs no more than keeping its words apart. */
#include "attend.h"

enum {
  STREAMS = 4,
  SPAN = 32,
  SLOTS = SPAN / STREAMS,
  N_SPANS = KV_CHUNK / SPAN,
  PAIRS = 16,      /* of dimensions, summed as integers */
  SUMS = SPAN / 4, /* registers of them */
  PER_STREAM = SUMS / STREAMS
};

INLINE size_t q16_block_bytes(uint32_t D) { return SLOTS * (sizeof(float) + D * sizeof(int16_t)); }

/* The block of the position in slot t % SPAN of its span. */
INLINE uint8_t *q16_block(const void *rows, uint32_t t, uint32_t D) {
  return (uint8_t *)rows + (t % SPAN / SLOTS * N_SPANS + t / SPAN) * q16_block_bytes(D);
}
INLINE float *q16_scales(const void *rows, uint32_t t, uint32_t D) {
  return (float *)(void *)q16_block(rows, t, D) + t % SLOTS;
}
INLINE int16_t *q16_items(const void *rows, uint32_t t, uint32_t D) {
  return (int16_t *)(void *)(q16_block(rows, t, D) + SLOTS * sizeof(float));
}

/* The largest of n magnitudes; NaN and infinity are above all. */
INLINE float q16_most(const float *x, uint32_t n) {
  v128_t max = v_i32(0);
  ROLLED for (uint32_t i = 0; i < n; i += 4) max = v_max32(max, v_abs(v_load(x + i)));
  max = v_max32(max, v_shuffle32(max, max, 2, 3, 0, 1));
  max = v_max32(max, v_shuffle32(max, max, 1, 0, 3, 2));
  return v_lane(max, 0);
}

/* What brings numbers of that size to KV_Q16_MOST; 0 where it would overflow. NaN and infinity stay in the scale. */
INLINE v128_t q16_inverse(float most) { return v_f32(most > 0x1p-111f ? KV_Q16_MOST / most : 0); }

/* Eight integers, ties to even. */
INLINE v128_t q16_eight(const float *x, v128_t inverse, v128_t round) {
  return v_narrow32(v_sub32(v_add(v_mul(v_load(x), inverse), round), round),
                    v_sub32(v_add(v_mul(v_load(x + 4), inverse), round), round));
}

/* n floats (n % 8 = 0) as integers: each two are a word, words stand `stride` apart. Returns the scale. */
INLINE float q16_round(const float *x, int32_t *out, uint32_t n, size_t stride) {
  const float most = q16_most(x, n);
  const v128_t inverse = q16_inverse(most), round = v_constant(ROUND);
  ROLLED for (uint32_t i = 0; i < n; i += 8, out += 4 * stride) {
    const v128_t both = q16_eight(x + i, inverse, round);
    UNROLLED for (int j = 0; j < 4; j++) out[j * stride] = v_lane32(both, j);
  }
  return most / KV_Q16_MOST;
}

void attend_q16_store(bool is_value, const float *x, void *rows, uint32_t t, uint32_t head_dim) {
  int16_t *to = q16_items(rows, t, head_dim);
  float *scale = q16_scales(rows, t, head_dim);
  if (!is_value) {
    *scale = q16_round(x, (int32_t *)(void *)to + t % SLOTS, head_dim, SLOTS);
    return;
  }
  const float most = q16_most(x, head_dim);
  const v128_t inverse = q16_inverse(most), round = v_constant(ROUND);
  to += t % SLOTS / 2 * 2 * head_dim + t % 2;
  ROLLED for (uint32_t d = 0; d < head_dim; d += 8) {
    const v128_t ints = q16_eight(x + d, inverse, round);
    UNROLLED for (int j = 0; j < 8; j++) to[2 * (d + (uint32_t)j)] = v_lane16(ints, j);
  }
  *scale = most / KV_Q16_MOST;
}

struct q16_scratch {
  int32_t *q; /* [n_vectors][D/2] pairs */
  float *dq;  /* [n_vectors] times the scale of scores */
  float *s;   /* [n_vectors][KV_CHUNK] scores, then weights */
};

size_t attend_q16_scratch(uint32_t head_dim) {
  return ATTEND_VECTORS * (head_dim * sizeof(int16_t) + (1 + KV_CHUNK) * sizeof(float));
}

INLINE struct q16_scratch q16_place(const struct attend *a) {
  struct q16_scratch z;
  z.s = a->scratch;
  z.dq = z.s + ATTEND_VECTORS * KV_CHUNK;
  z.q = (int32_t *)(z.dq + ATTEND_VECTORS);
  return z;
}

/* Scores of a span. */
INLINE void q16_scores(const void *keys, uint32_t t, const int32_t *q, float dq, float *s, uint32_t D) {
  const size_t stride = N_SPANS * q16_block_bytes(D) / sizeof(int16_t);
  for (uint32_t p = 0; p < D / 2; p += PAIRS) {
    const int16_t *k = q16_items(keys, t, D) + p * 2 * SLOTS, *end = k + LM_MIN(D / 2 - p, (uint32_t)PAIRS) * 2 * SLOTS;
    v128_t c[SUMS];
    UNROLLED for (int j = 0; j < SUMS; j++) c[j] = v_i32(0);
    ROLLED for (; k < end; k += 2 * SLOTS, q++) {
      const v128_t x = v_load_splat(q);
      UNROLLED for (int j = 0; j < SUMS; j++)
        c[j] = v_add32(c[j], v_dot16(v_load(k + j / PER_STREAM * stride + j % PER_STREAM * 8), x));
    }
    UNROLLED for (int j = 0; j < SUMS; j++) {
      const v128_t sum = v_from_i32(c[j]);
      v_store(s + 4 * j, p ? v_add(v_load(s + 4 * j), sum) : sum);
    }
  }
  UNROLLED for (uint32_t j = 0; j < SUMS; j++)
    v_store(s + 4 * j, v_mul(v_load(s + 4 * j), v_mul(v_load(q16_scales(keys, t + 4 * j, D)), v_f32(dq))));
}

/* The weights of a span's positions, vector i's, times the scales of values, rounded to pairs; nothing where it does
 * not look. Returns the scale. */
INLINE float q16_round_weights(const struct attend *a, uint32_t i, uint32_t t, const float *s, int32_t *w) {
  float products[SPAN];
  UNROLLED for (uint32_t j = 0; j < SPAN; j += 4)
    v_store(products + j, v_mul(v_load(s + j), v_load(q16_scales(a->v, t + j, a->head_dim))));
  for (uint32_t j = t; j < LM_MIN(a->first[i], t + SPAN); j++) products[j - t] = 0;
  for (uint32_t j = LM_MAX(a->n_seen[i], t); j < t + SPAN; j++) products[j - t] = 0;
  return q16_round(products, w, SPAN, 1);
}

/* o += a span's weights times 4 m dimensions of its values. */
INLINE void q16_values(const int m, const int16_t *v, const int32_t *w, float dw, float *o, uint32_t D) {
  const size_t stride = N_SPANS * q16_block_bytes(D) / sizeof(int16_t);
  v128_t c[SUMS];
  UNROLLED for (int j = 0; j < m; j++) c[j] = v_i32(0);
  ROLLED for (const int32_t *end = w + SLOTS / 2; w < end; v += 2 * D, w++)
    UNROLLED for (int i = 0; i < STREAMS; i++) {
      const v128_t x = v_load_splat(w + i * SLOTS / 2);
      UNROLLED for (int j = 0; j < m; j++) c[j] = v_add32(c[j], v_dot16(v_load(v + i * stride + 8 * j), x));
    }
  UNROLLED for (int j = 0; j < m; j++) v_store(o + 4 * j, v_add(v_load(o + 4 * j), v_mul(v_from_i32(c[j]), v_f32(dw))));
}

void attend_q16_chunk(const struct attend *a) {
  const uint32_t D = a->head_dim, n = a->n_vectors;
  const struct q16_scratch z = q16_place(a);
  const struct attend_span all = attend_span(a, 0, n);
  for (uint32_t i = 0; i < n; i++)
    z.dq[i] = q16_round(a->q + (size_t)i * D, z.q + (size_t)i * D / 2, D, 1) * a->scale;
  for (uint32_t t = all.from / SPAN * SPAN; t < all.to; t += SPAN)
    for (uint32_t i = 0; i < n; i++)
      if (t < a->n_seen[i] && t + SPAN > a->first[i])
        q16_scores(a->k, t, z.q + (size_t)i * D / 2, z.dq[i], z.s + (size_t)i * KV_CHUNK + t, D);
  for (uint32_t i = 0; i < n; i++) attend_softmax(a, i, z.s + (size_t)i * KV_CHUNK, 1);
  zero_bytes(a->o, (size_t)n * D * sizeof *a->o);
  for (uint32_t t = all.from / SPAN * SPAN; t < all.to; t += SPAN) {
    const int16_t *v = q16_items(a->v, t, D);
    for (uint32_t i = 0; i < n; i++) {
      if (t >= a->n_seen[i] || t + SPAN <= a->first[i]) continue;
      int32_t w[SPAN / 2];
      const float dw = q16_round_weights(a, i, t, z.s + (size_t)i * KV_CHUNK + t, w);
      float *o = a->o + (size_t)i * D;
      uint32_t d = 0;
      for (; d + 4 * SUMS <= D; d += 4 * SUMS) q16_values(SUMS, v + 2 * d, w, dw, o + d, D);
      for (; d < D; d += 8) q16_values(2, v + 2 * d, w, dw, o + d, D);
    }
  }
}
