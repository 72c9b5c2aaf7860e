/* half.h: f16 with another exponent bias.
 *
 * f16 as f32 bits without their exponent's bias would be subnormal where the f16 is, and x86 takes such products in
 * microcode: with 1 % of F16 weights (of sigma 0.02 0.25 % are) decode ran at 0.3 of its speed, and of Q6_K's
 * super-scales nearly all are. So a group whose numbers are all below 128 keeps them with exponent bias 25 in place
 * of 15, which makes every one normal; any other group keeps the file's bits. What to multiply by stands in the
 * group's header. Both are exact. */
#pragma once
#include "../vec.h"

#define HALF_UNIT_15 0x1p112f
#define HALF_UNIT_25 0x1p102f

INLINE bool half_is_small(f16 h) { return (h & 0x7fff) < 0x5800; }

/* Bits of a small one with exponent bias 25. */
INLINE f16 half_rebias(f16 h) {
  const uint32_t sign = h & 0x8000u, magnitude = h & 0x7fffu;
  if (magnitude >= 0x400) return (f16)(sign | (magnitude + (10 << 10)));
  if (magnitude == 0) return h;
  const uint32_t top = 31 - (uint32_t)__builtin_clz(magnitude);
  return (f16)(sign | (top + 1) << 10 | (magnitude << (10 - top) & 0x3ff));
}

INLINE void half_pack(uint8_t *packed, const uint8_t *file, bool rebias) {
  const f16 h = read_u16(file);
  copy_bytes(packed, &(f16){rebias ? half_rebias(h) : h}, 2);
}

INLINE float half_value(f16 h, float unit) {
  return f32_from_bits((uint32_t)(h & 0x8000) << 16 | (uint32_t)(h & 0x7fff) << 13) * unit;
}
