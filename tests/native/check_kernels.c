/* check_kernels.c: kernels_simd and kernels_ref against float64, at the shapes where packed kernels
 * break: rows % 16 = 0, 1, 15; K = 32 and 8192; 1, 2, 3 and 65 tokens; weights of -128; subnormal
 * scales; activations of 1e5; NaN behind the end of a cache.
 *
 * Freestanding, so that one source is the native check over the emulated vectors (make check) and a
 * wasm module over the real ones (tests/kernels.test.js). Each case is a line "name hash", the hash
 * being of the bits that kernels_simd gave: those lines must not differ between the two. A line that
 * starts with "FAIL" is a failure. */
#include "../../src/kernels.h"
#include "../../src/lm.h"

#ifdef __wasm__
static void *check_memory(size_t n_bytes) {
  return (void *)(__builtin_wasm_memory_grow(0, n_bytes / 65536) * 65536);
}
#else
#include <stdio.h>
#include <stdlib.h>
static void *check_memory(size_t n_bytes) { return aligned_alloc(64, n_bytes); }
#endif

/* ---- memory, text, random numbers */

enum { HEAP_BYTES = 64 << 20, TEXT_BYTES = 1 << 18, CANARY = 64 };
static uint8_t *heap;
static size_t heap_used;
static char text[TEXT_BYTES];
static size_t text_length;
static int n_failures;

/* 64-byte aligned, filled with NaN of all widths, a canary behind it. */
static void *take(size_t n_bytes) {
  uint8_t *p = heap + heap_used;
  heap_used += (n_bytes + 63) / 64 * 64 + CANARY;
  if (heap_used > HEAP_BYTES) __builtin_trap();
  for (uint8_t *b = p; b < heap + heap_used; b++) *b = 0xff;
  return p;
}

static void say(const char *s) {
  while (*s && text_length < TEXT_BYTES - 1) text[text_length++] = *s++;
}

static void say_number(uint64_t n, unsigned base) {
  char digits[24], *p = digits + sizeof digits;
  *--p = 0;
  do *--p = "0123456789abcdef"[n % base];
  while (n /= base);
  say(p);
}

static const char *case_name;
static uint32_t case_numbers[6];
static uint64_t case_hash;

static void say_case(void) {
  say(case_name);
  for (size_t i = 0; i < LM_COUNT(case_numbers); i++) say(i ? " " : " "), say_number(case_numbers[i], 10);
}

static void start(const char *name, uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t e, uint32_t f) {
  case_name = name, heap_used = 0, case_hash = 0xcbf29ce484222325;
  const uint32_t numbers[] = {a, b, c, d, e, f};
  copy_bytes(case_numbers, numbers, sizeof numbers);
}

static void finish(void) {
  say_case();
  say(" "), say_number(case_hash, 16), say("\n");
}

static void check(bool good, const char *what) {
  if (good) return;
  n_failures++;
  say("FAIL "), say_case(), say(": "), say(what), say("\n");
}

static void hash(const void *data, size_t n_bytes) {
  const uint8_t *p = data;
  for (size_t i = 0; i < n_bytes; i++) case_hash = (case_hash ^ p[i]) * 0x100000001b3;
}

static bool same(const void *a, const void *b, size_t n_bytes) {
  const uint8_t *p = a, *q = b;
  while (n_bytes && *p == *q) p++, q++, n_bytes--;
  return n_bytes == 0;
}

static uint32_t seed = 1;
static uint32_t random_u32(void) {
  seed ^= seed << 13, seed ^= seed >> 17, seed ^= seed << 5;
  return seed;
}
static float uniform(void) { return (float)(int32_t)random_u32() * 0x1p-31f; } /* -1 .. 1 */

static double magnitude(double v) { return v < 0 ? -v : v; }
static double root(double v) { return __builtin_sqrt(v); }

/* ---- products */

enum mode { NORMAL, SUBNORMAL, EXTREME, LARGE, SPARSE };

