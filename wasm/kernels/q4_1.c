/* q4_1.c: 320 bytes per 16 rows x 32 columns: 16 scales, 16 minima, nibbles (nibbles.h). */
#include "nibbles.h"

enum { Q4_1_BLOCK = 320 };

INLINE void q4_1_unpack(struct mat_panel *p, size_t b, const uint8_t *w, v128_t mask) {
  nibbles_unpack(p, b, w, mask, v_i32(0));
}

static const struct mat_form q4_1_form = {Q4_1_BLOCK, 0, true, false, false, 2, NIBBLES16,
                                       nibbles_dot, mat_dot_tile_i16, q4_1_unpack};

static void q4_1_mat(const uint8_t *w, const struct act *x, float *y, size_t y_stride, uint32_t n_groups,
                     uint32_t n_cols, uint32_t n_tokens, void *scratch) {
  mat_quantised(&q4_1_form, w, x, y, y_stride, n_groups, n_cols, n_tokens, scratch);
}

static void q4_1_pack(const uint8_t *file, size_t row_bytes, uint8_t *packed, uint32_t n_rows, uint32_t n_cols) {
  nibbles_pack(file, row_bytes, packed, n_rows, n_cols, true);
}

static void q4_1_row_to_float(const uint8_t *packed, uint32_t row, uint32_t n_cols, float *out) {
  nibbles_row_to_float(packed, row, n_cols, out, true);
}

const struct mat_kernels mat_q4_1 = {16, 32, Q4_1_BLOCK, 0, ACT_I16, q4_1_pack, q4_1_row_to_float, q4_1_mat};

#if VEC_HAS_RELAXED
static const struct mat_form q4_1_form_u7 = {Q4_1_BLOCK, 0, true, true, false, 2, NIBBLES8,
                                       nibbles_dot_u7, mat_dot_tile_u7, nibbles_unpack_u7};

static void q4_1_mat_u7(const uint8_t *w, const struct act *x, float *y, size_t y_stride, uint32_t n_groups,
                        uint32_t n_cols, uint32_t n_tokens, void *scratch) {
  mat_quantised(&q4_1_form_u7, w, x, y, y_stride, n_groups, n_cols, n_tokens, scratch);
}

const struct mat_kernels mat_q4_1_u7 = {16, 32, Q4_1_BLOCK, 0, ACT_I8, q4_1_pack, q4_1_row_to_float, q4_1_mat_u7};
#endif

#if VEC_HAS_DOT
INLINE void q4_1_tile_halves(v128_t s[8], const struct mat_panel *p, size_t b, const struct act *x, size_t b0,
                             size_t b1) {
  mat_dot_tile_halves(s, p, b, x, b0, b1, 0);
}

static const struct mat_form q4_1_form_halves = {Q4_1_BLOCK, 0, true, false, false, 2, NIBBLES8,
                                           nibbles_dot_halves, q4_1_tile_halves, nibbles_unpack_u7};

static void q4_1_mat_halves(const uint8_t *w, const struct act *x, float *y, size_t y_stride, uint32_t n_groups,
                           uint32_t n_cols, uint32_t n_tokens, void *scratch) {
  mat_quantised(&q4_1_form_halves, w, x, y, y_stride, n_groups, n_cols, n_tokens, scratch);
}

const struct mat_kernels mat_q4_1_halves = {16, 32, Q4_1_BLOCK, 0, ACT_HALVES, q4_1_pack, q4_1_row_to_float,
                                          q4_1_mat_halves};
#endif
