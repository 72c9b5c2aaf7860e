/* kernels.c: what kernels.js times: register-only loops for the peaks of instructions, a sum over memory
 * for the peak of reading, and the kernels themselves. Each returns something of its results, so that
 * nothing can be left out. */
#include "../../src/kernels.h"
#include "../../src/lm.h"
#include "../../wasm/vec.h"

enum { N_ACCUMULATORS = 12 };
static const volatile uint32_t opaque[] = {0x01020304, 0x3f800001};

/* `step` on twelve accumulators at once, n times. */
#define PEAK(name, seed, step) \
  LM_EXPORT int32_t name(uint32_t n); \
  int32_t name(uint32_t n) { \
    const v128_t x = v_i32((int32_t)opaque[seed]); \
    v128_t a[N_ACCUMULATORS]; \
    UNROLLED for (int i = 0; i < N_ACCUMULATORS; i++) a[i] = v_i32(i); \
    ROLLED for (uint32_t j = 0; j < n; j++) UNROLLED for (int i = 0; i < N_ACCUMULATORS; i++) step; \
    UNROLLED for (int i = 1; i < N_ACCUMULATORS; i++) a[0] = v_xor(a[0], a[i]); \
    return v_lane32(a[0], 0); \
  }
PEAK(peak_f32, 1, a[i] = v_add(a[i], v_mul(a[i], x)))
PEAK(peak_i16, 0, a[i] = v_add32(a[i], v_dot16(a[i], x)))
#if VEC_HAS_RELAXED
PEAK(peak_i8, 0, a[i] = v_add_dot8(a[i], a[i], x))
#endif

/* n_bytes in n_streams parts, a line of each in turn: several are read faster than one. */
LM_EXPORT int32_t read_sum(const uint8_t *p, size_t n_bytes, size_t n_streams);
int32_t read_sum(const uint8_t *p, size_t n_bytes, size_t n_streams) {
  v128_t a[8];
  UNROLLED for (int i = 0; i < 8; i++) a[i] = v_i32(0);
  const size_t part = n_bytes / n_streams;
  ROLLED for (size_t at = 0; at < part; at += 128)
    ROLLED for (size_t s = at; s < n_bytes; s += part)
      UNROLLED for (int i = 0; i < 8; i++) a[i] = v_add32(a[i], v_load(p + s + 16 * i));
  UNROLLED for (int i = 1; i < 8; i++) a[0] = v_add32(a[0], a[i]);
  return v_lane32(a[0], 0);
}

/* A product of n_rows x n_cols (whole groups, whole blocks) with n_tokens rows of activations. Weights,
 * activations, scratch and results stand in memory one after the other from `at` on; all rows
 * are the same. */
enum { ORDINARY = 0x3c }; /* bytes of an ordinary number in every format */

static struct {
  const struct mat_kernels *k;
  struct act act;
  uint8_t *w;
  void *scratch;
  float *x, *y;
  uint32_t n_rows, n_cols, n_tokens, precision;
} mat;

/* Weight bytes of one matrix, or 0: no such kernel. copies: so many matrices stand behind each other. */
LM_EXPORT uint32_t mat_open(uint8_t *at, uint32_t quant, uint32_t precision, uint32_t n_rows, uint32_t n_cols,
                            uint32_t n_tokens, uint32_t copies);
uint32_t mat_open(uint8_t *at, uint32_t quant, uint32_t precision, uint32_t n_rows, uint32_t n_cols, uint32_t n_tokens,
                  uint32_t copies) {
  mat.k = KERNELS.mat(quant, precision);
  if (!mat.k) return 0;
  mat.n_rows = n_rows, mat.n_cols = n_cols, mat.n_tokens = n_tokens, mat.precision = precision;
  const size_t bytes = (size_t)packed_bytes(mat.k, n_rows, n_cols);
  mat.w = at, at += bytes * copies;
  mat.scratch = at, at += MAT_SCRATCH;
  KERNELS.act_place(&mat.act, at, n_cols, n_tokens, mat.k->needs);
  at += KERNELS.act_bytes(n_cols, n_tokens, mat.k->needs);
  mat.x = (float *)at, mat.y = mat.x + (size_t)n_cols * n_tokens;
  const size_t group = (size_t)packed_bytes(mat.k, mat.k->group_rows, n_cols);
  uint8_t *file = (uint8_t *)(mat.y + (size_t)n_rows * n_tokens);
  for (size_t i = 0; i < n_cols * sizeof(float); i++) file[i] = ORDINARY;
  mat.k->pack(file, 0, mat.w, mat.k->group_rows, n_cols);
  for (size_t i = group; i < bytes * copies; i += group) copy_bytes(mat.w + i, mat.w, group);
  for (size_t i = 0; i < (size_t)n_cols * n_tokens; i++) mat.x[i] = (float)(i % 97) - 48;
  KERNELS.act_make(&mat.act, mat.x, n_cols, n_cols, 0, n_tokens, mat.k->needs, precision);
  return (uint32_t)bytes;
}

LM_EXPORT float mat_run(uint32_t copy);
float mat_run(uint32_t copy) {
  const uint8_t *w = mat.w + copy * packed_bytes(mat.k, mat.n_rows, mat.n_cols);
  mat.k->mat(w, &mat.act, mat.y, mat.n_rows, mat.n_rows / mat.k->group_rows, mat.n_cols, mat.n_tokens, mat.scratch);
  return mat.y[0];
}

LM_EXPORT void act_run(void);
void act_run(void) {
  KERNELS.act_make(&mat.act, mat.x, mat.n_cols, mat.n_cols, 0, mat.n_tokens, mat.k->needs, mat.precision);
}

/* Attention of n_vectors queries over a chunk that all see whole. */
LM_EXPORT float attention_run(uint8_t *at, uint32_t n_vectors, uint32_t head_dim, uint32_t kv_type);
float attention_run(uint8_t *at, uint32_t n_vectors, uint32_t head_dim, uint32_t kv_type) {
  static uint32_t first[ATTEND_VECTORS], n_seen[ATTEND_VECTORS];
  static float max[ATTEND_VECTORS], sum[ATTEND_VECTORS];
  for (uint32_t i = 0; i < n_vectors; i++) n_seen[i] = KV_CHUNK;
  const size_t rows = (size_t)KV_CHUNK * head_dim * sizeof(float),
               vectors = (size_t)ATTEND_VECTORS * head_dim * sizeof(float);
  const struct attend a = {
    .q = (float *)(at + 2 * rows), .first = first, .n_seen = n_seen, .n_vectors = n_vectors, .head_dim = head_dim,
    .kv_type = kv_type, .k = at, .v = at + rows, .scale = 0.125f, .o = (float *)(at + 2 * rows + vectors),
    .max = max, .sum = sum, .scratch = at + 2 * rows + 2 * vectors,
  };
  KERNELS.attend(&a);
  return a.o[0];
}
