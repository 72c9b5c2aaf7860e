/* iq4_nl.c: 288 bytes per 16 rows x 32 columns: 16 scales, nibbles that choose from a table (strip_blocks.h).
 * All activations meet the values as int16: iq4_xs.c. */
#include "strip_blocks.h"

enum { IQ4_NL_BLOCK = 288 };

INLINE v128_t iq4_nl_values(const uint8_t *block, uint32_t h) {
  return v_and(v_shr_u16(v_load(block + 2), 4 * h), v_constant(NIBBLES8));
}

STRIP_BLOCK_KERNELS(iq4_nl, strip_iq4, IQ4_NL_BLOCK, QUANT_BYTES_IQ4_NL, 128, false)
