/* attend.c: attention of the queries of one KV head over one chunk of f16 or f32. A run holds
 *
 *   keys [D][8 positions]   values [8 positions][D]   f16: each eight in the order 0 4 1 5 2 6 3 7
 *
 * so that a multiplication of int16 pairs is all that takes two vectors of f16 apart, and a score stays in its
 * lane: no horizontal sums. Few vectors convert what they read as they read it; many share blocks of 16
 * positions that are converted once, to f32 runs. The order of every sum is a vector's own, so neither its
 * company nor the way changes a bit. Separate mul and add: the same bits everywhere (fused: 1.15-1.2 times as
 * fast). */
#include "attend.h"

enum { DIRECT = 4 }; /* vectors that convert for themselves */

/* Scaled queries [groups][D][GROUP], scores [n_vectors][KV_CHUNK], a converted block [BLOCK][D]. */
size_t attend_scratch(uint32_t head_dim) {
  const size_t floats = (BLOCK + ATTEND_VECTORS) * (size_t)head_dim + ATTEND_VECTORS * KV_CHUNK;
  return LM_MAX(floats * sizeof(float), LM_MAX(attend_ints_scratch(head_dim), attend_q16_scratch(head_dim)));
}

/* f16 values come times 2^-112 (vec.h); the other factor has what brings them back. Of q only 2^80, so that
 * none overflows, and no product is subnormal. */
#define Q_SCALE(type) ((type) == KV_F16 ? 0x1p80f : 1)
#define S_SCALE(type) ((type) == KV_F16 ? 0x1p32f : 1)
#define W_SCALE(type) ((type) == KV_F16 ? 0x1p112f : 1)

struct attend_words {
  v128_t even, odd, f16_bits;
};
INLINE struct attend_words attend_words(void) {
  return (struct attend_words){v_constant(EVEN13), v_constant(ODD13), v_constant(F16_BITS)};
}

/* The two halves of eight values. */
INLINE v128_t attend_half(const uint32_t type, const void *p, const int half, const struct attend_words *w) {
  if (type == KV_F32) return v_load((const float *)p + 4 * half);
  return v_and(v_dot16(v_load(p), half ? w->odd : w->even), w->f16_bits);
}
INLINE size_t attend_bytes(const uint32_t type, size_t n) { return n * (type == KV_F32 ? sizeof(float) : sizeof(f16)); }

/* n values to f32. */
INLINE void attend_convert(const uint32_t type, const uint8_t *p, float *o, size_t n, const struct attend_words *w) {
  ROLLED for (size_t i = 0; i < n; i += 8)
    UNROLLED for (int j = 0; j < 2; j++) v_store(o + i + 4 * j, attend_half(type, p + attend_bytes(type, i), j, w));
}

/* One function for all types of the cache; inlined into each it is no faster. */
__attribute__((noinline)) void attend_softmax(const struct attend *a, uint32_t i, float *s, float scale) {
  const struct exp_constants e = exp_constants();
  const uint32_t from = a->first[i] & ~3u, to = a->n_seen[i];
  a->max[i] = -__builtin_inff(), a->sum[i] = 0;
  if (a->first[i] == to) return;
  if (a->soft_cap != 0)
    for (uint32_t t = from; t < to; t += 4) v_store(s + t, v_soft_cap(v_load(s + t), a->soft_cap, &e));
  /* lanes outside weigh e^-87, and are never multiplied with V */
  for (uint32_t t = from; t < a->first[i]; t++) s[t] = -__builtin_inff();
  for (uint32_t t = to; t % 4; t++) s[t] = -__builtin_inff();
  v128_t m = v_load(s + from), total = v_i32(0);
  for (uint32_t t = from + 4; t < to; t += 4) m = v_pmax(m, v_load(s + t));
  a->max[i] = v_max_lane(m);
  m = v_f32(a->max[i]);
  ROLLED for (uint32_t t = from; t < to; t += 4) {
    const v128_t w = v_exp(v_sub(v_load(s + t), m), &e);
    v_store(s + t, v_mul(w, v_f32(scale)));
    total = v_add(total, w);
  }
  a->sum[i] = v_sum(total);
}

