/* kernel_attention.h: cases of check_kernels.c: attention over chunks and the rows of the cache. */
#pragma once
#include "kernel_cases.h"

/* o, max, sum of n vectors over one chunk. */
struct partial {
  float *o, *max, *sum;
};
static struct partial take_partial(uint32_t n, uint32_t head_dim) {
  return (struct partial){take(n * head_dim * sizeof(float)), take(n * sizeof(float)), take(n * sizeof(float))};
}

static void attend_with(const struct kernels *set, struct attend a, struct partial to) {
  a.o = to.o, a.max = to.max, a.sum = to.sum;
  a.scratch = take(set->attend_scratch(a.head_dim));
  set->attend(&a);
}

/* A chunk's keys and values. */
struct rows {
  uint8_t *k, *v;
};
static struct rows take_rows(uint32_t kv_type, uint32_t head_dim) {
  static const uint32_t sizes[N_KV_TYPES][3] = {
#define KV_TYPE(id, name, items, bytes, row) {items, bytes, row},
#include "../../src/kv.def"
#undef KV_TYPE
  };
  const size_t bytes = KV_CHUNK * ((size_t)head_dim / sizes[kv_type][0] * sizes[kv_type][1] + sizes[kv_type][2]);
  return (struct rows){take(bytes), take(bytes)};
}

/* A key and a value for position t of both sets' rows. */
static void store_position(uint32_t kv_type, uint32_t t, uint32_t head_dim, struct rows simd, struct rows ref) {
  float x[520];
  for (int which = 0; which < 2; which++) {
    for (uint32_t i = 0; i < head_dim; i++) x[i] = uniform();
    (which ? kernels_simd.kv_store_value : kernels_simd.kv_store_key)(kv_type, x, which ? simd.v : simd.k, t, head_dim);
    (which ? kernels_ref.kv_store_value : kernels_ref.kv_store_key)(kv_type, x, which ? ref.v : ref.k, t, head_dim);
  }
}

/* WINDOW: the last 40 positions of those that RANDOM would give, and scores capped. */
enum sight { ALL, CAUSAL, RANDOM, WINDOW, N_SIGHTS };