/* Any bytes are weights; their scales are made tame, and extreme blocks hold the largest values alone. */
static void fill_file(uint8_t *file, uint32_t quant, uint32_t n_blocks, enum mode mode) {
  const uint32_t bytes = quants[quant].bytes;
  for (uint32_t i = 0; i < n_blocks * bytes; i++)
    file[i] = (uint8_t)(mode != EXTREME ? random_u32() : quant == QUANT_Q8_0 ? 0x80 : i / bytes & 1 ? 0 : 0xff);
  for (uint32_t i = 0; i < n_blocks; i++) {
    uint8_t *p = file + i * bytes;
    const uint32_t any = random_u32();
    const uint16_t scale = (uint16_t)(mode == SUBNORMAL ? any & 0x83ff : 0x1000 | (any & 0x87ff));
    switch (quant) {
      case QUANT_F32: { const float v = uniform() * 0x1p-5f; copy_bytes(p, &v, 4); break; }
      case QUANT_F16: { const uint16_t h = mode == EXTREME ? 0x7bff : mode == LARGE ? any & 0xdbff : any % 3 ? any & 0xbfff : scale; copy_bytes(p, &h, 2); break; }
      case QUANT_BF16: { const uint16_t h = 0x3c00 | (any & 0x81ff); copy_bytes(p, &h, 2); break; }
      default:
        copy_bytes(p, &scale, 2);
        if (quant == QUANT_Q4_1) copy_bytes(p + 2, &(uint16_t){scale ^ 0x8155}, 2);
    }
  }
}

static void fill_x(float *x, size_t n, enum mode mode) {
  for (size_t i = 0; i < n; i++) {
    const float v = uniform() * (random_u32() % 97 ? 1 : 8);
    x[i] = mode == EXTREME ? 1e5f : mode == LARGE ? v * 1e5f : mode == SPARSE && i % 64 < 32 ? 0 : v;
  }
}

struct product {
  const struct mat_kernels *k;
  uint32_t quant, precision, n_rows, n_cols, n_tokens, n_groups;
  const uint8_t *file;
  size_t row_bytes, group_bytes;
  uint8_t *packed;
  const float *x;
  struct act act;
  void *scratch;
};

static void prepare(struct product *p, const struct kernels *set) {
  p->k = set->mat(p->quant, p->precision);
  p->n_groups = (p->n_rows + p->k->group_rows - 1) / p->k->group_rows;
  p->group_bytes = packed_bytes(p->k, p->k->group_rows, p->n_cols);
  p->packed = take(p->group_bytes * p->n_groups);
  for (uint32_t g = 0; g < p->n_groups; g++) {
    const uint32_t row = g * p->k->group_rows;
    p->k->pack(p->file + row * p->row_bytes, p->row_bytes, p->packed + g * p->group_bytes,
               LM_MIN(p->k->group_rows, p->n_rows - row), p->n_cols);
  }
  void *mem = take(set->act_bytes(p->n_cols, p->n_tokens, p->k->needs));
  set->act_place(&p->act, mem, p->n_cols, p->n_tokens, p->k->needs);
  set->act_make(&p->act, p->x, p->n_cols, p->n_cols, 0, p->n_tokens / 2, p->k->needs, p->precision);
  set->act_make(&p->act, p->x, p->n_cols, p->n_cols, p->n_tokens / 2, p->n_tokens, p->k->needs, p->precision);
  for (uint32_t k = p->n_cols; p->act.f && k < p->act.n_cols; k++) check(p->act.f[k] == 0, "padding is not zero");
  p->scratch = take(MAT_SCRATCH);
}

/* The activations that the kernel reads, as floats. */
static double activation(const struct product *p, uint32_t t, uint32_t k) {
  static const uint8_t place[4] = {0, 2, 1, 3}; /* within each four of q16 */
  const size_t at = (size_t)t * p->act.n_cols + k;
  if (p->k->needs & ACT_F32) return p->act.f[at];
  const double d = p->act.d[at / 32];
  return d * (p->k->needs & ACT_I8 ? p->act.q[at] : p->act.q16[(at & ~(size_t)3) + place[at % 4]]);
}

