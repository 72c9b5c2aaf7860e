/* attend.c: attention of the queries of one KV head over one chunk, by online softmax.
 *
 * All vectors (the query heads that share the KV head, times the rows of a prompt) share each block of
 * 32 positions, converted to f32 once: that is what makes grouped queries pay. Vectors go in pairs
 * where both see a position; the order of every sum is a vector's own, so neither its company nor the
 * pairing changes a bit. Separate mul and add: the same bits everywhere (fused: 1.15-1.2 times as fast). */
#include "exp.h"
#include "set.h"

size_t attend_scratch(uint32_t head_dim) {
  return (2 * ATTEND_BLOCK * (size_t)head_dim + ATTEND_VECTORS * ATTEND_BLOCK) * sizeof(float);
}

/* n rows of head_dim floats to f32. */
INLINE void attend_convert(float *o, uint32_t kv_type, const void *from, size_t n) {
  if (kv_type == KV_F32) {
    copy_bytes(o, from, n * sizeof *o);
    return;
  }
  const v128_t f16_bits = v_constant(F16_BITS), two112 = v_constant(TWO112);
  const f16 *p = from;
  ROLLED for (size_t i = 0; i < n; i += 8) {
    v_store(o + i, v_load_f16(p + i, f16_bits, two112));
    v_store(o + i + 4, v_load_f16(p + i + 4, f16_bits, two112));
  }
}

/* Scores of 4 positions for 1 or 2 vectors. */
INLINE void attend_scores(float *s, const float *q, const float *k, uint32_t head_dim, float scale, const int pair) {
  v128_t a[8];
  UNROLLED for (int i = 0; i < 4 * pair; i++) a[i] = v_i32(0);
  ROLLED for (uint32_t d = 0; d < head_dim; d += 4)
    UNROLLED for (int j = 0; j < 4; j++) {
      const v128_t kj = v_load(k + (size_t)j * head_dim + d);
      UNROLLED for (int h = 0; h < pair; h++)
        a[4 * h + j] = v_add(a[4 * h + j], v_mul(kj, v_load(q + (size_t)h * head_dim + d)));
    }
  UNROLLED for (int h = 0; h < pair; h++) {
    v128_t *r = a + 4 * h;
    v_transpose(r);
    v_store(s + h * ATTEND_BLOCK, v_mul(v_f32(scale), v_add(v_add(r[0], r[2]), v_add(r[1], r[3]))));
  }
}

/* o += weights of n positions times V, in 4 * vecs dimensions, for 1 or 2 vectors. */
INLINE void attend_values(float *o, const float *p, const float *v, uint32_t n, uint32_t head_dim, const int pair,
                          const int vecs) {
  v128_t a[8];
  UNROLLED for (int i = 0; i < pair * vecs; i++) a[i] = v_load(o + (size_t)(i / vecs) * head_dim + i % vecs * 4);
  ROLLED for (uint32_t t = 0; t < n; t++, v += head_dim, p++)
    UNROLLED for (int i = 0; i < vecs; i++) {
      const v128_t vi = v_load(v + 4 * i);
      UNROLLED for (int h = 0; h < pair; h++)
        a[h * vecs + i] = v_add(a[h * vecs + i], v_mul(vi, v_load_splat(p + h * ATTEND_BLOCK)));
    }
  UNROLLED for (int i = 0; i < pair * vecs; i++) v_store(o + (size_t)(i / vecs) * head_dim + i % vecs * 4, a[i]);
}

INLINE void attend_values_single(float *o, const float *p, const float *v, uint32_t n, uint32_t head_dim) {
  uint32_t d = 0;
  for (; d + 32 <= head_dim; d += 32) attend_values(o + d, p, v + d, n, head_dim, 1, 8);
  for (; d < head_dim; d += 8) attend_values(o + d, p, v + d, n, head_dim, 1, 2);
}

INLINE void attend_values_pair(float *o, const float *p, const float *v, uint32_t n, uint32_t head_dim) {
  uint32_t d = 0;
  for (; d + 16 <= head_dim; d += 16) attend_values(o + d, p, v + d, n, head_dim, 2, 4);
  if (d < head_dim) attend_values(o + d, p, v + d, n, head_dim, 2, 2);
}

/* Scores of the positions from .. to - 1 to weights; what stands in o is rescaled only when the
 * maximum rises. */
