/* kernel_products.h: cases of check_kernels.c: packed weights times activations, packing, look-ups. */
#pragma once
#include "kernel_cases.h"

enum mode { NORMAL, SUBNORMAL, EXTREME, LARGE, SPARSE };

/* Where the f16 of a block stand in the file: its scale, and that of the minima or, without, the same. */
struct f16_places {
  uint32_t d, min;
};
static struct f16_places places_of(uint32_t quant) {
  switch (quant) {
    case QUANT_Q4_1: case QUANT_Q5_1: case QUANT_Q4_K: case QUANT_Q5_K: return (struct f16_places){0, 2};
    case QUANT_Q2_K: return (struct f16_places){80, 82};
    case QUANT_Q3_K: return (struct f16_places){108, 108};
    case QUANT_Q6_K: return (struct f16_places){208, 208};
    default: return (struct f16_places){0, 0};
  }
}

/* Any bytes are weights; their scales are made tame, and extreme blocks hold the largest values alone. */
static void fill_file(uint8_t *file, uint32_t quant, uint32_t n_blocks, enum mode mode) {
  const uint32_t bytes = quants[quant].bytes;
  const struct f16_places at = places_of(quant);
  for (uint32_t i = 0; i < n_blocks * bytes; i++)
    file[i] = (uint8_t)(mode != EXTREME ? random_u32() : quant == QUANT_Q8_0 ? 0x80 : i / bytes & 1 ? 0 : 0xff);
  for (uint32_t i = 0; i < n_blocks; i++) {
    uint8_t *p = file + i * bytes;
    const uint32_t any = random_u32();
    /* Half of the large ones are 128 or more. */
    const uint32_t tame = mode == LARGE ? 0x5000 | (any & 0x8bff) : 0x1000 | (any & 0x87ff);
    const uint16_t scale = (uint16_t)(mode == SUBNORMAL ? any & 0x83ff : tame);
    const f16 wide = (f16)(mode == EXTREME ? 0x7bff : mode == LARGE ? any & 0xdbff : any % 3 ? any & 0xbfff : scale);
    const f16 bf16 = (f16)(0x3c00 | (any & 0x81ff));
    const float single = uniform() * 0x1p-5f;
    switch (quant) {
      case QUANT_F32: copy_bytes(p, &single, 4); break;
      case QUANT_F16: copy_bytes(p, &wide, 2); break;
      case QUANT_BF16: copy_bytes(p, &bf16, 2); break;
      default: copy_bytes(p + at.min, &(uint16_t){scale ^ 0x8155}, 2), copy_bytes(p + at.d, &scale, 2);
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
  const struct act *a = &p->act;
  if (p->k->needs & ACT_I8) return d * a->q[at];
  if (p->k->needs & ACT_SIGNS) return d * (a->pos[at] - a->neg[at]);
  if (p->k->needs & ACT_HALVES) return d * (128 * a->hi[at] + a->lo[at]);
  return d * a->q16[(at & ~(size_t)3) + place[at % 4]];
}

/* A sum of products w x in float64, and how far from it rounding may lead. */
struct expected {
  double sum, exact; /* over the activations as the kernel has them; over x itself */
  double total;      /* of magnitudes */
  double steps;      /* of squares of what an activation's step is worth */
  double minima;     /* what rounding sums of 32 activations to int16 may be worth */
};

static struct expected expect(const struct product *p, const float *row, uint32_t t) {
  struct expected e = {0};
  const double top = p->precision == LM_HIGH ? 16383 : 127;
  const struct f16_places at = places_of(p->quant);
  for (uint32_t k = 0; k < p->n_cols; k++) {
    const size_t i = (size_t)t * p->act.n_cols + k;
    const double xk = activation(p, t, k), x = p->x[(size_t)t * p->n_cols + k];
    double part = magnitude(row[k]); /* with a minimum, of its parts: the largest weight around stands for these */
    for (uint32_t j = k & ~15u; at.min != at.d && j < (k | 15) + 1; j++) part = LM_MAX(part, 2 * magnitude(row[j]));
    e.sum += row[k] * xk, e.exact += row[k] * x;
    e.total += part * magnitude(xk);
    if (p->k->needs & ACT_MIN) e.minima += part / 32 * p->act.dm[i / 256];
    if (p->k->needs & ACT_F32) continue;
    const double step = p->act.d[i / 32];
    e.steps += step * row[k] * step * row[k];
    check(magnitude(xk - x) <= 0.505 * step, "an activation is more than half a step off");
    check(magnitude(xk) <= top * 1.0001 * step, "activation out of range");
  }
  return e;
}

static void check_output(const struct product *p, const float *row, uint32_t t, float y) {
  const struct expected e = expect(p, row, t);
  /* Roundings of n random signs add up as their root. A minimum is part of its own weight's rounding. */
  const double n = p->k->needs & ACT_F32 ? p->n_cols : p->n_cols / 32.0;
  const double rounding = (4 * root(n) + 8) * 0x1p-24 * e.total + e.minima;
  check(magnitude(y - e.sum) <= rounding, "product differs from float64");
  check(magnitude(y - e.exact) <= rounding + 3 * root(e.steps), "product differs from that of x");
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
    const struct act one = act_from(&p.act, t);
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
  const uint32_t n_cols = LM_MAX(64u, quants[quant].items), n_rows = 16;
  struct product p = {.quant = quant, .precision = precision, .n_rows = n_rows, .n_cols = n_cols};
  p.n_tokens = 2 * LM_COUNT(wild);
  start("wild", quant, precision, 0, 0, 0, 0);
  const uint32_t blocks = n_cols / quants[quant].items;
  p.row_bytes = (size_t)blocks * quants[quant].bytes;
  uint8_t *file = take(n_rows * p.row_bytes + 16);
  float *x = take(p.n_tokens * n_cols * sizeof *x), *y = take(p.n_tokens * n_rows * sizeof *y);
  fill_file(file, quant, n_rows * blocks, NORMAL);
  fill_x(x, p.n_tokens * n_cols, NORMAL);
  for (size_t i = 0; i < LM_COUNT(wild); i++) x[2 * n_cols * i + 5] = f32_from_bits(wild[i]);
  p.file = file, p.x = x;
  prepare(&p, &kernels_simd);
  p.k->mat(p.packed, &p.act, y, n_rows, p.n_groups, n_cols, p.n_tokens, p.scratch);
  for (uint32_t t = 0; t < p.n_tokens; t++)
    for (uint32_t r = 0; r < n_rows; r++) {
      const float v = y[n_rows * t + r];
      const bool finite = v - v == 0, is_wild = t % 2 == 0 && (wild[t / 2] & 0x7fffffff) >= 0x7f800000;
      check(is_wild ? !finite : finite || (t % 2 == 0 && wild[t / 2] == 0x7f7fffff), "NaN, infinity or none");
    }
  finish();
}

struct shape {
  uint32_t n_rows, n_cols, n_tokens;
};

static void check_types(const uint32_t *types, size_t n_types, const struct shape *shapes, size_t n_shapes) {
  for (size_t i = 0; i < n_types; i++)
    for (uint32_t precision = LM_FAST; precision <= LM_HIGH; precision++) {
      for (size_t s = 0; s < n_shapes; s++)
        for (enum mode mode = NORMAL; mode <= SPARSE; mode++)
          check_product(types[i], precision, shapes[s].n_rows, shapes[s].n_cols, shapes[s].n_tokens, mode);
      check_wild_activations(types[i], precision);
    }
}

/* Types of the strips share all loops but one function: fewer shapes will do. Two and three tokens with many rows go
 * slice by slice (MAT_SLICE), five with more than 1,024 columns through two panels. */
static void check_products(void) {
  static const uint32_t types[] = {QUANT_F32, QUANT_F16, QUANT_BF16, QUANT_Q8_0, QUANT_Q4_0, QUANT_Q4_1};
  static const struct shape shapes[] = {{16, 32, 65},  {17, 32, 2},   {31, 32, 3},  {48, 1056, 5},
                                        {17, 8192, 2}, {16, 8192, 1}, {65, 2080, 3}};
  check_types(types, LM_COUNT(types), shapes, LM_COUNT(shapes));
  static const uint32_t blocks[] = {QUANT_Q5_0, QUANT_Q5_1, QUANT_IQ4_NL};
  static const struct shape block_shapes[] = {{17, 32, 5}, {15, 2080, 3}, {16, 96, 1}};
  check_types(blocks, LM_COUNT(blocks), block_shapes, LM_COUNT(block_shapes));
  static const uint32_t superblocks[] = {QUANT_Q2_K, QUANT_Q3_K, QUANT_Q4_K, QUANT_Q5_K, QUANT_Q6_K, QUANT_IQ4_XS};
  static const struct shape superblock_shapes[] = {{9, 256, 9}, {7, 1280, 6}, {8, 512, 1}, {33, 8192, 3}};
  check_types(superblocks, LM_COUNT(superblocks), superblock_shapes, LM_COUNT(superblock_shapes));
  static const uint32_t odd_cols[] = {1, 172, 1025};
  for (size_t i = 0; i < 3 * LM_COUNT(odd_cols); i++)
    check_product(types[i / 3], LM_HIGH, 33, odd_cols[i % 3], 3, NORMAL);
}
