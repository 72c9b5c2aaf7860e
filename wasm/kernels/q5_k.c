/* q5_k.c: 1440 bytes per 8 rows x 256 columns: 8 sub-blocks of 32, fives. */
#include "kquants_pack.h"

enum { Q5_K_BLOCK = 1440 };

INLINE v128_t q5_k_values(const uint8_t *block, uint32_t strip) {
  const v128_t q = v_load(block + 48 + strip / 4 * 32 + strip % 2 * 16);
  const v128_t high = v_shr_u16(v_load(block + 16 + strip % 2 * 16), strip / 2);
  return v_or(v_and(v_shr_u16(q, strip / 2 % 2 * 4), v_constant(NIBBLES8)), v_and(v_shl16(high, 4), v_constant(BIT4)));
}

INLINE void q5_k_scales(const uint8_t *block, int8_t *scales, uint8_t *mins) {
  kquant_scales6(block + 4, scales, mins);
}

/* A pair of products is at most 7,874: int16 holds no eight of them, but of q - 16 it does. */
static const struct kquant_form q5_k_form = {
  .strip = &strip_fives, .block_bytes = Q5_K_BLOCK, .sub = 32, .min = KQUANT_MIN32, .centre = true,
  .file_bytes = QUANT_BYTES_Q5_K, .d_at = 0, .dmin_at = 2, .values = q5_k_values, .scales = q5_k_scales};

KQUANT_PACK(q5_k, q5_k_form)
KQUANT_KERNELS(q5_k, , q5_k_form, Q5_K_BLOCK, false, ACT_I16 | ACT_MIN)
#if VEC_HAS_RELAXED
KQUANT_KERNELS(q5_k, _u7, q5_k_form, Q5_K_BLOCK, true, ACT_I8 | ACT_MIN)
#endif
