/* q5_0.c: 352 bytes per 16 rows x 32 columns: 16 scales, fives (strip_blocks.h). */
#include "strip_blocks.h"

enum { Q5_0_BLOCK = 352 };

INLINE v128_t q5_0_values(const uint8_t *block, uint32_t h) { return strip_block_fives(block + 6, block + 2, h); }

STRIP_BLOCK_KERNELS(q5_0, strip_fives, Q5_0_BLOCK, QUANT_BYTES_Q5_0, 16, false)
#if VEC_HAS_RELAXED
STRIP_BLOCK_KERNELS_U7(q5_0, strip_fives, Q5_0_BLOCK, 16, false)
#endif