static void check_attend(uint32_t n_vectors, uint32_t head_dim, uint32_t kv_type, uint32_t n, enum sight sight) {
  enum { CHUNKS = 2 };
  start("attend", n_vectors, head_dim, kv_type, n, sight, 0);
  float *q = take(n_vectors * head_dim * sizeof *q);
  for (uint32_t i = 0; i < n_vectors * head_dim; i++) q[i] = 3 * uniform();
  struct partial simd[CHUNKS], ref[CHUNKS], one = take_partial(1, head_dim);
  for (uint32_t c = 0; c < CHUNKS; c++) {
    uint32_t *n_seen = take(n_vectors * sizeof *n_seen), *first = take(n_vectors * sizeof *first), last = 0;
    for (uint32_t i = 0; i < n_vectors; i++) {
      const uint32_t back = (n_vectors - 1 - i) / 3;
      n_seen[i] = c == 0 && sight < RANDOM ? KV_CHUNK : sight == ALL ? n : sight == CAUSAL ? (n > back ? n - back : 0)
                                                                                           : random_u32() % (n + 1);
      first[i] = sight == WINDOW && n_seen[i] > 40 ? n_seen[i] - 40 : sight == WINDOW && i % 5 == 4 ? n_seen[i] : 0;
      last = LM_MAX(last, n_seen[i]);
    }
    struct rows of_simd = take_rows(kv_type, head_dim), of_ref = take_rows(kv_type, head_dim);
    for (uint32_t t = 0; t < last; t++) store_position(kv_type, t, head_dim, of_simd, of_ref); /* behind it: NaN */
    struct attend a = {.q = q, .first = first, .n_seen = n_seen, .n_vectors = n_vectors, .head_dim = head_dim,
                       .kv_type = kv_type, .k = of_ref.k, .v = of_ref.v, .scale = (float)(1 / root(head_dim)),
                       .soft_cap = sight == WINDOW ? 2 : 0};
    simd[c] = take_partial(n_vectors, head_dim), ref[c] = take_partial(n_vectors, head_dim);
    attend_with(&kernels_ref, a, ref[c]);
    a.k = of_simd.k, a.v = of_simd.v;
    attend_with(&kernels_simd, a, simd[c]);
    for (uint32_t i = 0; i < n_vectors; i++) {
      struct attend alone = a;
      alone.q += i * head_dim, alone.first += i, alone.n_seen += i, alone.n_vectors = 1;
      attend_with(&kernels_simd, alone, one);
      check(same(one.o, simd[c].o + i * head_dim, head_dim * sizeof(float)) && same(one.max, simd[c].max + i, 4) &&
              same(one.sum, simd[c].sum + i, 4), "a vector's bits depend on its company");
      if (n_seen[i] == first[i])
        check(simd[c].max[i] == -__builtin_inff() && simd[c].sum[i] == 0 && simd[c].o[i * head_dim] == 0,
              "sees nothing");
    }
    if (c == 0) continue;
    kernels_simd.attend_fold(simd[0].o, simd[0].max, simd[0].sum, simd[1].o, simd[1].max, simd[1].sum, n_vectors,
                             head_dim);
    kernels_ref.attend_fold(ref[0].o, ref[0].max, ref[0].sum, ref[1].o, ref[1].max, ref[1].sum, n_vectors, head_dim);
  }
  float *out = take(n_vectors * head_dim * sizeof *out), *want = take(n_vectors * head_dim * sizeof *want);
  kernels_simd.attend_finish(simd[0].o, simd[0].sum, out, n_vectors, head_dim);
  kernels_ref.attend_finish(ref[0].o, ref[0].sum, want, n_vectors, head_dim);
  static const double limits[N_KV_TYPES] = {
    [KV_Q16] = 4e-4, [KV_F16] = 3e-6, [KV_F32] = 3e-6, [KV_Q8_0] = 1e-4, [KV_Q4_0] = 1e-4};
  const double limit = limits[kv_type];
  for (uint32_t i = 0; i < n_vectors * head_dim; i++)
    check(simd[0].sum[i / head_dim] == 0 || magnitude(out[i] - want[i]) <= limit, "attention differs from float64");
  hash(simd[0].sum, n_vectors * sizeof(float));
  for (uint32_t i = 0; i < n_vectors; i++)
    if (simd[0].sum[i] != 0) hash(out + i * head_dim, head_dim * sizeof *out);
  finish();
}

/* What attend itself is measured by: the softmax mean, straight from its definition. */
static void check_attend_ref(void) {
  enum { D = 8, N = 40 };
  start("attend ref", D, N, 0, 0, 0, 0);
  float q[D], k[N * D], v[N * D], o[D], max, sum;
  double want[D] = {0}, total = 0;
  for (int i = 0; i < D; i++) q[i] = uniform();
  for (int i = 0; i < N * D; i++) k[i] = uniform(), v[i] = uniform();
  for (int t = 3; t < N; t++) {
    double score = 0, weight = 1;
    for (int d = 0; d < D; d++) score += (double)q[d] * k[t * D + d];
    for (int i = 1024; i > 0; i--) weight = 1 + score / i * weight; /* e^score by its series */
    for (int d = 0; d < D; d++) want[d] += weight * v[t * D + d];
    total += weight;
  }
  const uint32_t first = 3, n_seen = N;
  const struct attend a = {.q = q, .first = &first, .n_seen = &n_seen, .n_vectors = 1, .head_dim = D, .kv_type = KV_F32,
                           .k = k, .v = v, .scale = 1};
  attend_with(&kernels_ref, a, (struct partial){o, &max, &sum});
  for (int d = 0; d < D; d++)
    check(magnitude(o[d] / (double)sum - want[d] / total) < 1e-6, "differs from the definition");
  finish();
}

static void check_attention(void) {
  check_attend_ref();
  static const uint32_t dims[] = {8, 16, 24, 64, 80, 128, 256, 520}, vectors[] = {1, 2, 3, 9, 64};
  static const uint32_t seen[] = {0, 1, 31, 33, 256};
  for (size_t d = 0; d < LM_COUNT(dims); d++)
    for (size_t i = 0; i < LM_COUNT(vectors); i++)
      if (dims[d] <= 128 || vectors[i] < 9)
        for (size_t n = 0; n < LM_COUNT(seen); n++) {
          if (vectors[i] == 64 && dims[d] > 16 && n % 4) continue; /* ends of blocks are seen with fewer */
          const uint32_t any = (uint32_t)(n + i) % N_KV_TYPES, type = dims[d] % 32 ? any % (KV_F32 + 1) : any;
          check_attend(vectors[i], dims[d], type, seen[n], (enum sight)((n + d) % N_SIGHTS));
        }
}

