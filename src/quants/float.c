/* float.c: F32, F16 (IEEE binary16) and BF16 (the upper half of an f32), little-endian. */
#include "../quant.h"

void quant_to_float_F32(const void *src, float *dst, uint32_t n) { copy_bytes(dst, src, (size_t)n * sizeof *dst); }

void quant_to_float_F16(const void *src, float *dst, uint32_t n) {
  const uint8_t *p = src;
  for (uint32_t i = 0; i < n; i++) dst[i] = f16_to_f32(read_u16(p + 2 * (size_t)i));
}

void quant_to_float_BF16(const void *src, float *dst, uint32_t n) {
  const uint8_t *p = src;
  for (uint32_t i = 0; i < n; i++) dst[i] = f32_from_bits((uint32_t)read_u16(p + 2 * (size_t)i) << 16);
}
