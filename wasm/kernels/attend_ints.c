/* attend_ints.c: attention over a chunk of q8_0 or q4_0, in integers: queries are rounded to 16 bits with one
 * scale per 32 dimensions, and the weights of a chunk, times the scales of the values that they meet, with one
 * per 32 dimensions, too. Such sums are exact, so neither order nor company can change a bit.
 *
 * A block holds 8 positions x 32 dimensions as 8 scales (f16) and the integers of dimensions 0..15, then those of
 * 16..31 (q8_0), or the latter in the high nibbles (q4_0):
 *
 *   keys   [runs][D/32] blocks of [8 pairs of dimensions][8 positions][2]
 *   values [D/32][runs] blocks of [4 pairs of positions][16 dimensions][2] */
#include "attend.h"

enum { DIMS = 32, SCALES = RUN * sizeof(f16), HALF = RUN * DIMS / 2 };

INLINE size_t ints_block_bytes(const uint32_t type) { return SCALES + (type == KV_Q8_0 ? 2 * HALF : HALF); }

/* Eight integers of dimensions 0..15 or 16..31; those of q4_0 are 8 too large. */
INLINE v128_t ints_load(const uint32_t type, const uint8_t *p, const int high, v128_t nibbles) {
  if (type == KV_Q8_0) return v_load_i8x8(p + (high ? HALF : 0));
  return high ? v_shr_u16(v_load_u8x8(p), 4) : v_and(v_load_u8x8(p), nibbles);
}

void attend_ints_store(uint32_t kv_type, bool is_value, const float *x, void *rows, uint32_t t, uint32_t head_dim) {
  const size_t block = ints_block_bytes(kv_type), n_runs = KV_CHUNK / RUN, n_blocks = head_dim / DIMS;
  for (size_t b = 0; b < n_blocks; b++, x += DIMS) {
    uint8_t *to = (uint8_t *)rows + (is_value ? b * n_runs + attend_run(t) : attend_run(t) * n_blocks + b) * block;
    uint8_t from[QUANT_BYTES_Q8_0]; /* a block of GGML's: scale, integers */
    if (kv_type == KV_Q8_0) quant_from_float_Q8_0(x, from, DIMS);
    else quant_from_float_Q4_0(x, from, DIMS);
    copy_bytes(to + t % RUN * sizeof(f16), from, sizeof(f16));
    for (size_t i = 0; i < block / RUN - sizeof(f16); i++) {
      const size_t d = i % 16, key = (d / 2 * RUN + t % RUN) * 2 + d % 2, value = (t % RUN / 2 * 16 + d) * 2 + t % 2;
      to[SCALES + i / 16 * HALF + (is_value ? value : key)] = from[sizeof(f16) + i];
    }
  }
}

/* Rounded queries and weights: integers, with the scale and the sum of each 32 dimensions. */
struct ints_scratch {
  int16_t *q; /* [n_vectors][D] */
  float *dq;  /* [n_vectors][D/32] times the scale of scores */
  int32_t *sq; /* [n_vectors][D/32] */
  float *s;   /* [n_vectors][KV_CHUNK] scores, then weights */
  int16_t *w; /* [n_vectors][KV_CHUNK] */
  float *dw;  /* [n_vectors] */
  int32_t *sw; /* [n_vectors] */
};

size_t attend_ints_scratch(uint32_t head_dim) {
  const size_t q = head_dim * sizeof(int16_t) + head_dim / DIMS * (sizeof(float) + sizeof(int32_t));
  const size_t w = KV_CHUNK * (sizeof(float) + sizeof(int16_t)) + sizeof(float) + sizeof(int32_t);
  return ATTEND_VECTORS * (q + w);
}

INLINE struct ints_scratch ints_place(const struct attend *a) {
  const size_t n = ATTEND_VECTORS, blocks = n * (a->head_dim / DIMS);
  struct ints_scratch z;
  z.s = a->scratch;
  z.w = (int16_t *)(z.s + n * KV_CHUNK);
  z.q = z.w + n * KV_CHUNK;
  z.dq = (float *)(void *)(z.q + n * a->head_dim);
  z.sq = (int32_t *)(z.dq + blocks);
  z.dw = (float *)(z.sq + blocks);
  z.sw = (int32_t *)(z.dw + n);
  return z;
}

