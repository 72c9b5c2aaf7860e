/* base.h: what every file starts from. Freestanding C11: no libc header beyond the compiler's own,
 * and memcpy as a builtin, since a call of that name would become an import in some builds. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint16_t f16; /* IEEE binary16 bits */

#define LM_MIN(a, b) ((a) < (b) ? (a) : (b))
#define LM_MAX(a, b) ((a) > (b) ? (a) : (b))
#define LM_COUNT(array) (sizeof(array) / sizeof *(array))

/* Our own mistakes only, never bytes from outside. Off in released modules. */
#ifdef LM_DEBUG
#define LM_ASSERT(condition) ((condition) ? (void)0 : __builtin_trap())
#else
#define LM_ASSERT(condition) ((void)0)
#endif

static inline void copy_bytes(void *to, const void *from, size_t n) { __builtin_memcpy(to, from, n); }
static inline void zero_bytes(void *to, size_t n) { __builtin_memset(to, 0, n); }

/* Unaligned little-endian reads: all targets are little-endian. */
static inline uint16_t read_u16(const void *p) { uint16_t v; copy_bytes(&v, p, sizeof v); return v; }
static inline uint32_t read_u32(const void *p) { uint32_t v; copy_bytes(&v, p, sizeof v); return v; }
static inline uint64_t read_u64(const void *p) { uint64_t v; copy_bytes(&v, p, sizeof v); return v; }

static inline float f32_from_bits(uint32_t bits) { float v; copy_bytes(&v, &bits, sizeof v); return v; }
static inline uint32_t f32_bits(float v) { uint32_t bits; copy_bytes(&bits, &v, sizeof bits); return bits; }

/* Exact for every value, subnormals, infinities and NaN included. */
static inline float f16_to_f32(f16 h) {
  const uint32_t sign = (uint32_t)(h & 0x8000) << 16, magnitude = (uint32_t)(h & 0x7fff) << 13;
  if (magnitude >= 0x0f800000) return f32_from_bits(sign | magnitude | 0x7f800000);
  return f32_from_bits(sign | f32_bits(f32_from_bits(magnitude) * 0x1p112f));
}

/* The nearest, ties to even; what is beyond 65504 becomes that. */
static inline f16 f16_from_f32(float v) {
  const uint32_t magnitude = f32_bits(v) & 0x7fffffff;
  const f16 sign = (f16)(f32_bits(v) >> 16 & 0x8000);
  if (magnitude > 0x7f800000) return sign | 0x7e00;
  if (magnitude >= 0x477fe000) return sign | 0x7bff;
  if (magnitude < 0x38800000) /* subnormal: 0.5f counts in 2^-24 */
    return sign | (f16)(f32_bits(f32_from_bits(magnitude) + 0.5f) - f32_bits(0.5f));
  return sign | (f16)((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13);
}

static inline uint64_t align_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

/* Products and sums of sizes from a file: false beyond 2^53, the largest that a host in JS can name.
 * (Against 2^64 - 1 clang makes of the division a call of a 128-bit product.) */
#define SIZE_LIMIT ((uint64_t)1 << 53)
static inline bool mul_size(uint64_t a, uint64_t b, uint64_t *out) {
  *out = a * b;
  return !a || b <= SIZE_LIMIT / a;
}
static inline bool add_size(uint64_t a, uint64_t b, uint64_t *out) {
  *out = a + b;
  return a <= SIZE_LIMIT && b <= SIZE_LIMIT - a;
}
