/* q5_1.c: 384 bytes per 16 rows x 32 columns: 16 scales, 16 minima, fives (strip_blocks.h). */
#include "strip_blocks.h"

enum { Q5_1_BLOCK = 384 };

INLINE v128_t q5_1_values(const uint8_t *block, uint32_t h) { return strip_block_fives(block + 8, block + 4, h); }

STRIP_BLOCK_KERNELS(q5_1, strip_fives, Q5_1_BLOCK, QUANT_BYTES_Q5_1, 0, true)
#if VEC_HAS_RELAXED
STRIP_BLOCK_KERNELS_U7(q5_1, strip_fives, Q5_1_BLOCK, 0, true)
#endif