/* y of one row and token in float64 over the activations as the kernel has them, and over x itself. */
static void check_output(const struct product *p, const float *row, uint32_t t, float y) {
  double sum = 0, exact = 0, total = 0, steps = 0;
  for (uint32_t k = 0; k < p->n_cols; k++) {
    const double xk = activation(p, t, k), top = p->precision == LM_HIGH ? 16383 : 127;
    sum += row[k] * xk, exact += (double)row[k] * p->x[(size_t)t * p->n_cols + k];
    total += magnitude(row[k] * xk);
    if (!(p->k->needs & ACT_F32)) {
      const double step = p->act.d[((size_t)t * p->act.n_cols + k) / 32] * row[k];
      steps += step * step;
      check(magnitude(xk - p->x[(size_t)t * p->n_cols + k]) <= 0.505 * p->act.d[((size_t)t * p->act.n_cols + k) / 32],
            "an activation is more than half a step off");
      check(magnitude(xk) <= top * 1.0001 * p->act.d[((size_t)t * p->act.n_cols + k) / 32], "activation out of range");
    }
  }
  /* Roundings of n random signs add up as their root. Q4_1's minimum is part of its own weight's rounding. */
  const double n = p->k->needs & ACT_F32 ? p->n_cols : p->n_cols / 32.0;
  check(magnitude(y - sum) <= (4 * root(n) + 8) * 0x1p-24 * total, "product differs from float64");
  check(magnitude(y - exact) <= (4 * root(n) + 8) * 0x1p-24 * total + 3 * root(steps), "product differs from that of x");
}

static void check_product(uint32_t quant, uint32_t precision, uint32_t n_rows, uint32_t n_cols, uint32_t n_tokens,
                          enum mode mode) {
  struct product p = {.quant = quant, .precision = precision, .n_rows = n_rows, .n_cols = n_cols, .n_tokens = n_tokens};
  start(quants[quant].name, precision, n_rows, n_cols, n_tokens, mode, 0);
  const uint32_t blocks = n_cols / quants[quant].items;
  p.row_bytes = (size_t)blocks * quants[quant].bytes;
  uint8_t *file = take(n_rows * p.row_bytes + 16);
  float *x = take((size_t)n_tokens * n_cols * sizeof *x), *row = take(n_cols * sizeof *row), *got = take(n_cols * sizeof *got);
  fill_file(file, quant, n_rows * blocks, mode);
  fill_x(x, (size_t)n_tokens * n_cols, mode);
  p.file = file, p.x = x;
  struct product ref = p;
  prepare(&p, &kernels_simd);
  prepare(&ref, &kernels_ref);

  const size_t padded = (size_t)p.n_groups * p.k->group_rows, stride = padded + 3;
  float *y = take(n_tokens * stride * sizeof *y), *z = take(n_tokens * stride * sizeof *z);
  p.k->mat(p.packed, &p.act, y, stride, p.n_groups, n_cols, n_tokens, p.scratch);
  for (uint32_t t = 0; t < n_tokens; t++) hash(y + t * stride, n_rows * sizeof *y);

  /* Fewer tokens, and each group alone: the same bits. */
  static const uint32_t counts[] = {1, 2, 3};
  for (size_t i = 0; i < LM_COUNT(counts) && counts[i] <= n_tokens; i++) {
    for (uint32_t g = 0; g < p.n_groups; g++)
      p.k->mat(p.packed + g * p.group_bytes, &p.act, z + g * p.k->group_rows, stride, 1, n_cols, counts[i], p.scratch);
    for (uint32_t t = 0; t < counts[i]; t++)
      check(same(z + t * stride, y + t * stride, padded * sizeof *y), "bits depend on tokens or on the split");
  }
  for (uint32_t t = 0; t < n_tokens; t++) { /* decode of token t */
    struct act one = p.act;
    const size_t at = (size_t)t * one.n_cols;
    if (one.f) one.f += at;
    if (one.q16) one.q16 += at, one.s += at / 32;
    if (one.q) one.q += at, one.b8 += at / 16;
    if (one.d) one.d += at / 32, one.ds += at / 32;
    p.k->mat(p.packed, &one, z, stride, p.n_groups, n_cols, 1, p.scratch);
    check(same(z, y + t * stride, padded * sizeof *y), "prefill and decode differ");
  }

  ref.k->mat(ref.packed, &ref.act, z, stride, ref.n_groups, n_cols, n_tokens, ref.scratch);
  for (uint32_t r = 0; r < n_rows; r++) {
    quants[quant].to_float(file + r * p.row_bytes, row, n_cols);
    p.k->row_to_float(p.packed, r, n_cols, got);
    check(same(got, row, n_cols * sizeof *row), "row_to_float");
    ref.k->row_to_float(ref.packed, r, n_cols, got);
    check(same(got, row, n_cols * sizeof *row), "row_to_float of ref");
    for (uint32_t t = 0; t < LM_MIN(n_tokens, 3u); t++) {
      check_output(&p, row, t, y[t * stride + r]);
      check_output(&ref, row, t, z[t * stride + r]);
    }
  }
  finish();
}

