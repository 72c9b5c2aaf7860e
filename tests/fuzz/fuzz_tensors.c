/* fuzz_tensors.c: any bytes as the weights of a matrix of any type, and as what it is multiplied by: finite
 * rows mean packed what they mean in the file, and products do not depend on how many tokens there are. */
#include "fuzz.h"
#include "kernels.h"

enum { COLS = 512, ROWS = 20, TOKENS = 3, SLACK = 16, MAX_GROUP = 16, NAN_BITS = 0x7fc00000 };

/* Bytes of the input, again from the first when they are through. */
struct input {
  const uint8_t *bytes;
  size_t n, at;
};
static uint8_t next(struct input *in) { return in->bytes[in->at++ % in->n]; }

/* Any NaN is as good as any other. */
static uint32_t bits(float x) { return x != x ? NAN_BITS : f32_bits(x); }

/* Infinities and NaN are for no kernel to keep. */
static bool is_finite(float x) { return x - x == 0; }

static void *aligned(size_t n) {
  void *p = aligned_alloc(64, (n + 63) & ~(size_t)63);
  FUZZ_CHECK(p);
  return p;
}

static void rows_mean_the_same(const struct quant *type, const struct mat_kernels *k, const uint8_t *file,
                               size_t row_bytes, const uint8_t *packed, size_t group_bytes, uint32_t n_rows,
                               uint32_t n_cols) {
  float expected[COLS], got[COLS];
  for (uint32_t r = 0; r < n_rows; r++) {
    type->to_float(file + r * row_bytes, expected, n_cols);
    k->row_to_float(packed + r / k->group_rows * group_bytes, r % k->group_rows, n_cols, got);
    for (uint32_t c = 0; c < n_cols; c++) FUZZ_CHECK(got[c] == expected[c] || !is_finite(expected[c]));
  }
}

static void tokens_are_alone(const struct mat_kernels *k, const uint8_t *packed, uint32_t n_groups, uint32_t n_cols,
                             uint32_t n_tokens, uint32_t precision, struct input *in) {
  float x[TOKENS * COLS], y[TOKENS * (ROWS + MAX_GROUP)], alone[ROWS + MAX_GROUP];
  const uint32_t stride = n_groups * k->group_rows;
  for (uint32_t i = 0; i < n_tokens * n_cols; i++) x[i] = (float)(int8_t)next(in) * (i % 7 ? 0.03f : 300.0f);
  void *mem = aligned(KERNELS.act_bytes(n_cols, n_tokens, k->needs)), *scratch = aligned(MAT_SCRATCH);
  struct act act;
  KERNELS.act_place(&act, mem, n_cols, n_tokens, k->needs);
  KERNELS.act_make(&act, x, n_cols, n_cols, 0, n_tokens, k->needs, precision);
  k->mat(packed, &act, y, stride, n_groups, n_cols, n_tokens, scratch);
  for (uint32_t t = 0; t < n_tokens; t++) {
    const struct act one = act_from(&act, t);
    k->mat(packed, &one, alone, stride, n_groups, n_cols, 1, scratch);
    for (uint32_t r = 0; r < stride; r++) FUZZ_CHECK(bits(alone[r]) == bits(y[t * stride + r]));
  }
  free(mem), free(scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  if (n < 5) return 0;
  const uint32_t quant = data[0] % N_QUANTS, precision = data[1] % 2, n_rows = 1 + data[2] % ROWS;
  const struct quant *type = &quants[quant];
  const struct mat_kernels *k = type->to_float ? KERNELS.mat(quant, precision) : 0;
  if (!k) return 0;
  FUZZ_CHECK(k->group_rows <= MAX_GROUP);
  const uint32_t n_cols = LM_MAX(type->items, 32u) * (1 + data[3] % (COLS / LM_MAX(type->items, 32u)));
  const size_t row_bytes = n_cols / type->items * type->bytes;
  const uint32_t n_groups = (n_rows + k->group_rows - 1) / k->group_rows;
  const size_t group_bytes = packed_bytes(k, 1, n_cols);
  struct input in = {data + 5, n > 5 ? n - 5 : 1, 0};
  if (n == 5) in.bytes = data;

  uint8_t *file = malloc(n_rows * row_bytes + SLACK), *packed = aligned(n_groups * group_bytes);
  FUZZ_CHECK(file);
  for (size_t i = 0; i < n_rows * row_bytes + SLACK; i++) file[i] = next(&in);
  for (uint32_t g = 0; g < n_groups; g++) {
    const uint32_t row = g * k->group_rows;
    k->pack(file + row * row_bytes, row_bytes, packed + g * group_bytes, LM_MIN(n_rows - row, k->group_rows), n_cols);
  }
  rows_mean_the_same(type, k, file, row_bytes, packed, group_bytes, n_rows, n_cols);
  tokens_are_alone(k, packed, n_groups, n_cols, 1 + data[4] % TOKENS, precision, &in);
  free(file), free(packed);
  return 0;
}