/* n floats (n % 8 = 0) to integers of 16 bits: x * 32767 / max, ties to even; zeros where that would
 * overflow. Returns the scale. */
INLINE float ints_round(const float *x, int16_t *out, uint32_t n, int32_t *sum) {
  const v128_t round = v_constant(ROUND), ones = v_constant(ONES16);
  v128_t max = v_i32(0), total = v_i32(0);
  for (uint32_t i = 0; i < n; i += 4) max = v_max32(max, v_abs(v_load(x + i)));
  max = v_max32(max, v_shuffle32(max, max, 2, 3, 0, 1));
  max = v_max32(max, v_shuffle32(max, max, 1, 0, 3, 2));
  const float most = v_lane(max, 0);
  const v128_t inverse = v_f32(most > 0x1p-111f ? 32767 / most : 0);
  for (uint32_t i = 0; i < n; i += 8) {
    const v128_t low = v_sub32(v_add(v_mul(v_load(x + i), inverse), round), round);
    const v128_t high = v_sub32(v_add(v_mul(v_load(x + i + 4), inverse), round), round), both = v_narrow32(low, high);
    v_store(out + i, both);
    total = v_add32(total, v_dot16(both, ones));
  }
  *sum = v_lane32(total, 0) + v_lane32(total, 1) + v_lane32(total, 2) + v_lane32(total, 3);
  return most / 32767;
}

INLINE void ints_round_queries(const struct attend *a, struct ints_scratch z) {
  for (size_t i = 0; i < (size_t)a->n_vectors * (a->head_dim / DIMS); i++)
    z.dq[i] = ints_round(a->q + i * DIMS, z.q + i * DIMS, DIMS, z.sq + i) * a->scale;
}

/* c += two times 8 integers x pairs of n vectors, which stand `stride` apart. */
INLINE void ints_dot(const int n, v128_t *c, v128_t k0, v128_t k1, const int16_t *x, size_t stride) {
  UNROLLED for (int h = 0; h < n; h++) {
    const v128_t xh = v_load_splat(x + h * stride);
    c[2 * h] = v_add32(c[2 * h], v_dot16(k0, xh));
    c[2 * h + 1] = v_add32(c[2 * h + 1], v_dot16(k1, xh));
  }
}

/* Scores of a run for n vectors. */
INLINE void ints_scores(const uint32_t type, const int n, const uint8_t *run, struct ints_scratch z, uint32_t i,
                        uint32_t t, uint32_t D) {
  const v128_t nibbles = v_constant(NIBBLES16), f16_bits = v_constant(F16_BITS), two112 = v_constant(TWO112);
  const size_t n_blocks = D / DIMS;
  float *s = z.s + i * KV_CHUNK + t;
  for (size_t b = 0; b < n_blocks; b++, run += ints_block_bytes(type)) {
    const int16_t *q = z.q + i * D + b * DIMS;
    v128_t c[2 * GROUP];
    UNROLLED for (int j = 0; j < 2 * n; j++)
      c[j] = v_i32(type == KV_Q4_0 ? -8 * z.sq[(i + j / 2) * n_blocks + b] : 0);
    ROLLED for (int p = 0; p < 8; p++)
      UNROLLED for (int high = 0; high < 2; high++) {
        const uint8_t *at = run + SCALES + p * 2 * RUN;
        const v128_t k0 = ints_load(type, at, high, nibbles), k1 = ints_load(type, at + RUN, high, nibbles);
        ints_dot(n, c, k0, k1, q + 2 * p + 16 * high, D);
      }
    UNROLLED for (int j = 0; j < 2 * n; j++) {
      const v128_t d = v_mul(v_load_f16(run + j % 2 * 8, f16_bits, two112), v_f32(z.dq[(i + j / 2) * n_blocks + b]));
      float *to = s + j / 2 * KV_CHUNK + j % 2 * 4;
      const v128_t add = v_mul(v_from_i32(c[j]), d);
      v_store(to, b ? v_add(v_load(to), add) : add);
    }
  }
}

