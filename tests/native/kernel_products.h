/* kernel_products.h: cases of check_kernels.c: packed weights times activations, packing, look-ups. */
#pragma once
#include "kernel_cases.h"

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
    const f16 wide = (f16)(mode == EXTREME ? 0x7bff : mode == LARGE ? any & 0xdbff : any % 3 ? any & 0xbfff : scale);
    const f16 bf16 = (f16)(0x3c00 | (any & 0x81ff));
    const float single = uniform() * 0x1p-5f;
    switch (quant) {
      case QUANT_F32: copy_bytes(p, &single, 4); break;
      case QUANT_F16: copy_bytes(p, &wide, 2); break;
      case QUANT_BF16: copy_bytes(p, &bf16, 2); break;
      default: copy_bytes(p, &scale, 2);
    }
    if (quant == QUANT_Q4_1) copy_bytes(p + 2, &(uint16_t){scale ^ 0x8155}, 2);
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
  check(magnitude(y - exact) <= (4 * root(n) + 8) * 0x1p-24 * total + 3 * root(steps),
        "product differs from that of x");
}

static void check_product(uint32_t quant, uint32_t precision, uint32_t n_rows, uint32_t n_cols, uint32_t n_tokens,
                          enum mode mode) {
  struct product p = {.quant = quant, .precision = precision, .n_rows = n_rows, .n_cols = n_cols, .n_tokens = n_tokens};
  start(quants[quant].name, precision, n_rows, n_cols, n_tokens, mode, 0);
  const uint32_t blocks = n_cols / quants[quant].items;
  p.row_bytes = (size_t)blocks * quants[quant].bytes;
  uint8_t *file = take(n_rows * p.row_bytes + 16);
  float *x = take((size_t)n_tokens * n_cols * sizeof *x);
  float *row = take(n_cols * sizeof *row), *got = take(n_cols * sizeof *got);
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
  static const uint32_t wild[] = {0x7fc00000, 0xffc00001, 0x7f800001, 0x7f800000, 0xff800000,
                                  0x7f7fffff, 0x00000001, 0x807fffff, 0x00800000};
  struct product p = {.quant = quant, .precision = precision, .n_rows = 16, .n_cols = 64};
  p.n_tokens = 2 * LM_COUNT(wild);
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
