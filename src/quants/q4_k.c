/* q4_k.c: 256 weights of 4 (Q4_K) or 5 bits (Q5_K), 8 sub-blocks of 32 with a scale and a minimum of 6 bits
 * each: w = d * scale * q - dmin * min.
 * Weight k = 64p + 32g + l (l = 0..31): low four bits in nibble g of q[32p + l], Q5_K's fifth in bit 2p + g
 * of high[l]. Scales and minima: j < 4: low six bits of bytes j and j + 4; j >= 4: low and high nibble of
 * byte j + 4, and above them the upper two bits of bytes j - 4 and j. */
#include "../quant.h"

struct q4_k {
  uint8_t d[2], dmin[2]; /* f16 */
  uint8_t scales[12], q[128];
};
struct q5_k {
  uint8_t d[2], dmin[2]; /* f16 */
  uint8_t scales[12], high[32], q[128];
};
_Static_assert(sizeof(struct q4_k) == QUANT_BYTES_Q4_K, "as in quant.def");
_Static_assert(sizeof(struct q5_k) == QUANT_BYTES_Q5_K, "as in quant.def");

static int q4_k_scale(const uint8_t *s, uint32_t j) { return j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4; }
static int q4_k_min(const uint8_t *s, uint32_t j) { return j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4; }
static int q4_k_value(const uint8_t *q, uint32_t k) { return q[k / 64 * 32 + k % 32] >> k / 32 % 2 * 4 & 15; }

void quant_to_float_Q4_K(const void *src, float *dst, uint32_t n) {
  const struct q4_k *b = src;
  for (uint32_t i = 0; i < n; i += 256, b++)
    for (uint32_t k = 0; k < 256; k++) {
      const float scale = f16_to_f32(read_u16(b->d)) * (float)q4_k_scale(b->scales, k / 32);
      const float min = f16_to_f32(read_u16(b->dmin)) * (float)q4_k_min(b->scales, k / 32);
      dst[i + k] = scale * (float)q4_k_value(b->q, k) - min;
    }
}

void quant_to_float_Q5_K(const void *src, float *dst, uint32_t n) {
  const struct q5_k *b = src;
  for (uint32_t i = 0; i < n; i += 256, b++)
    for (uint32_t k = 0; k < 256; k++) {
      const float scale = f16_to_f32(read_u16(b->d)) * (float)q4_k_scale(b->scales, k / 32);
      const float min = f16_to_f32(read_u16(b->dmin)) * (float)q4_k_min(b->scales, k / 32);
      const int q = q4_k_value(b->q, k) | (b->high[k % 32] >> k / 32 & 1) << 4;
      dst[i + k] = scale * (float)q - min;
    }
}