/* Checks what a cache of f16 keeps of 8 numbers, read back by attention: the key's by queries of one each, the
 * value's by seeing it alone. */
static void check_kept(const struct kernels *set, struct rows rows, void *scratch, const float *x, const float *want,
                       const char *what) {
  enum { D = 8 };
  const uint32_t t = random_u32() % KV_CHUNK;
  set->kv_store_key(KV_F16, x, rows.k, t, D);
  set->kv_store_value(KV_F16, x, rows.v, t, D);
  uint32_t first[D], n_seen[D];
  float q[D * D] = {0}, o[D * D], key[D], sum[D];
  for (int i = 0; i < D; i++) first[i] = t, n_seen[i] = t + 1, q[i * D + i] = 1;
  set->attend(&(struct attend){.q = q, .first = first, .n_seen = n_seen, .n_vectors = D, .head_dim = D,
                               .kv_type = KV_F16, .k = rows.k, .v = rows.v, .scale = 1, .o = o, .max = key,
                               .sum = sum, .scratch = scratch});
  for (int i = 0; i < D; i++) check(key[i] == want[i] && o[i] == want[i], what);
}

/* A block comes back within half a step; what is on the other side of the largest of q4_0 within one. The scale
 * is rounded to f16, or to steps of 2^-24 where that is subnormal. */
static void check_quantiser(void) {
  start("quantise", 0, 0, 0, 0, 0, 0);
  for (int exponent = -24; exponent <= 16; exponent++)
    for (int n = 0; n < 20; n++) {
      float x[32], q8[32], q4[32], most = 0;
      uint8_t block[QUANT_BYTES_Q8_0];
      for (int i = 0; i < 32; i++) {
        x[i] = uniform() * f32_from_bits((uint32_t)(exponent + 127) << 23);
        if (magnitude(x[i]) > magnitude(most)) most = x[i];
      }
      quant_from_float_Q8_0(x, block, 32), quant_to_float_Q8_0(block, q8, 32), hash(block, sizeof block);
      quant_from_float_Q4_0(x, block, 32), quant_to_float_Q4_0(block, q4, 32), hash(block, QUANT_BYTES_Q4_0);
      const double d8 = magnitude(most) / 127, d4 = magnitude(most) / 8;
      const double scale8 = d8 * 0x1p-11 + 0x1p-25, scale4 = d4 * 0x1p-11 + 0x1p-25;
      for (int i = 0; i < 32; i++) {
        check(magnitude(x[i] - q8[i]) <= 0.501 * d8 + 127 * scale8, "q8_0");
        check(magnitude(x[i] - q4[i]) <= (x[i] * most < 0 ? 1.001 : 0.501) * d4 + 8 * scale4, "q4_0");
        if (x[i] == most) check(magnitude(x[i] - q4[i]) <= 8 * scale4, "the largest of q4_0");
      }
    }
  const float inf = __builtin_inff(), odd[32] = {1, __builtin_nanf(""), -2}, far[32] = {inf, -inf, 1};
  uint8_t block[QUANT_BYTES_Q8_0];
  float out[32];
  quant_from_float_Q8_0(odd, block, 32), quant_to_float_Q8_0(block, out, 32);
  check(magnitude(out[0] - 1) < 0.01 && out[1] == 0 && magnitude(out[2] + 2) < 0.01, "q8_0 of NaN");
  quant_from_float_Q4_0(odd, block, 32), quant_to_float_Q4_0(block, out, 32);
  check(out[0] == 1 && out[1] == 0 && out[2] == -2, "q4_0 of NaN");
  quant_from_float_Q8_0(far, block, 32), quant_to_float_Q8_0(block, out, 32);
  check(out[0] - out[0] == 0 && out[2] == 0, "q8_0 of infinities");
  quant_from_float_Q4_0(far, block, 32), quant_to_float_Q4_0(block, out, 32);
  check(out[0] - out[0] == 0 && out[2] == 0, "q4_0 of infinities");
  finish();
}

