/* kquants_pack.h: rows of a file into the layout of kquants.h, one row out of it again, and the functions of a type. */
#pragma once
#include "half.h"
#include "kquants.h"

/* What stands before a superblock's strips, of row r. */
INLINE void kquant_pack_scales(const struct kquant_form *f, uint8_t *packed, const uint8_t *block, uint32_t r,
                               bool rebias) {
  int8_t scales[16];
  uint8_t mins[16];
  f->scales(block, scales, mins);
  half_pack(packed + 2 * r, block + f->d_at, rebias);
  if (f->min) half_pack(packed + 16 + 2 * r, block + f->dmin_at, rebias);
  for (uint32_t j = 0; j < 256 / f->sub; j++) {
    packed[kquant_scales_off(f) + 8 * j + r] = (uint8_t)scales[j];
    if (f->min == KQUANT_MIN32) packed[kquant_mins_off(f) + 16 * (j / 2) + 2 * r + j % 2] = mins[j];
  }
}

INLINE bool kquant_is_small(const struct kquant_form *f, const uint8_t *file, size_t row_bytes, uint32_t n_rows,
                            uint32_t n_cols) {
  bool small = true;
  for (uint32_t r = 0; r < n_rows; r++)
    for (size_t b = 0; b < n_cols / 256; b++) {
      const uint8_t *block = file + r * row_bytes + b * f->file_bytes;
      small = small && half_is_small(read_u16(block + f->d_at));
      if (f->min) small = small && half_is_small(read_u16(block + f->dmin_at));
    }
  return small;
}

INLINE void kquant_pack(const struct kquant_form *f, const uint8_t *file, size_t row_bytes, uint8_t *packed,
                        uint32_t n_rows, uint32_t n_cols) {
  static const uint8_t zeros[256];
  const bool rebias = kquant_is_small(f, file, row_bytes, n_rows, n_cols);
  zero_bytes(packed, KQUANT_HEADER);
  copy_bytes(packed, &(float){rebias ? HALF_UNIT_25 : HALF_UNIT_15}, 4);
  packed += KQUANT_HEADER;
  for (size_t b = 0; b < n_cols / 256; b++, packed += f->block_bytes) {
    const uint8_t *block[8];
    for (uint32_t r = 0; r < 8; r++) {
      block[r] = r < n_rows ? file + r * row_bytes + b * f->file_bytes : zeros;
      kquant_pack_scales(f, packed, block[r], r, rebias);
    }
    for (uint32_t i = 0; i < 16; i++) {
      v128_t values[8];
      UNROLLED for (uint32_t r = 0; r < 8; r++) values[r] = f->values(block[r], i);
      strip_pack(f->strip, packed + kquant_strips_off(f) + i * f->strip->bytes, values);
    }
  }
}

INLINE uint8_t kquant_min_of(const struct kquant_form *f, const uint8_t *packed, size_t j, size_t r) {
  if (f->min == KQUANT_MIN16) return packed[kquant_scales_off(f) + 8 * j + r] >> 4;
  return packed[kquant_mins_off(f) + 16 * (j / 2) + 2 * r + j % 2];
}

INLINE void kquant_row_to_float(const struct kquant_form *f, const uint8_t *packed, uint32_t row, uint32_t n_cols,
                                float *out) {
  const size_t n_blocks = n_cols / 256, r = row % 8;
  packed += row / 8 * kquant_group_bytes(f, n_blocks);
  const float unit = f32_from_bits(read_u32(packed));
  packed += KQUANT_HEADER;
  for (size_t b = 0; b < n_blocks; b++, packed += f->block_bytes) {
    const float d = half_value(read_u16(packed + 2 * r), unit), dmin = half_value(read_u16(packed + 16 + 2 * r), unit);
    for (size_t i = 0; i < 16; i++, out += 16) {
      const size_t j = 16 * i / f->sub;
      const int8_t byte = (int8_t)packed[kquant_scales_off(f) + 8 * j + r];
      const float scale = d * (float)(f->min == KQUANT_MIN16 ? byte & 15 : byte);
      uint8_t q[16];
      strip_row(f->strip, packed + kquant_strips_off(f) + i * f->strip->bytes, (uint32_t)r, q);
      for (int k = 0; k < 16; k++) {
        out[k] = scale * (float)(q[k] - f->bias);
        if (f->min) out[k] -= dmin * (float)kquant_min_of(f, packed, j, r);
      }
    }
  }
}

/* The 12 bytes of scales and minima of q4_k and q5_k: src/quants/q4_k.c. */
INLINE void kquant_scales6(const uint8_t *s, int8_t *scales, uint8_t *mins) {
  for (int j = 0; j < 8; j++) {
    scales[j] = (int8_t)(j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4);
    mins[j] = (uint8_t)(j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4);
  }
}

/* The functions of struct mat_kernels do not say which type they serve: one set for each. */
#define KQUANT_KERNELS(type, suffix, form, block_bytes, u7, needs) \
  static void type##_mat##suffix(const uint8_t *w, const struct act *x, float *y, size_t y_stride, uint32_t n_groups, \
                                 uint32_t n_cols, uint32_t n_tokens, void *scratch) { \
    kquant_mat(&form, u7, w, x, y, y_stride, n_groups, n_cols, n_tokens, scratch); \
  } \
  const struct mat_kernels mat_##type##suffix = {8, 256, block_bytes, KQUANT_HEADER, needs, type##_pack, \
                                                 type##_row_to_float, type##_mat##suffix};
#define KQUANT_PACK(type, form) \
  static void type##_pack(const uint8_t *file, size_t row_bytes, uint8_t *packed, uint32_t n_rows, uint32_t n_cols) { \
    kquant_pack(&form, file, row_bytes, packed, n_rows, n_cols); \
  } \
  static void type##_row_to_float(const uint8_t *packed, uint32_t row, uint32_t n_cols, float *out) { \
    kquant_row_to_float(&form, packed, row, n_cols, out); \
  }
