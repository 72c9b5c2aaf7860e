/* nibbles.h: 4 bits per weight, 32 per scale: what q4_0 (w = d (q - 8)) and q4_1 (w = d q + m) share.
 *
 * 16 rows x 32 columns: d of row r at 2r, with minima m at 32 + 2r, then 256 bytes of nibbles: byte
 * 64c + 4r + j (c, j = 0..3) is byte 4c + j of row r in the file: low nibble k = 4c + j, high
 * nibble k = 16 + 4c + j. */
#pragma once
#include "mat.h"

/* The four nibbles of each 16-bit lane, from the lowest up, meet columns (0,2) (16,18) (1,3) (17,19). */
INLINE void nibbles_dot(const int n, v128_t *s, const uint8_t *w, size_t run, const struct act *x, size_t block,
                        v128_t mask) {
  const int16_t *q = x->q16 + 32 * block;
  ROLLED for (int i = 0; i < 4; i++, w += 64, q += 4) {
    const v128_t x0 = v_load_splat(q), x1 = v_load_splat(q + 16), x2 = v_load_splat(q + 2), x3 = v_load_splat(q + 18);
    UNROLLED for (int v = 0; v < 4 * n; v++) {
      const v128_t wv = v_load(w + v / 4 * run + v % 4 * 16);
      s[v] = v_add32(s[v], v_dot16(x0, v_and(wv, mask)));
      s[v] = v_add32(s[v], v_dot16(x1, v_and(v_shr_u16(wv, 4), mask)));
      s[v] = v_add32(s[v], v_dot16(x2, v_and(v_shr_u16(wv, 8), mask)));
      s[v] = v_add32(s[v], v_dot16(x3, v_shr_u16(wv, 12)));
    }
  }
}

INLINE void nibbles_unpack(struct mat_panel *p, size_t b, const uint8_t *w, v128_t mask, v128_t bias) {
  int16_t *o = &p->i16[b][0][0][0]; /* 8 pairs of low nibbles, 8 of high ones */
  ROLLED for (int i = 0; i < 4; i++, w += 64, o += 64)
    UNROLLED for (int v = 0; v < 4; v++) {
      const v128_t wv = v_load(w + 16 * v);
      v_store(o + 8 * v, v_sub16(v_and(wv, mask), bias));
      v_store(o + 8 * v + 32, v_sub16(v_and(v_shr_u16(wv, 8), mask), bias));
      v_store(o + 8 * v + 256, v_sub16(v_and(v_shr_u16(wv, 4), mask), bias));
      v_store(o + 8 * v + 288, v_sub16(v_shr_u16(wv, 12), bias));
    }
}

#if VEC_HAS_RELAXED
/* A pair of products is at most 3,810, a block's eight 30,480. */
INLINE void nibbles_dot_bytes(const int n, v128_t *s, const uint8_t *w, size_t run, const int8_t *q, v128_t mask) {
  ROLLED for (int i = 0; i < 4; i++, w += 64, q += 4) {
    const v128_t x0 = v_load_splat(q), x1 = v_load_splat(q + 16);
    UNROLLED for (int v = 0; v < 4 * n; v++) {
      const v128_t wv = v_load(w + v / 4 * run + v % 4 * 16);
      s[v] = v_add_dot8(s[v], x0, v_and(wv, mask));
      s[v] = v_add_dot8(s[v], x1, v_and(v_shr_u16(wv, 4), mask));
    }
  }
}

INLINE void nibbles_dot_u7(const int n, v128_t *s, const uint8_t *w, size_t run, const struct act *x, size_t block,
                           v128_t mask) {
  nibbles_dot_bytes(n, s, w, run, x->q + 32 * block, mask);
}

INLINE void nibbles_unpack_u7(struct mat_panel *p, size_t b, const uint8_t *w, v128_t mask) {
  uint8_t *o = &p->u7[b][0][0][0];
  ROLLED for (int i = 0; i < 256; i += 16) {
    const v128_t wv = v_load(w + i);
    v_store(o + i, v_and(wv, mask));
    v_store(o + i + 256, v_and(v_shr_u16(wv, 4), mask));
  }
}
#endif

#if VEC_HAS_DOT
/* 15 bits as 128 hi + lo: half as many instructions as the int16 dot (decode 1.2 times as fast, prefill 1.1); with sums
 * of int16 it is slower. */
INLINE void nibbles_dot_halves(const int n, v128_t *s, const uint8_t *w, size_t run, const struct act *x, size_t block,
                               v128_t mask) {
  v128_t hi[8];
  UNROLLED for (int v = 0; v < 4 * n; v++) hi[v] = v_i32(0);
  nibbles_dot_bytes(n, hi, w, run, x->hi + 32 * block, mask);
  UNROLLED for (int v = 0; v < 4 * n; v++) s[v] = v_add32(s[v], v_shl32(hi[v], 7));
  nibbles_dot_bytes(n, s, w, run, x->lo + 32 * block, mask);
}
#endif

/* File: per row and block d, with minima m, 16 bytes of nibbles. */
INLINE void nibbles_pack(const uint8_t *file, size_t row_bytes, uint8_t *packed, uint32_t n_rows, uint32_t n_cols,
                         const bool min) {
  static const uint8_t zeros[QUANT_BYTES_Q4_1];
  const size_t header = min ? 4 : 2, off = 16 * header;
  for (size_t b = 0; b < n_cols / 32; b++, packed += off + 256)
    for (uint32_t i = 0; i < 16; i += 4) {
      v128_t q[4];
      UNROLLED for (uint32_t j = 0; j < 4; j++) {
        const uint8_t *p = i + j < n_rows ? file + (i + j) * row_bytes + b * (header + 16) : zeros;
        copy_bytes(packed + 2 * (i + j), p, 2);
        if (min) copy_bytes(packed + 32 + 2 * (i + j), p + 2, 2);
        q[j] = v_load(p + header);
      }
      v_transpose(q);
      UNROLLED for (int c = 0; c < 4; c++) v_store(packed + off + 64 * c + 4 * i, q[c]);
    }
}

INLINE void nibbles_row_to_float(const uint8_t *packed, uint32_t row, uint32_t n_cols, float *out, const bool min) {
  const uint32_t n_blocks = n_cols / 32, r = row % 16, off = min ? 64 : 32;
  packed += (size_t)(row / 16) * n_blocks * (off + 256);
  for (uint32_t b = 0; b < n_blocks; b++, packed += off + 256, out += 32) {
    const float d = f16_to_f32(read_u16(packed + 2 * r)), m = min ? f16_to_f32(read_u16(packed + 32 + 2 * r)) : 0;
    for (uint32_t k = 0; k < 32; k++) {
      const int q = packed[off + 64 * (k % 16 / 4) + 4 * r + k % 4] >> (k < 16 ? 0 : 4) & 15;
      out[k] = min ? d * (float)q + m : d * (float)(q - 8);
    }
  }
}
