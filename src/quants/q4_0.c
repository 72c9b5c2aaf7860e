/* q4_0.c: 32 weights of 4 bits. Q4_0: w = d * (q - 8), d of any sign. Q4_1: w = d * q + m.
 * Byte j holds weight j in its low and weight j + 16 in its high nibble. */
#include "../quant.h"

struct q4_0 {
  uint8_t d[2]; /* f16 */
  uint8_t q[16];
};
struct q4_1 {
  uint8_t d[2], m[2]; /* f16 */
  uint8_t q[16];
};
_Static_assert(sizeof(struct q4_0) == QUANT_BYTES_Q4_0, "as in quant.def");
_Static_assert(sizeof(struct q4_1) == QUANT_BYTES_Q4_1, "as in quant.def");

void quant_to_float_Q4_0(const void *src, float *dst, uint32_t n) {
  const struct q4_0 *b = src;
  for (uint32_t i = 0; i < n; i += 32, b++) {
    const float d = f16_to_f32(read_u16(b->d));
    for (uint32_t j = 0; j < 16; j++) {
      dst[i + j] = d * (float)((b->q[j] & 15) - 8);
      dst[i + j + 16] = d * (float)((b->q[j] >> 4) - 8);
    }
  }
}

void quant_to_float_Q4_1(const void *src, float *dst, uint32_t n) {
  const struct q4_1 *b = src;
  for (uint32_t i = 0; i < n; i += 32, b++) {
    const float d = f16_to_f32(read_u16(b->d)), m = f16_to_f32(read_u16(b->m));
    for (uint32_t j = 0; j < 16; j++) {
      dst[i + j] = d * (float)(b->q[j] & 15) + m;
      dst[i + j + 16] = d * (float)(b->q[j] >> 4) + m;
    }
  }
}