/* A NaN or an infinity in one token shows in its product and nowhere else; nothing traps. */
static void check_wild_activations(uint32_t quant, uint32_t precision) {
  static const uint32_t wild[] = {0x7fc00000, 0xffc00001, 0x7f800001, 0x7f800000, 0xff800000, 0x7f7fffff, 0x00000001, 0x807fffff, 0x00800000};
  struct product p = {.quant = quant, .precision = precision, .n_rows = 16, .n_cols = 64, .n_tokens = 2 * LM_COUNT(wild)};
  start("wild", quant, precision, 0, 0, 0, 0);
  const uint32_t blocks = 64 / quants[quant].items;
  p.row_bytes = (size_t)blocks * quants[quant].bytes;
  uint8_t *file = take(16 * p.row_bytes + 16);
  float *x = take(p.n_tokens * 64 * sizeof *x), *y = take(p.n_tokens * 16 * sizeof *y);
  fill_file(file, quant, 16 * blocks, NORMAL);
  fill_x(x, p.n_tokens * 64, NORMAL);
  for (size_t i = 0; i < LM_COUNT(wild); i++) x[128 * i + 5] = f32_from_bits(wild[i]);
  p.file = file, p.x = x;
  prepare(&p, &kernels_simd);
  p.k->mat(p.packed, &p.act, y, 16, 1, 64, p.n_tokens, p.scratch);
  for (uint32_t t = 0; t < p.n_tokens; t++)
    for (uint32_t r = 0; r < 16; r++) {
      const float v = y[16 * t + r];
      const bool finite = v - v == 0, is_wild = t % 2 == 0 && (wild[t / 2] & 0x7fffffff) >= 0x7f800000;
      check(is_wild ? !finite : finite || (t % 2 == 0 && wild[t / 2] == 0x7f7fffff), "NaN, infinity or none");
    }
  finish();
}

static void check_products(void) {
  static const struct { uint32_t n_rows, n_cols, n_tokens; } shapes[] = {
    {16, 32, 65}, {17, 32, 2}, {31, 32, 3}, {48, 96, 5}, {17, 8192, 2}, {16, 8192, 1}, {31, 2080, 3}};
  static const uint32_t types[] = {QUANT_F32, QUANT_F16, QUANT_BF16, QUANT_Q8_0, QUANT_Q4_0, QUANT_Q4_1};
  for (size_t i = 0; i < LM_COUNT(types); i++)
    for (uint32_t precision = LM_FAST; precision <= LM_HIGH; precision++) {
      for (size_t s = 0; s < LM_COUNT(shapes); s++)
        for (enum mode mode = NORMAL; mode <= SPARSE; mode++)
          check_product(types[i], precision, shapes[s].n_rows, shapes[s].n_cols, shapes[s].n_tokens, mode);
      check_wild_activations(types[i], precision);
    }
  static const uint32_t odd_cols[] = {1, 172, 1025};
  for (size_t i = 0; i < 3 * LM_COUNT(odd_cols); i++)
    check_product(types[i / 3], LM_HIGH, 33, odd_cols[i % 3], 3, NORMAL);
}

