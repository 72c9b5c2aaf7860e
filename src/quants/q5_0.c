/* q5_0.c: 32 weights of 5 bits. Q5_0: w = d * (q - 16). Q5_1: w = d * q + m. Low four bits as in
 * q4_0.c: byte j holds weights j and j + 16; bit j of the 32-bit word `high` is weight j's fifth. */
#include "../quant.h"

struct q5_0 {
  uint8_t d[2]; /* f16 */
  uint8_t high[4], q[16];
};
struct q5_1 {
  uint8_t d[2], m[2]; /* f16 */
  uint8_t high[4], q[16];
};
_Static_assert(sizeof(struct q5_0) == QUANT_BYTES_Q5_0, "as in quant.def");
_Static_assert(sizeof(struct q5_1) == QUANT_BYTES_Q5_1, "as in quant.def");

static int q5_value(const uint8_t *q, uint32_t high, uint32_t k) {
  return (q[k % 16] >> (k < 16 ? 0 : 4) & 15) | (int)(high >> k & 1) << 4;
}

void quant_to_float_Q5_0(const void *src, float *dst, uint32_t n) {
  const struct q5_0 *b = src;
  for (uint32_t i = 0; i < n; i += 32, b++) {
    const float d = f16_to_f32(read_u16(b->d));
    const uint32_t high = read_u32(b->high);
    for (uint32_t k = 0; k < 32; k++) dst[i + k] = d * (float)(q5_value(b->q, high, k) - 16);
  }
}

void quant_to_float_Q5_1(const void *src, float *dst, uint32_t n) {
  const struct q5_1 *b = src;
  for (uint32_t i = 0; i < n; i += 32, b++) {
    const float d = f16_to_f32(read_u16(b->d)), m = f16_to_f32(read_u16(b->m));
    const uint32_t high = read_u32(b->high);
    for (uint32_t k = 0; k < 32; k++) dst[i + k] = d * (float)q5_value(b->q, high, k) + m;
  }
}
