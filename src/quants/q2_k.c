/* q2_k.c: 256 weights of 2 bits, 16 sub-blocks of 16 with a scale and a minimum of 4 bits each:
 * w = d * scale * q - dmin * min.
 * Weight k = 128h + 32g + l (l = 0..31) stands in bits 2g, 2g + 1 of byte 32h + l. */
#include "../quant.h"

struct q2_k {
  uint8_t scales[16]; /* low nibble: scale, high nibble: minimum */
  uint8_t q[64];
  uint8_t d[2], dmin[2]; /* f16 */
};
_Static_assert(sizeof(struct q2_k) == QUANT_BYTES_Q2_K, "as in quant.def");

void quant_to_float_Q2_K(const void *src, float *dst, uint32_t n) {
  const struct q2_k *b = src;
  for (uint32_t i = 0; i < n; i += 256, b++) {
    const float d = f16_to_f32(read_u16(b->d)), dmin = f16_to_f32(read_u16(b->dmin));
    for (uint32_t k = 0; k < 256; k++) {
      const uint8_t s = b->scales[k / 16];
      const int q = b->q[k / 128 * 32 + k % 32] >> k / 32 % 4 * 2 & 3;
      dst[i + k] = d * (float)(s & 15) * (float)q - dmin * (float)(s >> 4);
    }
  }
}