/* The weights of vector i times the scales of values, rounded; nothing where it does not look. */
INLINE void ints_round_weights(const struct attend *a, struct ints_scratch z, uint32_t i, const float *scales,
                               struct attend_span in) {
  float products[KV_CHUNK];
  const float *s = z.s + (size_t)i * KV_CHUNK;
  zero_bytes(products + in.from, (in.to - in.from) * sizeof *products);
  for (uint32_t t = a->first[i]; t < a->n_seen[i]; t++) products[t] = s[t] * scales[t];
  z.dw[i] = ints_round(products + in.from, z.w + (size_t)i * KV_CHUNK + in.from, in.to - in.from, z.sw + i);
}

/* Dimensions d .. d + 3 and d + 16 .. d + 19 of a block of values, for n vectors, over whole runs. */
INLINE void ints_values(const uint32_t type, const int n, const uint8_t *plane, struct ints_scratch z, uint32_t i,
                        struct attend_span in, float *o, uint32_t d, uint32_t D) {
  const v128_t nibbles = v_constant(NIBBLES16);
  const int16_t *w = z.w + i * KV_CHUNK;
  v128_t c[2 * GROUP];
  UNROLLED for (int j = 0; j < 2 * n; j++) c[j] = v_i32(type == KV_Q4_0 ? -8 * z.sw[i + j / 2] : 0);
  for (uint32_t t = in.from; t < in.to; t += RUN) {
    const uint8_t *at = plane + attend_run(t) * ints_block_bytes(type) + SCALES + 2 * d;
    ROLLED for (uint32_t p = 0; p < RUN / 2; p++, at += 32) {
      const v128_t low = ints_load(type, at, 0, nibbles), high = ints_load(type, at, 1, nibbles);
      ints_dot(n, c, low, high, w + t + 2 * p, KV_CHUNK);
    }
  }
  UNROLLED for (int j = 0; j < 2 * n; j++)
    v_store(o + (i + j / 2) * (size_t)D + d + j % 2 * 16, v_mul(v_from_i32(c[j]), v_f32(z.dw[i + j / 2])));
}

INLINE void ints_typed(const uint32_t type, const struct attend *a) {
  const uint32_t D = a->head_dim;
  const size_t block = ints_block_bytes(type), run = block * (D / DIMS), plane = block * (KV_CHUNK / RUN);
  const struct ints_scratch z = ints_place(a);
  const v128_t f16_bits = v_constant(F16_BITS), two112 = v_constant(TWO112);
  const struct attend_span all = attend_span(a, 0, a->n_vectors);
  const struct attend_span in = {all.from & ~(uint32_t)(RUN - 1), (uint32_t)align_up(all.to, RUN)};
  ints_round_queries(a, z);
  for (uint32_t t = in.from; t < in.to; t += RUN)
    for (uint32_t i = 0; i < a->n_vectors; i += GROUP)
      FOR_GROUP(a->n_vectors - i, ints_scores(type, N, (const uint8_t *)a->k + attend_run(t) * run, z, i, t, D))
  for (uint32_t i = 0; i < a->n_vectors; i++) attend_softmax(a, i, z.s + (size_t)i * KV_CHUNK, 1);
  for (uint32_t b = 0; b < D / DIMS; b++) {
    const uint8_t *values = (const uint8_t *)a->v + b * plane;
    float scales[KV_CHUNK];
    for (uint32_t t = in.from; t < in.to; t += 4)
      v_store(scales + t, v_load_f16(values + attend_run(t) * block + t % RUN * sizeof(f16), f16_bits, two112));
    for (uint32_t i = 0; i < a->n_vectors; i++) ints_round_weights(a, z, i, scales, in);
    for (uint32_t i = 0; i < a->n_vectors; i += GROUP)
      for (uint32_t d = 0; d < 16; d += 4)
        FOR_GROUP(a->n_vectors - i, ints_values(type, N, values, z, i, in, a->o + b * DIMS, d, D))
  }
}

void attend_ints_chunk(const struct attend *a) {
  if (a->kv_type == KV_Q8_0) ints_typed(KV_Q8_0, a);
  else ints_typed(KV_Q4_0, a);
}
