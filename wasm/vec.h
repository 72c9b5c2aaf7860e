/* vec.h: the words that all kernels are written in, over 128-bit vectors. One of three back ends
 * stands behind them: SIMD128, relaxed SIMD (the same and two operations more), or vec_emu.h, plain
 * C for native builds that asserts what an operation demands of its operands.
 *
 * A word without a number works on four f32; 32, 16 and 8 are lanes of integers of that width. */
#pragma once
#include "../src/base.h"

#define INLINE static inline __attribute__((always_inline))

#if defined(__wasm_relaxed_simd__) || defined(VEC_RELAXED) /* VEC_RELAXED: its forms, emulated */
#define VEC_HAS_RELAXED 1
#else
#define VEC_HAS_RELAXED 0
#endif
/* VEC_DOT, beside relaxed: for machines with one instruction that adds four products of int8 to an int32 (x86 with
 * AVX-VNNI, ARM with the dot product); where it is five, two products to an int16 are faster. */
#ifdef VEC_DOT
#define VEC_HAS_DOT 1
#else
#define VEC_HAS_DOT 0
#endif

#ifdef __wasm__
#include <wasm_simd128.h>

#define UNROLLED _Pragma("clang loop unroll(full)")
/* LLVM evaluates an unrolled block accumulator by accumulator, which keeps every splat of x alive,
 * and V8 has 15 usable vector registers. A rolled body stays in order (q8_0: 18.7 -> 26.6 GB/s on a
 * 3.65 GHz Zen 4), and V8 unrolls small loops by itself. */
#define ROLLED _Pragma("clang loop unroll(disable)")

INLINE v128_t v_load(const void *p) { return wasm_v128_load(p); }
INLINE void v_store(void *p, v128_t v) { wasm_v128_store(p, v); }
INLINE v128_t v_load_splat(const void *p) { return wasm_v128_load32_splat(p); } /* 4 bytes, to every lane */
INLINE v128_t v_load_i16x4(const void *p) { return wasm_i32x4_load16x4(p); }
INLINE v128_t v_load_i8x8(const void *p) { return wasm_i16x8_load8x8(p); } /* to int16 */
INLINE v128_t v_load_u8x8(const void *p) { return wasm_u16x8_load8x8(p); }
INLINE v128_t v_f32(float a) { return wasm_f32x4_splat(a); }
INLINE v128_t v_i32(int32_t a) { return wasm_i32x4_splat(a); }

INLINE v128_t v_and(v128_t a, v128_t b) { return wasm_v128_and(a, b); }
INLINE v128_t v_or(v128_t a, v128_t b) { return wasm_v128_or(a, b); }
INLINE v128_t v_xor(v128_t a, v128_t b) { return wasm_v128_xor(a, b); }
INLINE v128_t v_add16(v128_t a, v128_t b) { return wasm_i16x8_add(a, b); }
INLINE v128_t v_sub16(v128_t a, v128_t b) { return wasm_i16x8_sub(a, b); }
INLINE v128_t v_shl16(v128_t a, uint32_t n) { return wasm_i16x8_shl(a, n); }
INLINE v128_t v_shr16(v128_t a, uint32_t n) { return wasm_i16x8_shr(a, n); }
INLINE v128_t v_shr_u16(v128_t a, uint32_t n) { return wasm_u16x8_shr(a, n); }
INLINE v128_t v_add32(v128_t a, v128_t b) { return wasm_i32x4_add(a, b); }
INLINE v128_t v_sub32(v128_t a, v128_t b) { return wasm_i32x4_sub(a, b); }
INLINE v128_t v_shl32(v128_t a, uint32_t n) { return wasm_i32x4_shl(a, n); }
INLINE v128_t v_shr32(v128_t a, uint32_t n) { return wasm_i32x4_shr(a, n); }
INLINE v128_t v_min32(v128_t a, v128_t b) { return wasm_i32x4_min(a, b); }
INLINE v128_t v_max32(v128_t a, v128_t b) { return wasm_i32x4_max(a, b); }
INLINE v128_t v_gt32(v128_t a, v128_t b) { return wasm_i32x4_gt(a, b); } /* all ones where a > b */

