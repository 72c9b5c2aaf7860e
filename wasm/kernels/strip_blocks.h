/* strip_blocks.h: strips (strips.h) for types with one scale per 32 columns: q5_0, q5_1, iq4_nl, in the loops of
 * mat.h. 16 rows x 32 columns: d of row r at 2r, with minima m at 32 + 2r, then four strips: columns 0..15 of rows
 * 0..7, of rows 8..15, columns 16..31 of the same. */
#pragma once
#include "strips.h"

INLINE void strip_block_dot(const struct strip_form *f, v128_t s[4], const uint8_t *w, const struct act *x,
                            size_t block, v128_t bytes) {
  const struct strip_masks masks = strip_masks(f);
  const int16_t *q = x->q16 + 32 * block;
  ROLLED for (int h = 0; h < 2; h++, w += 2 * f->bytes, q += 16) strip_dot_i16(f, s, 4, w, f->bytes, q, &masks, bytes);
}

INLINE void strip_block_unpack(const struct strip_form *f, struct mat_panel *p, size_t b, const uint8_t *w,
                               v128_t bytes, int32_t bias) {
  const struct strip_masks masks = strip_masks(f);
  const v128_t less = v_i32(bias * 0x10001);
  ROLLED for (int h = 0; h < 2; h++, w += 2 * f->bytes)
    UNROLLED for (int v = 0; v < 4; v++) {
      v128_t q[4];
      f->read(q, w + v / 2 * f->bytes, v % 2, &masks);
      UNROLLED for (int i = 0; i < 4; i++) {
        v_store(p->i16[b][8 * h + 2 * i][4 * v], v_sub16(v_and(q[i], bytes), less));
        v_store(p->i16[b][8 * h + 2 * i + 1][4 * v], v_sub16(v_shr_u16(q[i], 8), less));
      }
    }
}

#if VEC_HAS_RELAXED
/* Fives by the int8 dot: a pair of products is at most 7,874, so int16 holds four, a strip's. */
INLINE void strip_block_dot_u7(const struct strip_form *f, v128_t s[4], const uint8_t *w, const struct act *x,
                               size_t block, v128_t ones) {
  const struct strip_masks masks = strip_masks(f);
  const int8_t *q = x->q + 32 * block;
  ROLLED for (int h = 0; h < 2; h++, w += 2 * f->bytes, q += 16) {
    v128_t a[4] = {v_i32(0), v_i32(0), v_i32(0), v_i32(0)};
    strip_dot_u7(f, a, 4, w, f->bytes, q, &masks);
    UNROLLED for (int v = 0; v < 4; v++) s[v] = v_add32(s[v], v_sums8(a[v], ones));
  }
}

INLINE void strip_block_unpack_u7(const struct strip_form *f, struct mat_panel *p, size_t b, const uint8_t *w) {
  const struct strip_masks masks = strip_masks(f);
  ROLLED for (int h = 0; h < 2; h++, w += 2 * f->bytes)
    UNROLLED for (int v = 0; v < 4; v++) {
      v128_t q[4];
      f->read(q, w + v / 2 * f->bytes, v % 2, &masks);
      UNROLLED for (int i = 0; i < 4; i++) v_store(p->u7[b][4 * h + i][4 * v], q[i]);
    }
}

/* The panel holds unsigned values: the bias leaves here. */
INLINE void strip_block_tile_u7(v128_t s[8], const struct mat_panel *p, size_t b, const struct act *x, size_t b0,
                                size_t b1, int32_t bias) {
  const v128_t ones = v_constant(ONES16);
  const uint8_t *w = p->u7[b][0][0];
  const int8_t *q0 = x->q + 32 * b0, *q1 = x->q + 32 * b1;
  UNROLLED for (int v = 0; v < 4; v++) s[v] = v_i32(-bias * x->s[b0]), s[v + 4] = v_i32(-bias * x->s[b1]);
  ROLLED for (int h = 0; h < 2; h++) {
    v128_t a[8];
    UNROLLED for (int v = 0; v < 8; v++) a[v] = v_i32(0);
    ROLLED for (int i = 0; i < 4; i++, w += 64, q0 += 4, q1 += 4) {
      const v128_t x0 = v_load_splat(q0), x1 = v_load_splat(q1);
      UNROLLED for (int v = 0; v < 4; v++) {
        const v128_t wv = v_load(w + 16 * v);
        a[v] = v_add_dot8(a[v], x0, wv);
        a[v + 4] = v_add_dot8(a[v + 4], x1, wv);
      }
    }
    UNROLLED for (int v = 0; v < 8; v++) s[v] = v_add32(s[v], v_sums8(a[v], ones));
  }
}
#endif

/* values: the 16 of columns 16h .. of a row's block in the file. */
INLINE void strip_block_pack(const struct strip_form *f, const uint8_t *file, size_t row_bytes, uint8_t *packed,
                             uint32_t n_rows, uint32_t n_cols, size_t file_bytes, bool min,
                             v128_t (*values)(const uint8_t *block, uint32_t h)) {
  static const uint8_t zeros[QUANT_BYTES_Q5_1];
  const size_t off = min ? 64 : 32;
  for (size_t b = 0; b < n_cols / 32; b++, packed += off + 4 * f->bytes) {
    const uint8_t *block[16];
    for (uint32_t r = 0; r < 16; r++) {
      block[r] = r < n_rows ? file + r * row_bytes + b * file_bytes : zeros;
      copy_bytes(packed + 2 * r, block[r], 2);
      if (min) copy_bytes(packed + 32 + 2 * r, block[r] + 2, 2);
    }
    for (uint32_t i = 0; i < 4; i++) {
      v128_t q[8];
      UNROLLED for (uint32_t r = 0; r < 8; r++) q[r] = values(block[i % 2 * 8 + r], i / 2);
      strip_pack(f, packed + off + i * f->bytes, q);
    }
  }
}

