/* q6_k.c: 1680 bytes per 8 rows x 256 columns: 16 sub-blocks of 16, sixes; w = d * scale * (q - 32). */
#include "kquants_pack.h"

enum { Q6_K_BLOCK = 1680 };

INLINE v128_t q6_k_values(const uint8_t *block, uint32_t strip) {
  const v128_t low = v_load(block + strip / 8 * 64 + strip / 2 % 2 * 32 + strip % 2 * 16);
  const v128_t high = v_load(block + 128 + strip / 8 * 32 + strip % 2 * 16);
  return v_or(v_and(v_shr_u16(low, strip / 4 % 2 * 4), v_constant(NIBBLES8)),
              v_shl16(v_and(v_shr_u16(high, strip / 2 % 4 * 2), v_constant(PAIRS8)), 4));
}

INLINE void q6_k_scales(const uint8_t *block, int8_t *scales, uint8_t *mins) {
  (void)mins;
  copy_bytes(scales, block + 192, 16);
}

static const struct kquant_form q6_k_form = {
  .strip = &strip_sixes, .block_bytes = Q6_K_BLOCK, .sub = 16, .bias = 32,
  .file_bytes = QUANT_BYTES_Q6_K, .d_at = 208, .values = q6_k_values, .scales = q6_k_scales};

KQUANT_PACK(q6_k, q6_k_form)
KQUANT_KERNELS(q6_k, , q6_k_form, Q6_K_BLOCK, false, ACT_I16 | ACT_SUM16)
#if VEC_HAS_RELAXED
KQUANT_KERNELS(q6_k, _u7, q6_k_form, Q6_K_BLOCK, true, ACT_I8 | ACT_SUM16)
#endif