INLINE v128_t v_mul32(v128_t a, v128_t b) { return wasm_i32x4_mul(a, b); }
INLINE v128_t v_low16(v128_t a) { return wasm_i32x4_extend_low_i16x8(a); } /* lanes 0..3 to int32 */
INLINE v128_t v_high16(v128_t a) { return wasm_i32x4_extend_high_i16x8(a); }

/* 8 products of int16, added in pairs. */
INLINE v128_t v_dot16(v128_t a, v128_t b) { return wasm_i32x4_dot_i16x8(a, b); }
INLINE v128_t v_narrow32(v128_t a, v128_t b) { return wasm_i16x8_narrow_i32x4(a, b); } /* saturating */
INLINE v128_t v_narrow16(v128_t a, v128_t b) { return wasm_i8x16_narrow_i16x8(a, b); } /* saturating */

INLINE v128_t v_add(v128_t a, v128_t b) { return wasm_f32x4_add(a, b); }
INLINE v128_t v_sub(v128_t a, v128_t b) { return wasm_f32x4_sub(a, b); }
INLINE v128_t v_mul(v128_t a, v128_t b) { return wasm_f32x4_mul(a, b); }
INLINE v128_t v_div(v128_t a, v128_t b) { return wasm_f32x4_div(a, b); }
INLINE v128_t v_abs(v128_t a) { return wasm_f32x4_abs(a); }
INLINE v128_t v_neg(v128_t a) { return wasm_f32x4_neg(a); }
INLINE v128_t v_pmin(v128_t a, v128_t b) { return wasm_f32x4_pmin(a, b); } /* b < a ? b : a */
INLINE v128_t v_pmax(v128_t a, v128_t b) { return wasm_f32x4_pmax(a, b); } /* a < b ? b : a */
INLINE v128_t v_from_i32(v128_t a) { return wasm_f32x4_convert_i32x4(a); }

#define v_shuffle32(a, b, i, j, k, l) wasm_i32x4_shuffle(a, b, i, j, k, l)
#define v_shuffle16(a, i, j, k, l, m, n, o, p) wasm_i16x8_shuffle(a, a, i, j, k, l, m, n, o, p)
/* Bytes table[i], each i 0..15. */
#if VEC_HAS_RELAXED
INLINE v128_t v_look_up(v128_t table, v128_t i) { return wasm_i8x16_relaxed_swizzle(table, i); }
#else
INLINE v128_t v_look_up(v128_t table, v128_t i) { return wasm_i8x16_swizzle(table, i); }
#endif
/* Lanes; i is a constant once loops are unrolled. */
typedef float v_f32x4 __attribute__((vector_size(16)));
typedef int32_t v_i32x4 __attribute__((vector_size(16)));
typedef int16_t v_i16x8 __attribute__((vector_size(16)));
INLINE float v_lane(v128_t a, int i) { return ((v_f32x4)a)[i]; }
INLINE int32_t v_lane32(v128_t a, int i) { return ((v_i32x4)a)[i]; }
INLINE int16_t v_lane16(v128_t a, int i) { return ((v_i16x8)a)[i]; }

#if VEC_HAS_RELAXED
/* 16 products of int8, added in pairs to int16. u7 must be 0..127: above, x86 and ARM differ. */
INLINE v128_t v_dot8_u7(v128_t i8, v128_t u7) { return wasm_i16x8_relaxed_dot_i8x16_i7x16(i8, u7); }
/* The same, added in fours to int32. */
INLINE v128_t v_dot8_u7_add(v128_t i8, v128_t u7, v128_t sum) {
  return wasm_i32x4_relaxed_dot_i8x16_i7x16_add(i8, u7, sum);
}
/* a * b + c, rounded once where the machine can: F32, F16 and BF16 weights alone may use it. */
INLINE v128_t v_madd(v128_t a, v128_t b, v128_t c) { return wasm_f32x4_relaxed_madd(a, b, c); }
#endif