INLINE void strip_block_row_to_float(const struct strip_form *f, const uint8_t *packed, uint32_t row, uint32_t n_cols,
                                     float *out, int32_t bias, bool min) {
  const uint32_t r = row % 16, off = min ? 64 : 32, bytes = off + 4 * f->bytes;
  packed += (size_t)(row / 16) * (n_cols / 32) * bytes;
  for (uint32_t b = 0; b < n_cols / 32; b++, packed += bytes, out += 32) {
    const float d = f16_to_f32(read_u16(packed + 2 * r)), m = min ? f16_to_f32(read_u16(packed + 32 + 2 * r)) : 0;
    uint8_t q[32];
    strip_row(f, packed + off + r / 8 * f->bytes, r % 8, q);
    strip_row(f, packed + off + (2 + r / 8) * f->bytes, r % 8, q + 16);
    for (uint32_t k = 0; k < 32; k++) out[k] = min ? d * (float)q[k] + m : d * (float)(q[k] - bias);
  }
}

/* 16 values of 5 bits: nibbles at q, in their low or, for h = 1, high halves, and bits 16h on at `high`. */
INLINE v128_t strip_block_fives(const uint8_t *q, const uint8_t *high, uint32_t h) {
  uint64_t tops[2];
  for (uint32_t i = 0; i < 2; i++) { /* bit j of a byte to bit 7 of byte j, then to bit 4 */
    const uint64_t bits = high[2 * h + i] * 0x0101010101010101u & 0x8040201008040201u;
    tops[i] = (bits + 0x7f7f7f7f7f7f7f7fu) >> 3 & 0x1010101010101010u;
  }
  return v_or(v_and(v_shr_u16(v_load(q), 4 * h), v_constant(NIBBLES8)), v_load(tops));
}

/* The functions of one type: struct mat_form and struct mat_kernels. */
#define STRIP_BLOCK_KERNELS(type, strip, block_bytes, file_bytes, bias, min) \
  INLINE void type##_dot(const int n, v128_t *s, const uint8_t *w, size_t run, const struct act *x, size_t block, \
                         v128_t bytes) { \
    (void)n, (void)run; \
    strip_block_dot(&strip, s, w, x, block, bytes); \
  } \
  INLINE void type##_unpack(struct mat_panel *p, size_t b, const uint8_t *w, v128_t bytes) { \
    strip_block_unpack(&strip, p, b, w, bytes, bias); \
  } \
  static const struct mat_form type##_form = {block_bytes, bias, min, false, false, 1, BYTES16, \
                                              type##_dot, mat_dot_tile_i16, type##_unpack}; \
  static void type##_mat(const uint8_t *w, const struct act *x, float *y, size_t y_stride, uint32_t n_groups, \
                         uint32_t n_cols, uint32_t n_tokens, void *scratch) { \
    mat_quantised(&type##_form, w, x, y, y_stride, n_groups, n_cols, n_tokens, scratch); \
  } \
  static void type##_pack(const uint8_t *file, size_t row_bytes, uint8_t *packed, uint32_t n_rows, uint32_t n_cols) { \
    strip_block_pack(&strip, file, row_bytes, packed, n_rows, n_cols, file_bytes, min, type##_values); \
  } \
  static void type##_row_to_float(const uint8_t *packed, uint32_t row, uint32_t n_cols, float *out) { \
    strip_block_row_to_float(&strip, packed, row, n_cols, out, bias, min); \
  } \
  const struct mat_kernels mat_##type = {16, 32, block_bytes, 0, ACT_I16, type##_pack, type##_row_to_float, type##_mat};

#define STRIP_BLOCK_KERNELS_U7(type, strip, block_bytes, bias, min) \
  INLINE void type##_dot_u7(const int n, v128_t *s, const uint8_t *w, size_t run, const struct act *x, size_t block, \
                            v128_t ones) { \
    (void)n, (void)run; \
    strip_block_dot_u7(&strip, s, w, x, block, ones); \
  } \
  INLINE void type##_unpack_u7(struct mat_panel *p, size_t b, const uint8_t *w, v128_t ones) { \
    (void)ones; \
    strip_block_unpack_u7(&strip, p, b, w); \
  } \
  INLINE void type##_tile_u7(v128_t s[8], const struct mat_panel *p, size_t b, const struct act *x, size_t b0, \
                             size_t b1) { \
    strip_block_tile_u7(s, p, b, x, b0, b1, bias); \
  } \
  static const struct mat_form type##_form_u7 = {block_bytes, bias, min, false, false, 1, ONES16, type##_dot_u7, \
                                                 type##_tile_u7, type##_unpack_u7}; \
  static void type##_mat_u7(const uint8_t *w, const struct act *x, float *y, size_t y_stride, uint32_t n_groups, \
                            uint32_t n_cols, uint32_t n_tokens, void *scratch) { \
    mat_quantised(&type##_form_u7, w, x, y, y_stride, n_groups, n_cols, n_tokens, scratch); \
  } \
  const struct mat_kernels mat_##type##_u7 = {16, 32, block_bytes, 0, ACT_I8, type##_pack, type##_row_to_float, \
                                              type##_mat_u7};