INLINE void attend_softmax(float *s, float *o, float *max, float *sum, uint32_t from, uint32_t to, uint32_t head_dim,
                           const struct exp_constants *e) {
  /* lanes outside weigh e^-87, and are never multiplied with V */
  for (uint32_t t = from & ~3u; t < from; t++) s[t] = -__builtin_inff();
  for (uint32_t t = to; t % 4; t++) s[t] = -__builtin_inff();
  from &= ~3u;
  v128_t m = v_load(s + from);
  for (uint32_t t = from + 4; t < to; t += 4) m = v_pmax(m, v_load(s + t));
  const float top = v_max_lane(m);
  if (top > *max) {
    const v128_t shrink = v_exp(v_f32(*max - top), e);
    *max = top;
    *sum *= v_lane(shrink, 0);
    ROLLED for (uint32_t d = 0; d < head_dim; d += 4) v_store(o + d, v_mul(v_load(o + d), shrink));
  }
  m = v_f32(*max);
  v128_t total = v_i32(0);
  ROLLED for (uint32_t t = from; t < to; t += 4) {
    const v128_t w = v_exp(v_sub(v_load(s + t), m), e);
    v_store(s + t, w);
    total = v_add(total, w);
  }
  *sum += v_sum(total);
}

/* The block's positions, from t on, that vector i sees; from = to: none, or there is no such vector. */
struct attend_span {
  uint32_t from, to;
};
INLINE struct attend_span attend_seen(const struct attend *a, uint32_t i, uint32_t t) {
  if (i >= a->n_vectors || a->n_seen[i] <= t) return (struct attend_span){0, 0};
  const uint32_t to = LM_MIN(a->n_seen[i] - t, (uint32_t)ATTEND_BLOCK), from = a->first[i] > t ? a->first[i] - t : 0;
  return (struct attend_span){LM_MIN(from, to), to};
}

/* One block: k, v: its positions in f32; s: scores, then weights, [n_vectors][ATTEND_BLOCK]. */
INLINE void attend_block(const struct attend *a, uint32_t t, const float *k, const float *v, float *s,
                         const struct exp_constants *e) {
  const uint32_t D = a->head_dim, n_vectors = a->n_vectors;
  for (uint32_t i = 0; i < n_vectors; i += 2) {
    const uint32_t n0 = attend_seen(a, i, t).to, n1 = attend_seen(a, i + 1, t).to;
    const float *q = a->q + (size_t)i * D;
    float *s0 = s + i * ATTEND_BLOCK, *s1 = s0 + ATTEND_BLOCK;
    uint32_t j = 0;
    for (; j < LM_MIN(n0, n1); j += 4) attend_scores(s0 + j, q, k + (size_t)j * D, D, a->scale, 2);
    for (uint32_t j0 = j; j0 < n0; j0 += 4) attend_scores(s0 + j0, q, k + (size_t)j0 * D, D, a->scale, 1);
    for (uint32_t j1 = j; j1 < n1; j1 += 4) attend_scores(s1 + j1, q + D, k + (size_t)j1 * D, D, a->scale, 1);
  }
  for (uint32_t i = 0; i < n_vectors; i++) {
    const struct attend_span seen = attend_seen(a, i, t);
    float *si = s + i * ATTEND_BLOCK;
    if (seen.from == seen.to) continue;
    if (a->soft_cap != 0)
      for (uint32_t j = seen.from & ~3u; j < seen.to; j += 4)
        v_store(si + j, v_soft_cap(v_load(si + j), a->soft_cap, e));
    attend_softmax(si, a->o + (size_t)i * D, a->max + i, a->sum + i, seen.from, seen.to, D, e);
  }
  for (uint32_t i = 0; i < n_vectors; i += 2) {
    const struct attend_span a0 = attend_seen(a, i, t), a1 = attend_seen(a, i + 1, t);
    const uint32_t from = LM_MAX(a0.from, a1.from), to = LM_MIN(a0.to, a1.to);
    const float *s0 = s + i * ATTEND_BLOCK, *s1 = s0 + ATTEND_BLOCK;
    float *o = a->o + (size_t)i * D;
    if (from >= to) { /* nothing that both see */
      if (a0.from < a0.to) attend_values_single(o, s0 + a0.from, v + (size_t)a0.from * D, a0.to - a0.from, D);
      if (a1.from < a1.to) attend_values_single(o + D, s1 + a1.from, v + (size_t)a1.from * D, a1.to - a1.from, D);
      continue;
    }
    if (a0.from < from) attend_values_single(o, s0 + a0.from, v + (size_t)a0.from * D, from - a0.from, D);
    if (a1.from < from) attend_values_single(o + D, s1 + a1.from, v + (size_t)a1.from * D, from - a1.from, D);
    attend_values_pair(o, s0 + from, v + (size_t)from * D, to - from, D);
    if (to < a0.to) attend_values_single(o, s0 + to, v + (size_t)to * D, a0.to - to, D);
    if (to < a1.to) attend_values_single(o + D, s1 + to, v + (size_t)to * D, a1.to - to, D);
  }
}

