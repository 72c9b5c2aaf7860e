/* q4_k.c: 1184 bytes per 8 rows x 256 columns: 8 sub-blocks of 32, nibbles. */
#include "kquants_pack.h"

enum { Q4_K_BLOCK = 1184 };

INLINE v128_t q4_k_values(const uint8_t *block, uint32_t strip) {
  const v128_t q = v_load(block + 16 + strip / 4 * 32 + strip % 2 * 16);
  return v_and(v_shr_u16(q, strip / 2 % 2 * 4), v_constant(NIBBLES8));
}

INLINE void q4_k_scales(const uint8_t *block, int8_t *scales, uint8_t *mins) {
  kquant_scales6(block + 4, scales, mins);
}

/* A pair of products is at most 3,810, a sub-block's eight 30,480. */
static const struct kquant_form q4_k_form = {
  .strip = &strip_nibbles, .block_bytes = Q4_K_BLOCK, .sub = 32, .min = KQUANT_MIN32,
  .file_bytes = QUANT_BYTES_Q4_K, .d_at = 0, .dmin_at = 2, .values = q4_k_values, .scales = q4_k_scales};

KQUANT_PACK(q4_k, q4_k_form)
KQUANT_KERNELS(q4_k, , q4_k_form, Q4_K_BLOCK, false, ACT_I16 | ACT_MIN)
#if VEC_HAS_RELAXED
KQUANT_KERNELS(q4_k, _u7, q4_k_form, Q4_K_BLOCK, true, ACT_I8 | ACT_MIN)
#endif
