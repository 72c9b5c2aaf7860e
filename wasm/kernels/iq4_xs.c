/* iq4_xs.c: 1104 bytes per 8 rows x 256 columns: 8 sub-blocks of 32, nibbles that choose from a table, the
 * file's 32 taken off the scales. The table's values + 128 are no second operand of the int8 dot: all
 * activations meet them as int16. A sum of 32 times a scale is at most 16,383 * 127 * 32 * 32 < 2^31. */
#include "kquants_pack.h"

enum { IQ4_XS_BLOCK = 1104 };

INLINE v128_t iq4_xs_values(const uint8_t *block, uint32_t strip) {
  return v_and(v_shr_u16(v_load(block + 8 + strip / 2 * 16), strip % 2 * 4), v_constant(NIBBLES8));
}

INLINE void iq4_xs_scales(const uint8_t *block, int8_t *scales, uint8_t *mins) {
  (void)mins;
  for (int j = 0; j < 8; j++)
    scales[j] = (int8_t)(((block[4 + j / 2] >> j % 2 * 4 & 15) | (read_u16(block + 2) >> 2 * j & 3) << 4) - 32);
}

static const struct kquant_form iq4_xs_form = {
  .strip = &strip_iq4, .block_bytes = IQ4_XS_BLOCK, .sub = 32, .bias = 128,
  .file_bytes = QUANT_BYTES_IQ4_XS, .d_at = 0, .values = iq4_xs_values, .scales = iq4_xs_scales};

KQUANT_PACK(iq4_xs, iq4_xs_form)
KQUANT_KERNELS(iq4_xs, , iq4_xs_form, IQ4_XS_BLOCK, false, ACT_I16)