/* ---- attention */

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

/* WINDOW: the last 40 positions of those that RANDOM would give, and scores capped. */
enum sight { ALL, CAUSAL, RANDOM, WINDOW, N_SIGHTS };

static void check_attend(uint32_t n_vectors, uint32_t head_dim, uint32_t kv_type, uint32_t n, enum sight sight) {
  enum { CHUNKS = 2 };
  start("attend", n_vectors, head_dim, kv_type, n, sight, 0);
  const size_t item = kv_type == KV_F32 ? 4 : 2, chunk = (size_t)KV_CHUNK * head_dim;
  float *q = take(n_vectors * head_dim * sizeof *q), *rows = take(chunk * sizeof *rows);
  for (uint32_t i = 0; i < n_vectors * head_dim; i++) q[i] = 3 * uniform();
  struct partial simd[CHUNKS], ref[CHUNKS], one = take_partial(1, head_dim);
  for (uint32_t c = 0; c < CHUNKS; c++) {
    uint8_t *k = take(chunk * item), *v = take(chunk * item);
    uint32_t *n_seen = take(n_vectors * sizeof *n_seen), *first = take(n_vectors * sizeof *first), last = 0;
    for (uint32_t i = 0; i < n_vectors; i++) {
      const uint32_t back = (n_vectors - 1 - i) / 3;
      n_seen[i] = c == 0 && sight < RANDOM ? KV_CHUNK : sight == ALL ? n : sight == CAUSAL ? (n > back ? n - back : 0)
                                                                                           : random_u32() % (n + 1);
      first[i] = sight == WINDOW && n_seen[i] > 40 ? n_seen[i] - 40 : sight == WINDOW && i % 5 == 4 ? n_seen[i] : 0;
      last = LM_MAX(last, n_seen[i]);
    }
    for (size_t i = 0; i < last * head_dim; i++) rows[i] = uniform();
    kernels_simd.kv_store(kv_type, rows, k, last * head_dim); /* behind it: NaN */
    for (size_t i = 0; i < last * head_dim; i++) rows[i] = uniform();
    kernels_simd.kv_store(kv_type, rows, v, last * head_dim);
    const struct attend a = {.q = q, .first = first, .n_seen = n_seen, .n_vectors = n_vectors, .head_dim = head_dim,
                             .kv_type = kv_type, .k = k, .v = v, .scale = (float)(1 / root(head_dim)),
                             .soft_cap = sight == WINDOW ? 2 : 0};
    simd[c] = take_partial(n_vectors, head_dim), ref[c] = take_partial(n_vectors, head_dim);
    attend_with(&kernels_simd, a, simd[c]);
    attend_with(&kernels_ref, a, ref[c]);
    for (uint32_t i = 0; i < n_vectors; i++) {
      struct attend alone = a;
      alone.q += i * head_dim, alone.first += i, alone.n_seen += i, alone.n_vectors = 1;
      attend_with(&kernels_simd, alone, one);
      check(same(one.o, simd[c].o + i * head_dim, head_dim * sizeof(float)) && same(one.max, simd[c].max + i, 4) &&
              same(one.sum, simd[c].sum + i, 4), "a vector's bits depend on its company");
      if (n_seen[i] == first[i])
        check(simd[c].max[i] == -__builtin_inff() && simd[c].sum[i] == 0 && simd[c].o[i * head_dim] == 0, "sees nothing");
    }
    if (c == 0) continue;
    kernels_simd.attend_fold(simd[0].o, simd[0].max, simd[0].sum, simd[1].o, simd[1].max, simd[1].sum, n_vectors, head_dim);
    kernels_ref.attend_fold(ref[0].o, ref[0].max, ref[0].sum, ref[1].o, ref[1].max, ref[1].sum, n_vectors, head_dim);
  }
  float *out = take(n_vectors * head_dim * sizeof *out), *want = take(n_vectors * head_dim * sizeof *want);
  kernels_simd.attend_finish(simd[0].o, simd[0].sum, out, n_vectors, head_dim);
  kernels_ref.attend_finish(ref[0].o, ref[0].sum, want, n_vectors, head_dim);
  for (uint32_t i = 0; i < n_vectors * head_dim; i++)
    check(simd[0].sum[i / head_dim] == 0 || magnitude(out[i] - want[i]) <= 3e-6, "attention differs from float64");
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
  attend_with(&kernels_ref, (struct attend){.q = q, .first = &first, .n_seen = &n_seen, .n_vectors = 1, .head_dim = D, .kv_type = KV_F32, .k = k,
                                            .v = v, .scale = 1}, (struct partial){o, &max, &sum});
  for (int d = 0; d < D; d++) check(magnitude(o[d] / (double)sum - want[d] / total) < 1e-6, "differs from the definition");
  finish();
}