/* Scores of a run for n vectors. */
INLINE void attend_scores(const uint32_t type, const int n, const uint8_t *run, const float *q, float *s, uint32_t D,
                          float scale, const struct attend_words *w) {
  v128_t c[2 * GROUP];
  UNROLLED for (int i = 0; i < 2 * n; i++) c[i] = v_i32(0);
  ROLLED for (uint32_t d = 0; d < D; d++, run += attend_bytes(type, RUN), q += GROUP) {
    const v128_t k0 = attend_half(type, run, 0, w), k1 = attend_half(type, run, 1, w);
    UNROLLED for (int h = 0; h < n; h++) {
      const v128_t x = v_load_splat(q + h);
      c[2 * h] = v_add(c[2 * h], v_mul(k0, x));
      c[2 * h + 1] = v_add(c[2 * h + 1], v_mul(k1, x));
    }
  }
  UNROLLED for (int i = 0; i < 2 * n; i++) v_store(s + i / 2 * KV_CHUNK + i % 2 * 4, v_mul(c[i], v_f32(scale)));
}

/* Those of the positions from .. to - 1 that vector i sees. */
INLINE struct attend_span attend_seen(const struct attend *a, uint32_t i, uint32_t from, uint32_t to) {
  return (struct attend_span){LM_MAX(a->first[i], from), LM_MIN(a->n_seen[i], to)};
}

/* A block's runs. */
struct attend_runs {
  const uint8_t *p;
  size_t stride;
};

/* o += weights times values of the positions that n vectors see. */
INLINE void attend_values(const uint32_t type, const int n, const struct attend *a, uint32_t first,
                          struct attend_runs r, struct attend_span in, const float *s, const struct attend_words *w) {
  if (in.from >= in.to) return;
  const uint32_t D = a->head_dim;
  float *o = a->o + (size_t)first * D;
  s += (size_t)first * KV_CHUNK;
  for (uint32_t d = 0; d < D; d += 8, o += 8) {
    v128_t c[2 * GROUP];
    UNROLLED for (int i = 0; i < 2 * n; i++) c[i] = v_load(o + (size_t)(i / 2) * D + i % 2 * 4);
    for (uint32_t t = in.from; t < in.to;) {
      const uint8_t *v = r.p + t % BLOCK / RUN * r.stride + attend_bytes(type, t % RUN * D + d);
      const float *p = s + t, *end = s + LM_MIN(in.to, (t | (RUN - 1)) + 1);
      t = (t | (RUN - 1)) + 1;
      ROLLED for (; p < end; p++, v += attend_bytes(type, D))
        UNROLLED for (int i = 0; i < 2; i++) {
          const v128_t x = attend_half(type, v, i, w);
          UNROLLED for (int h = 0; h < n; h++)
            c[h * 2 + i] = v_add(c[h * 2 + i], v_mul(x, v_load_splat(p + (size_t)h * KV_CHUNK)));
        }
    }
    UNROLLED for (int i = 0; i < 2 * n; i++) v_store(o + (size_t)(i / 2) * D + i % 2 * 4, c[i]);
  }
}

INLINE void attend_block_scores(const uint32_t type, const struct attend *a, struct attend_runs r, uint32_t t,
                                const float *q, float *s, float scale, const struct attend_words *w) {
  const uint32_t D = a->head_dim;
  for (uint32_t i = 0; i < a->n_vectors; i += GROUP) {
    const uint32_t n = LM_MIN(a->n_vectors - i, (uint32_t)GROUP);
    const struct attend_span seen = attend_span(a, i, n);
    for (uint32_t j = 0; j < RUNS; j++) {
      const uint32_t at = t + j * RUN;
      if (at >= seen.to || at + RUN <= seen.from) continue;
      const uint8_t *run = r.p + j * r.stride;
      float *to = s + (size_t)i * KV_CHUNK + at;
      FOR_GROUP(n, attend_scores(type, N, run, q + (size_t)i * D, to, D, scale, w))
    }
  }
}

INLINE void attend_block_values(const uint32_t type, const struct attend *a, struct attend_runs r, uint32_t t,
                                const float *s, const struct attend_words *w) {
  for (uint32_t i = 0; i < a->n_vectors; i += GROUP) {
    const uint32_t n = LM_MIN(a->n_vectors - i, (uint32_t)GROUP);
    struct attend_span all = {t, t + BLOCK}; /* what every one sees, in between what some do */
    for (uint32_t h = i; h < i + n; h++)
      all.from = LM_MAX(all.from, a->first[h]), all.to = LM_MIN(all.to, a->n_seen[h]);
    if (all.from >= all.to) all.from = all.to = t + BLOCK;
    for (uint32_t h = i; h < i + n; h++) attend_values(type, 1, a, h, r, attend_seen(a, h, t, all.from), s, w);
    if (all.from == all.to) continue;
    FOR_GROUP(n, attend_values(type, N, a, i, r, all, s, w))
    for (uint32_t h = i; h < i + n; h++) attend_values(type, 1, a, h, r, attend_seen(a, h, all.to, t + BLOCK), s, w);
  }
}