void attend_chunk(const struct attend *a) {
  const size_t D = a->head_dim, row_bytes = D * (a->kv_type == KV_F32 ? sizeof(float) : sizeof(f16));
  float *k = a->scratch, *v = k + ATTEND_BLOCK * D, *s = v + ATTEND_BLOCK * D;
  const struct exp_constants e = exp_constants();
  uint32_t first = KV_CHUNK, last = 0;
  for (uint32_t i = 0; i < a->n_vectors; i++) {
    first = LM_MIN(first, a->first[i]), last = LM_MAX(last, a->n_seen[i]);
    a->max[i] = -__builtin_inff(), a->sum[i] = 0;
  }
  zero_bytes(a->o, a->n_vectors * D * sizeof(float));
  for (uint32_t t = first / ATTEND_BLOCK * ATTEND_BLOCK; t < last; t += ATTEND_BLOCK) {
    const uint32_t n = LM_MIN(last - t, (uint32_t)ATTEND_BLOCK);
    attend_convert(k, a->kv_type, (const uint8_t *)a->k + t * row_bytes, n * D);
    attend_convert(v, a->kv_type, (const uint8_t *)a->v + t * row_bytes, n * D);
    zero_bytes(k + n * D, (size_t)(-n & 3) * D * sizeof *k); /* scores come by fours */
    attend_block(a, t, k, v, s, &e);
  }
}

void attend_fold(float *o, float *max, float *sum, const float *bo, const float *bmax, const float *bsum,
                 uint32_t n_vectors, uint32_t head_dim) {
  const struct exp_constants e = exp_constants();
  for (uint32_t i = 0; i < n_vectors; i++, o += head_dim, bo += head_dim) {
    if (bsum[i] == 0) continue;
    const float top = LM_MAX(max[i], bmax[i]);
    const v128_t wa = v_exp(v_f32(max[i] - top), &e), wb = v_exp(v_f32(bmax[i] - top), &e);
    max[i] = top;
    sum[i] = sum[i] * v_lane(wa, 0) + bsum[i] * v_lane(wb, 0);
    ROLLED for (uint32_t d = 0; d < head_dim; d += 4)
      v_store(o + d, v_add(v_mul(v_load(o + d), wa), v_mul(v_load(bo + d), wb)));
  }
}

void attend_finish(const float *o, const float *sum, float *out, uint32_t n_vectors, uint32_t head_dim) {
  for (uint32_t i = 0; i < n_vectors; i++, o += head_dim, out += head_dim) {
    const v128_t total = v_f32(sum[i]);
    ROLLED for (uint32_t d = 0; d < head_dim; d += 4) v_store(out + d, v_div(v_load(o + d), total));
  }
}

/* Four floats to f16 bits, each in its lane of 32: nearest, ties to even, saturating; NaN stays NaN;
 * what would be an f16 subnormal becomes zero, since those slow down every later read. */
INLINE v128_t attend_to_f16(v128_t x) {
  const v128_t sign = v_and(v_shr32(x, 16), v_i32(0x8000)), magnitude = v_abs(x);
  const v128_t nan = v_and(v_gt32(magnitude, v_i32(0x7f800000)), v_i32(0x7e00));
  const v128_t normal = v_gt32(magnitude, v_i32(0x387fdfff)); /* 2^-14 - 2^-25 rounds to 2^-14 */
  const v128_t a = v_min32(magnitude, v_i32(0x477fe000));     /* 65504 */
  const v128_t odd = v_and(v_shr32(a, 13), v_i32(1));
  const v128_t rounded = v_max32(v_add32(v_add32(a, v_i32(0xfff)), odd), v_i32(0x38800000));
  const v128_t bits = v_shr32(v_sub32(rounded, v_i32(0x38000000)), 13);
  return v_or(v_or(sign, nan), v_and(bits, normal));
}

void attend_store(uint32_t kv_type, const float *x, void *row, uint32_t n) {
  if (kv_type == KV_F32) {
    copy_bytes(row, x, n * sizeof *x);
    return;
  }
  f16 *out = row;
  for (uint32_t i = 0; i < n; i += 4) {
    float last[4] = {0};
    int32_t bits[4];
    const uint32_t m = LM_MIN(n - i, 4u);
    copy_bytes(last, x + i, m * sizeof *x);
    v_store(bits, attend_to_f16(v_load(last)));
    for (uint32_t j = 0; j < m; j++) out[i + j] = (f16)bits[j];
  }
}