/* Rows of q16 come back within half a step of their largest / KV_Q16_MOST: keys by queries of one each, values by
 * seeing them alone. What is not finite stays so, in its own position only. */
static void check_q16_of(const struct kernels *set) {
  enum { D = 40 };
  start("store q16", set == &kernels_ref, D, 0, 0, 0, 0);
  const struct rows rows = take_rows(KV_Q16, D);
  void *scratch = take(set->attend_scratch(D));
  uint32_t first[D], n_seen[D];
  float q[D * D] = {0}, o[D * D], key[D], sum[D], x[D];
  const struct attend a = {.q = q, .first = first, .n_seen = n_seen, .n_vectors = D, .head_dim = D, .kv_type = KV_Q16,
                           .k = rows.k, .v = rows.v, .scale = 1, .o = o, .max = key, .sum = sum, .scratch = scratch};
  for (int i = 0; i < D; i++) q[i * D + i] = 1;
  for (uint32_t n = 0; n < 600; n++) {
    const uint32_t t = n % KV_CHUNK, odd = n / KV_CHUNK * 3; /* 0, or NaN and infinity in between */
    float most = 0;
    for (int i = 0; i < D; i++) {
      x[i] = uniform() * f32_from_bits((n % 60 + 97) << 23);
      most = magnitude(x[i]) > most ? (float)magnitude(x[i]) : most;
    }
    const double half = 0.501 * most / KV_Q16_MOST;
    if (odd && t % odd == 1) x[n % D] = t % 2 ? __builtin_nanf("") : -__builtin_inff();
    set->kv_store_key(KV_Q16, x, rows.k, t, D), set->kv_store_value(KV_Q16, x, rows.v, t, D);
    for (int i = 0; i < D; i++) first[i] = t, n_seen[i] = t + 1;
    set->attend(&a);
    for (int i = 0; i < D; i++)
      if (odd && t % odd == 1) check(o[i] - o[i] != 0, "what is not finite came back as a number");
      else
        check(magnitude(key[i] - x[i]) <= half && magnitude(o[i] - x[i]) <= half, "q16 is not the nearest");
  }
  const float tiny[D] = {0x1p-120f}, none[D] = {0};
  set->kv_store_value(KV_Q16, tiny, rows.v, 0, D), set->kv_store_key(KV_Q16, none, rows.k, 0, D);
  for (int i = 0; i < D; i++) first[i] = 0, n_seen[i] = 1;
  set->attend(&a);
  check(o[0] == 0 && key[0] == 0, "too small to be rounded is zero");
  finish();
}

static void check_store_of(const struct kernels *set) {
  start("store", set == &kernels_ref, 0, 0, 0, 0, 0);
  const struct rows rows = take_rows(KV_F16, 8);
  void *scratch = take(set->attend_scratch(8));
  for (uint32_t h = 0; h < 0x7bff; h++) {
    const float low = f16_to_f32((f16)h), high = f16_to_f32((f16)(h + 1)), middle = (low + high) / 2;
    const uint32_t bits = f32_bits(middle);
    const float even = h & 1 ? high : low;
    const float x[8] = {low, f32_from_bits(bits - 1), middle, f32_from_bits(bits + 1), -low, -middle, high, 0};
    float want[8] = {low, low, even, high, -low, -even, high, 0};
    for (int i = 0; i < 8; i++)
      if (magnitude(want[i]) < 0x1p-14) want[i] = 0;
    check_kept(set, rows, scratch, x, want, "f16 is not the nearest");
  }
  const float inf = __builtin_inff(), far[8] = {65519, 65520, -1e30f, inf, -inf, 65504, 1, -1};
  check_kept(set, rows, scratch, far, (float[8]){65504, 65504, -65504, 65504, -65504, 65504, 1, -1}, "far out");
  finish();
}

/* Every f16, the middle between it and the next, and that middle's neighbours. */
static void check_store(void) {
  check_quantiser();
  check_q16_of(&kernels_simd);
  check_q16_of(&kernels_ref);
  check_store_of(&kernels_simd);
  check_store_of(&kernels_ref);
}
