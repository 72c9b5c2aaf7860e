/* q6_k.c: 256 weights of 6 bits, 16 sub-blocks of 16 with a scale of 8 bits: w = d * scale * (q - 32).
 * Weight k = 128h + 64g + 32i + l (l = 0..31): low four bits in nibble g of low[64h + 32i + l], upper two in
 * bits 2 (2g + i) on of high[32h + l]. */
#include "../quant.h"

struct q6_k {
  uint8_t low[128], high[64];
  int8_t scales[16];
  uint8_t d[2]; /* f16 */
};
_Static_assert(sizeof(struct q6_k) == QUANT_BYTES_Q6_K, "as in quant.def");

void quant_to_float_Q6_K(const void *src, float *dst, uint32_t n) {
  const struct q6_k *b = src;
  for (uint32_t i = 0; i < n; i += 256, b++) {
    const float d = f16_to_f32(read_u16(b->d));
    for (uint32_t k = 0; k < 256; k++) {
      const int low = b->low[k / 128 * 64 + k % 64] >> k / 64 % 2 * 4 & 15;
      const int high = b->high[k / 128 * 32 + k % 32] >> k / 32 % 4 * 2 & 3;
      dst[i + k] = d * (float)b->scales[k / 16] * (float)((low | high << 4) - 32);
    }
  }
}
