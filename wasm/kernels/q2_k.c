/* q2_k.c: 672 bytes per 8 rows x 256 columns: 16 sub-blocks of 16, twos. */
#include "kquants_pack.h"

enum { Q2_K_BLOCK = 672 };

INLINE v128_t q2_k_values(const uint8_t *block, uint32_t strip) {
  const v128_t q = v_load(block + 16 + strip / 8 * 32 + strip % 2 * 16);
  return v_and(v_shr_u16(q, strip / 2 % 4 * 2), v_constant(PAIRS8));
}

INLINE void q2_k_scales(const uint8_t *block, int8_t *scales, uint8_t *mins) {
  (void)mins;
  copy_bytes(scales, block, 16);
}

static const struct kquant_form q2_k_form = {
  .strip = &strip_twos, .block_bytes = Q2_K_BLOCK, .sub = 16, .min = KQUANT_MIN16,
  .file_bytes = QUANT_BYTES_Q2_K, .d_at = 80, .dmin_at = 82, .values = q2_k_values, .scales = q2_k_scales};

KQUANT_PACK(q2_k, q2_k_form)
KQUANT_KERNELS(q2_k, , q2_k_form, Q2_K_BLOCK, false, ACT_I16 | ACT_SUM16)
#if VEC_HAS_RELAXED
KQUANT_KERNELS(q2_k, _u7, q2_k_form, Q2_K_BLOCK, true, ACT_I8 | ACT_SUM16)
#endif