static void check_attention(void) {
  check_attend_ref();
  static const uint32_t dims[] = {8, 16, 24, 64, 80, 128, 256, 520}, vectors[] = {1, 2, 3, 9, 64}, seen[] = {0, 1, 31, 33, 256};
  for (size_t d = 0; d < LM_COUNT(dims); d++)
    for (size_t i = 0; i < LM_COUNT(vectors); i++)
      if (dims[d] <= 128 || vectors[i] < 9)
        for (size_t n = 0; n < LM_COUNT(seen); n++) {
          if (vectors[i] == 64 && dims[d] > 16 && n % 4) continue; /* ends of blocks are seen with fewer */
          check_attend(vectors[i], dims[d], (uint32_t)(n + i) % N_KV_TYPES, seen[n], (enum sight)((n + d) % N_SIGHTS));
        }
}

/* Every f16, the middle between it and the next, and that middle's neighbours. */
static void check_store(void) {
  start("store", 0, 0, 0, 0, 0, 0);
  for (uint32_t h = 0; h < 0x7bff; h++) {
    const float low = f16_to_f32((f16)h), high = f16_to_f32((f16)(h + 1)), middle = (low + high) / 2;
    const uint32_t bits = f32_bits(middle);
    const float x[8] = {low, f32_from_bits(bits - 1), middle, f32_from_bits(bits + 1), -low, -middle, high, 0};
    const f16 up = (f16)(h + 1), even = h & 1 ? up : (f16)h;
    f16 want[8] = {(f16)h, (f16)h, even, up, (f16)h | 0x8000, even | 0x8000, up, 0}, got[8];
    for (int i = 0; i < 8; i++)
      if ((want[i] & 0x7fff) < 0x400) want[i] &= 0x8000;
    kernels_simd.kv_store(KV_F16, x, got, 8);
    check(same(got, want, sizeof got), "f16 is not the nearest");
    kernels_ref.kv_store(KV_F16, x, got, 8);
    check(same(got, want, sizeof got), "f16 of ref is not the nearest");
  }
  const float far[5] = {65519, 65520, -1e30f, __builtin_inff(), __builtin_nanf("")};
  const f16 want[5] = {0x7bff, 0x7bff, 0xfbff, 0x7bff, 0x7e00};
  const struct kernels *sets[] = {&kernels_simd, &kernels_ref};
  for (int i = 0; i < 2; i++) {
    f16 got[6] = {0, 0, 0, 0, 0, 0xabcd};
    sets[i]->kv_store(KV_F16, far, got, 5);
    check(same(got, want, 8) && (got[4] & 0x7fff) > 0x7c00 && got[5] == 0xabcd, "far out");
  }
  finish();
}

