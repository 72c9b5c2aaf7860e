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

static uint8_t q4_0_of(float v, float inverse) {
  const float q = v * inverse + 8.5f;
  return q >= 15 ? 15 : q > 0 ? (uint8_t)q : v != v ? 8 : 0;
}

/* d = the weight of the largest magnitude / -8, so that this one is exact. */
void quant_from_float_Q4_0(const float *src, void *dst, uint32_t n) {
  struct q4_0 *b = dst;
  for (uint32_t i = 0; i < n; i += 32, b++) {
    float most = 0;
    for (uint32_t k = 0; k < 32; k++)
      if (__builtin_fabsf(src[i + k]) > __builtin_fabsf(most)) most = src[i + k];
    const float d = most / -8, inverse = d != 0 ? 1 / d : 0;
    const f16 bits = f16_from_f32(d);
    copy_bytes(b->d, &bits, sizeof bits);
    for (uint32_t j = 0; j < 16; j++)
      b->q[j] = (uint8_t)(q4_0_of(src[i + j], inverse) | q4_0_of(src[i + j + 16], inverse) << 4);
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
