/* q8_0.c: 32 weights of 8 bits and one scale: w = d * q. */
#include "../quant.h"

struct q8_0 {
  uint8_t d[2]; /* f16 */
  int8_t q[32];
};
_Static_assert(sizeof(struct q8_0) == QUANT_BYTES_Q8_0, "as in quant.def");

void quant_to_float_Q8_0(const void *src, float *dst, uint32_t n) {
  const struct q8_0 *b = src;
  for (uint32_t i = 0; i < n; i += 32, b++) {
    const float d = f16_to_f32(read_u16(b->d));
    for (uint32_t k = 0; k < 32; k++) dst[i + k] = d * (float)b->q[k];
  }
}
