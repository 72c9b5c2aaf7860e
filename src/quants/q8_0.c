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

/* d = max |w| / 127; the nearest integer, ties to even. */
void quant_from_float_Q8_0(const float *src, void *dst, uint32_t n) {
  struct q8_0 *b = dst;
  for (uint32_t i = 0; i < n; i += 32, b++) {
    float most = 0;
    for (uint32_t k = 0; k < 32; k++) most = LM_MAX(most, __builtin_fabsf(src[i + k]));
    const float d = most / 127, inverse = d != 0 ? 1 / d : 0, round = 0x1.8p23f;
    const f16 bits = f16_from_f32(d);
    copy_bytes(b->d, &bits, sizeof bits);
    for (uint32_t k = 0; k < 32; k++) {
      const float q = src[i + k] * inverse;
      b->q[k] = q > -128 && q < 128 ? (int8_t)(int32_t)(f32_bits(q + round) - f32_bits(round)) : 0;
    }
  }
}