/* ---- element by element */

static void check_close(const float *got, const float *want, uint32_t n, double limit, const char *what) {
  for (uint32_t i = 0; i < n; i++) check(magnitude((double)got[i] - want[i]) <= limit * magnitude(want[i]) + 1e-37, what);
}

static void check_elementwise(uint32_t n) {
  start("elementwise", n, 0, 0, 0, 0, 0);
  float *x = take(n * sizeof *x), *w = take(n * sizeof *w), *y = take(n * sizeof *y), *z = take(n * sizeof *z);
  for (uint32_t i = 0; i < n; i++) x[i] = 30 * uniform(), w[i] = 2 + uniform();
  kernels_simd.rms_norm(x, w, y, n, 1e-5f);
  kernels_ref.rms_norm(x, w, z, n, 1e-5f);
  check_close(y, z, n, 1e-6, "rms_norm");
  hash(y, n * sizeof *y);
  double squares = 0, mean = 0;
  for (uint32_t i = 0; i < n; i++) squares += (double)z[i] / w[i] * z[i] / w[i], mean += (double)x[i] * x[i] / n;
  check(magnitude(squares / n * (mean + 1e-5) / mean - 1) < 1e-6, "rms_norm of ref");
  for (enum activation kind = ACTIVATION_SILU; kind <= ACTIVATION_GELU; kind++)
    for (int gated = 0; gated < 2; gated++) {
      kernels_simd.activate(kind, x, gated ? w : 0, y, n);
      kernels_ref.activate(kind, x, gated ? w : 0, z, n);
      /* gelu far below zero: e^-z of a z that f32 rounds; the value itself is as good as 0 */
      for (uint32_t i = 0; i < n; i++)
        check(magnitude((double)y[i] - z[i]) <= 1e-6 * magnitude(z[i]) + (kind == ACTIVATION_GELU ? 1e-6 : 1e-37), "activate");
      hash(y, n * sizeof *y);
    }
  kernels_simd.layer_norm(x, w, z, y, n, 1e-5f);
  float *want = take(n * sizeof *want);
  kernels_ref.layer_norm(x, w, z, want, n, 1e-5f);
  for (uint32_t i = 0; i < n; i++) check(magnitude((double)y[i] - want[i]) <= 2e-5, "layer_norm");
  hash(y, n * sizeof *y);
  copy_bytes(y, x, n * sizeof *y), copy_bytes(want, x, n * sizeof *want);
  kernels_simd.soft_cap(y, 20, n);
  kernels_ref.soft_cap(want, 20, n);
  for (uint32_t i = 0; i < n; i++) check(magnitude((double)y[i] - want[i]) <= 1e-5, "soft_cap");
  hash(y, n * sizeof *y);
  copy_bytes(y, x, n * sizeof *y);
  kernels_simd.scale(y, 3, n);
  kernels_simd.add_scaled(y, x, -2, n);
  for (uint32_t i = 0; i < n; i++) check(magnitude((double)y[i] - x[i]) <= 1e-5, "scale, add_scaled");
  kernels_simd.activate(ACTIVATION_SILU, x, w, y, n);
  kernels_ref.activate(ACTIVATION_SILU, x, w, z, n);
  kernels_simd.add(y, x, n);
  for (uint32_t i = 0; i < n; i++) check(y[i] == z[i] + x[i] || magnitude(y[i] - (double)(z[i] + x[i])) < 1e-5, "add");
  hash(y, n * sizeof *y);
  uint8_t past[CANARY];
  for (int i = 0; i < CANARY; i++) past[i] = 0xff;
  check(same(y + n, past, CANARY / 2) && same(z + n, past, CANARY / 2), "wrote past the end");
  float *in_place = take(n * sizeof *x);
  copy_bytes(in_place, x, n * sizeof *x);
  kernels_simd.rms_norm(x, w, y, n, 1e-5f);
  kernels_simd.rms_norm(in_place, w, in_place, n, 1e-5f);
  check(same(y, in_place, n * sizeof *y), "rms_norm in place");
  finish();
}

