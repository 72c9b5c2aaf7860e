/* q4_0.c: 288 bytes per 16 rows x 32 columns: 16 scales, nibbles (nibbles.h). */
#include "nibbles.h"

enum { Q4_0_BLOCK = 288 };

INLINE void q4_0_unpack(struct mat_panel *p, size_t b, const uint8_t *w, v128_t mask) {
  nibbles_unpack(p, b, w, mask, v_constant(EIGHTS16));
}

static const struct mat_form q4_0_form = {Q4_0_BLOCK, 8, false, false, false, 2, NIBBLES16,
                                       nibbles_dot, mat_dot_tile_i16, q4_0_unpack};

static void q4_0_mat(const uint8_t *w, const struct act *x, float *y, size_t y_stride, uint32_t n_groups,
                     uint32_t n_cols, uint32_t n_tokens, void *scratch) {
  mat_quantised(&q4_0_form, w, x, y, y_stride, n_groups, n_cols, n_tokens, scratch);
}

static void q4_0_pack(const uint8_t *file, size_t row_bytes, uint8_t *packed, uint32_t n_rows, uint32_t n_cols) {
  nibbles_pack(file, row_bytes, packed, n_rows, n_cols, false);
}

static void q4_0_row_to_float(const uint8_t *packed, uint32_t row, uint32_t n_cols, float *out) {
  nibbles_row_to_float(packed, row, n_cols, out, false);
}

const struct mat_kernels mat_q4_0 = {16, 32, Q4_0_BLOCK, 0, ACT_I16, q4_0_pack, q4_0_row_to_float, q4_0_mat};

#if VEC_HAS_RELAXED
static const struct mat_form q4_0_form_u7 = {Q4_0_BLOCK, 8, false, true, false, 2, NIBBLES8,
                                       nibbles_dot_u7, mat_dot_tile_u7, nibbles_unpack_u7};

static void q4_0_mat_u7(const uint8_t *w, const struct act *x, float *y, size_t y_stride, uint32_t n_groups,
                        uint32_t n_cols, uint32_t n_tokens, void *scratch) {
  mat_quantised(&q4_0_form_u7, w, x, y, y_stride, n_groups, n_cols, n_tokens, scratch);
}

const struct mat_kernels mat_q4_0_u7 = {16, 32, Q4_0_BLOCK, 0, ACT_I8, q4_0_pack, q4_0_row_to_float, q4_0_mat_u7};
#endif

#if VEC_HAS_DOT
INLINE void q4_0_tile_halves(v128_t s[8], const struct mat_panel *p, size_t b, const struct act *x, size_t b0,
                             size_t b1) {
  mat_dot_tile_halves(s, p, b, x, b0, b1, 8);
}

static const struct mat_form q4_0_form_halves = {Q4_0_BLOCK, 8, false, false, false, 2, NIBBLES8,
                                           nibbles_dot_halves, q4_0_tile_halves, nibbles_unpack_u7};

static void q4_0_mat_halves(const uint8_t *w, const struct act *x, float *y, size_t y_stride, uint32_t n_groups,
                           uint32_t n_cols, uint32_t n_tokens, void *scratch) {
  mat_quantised(&q4_0_form_halves, w, x, y, y_stride, n_groups, n_cols, n_tokens, scratch);
}

const struct mat_kernels mat_q4_0_halves = {16, 32, Q4_0_BLOCK, 0, ACT_HALVES, q4_0_pack, q4_0_row_to_float,
                                          q4_0_mat_halves};
#endif
