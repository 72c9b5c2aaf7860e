/* q3_k.c: 912 bytes per 8 rows x 256 columns: 16 sub-blocks of 16, threes; w = d * scale * (q - 4), the file's
 * 32 taken off the scales. */
#include "kquants_pack.h"

enum { Q3_K_BLOCK = 912 };

INLINE v128_t q3_k_values(const uint8_t *block, uint32_t strip) {
  const v128_t q = v_load(block + 32 + strip / 8 * 32 + strip % 2 * 16);
  const v128_t high = v_shr_u16(v_load(block + strip % 2 * 16), strip / 2);
  return v_or(v_and(v_shr_u16(q, strip / 2 % 4 * 2), v_constant(PAIRS8)), v_and(v_shl16(high, 2), v_constant(BIT2)));
}

INLINE void q3_k_scales(const uint8_t *block, int8_t *scales, uint8_t *mins) {
  (void)mins;
  const uint8_t *s = block + 96;
  for (int j = 0; j < 16; j++)
    scales[j] = (int8_t)(((s[j % 8] >> j / 8 * 4 & 15) | (s[8 + j % 4] >> j / 4 * 2 & 3) << 4) - 32);
}

static const struct kquant_form q3_k_form = {
  .strip = &strip_threes, .block_bytes = Q3_K_BLOCK, .sub = 16, .bias = 4,
  .file_bytes = QUANT_BYTES_Q3_K, .d_at = 108, .values = q3_k_values, .scales = q3_k_scales};

KQUANT_PACK(q3_k, q3_k_form)
KQUANT_KERNELS(q3_k, , q3_k_form, Q3_K_BLOCK, false, ACT_I16 | ACT_SUM16)
#if VEC_HAS_RELAXED
KQUANT_KERNELS(q3_k, _u7, q3_k_form, Q3_K_BLOCK, true, ACT_I8 | ACT_SUM16)
#endif
