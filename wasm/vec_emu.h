/* vec_emu.h: the words of vec.h in plain C, so that the kernels' own bodies run natively, under
 * sanitizers, with the same bits. An operation whose result wasm leaves to the machine checks its
 * operands here, always. Include vec.h instead. */
#pragma once

#define UNROLLED
#define ROLLED

typedef union {
  float f32[4];
  int32_t i32[4];
  uint32_t u32[4];
  int16_t i16[8];
  uint16_t u16[8];
  int8_t i8[16];
  uint8_t u8[16];
} v128_t;

/* r.lanes[i] = value for each lane i. Integers wrap, so they are computed unsigned. */
#define EMU_LANES(lanes, value) \
  do { \
    v128_t r; \
    for (int i = 0; i < (int)LM_COUNT(r.lanes); i++) r.lanes[i] = (value); \
    return r; \
  } while (0)

INLINE v128_t v_load(const void *p) { v128_t r; copy_bytes(&r, p, 16); return r; }
INLINE void v_store(void *p, v128_t v) { copy_bytes(p, &v, 16); }
INLINE v128_t v_load_splat(const void *p) { EMU_LANES(u32, read_u32(p)); }
INLINE v128_t v_load_i16x4(const void *p) { EMU_LANES(i32, (int16_t)read_u16((const uint8_t *)p + 2 * i)); }
INLINE v128_t v_load_i8x8(const void *p) { EMU_LANES(i16, ((const int8_t *)p)[i]); }
INLINE v128_t v_load_u8x8(const void *p) { EMU_LANES(i16, ((const uint8_t *)p)[i]); }
INLINE v128_t v_f32(float a) { EMU_LANES(f32, a); }
INLINE v128_t v_i32(int32_t a) { EMU_LANES(i32, a); }

INLINE v128_t v_and(v128_t a, v128_t b) { EMU_LANES(u32, a.u32[i] & b.u32[i]); }
INLINE v128_t v_or(v128_t a, v128_t b) { EMU_LANES(u32, a.u32[i] | b.u32[i]); }
INLINE v128_t v_xor(v128_t a, v128_t b) { EMU_LANES(u32, a.u32[i] ^ b.u32[i]); }
INLINE v128_t v_add16(v128_t a, v128_t b) { EMU_LANES(u16, (uint16_t)(a.u16[i] + b.u16[i])); }
INLINE v128_t v_sub16(v128_t a, v128_t b) { EMU_LANES(u16, (uint16_t)(a.u16[i] - b.u16[i])); }
INLINE v128_t v_shl16(v128_t a, uint32_t n) { EMU_LANES(u16, (uint16_t)(a.u16[i] << n)); }
INLINE v128_t v_shr16(v128_t a, uint32_t n) { EMU_LANES(i16, (int16_t)(a.i16[i] >> n)); }
INLINE v128_t v_shr_u16(v128_t a, uint32_t n) { EMU_LANES(u16, (uint16_t)(a.u16[i] >> n)); }
INLINE v128_t v_add32(v128_t a, v128_t b) { EMU_LANES(u32, a.u32[i] + b.u32[i]); }
INLINE v128_t v_sub32(v128_t a, v128_t b) { EMU_LANES(u32, a.u32[i] - b.u32[i]); }
INLINE v128_t v_shl32(v128_t a, uint32_t n) { EMU_LANES(u32, a.u32[i] << n); }
INLINE v128_t v_shr32(v128_t a, uint32_t n) { EMU_LANES(i32, a.i32[i] >> n); }
INLINE v128_t v_min32(v128_t a, v128_t b) { EMU_LANES(i32, LM_MIN(a.i32[i], b.i32[i])); }
INLINE v128_t v_max32(v128_t a, v128_t b) { EMU_LANES(i32, LM_MAX(a.i32[i], b.i32[i])); }
INLINE v128_t v_gt32(v128_t a, v128_t b) { EMU_LANES(i32, a.i32[i] > b.i32[i] ? -1 : 0); }

INLINE v128_t v_mul32(v128_t a, v128_t b) { EMU_LANES(u32, a.u32[i] * b.u32[i]); }
INLINE v128_t v_low16(v128_t a) { EMU_LANES(i32, a.i16[i]); }
INLINE v128_t v_high16(v128_t a) { EMU_LANES(i32, a.i16[i + 4]); }

INLINE uint32_t emu_product(int16_t a, int16_t b) { return (uint32_t)(a * b); }
INLINE v128_t v_dot16(v128_t a, v128_t b) {
  EMU_LANES(u32, emu_product(a.i16[2 * i], b.i16[2 * i]) + emu_product(a.i16[2 * i + 1], b.i16[2 * i + 1]));
}

