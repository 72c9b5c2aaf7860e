/* iq4.c: 4 bits that choose one of 16 uneven values. IQ4_NL: 32 weights, w = d * value. IQ4_XS: 256 weights,
 * 8 sub-blocks of 32 with a scale of 6 bits: w = d * (scale - 32) * value.
 * Byte j of each 32 holds weight j in its low and weight j + 16 in its high nibble. Scale j: low four bits in
 * nibble j % 2 of byte j / 2, upper two in bits 2j on of the 16-bit word scales_high. */
#include "../quant.h"

struct iq4_nl {
  uint8_t d[2]; /* f16 */
  uint8_t q[16];
};
struct iq4_xs {
  uint8_t d[2]; /* f16 */
  uint8_t scales_high[2], scales[4], q[128];
};
_Static_assert(sizeof(struct iq4_nl) == QUANT_BYTES_IQ4_NL, "as in quant.def");
_Static_assert(sizeof(struct iq4_xs) == QUANT_BYTES_IQ4_XS, "as in quant.def");

const int8_t quant_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static void iq4_to_float(float d, const uint8_t *q, float *dst) {
  for (uint32_t j = 0; j < 16; j++) {
    dst[j] = d * (float)quant_iq4_values[q[j] & 15];
    dst[j + 16] = d * (float)quant_iq4_values[q[j] >> 4];
  }
}

void quant_to_float_IQ4_NL(const void *src, float *dst, uint32_t n) {
  const struct iq4_nl *b = src;
  for (uint32_t i = 0; i < n; i += 32, b++) iq4_to_float(f16_to_f32(read_u16(b->d)), b->q, dst + i);
}

void quant_to_float_IQ4_XS(const void *src, float *dst, uint32_t n) {
  const struct iq4_xs *b = src;
  for (uint32_t i = 0; i < n; i += 256, b++)
    for (uint32_t j = 0; j < 8; j++) {
      const int scale = (b->scales[j / 2] >> j % 2 * 4 & 15) | (read_u16(b->scales_high) >> 2 * j & 3) << 4;
      iq4_to_float(f16_to_f32(read_u16(b->d)) * (float)(scale - 32), b->q + 16 * j, dst + i + 32 * j);
    }
}
