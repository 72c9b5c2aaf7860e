/* q3_k.c: 256 weights of 3 bits, 16 sub-blocks of 16 with a scale of 6 bits: w = d * (scale - 32) * (q - 4).
 * Weight k = 128h + 32g + l (l = 0..31) has its low bits as in q2_k.c and its third in bit 4h + g of high[l].
 * Scale j: low four bits in byte j % 8, nibble j / 8; upper two in byte 8 + j % 4, bits 2 (j / 4) on. */
#include "../quant.h"

struct q3_k {
  uint8_t high[32], q[64], scales[12];
  uint8_t d[2]; /* f16 */
};
_Static_assert(sizeof(struct q3_k) == QUANT_BYTES_Q3_K, "as in quant.def");

void quant_to_float_Q3_K(const void *src, float *dst, uint32_t n) {
  const struct q3_k *b = src;
  for (uint32_t i = 0; i < n; i += 256, b++) {
    const float d = f16_to_f32(read_u16(b->d));
    for (uint32_t k = 0; k < 256; k++) {
      const uint32_t j = k / 16;
      const int scale = (b->scales[j % 8] >> j / 8 * 4 & 15) | (b->scales[8 + j % 4] >> j / 4 * 2 & 3) << 4;
      const int q = (b->q[k / 128 * 32 + k % 32] >> k / 32 % 4 * 2 & 3) | (b->high[k % 32] >> k / 32 & 1) << 2;
      dst[i + k] = d * (float)(scale - 32) * (float)(q - 4);
    }
  }
}