static void check_silu_far(void) {
  start("silu far", 0, 0, 0, 0, 0, 0);
  const float x[8] = {-1e30f, -200, -100, -88, 88, 100, 200, 1e30f}, one[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  float y[8];
  for (enum activation kind = ACTIVATION_SILU; kind <= ACTIVATION_GELU; kind++) {
    kernels_simd.activate(kind, x, one, y, 8);
    for (int i = 0; i < 8; i++) check(i < 4 ? magnitude(y[i]) < 1e-5 : y[i] == x[i], "activate far out");
    hash(y, sizeof y);
  }
  finish();
}

static void check_rope(uint32_t head_dim, uint32_t rope_dim, bool pairs) {
  enum { HEADS = 3 };
  start("rope", head_dim, rope_dim, pairs, 0, 0, 0);
  const uint32_t n = HEADS * head_dim, half = rope_dim / 2;
  float *x = take(n * sizeof *x), *y = take(n * sizeof *y), *z = take(n * sizeof *z);
  float *c = take(half * sizeof *c), *s = take(half * sizeof *s);
  for (uint32_t i = 0; i < n; i++) x[i] = uniform();
  for (uint32_t i = 0; i < half; i++) {
    const float t = uniform();
    c[i] = (1 - t * t) / (1 + t * t), s[i] = 2 * t / (1 + t * t);
  }
  copy_bytes(y, x, n * sizeof *x), copy_bytes(z, x, n * sizeof *x);
  (pairs ? kernels_simd.rope_pairs : kernels_simd.rope_halves)(y, c, s, HEADS, head_dim, rope_dim);
  (pairs ? kernels_ref.rope_pairs : kernels_ref.rope_halves)(z, c, s, HEADS, head_dim, rope_dim);
  for (uint32_t i = 0; i < n; i++) {
    const uint32_t d = i % head_dim, p = pairs ? d / 2 : d % half;
    const bool first = pairs ? d % 2 == 0 : d < half;
    double want = x[i];
    if (d < rope_dim) {
      const double other = pairs ? x[first ? i + 1 : i - 1] : x[first ? i + half : i - half];
      want = x[i] * (double)c[p] + (first ? -other : other) * s[p];
    }
    check(magnitude(y[i] - want) < 2e-7 && magnitude(z[i] - want) < 2e-7, "rope differs from float64");
  }
  hash(y, n * sizeof *y);
  finish();
}

static void check_elements(void) {
  static const uint32_t counts[] = {1, 2, 3, 4, 5, 7, 8, 12, 172, 576, 2048};
  for (size_t i = 0; i < LM_COUNT(counts); i++) check_elementwise(counts[i]);
  check_silu_far();
  static const uint32_t dims[][2] = {{8, 8}, {8, 6}, {8, 2}, {10, 10}, {64, 64}, {128, 64}, {80, 20}};
  for (size_t i = 0; i < LM_COUNT(dims); i++)
    for (int pairs = 0; pairs < 2; pairs++) check_rope(dims[i][0], dims[i][1], pairs);
}

/* Runs all; the report, NUL-terminated. */
LM_EXPORT const char *check_kernels(void);
const char *check_kernels(void) {
  heap = check_memory(HEAP_BYTES);
  check_elements();
  check_store();
  check_attention();
  check_products();
  text[text_length] = 0;
  return text;
}

#ifndef __wasm__
int main(int argc, char **argv) {
  (void)argv;
  const char *report = check_kernels();
  if (n_failures || argc > 1) fputs(report, stdout); /* any argument: the hashes too */
  return n_failures > 0;
}
#endif