/* A block's runs, as they are or converted to `block`. */
INLINE struct attend_runs attend_block(const uint32_t type, const void *rows, uint32_t t, uint32_t D, float *block,
                                       const struct attend_words *w) {
  const size_t run = RUN * (size_t)D;
  const struct attend_runs r = {(const uint8_t *)rows + attend_bytes(type, t / BLOCK * run),
                                attend_bytes(type, KV_CHUNK / BLOCK * run)};
  if (!block) return r;
  for (uint32_t j = 0; j < RUNS; j++) attend_convert(type, r.p + j * r.stride, block + j * run, run, w);
  return (struct attend_runs){(const uint8_t *)block, run * sizeof *block};
}

/* type: of the cache; as: what is computed with. */
INLINE void attend_typed(const uint32_t type, const uint32_t as, const struct attend *a) {
  const uint32_t D = a->head_dim;
  float *q = a->scratch, *s = q + ATTEND_VECTORS * (size_t)D, *block = type == as ? 0 : s + ATTEND_VECTORS * KV_CHUNK;
  const struct attend_words w = attend_words();
  const struct attend_span all = attend_span(a, 0, a->n_vectors);
  const uint32_t from = all.from / BLOCK * BLOCK;
  for (uint32_t i = 0; i < a->n_vectors; i++)
    for (uint32_t d = 0; d < D; d++)
      q[(i / GROUP * D + d) * GROUP + i % GROUP] = a->q[(size_t)i * D + d] * Q_SCALE(type);
  for (uint32_t t = from; t < all.to; t += BLOCK)
    attend_block_scores(as, a, attend_block(type, a->k, t, D, block, &w), t, q, s, a->scale * S_SCALE(type), &w);
  for (uint32_t i = 0; i < a->n_vectors; i++) attend_softmax(a, i, s + (size_t)i * KV_CHUNK, W_SCALE(type));
  zero_bytes(a->o, a->n_vectors * (size_t)D * sizeof *a->o);
  for (uint32_t t = from; t < all.to; t += BLOCK)
    attend_block_values(as, a, attend_block(type, a->v, t, D, block, &w), t, s, &w);
}

void attend_chunk(const struct attend *a) {
  switch (a->kv_type) {
    case KV_F16:
      if (a->n_vectors <= DIRECT) attend_typed(KV_F16, KV_F16, a);
      else attend_typed(KV_F16, KV_F32, a);
      break;
    case KV_F32: attend_typed(KV_F32, KV_F32, a); break;
    case KV_Q16: attend_q16_chunk(a); break;
    default: attend_ints_chunk(a);
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

/* x: n floats, n % 4 = 0, go to out, `stride` apart. */
INLINE void attend_store_f16(const float *x, f16 *out, uint32_t n, size_t stride) {
  for (uint32_t i = 0; i < n; i += 4) {
    int32_t bits[4];
    v_store(bits, attend_to_f16(v_load(x + i)));
    for (uint32_t j = 0; j < 4; j++) out[(i + j) * stride] = (f16)bits[j];
  }
}

/* Where of its eight item i stands. */
INLINE uint32_t attend_place(const uint32_t type, uint32_t i) { return type == KV_F16 ? i % 4 * 2 + i / 4 : i; }

void attend_store_key(uint32_t kv_type, const float *x, void *rows, uint32_t t, uint32_t head_dim) {
  const size_t at = (size_t)attend_run(t) * RUN * head_dim + attend_place(kv_type, t % RUN);
  switch (kv_type) {
    case KV_F16: attend_store_f16(x, (f16 *)rows + at, head_dim, RUN); break;
    case KV_F32:
      for (uint32_t d = 0; d < head_dim; d++) ((float *)rows)[at + d * RUN] = x[d];
      break;
    case KV_Q16: attend_q16_store(false, x, rows, t, head_dim); break;
    default: attend_ints_store(kv_type, false, x, rows, t, head_dim);
  }
}

void attend_store_value(uint32_t kv_type, const float *x, void *rows, uint32_t t, uint32_t head_dim) {
  const size_t at = ((size_t)attend_run(t) * RUN + t % RUN) * head_dim;
  switch (kv_type) {
    case KV_F16:
      for (uint32_t d = 0; d < head_dim; d += 4)
        attend_store_f16(x + d, (f16 *)rows + at + d / 8 * 8 + attend_place(KV_F16, d % 8), 4, 2);
      break;
    case KV_F32: copy_bytes((float *)rows + at, x, head_dim * sizeof *x); break;
    case KV_Q16: attend_q16_store(true, x, rows, t, head_dim); break;
    default: attend_ints_store(kv_type, true, x, rows, t, head_dim);
  }
}