#else
#include "vec_emu.h"
#endif

#if VEC_HAS_RELAXED
/* sum + products of int8 and u7 in the form that is fast here: four int32, or eight int16 whose range the caller
 * minds. */
INLINE v128_t v_add_dot8(v128_t sum, v128_t i8, v128_t u7) {
  return VEC_HAS_DOT ? v_dot8_u7_add(i8, u7, sum) : v_add16(sum, v_dot8_u7(i8, u7));
}
#endif
/* What v_add_dot8 has summed, as four int32. */
INLINE v128_t v_sums8(v128_t sum, v128_t ones) { return VEC_HAS_DOT ? sum : v_dot16(sum, ones); }

#if !VEC_HAS_RELAXED
INLINE v128_t v_madd(v128_t a, v128_t b, v128_t c) { return v_add(v_mul(a, b), c); }
#endif

/* V8 rebuilds a vector constant with three instructions at each use. Read through volatile before
 * the loop it stays in a register (q4_0: 20.7 -> 24.6 GB/s). */
enum vec_constant { NIBBLES8, NIBBLES16, BYTES16, SIGNS8, ONES16, EIGHTS16, HIGH_HALVES, F16_BITS, TWO112, ROUND,
                    PAIRS8, FIVES8, SIXES8, TOPS8, BIT2, BIT4, BITS34, SEVENS8, ALL8, EVEN13, ODD13 };
static const volatile uint32_t vec_constants[] = {
  0x0f0f0f0f, 0x000f000f, 0x00ff00ff, 0x80808080, 0x00010001, 0x00080008, 0xffff0000,
  0x8fffe000, 0x77800000 /* 2^112 */, 0x4b400000 /* 1.5 * 2^23: adding it rounds, ties to even */,
  0x03030303, 0x1f1f1f1f, 0x3f3f3f3f, 0xc0c0c0c0, 0x04040404, 0x10101010, 0x18181818, 0x07070707, 0xffffffff,
  0x00002000, 0x20000000 /* times 2^13: the even, the odd of int16 pairs */
};
INLINE v128_t v_constant(enum vec_constant i) { return v_i32((int32_t)vec_constants[i]); }

/* Four f16 times 2^-112: the bits moved to where f32 has them, the exponent not re-biased. Exact,
 * subnormals included; infinities and NaN come out as finite values. */
INLINE v128_t v_load_f16_scaled(const void *p, v128_t f16_bits) {
  return v_and(v_shl32(v_load_i16x4(p), 13), f16_bits);
}

INLINE v128_t v_load_f16(const void *p, v128_t f16_bits, v128_t two112) {
  return v_mul(v_load_f16_scaled(p, f16_bits), two112);
}

INLINE float v_sum(v128_t v) { return (v_lane(v, 0) + v_lane(v, 1)) + (v_lane(v, 2) + v_lane(v, 3)); }

INLINE float v_max_lane(v128_t v) {
  v = v_pmax(v, v_shuffle32(v, v, 2, 3, 0, 1));
  v = v_pmax(v, v_shuffle32(v, v, 1, 0, 3, 2));
  return v_lane(v, 0);
}

/* 4 x 4 words, for packing and horizontal sums; never in an inner loop (shuffles keep V8 from
 * pairing vectors). */
INLINE void v_transpose(v128_t r[4]) {
  const v128_t a = v_shuffle32(r[0], r[1], 0, 4, 1, 5), b = v_shuffle32(r[0], r[1], 2, 6, 3, 7);
  const v128_t c = v_shuffle32(r[2], r[3], 0, 4, 1, 5), d = v_shuffle32(r[2], r[3], 2, 6, 3, 7);
  r[0] = v_shuffle32(a, c, 0, 1, 4, 5), r[1] = v_shuffle32(a, c, 2, 3, 6, 7);
  r[2] = v_shuffle32(b, d, 0, 1, 4, 5), r[3] = v_shuffle32(b, d, 2, 3, 6, 7);
}