INLINE int32_t emu_clamp(int32_t v, int32_t low, int32_t high) { return v < low ? low : v > high ? high : v; }
INLINE v128_t v_narrow32(v128_t a, v128_t b) {
  EMU_LANES(i16, (int16_t)emu_clamp(i < 4 ? a.i32[i] : b.i32[i - 4], -32768, 32767));
}
INLINE v128_t v_narrow16(v128_t a, v128_t b) {
  EMU_LANES(i8, (int8_t)emu_clamp(i < 8 ? a.i16[i] : b.i16[i - 8], -128, 127));
}

INLINE v128_t v_add(v128_t a, v128_t b) { EMU_LANES(f32, a.f32[i] + b.f32[i]); }
INLINE v128_t v_sub(v128_t a, v128_t b) { EMU_LANES(f32, a.f32[i] - b.f32[i]); }
INLINE v128_t v_mul(v128_t a, v128_t b) { EMU_LANES(f32, a.f32[i] * b.f32[i]); }
INLINE v128_t v_div(v128_t a, v128_t b) { EMU_LANES(f32, a.f32[i] / b.f32[i]); }
INLINE v128_t v_abs(v128_t a) { EMU_LANES(u32, a.u32[i] & 0x7fffffff); }
INLINE v128_t v_neg(v128_t a) { EMU_LANES(u32, a.u32[i] ^ 0x80000000); }
INLINE v128_t v_pmin(v128_t a, v128_t b) { EMU_LANES(f32, b.f32[i] < a.f32[i] ? b.f32[i] : a.f32[i]); }
INLINE v128_t v_pmax(v128_t a, v128_t b) { EMU_LANES(f32, a.f32[i] < b.f32[i] ? b.f32[i] : a.f32[i]); }
INLINE v128_t v_from_i32(v128_t a) { EMU_LANES(f32, (float)a.i32[i]); }

INLINE v128_t v_shuffle32(v128_t a, v128_t b, int i0, int i1, int i2, int i3) {
  const int from[4] = {i0, i1, i2, i3};
  EMU_LANES(u32, from[i] < 4 ? a.u32[from[i]] : b.u32[from[i] - 4]);
}
INLINE v128_t v_shuffle16(v128_t a, int i0, int i1, int i2, int i3, int i4, int i5, int i6, int i7) {
  const int from[8] = {i0, i1, i2, i3, i4, i5, i6, i7};
  EMU_LANES(u16, a.u16[from[i]]);
}
INLINE uint8_t emu_look_up(const v128_t *table, uint8_t i) {
  if (i > 15) __builtin_trap();
  return table->u8[i];
}
INLINE v128_t v_look_up(v128_t table, v128_t at) { EMU_LANES(u8, emu_look_up(&table, at.u8[i])); }
INLINE float v_lane(v128_t a, int i) { return a.f32[i]; }
INLINE int32_t v_lane32(v128_t a, int i) { return a.i32[i]; }
INLINE int16_t v_lane16(v128_t a, int i) { return a.i16[i]; }

#if VEC_HAS_RELAXED
INLINE int emu_product_u7(int8_t a, uint8_t u7) {
  if (u7 > 127) __builtin_trap();
  return a * u7;
}
INLINE int16_t emu_pair_u7(const int8_t *a, const uint8_t *u7) {
  return (int16_t)(emu_product_u7(a[0], u7[0]) + emu_product_u7(a[1], u7[1]));
}
/* A sum of two such products is at most 32,512: nothing saturates. */
INLINE v128_t v_dot8_u7(v128_t a, v128_t b) { EMU_LANES(i16, emu_pair_u7(a.i8 + 2 * i, b.u8 + 2 * i)); }
INLINE uint32_t emu_four_u7(const int8_t *a, const uint8_t *u7) {
  return (uint32_t)(emu_product_u7(a[0], u7[0]) + emu_product_u7(a[1], u7[1]) + emu_product_u7(a[2], u7[2]) +
                    emu_product_u7(a[3], u7[3]));
}
INLINE v128_t v_dot8_u7_add(v128_t a, v128_t b, v128_t sum) {
  EMU_LANES(u32, sum.u32[i] + emu_four_u7(a.i8 + 4 * i, b.u8 + 4 * i));
}
INLINE v128_t v_madd(v128_t a, v128_t b, v128_t c) { EMU_LANES(f32, __builtin_fmaf(a.f32[i], b.f32[i], c.f32[i])); }
#endif
#undef EMU_LANES
