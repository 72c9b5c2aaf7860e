/* q8_0.c: 544 bytes per 16 rows x 32 columns: scale of row r at 2r, weight (r, k) at
 * 32 + 64 (k / 4) + 4r + k % 4, stored as w + 128. */
#include "mat.h"

enum { Q8_0_BLOCK = 544 };

/* Bytes of w + 128 are int16 after one `and` or shift. */
INLINE void q8_0_dot(const int n, v128_t *s, const uint8_t *w, size_t run, const struct act *x, size_t block,
                     v128_t low) {
  const int16_t *q = x->q16 + 32 * block;
  ROLLED for (int i = 0; i < 8; i++, w += 64, q += 4) {
    const v128_t x0 = v_load_splat(q), x1 = v_load_splat(q + 2);
    UNROLLED for (int v = 0; v < 4 * n; v++) {
      const v128_t wv = v_load(w + v / 4 * run + v % 4 * 16);
      s[v] = v_add32(s[v], v_dot16(x0, v_and(wv, low)));
      s[v] = v_add32(s[v], v_dot16(x1, v_shr_u16(wv, 8)));
    }
  }
}

INLINE void q8_0_unpack(struct mat_panel *p, size_t b, const uint8_t *w, v128_t low) {
  (void)low;
  const v128_t signs = v_constant(SIGNS8);
  int16_t *o = &p->i16[b][0][0][0];
  ROLLED for (int i = 0; i < 8; i++, w += 64, o += 64)
    UNROLLED for (int v = 0; v < 4; v++) {
      const v128_t wv = v_xor(v_load(w + 16 * v), signs);
      v_store(o + 8 * v, v_shr16(v_shl16(wv, 8), 8));
      v_store(o + 8 * v + 32, v_shr16(wv, 8));
    }
}

static const struct mat_form q8_0_form = {Q8_0_BLOCK, 128, false, false, false, 2, BYTES16,
                                       q8_0_dot, mat_dot_tile_i16, q8_0_unpack};

static void q8_0_mat(const uint8_t *w, const struct act *x, float *y, size_t y_stride, uint32_t n_groups,
                     uint32_t n_cols, uint32_t n_tokens, void *scratch) {
  mat_quantised(&q8_0_form, w, x, y, y_stride, n_groups, n_cols, n_tokens, scratch);
}

/* bias: SIGNS8 stores w + 128, ZEROS w. */
INLINE void q8_0_pack_biased(const uint8_t *file, size_t row_bytes, uint8_t *packed, uint32_t n_rows, uint32_t n_cols,
                             v128_t bias) {
  static const uint8_t zeros[QUANT_BYTES_Q8_0];
  for (size_t b = 0; b < n_cols / 32; b++, packed += Q8_0_BLOCK)
    for (uint32_t i = 0; i < 16; i += 4) {
      v128_t q[8];
      UNROLLED for (uint32_t j = 0; j < 4; j++) {
        const uint8_t *p = i + j < n_rows ? file + (i + j) * row_bytes + b * QUANT_BYTES_Q8_0 : zeros;
        copy_bytes(packed + 2 * (i + j), p, 2);
        q[j] = v_xor(v_load(p + 2), bias);
        q[j + 4] = v_xor(v_load(p + 18), bias);
      }
      v_transpose(q);
      v_transpose(q + 4);
      UNROLLED for (int c = 0; c < 8; c++) v_store(packed + 32 + 64 * c + 4 * i, q[c]);
    }
}

static void q8_0_pack(const uint8_t *file, size_t row_bytes, uint8_t *packed, uint32_t n_rows, uint32_t n_cols) {
  q8_0_pack_biased(file, row_bytes, packed, n_rows, n_cols, v_constant(SIGNS8));
}

INLINE void q8_0_row_biased(const uint8_t *packed, uint32_t row, uint32_t n_cols, float *out, uint8_t bias) {
  const uint32_t n_blocks = n_cols / 32, r = row % 16;
  packed += (size_t)(row / 16) * n_blocks * Q8_0_BLOCK;
  for (uint32_t b = 0; b < n_blocks; b++, packed += Q8_0_BLOCK, out += 32) {
    const float d = f16_to_f32(read_u16(packed + 2 * r));
    for (uint32_t k = 0; k < 32; k++) out[k] = d * (float)(int8_t)(packed[32 + 64 * (k / 4) + 4 * r + k % 4] ^ bias);
  }
}

static void q8_0_row_to_float(const uint8_t *packed, uint32_t row, uint32_t n_cols, float *out) {
  q8_0_row_biased(packed, row, n_cols, out, 128);
}

const struct mat_kernels mat_q8_0 = {16, 32, Q8_0_BLOCK, 0, ACT_I16, q8_0_pack, q8_0_row_to_float, q8_0_mat};

#if VEC_HAS_DOT
/* w is any int8, so x must be the one in 0..127: w x = w pos - w neg = w pos + ~w neg + neg. */
INLINE void q8_0_dot_signs(const int n, v128_t *s, const uint8_t *w, size_t run, const struct act *x, size_t block,
                           v128_t all) {
  const int8_t *pos = x->pos + 32 * block, *neg = x->neg + 32 * block;
  ROLLED for (int i = 0; i < 8; i++, w += 64, pos += 4, neg += 4) {
    const v128_t xp = v_load_splat(pos), xn = v_load_splat(neg);
    UNROLLED for (int v = 0; v < 4 * n; v++) {
      const v128_t wv = v_load(w + v / 4 * run + v % 4 * 16);
      s[v] = v_dot8_u7_add(wv, xp, s[v]);
      s[v] = v_dot8_u7_add(v_xor(wv, all), xn, s[v]);
    }
  }
}

/* s += w x, or with `not` ~w x, for 32 bytes of each of two tokens. */
INLINE void q8_0_tile_bytes(v128_t s[8], const uint8_t *w, const int8_t *x0, const int8_t *x1, bool not) {
  const v128_t all = v_constant(ALL8);
  ROLLED for (int i = 0; i < 8; i++, w += 64, x0 += 4, x1 += 4) {
    const v128_t a = v_load_splat(x0), b = v_load_splat(x1);
    UNROLLED for (int v = 0; v < 4; v++) {
      const v128_t wv = not ? v_xor(v_load(w + 16 * v), all) : v_load(w + 16 * v);
      s[v] = v_dot8_u7_add(wv, a, s[v]);
      s[v + 4] = v_dot8_u7_add(wv, b, s[v + 4]);
    }
  }
}

INLINE void q8_0_tile_signs(v128_t s[8], const struct mat_panel *p, size_t b, const struct act *x, size_t b0,
                            size_t b1) {
  const uint8_t *w = p->packed + b * Q8_0_BLOCK + 32;
  q8_0_tile_bytes(s, w, x->pos + 32 * b0, x->pos + 32 * b1, false);
  q8_0_tile_bytes(s, w, x->neg + 32 * b0, x->neg + 32 * b1, true);
}

INLINE void q8_0_unpack_nothing(struct mat_panel *p, size_t b, const uint8_t *w, v128_t all) {
  (void)p, (void)b, (void)w, (void)all;
}

static const struct mat_form q8_0_form_signs = {Q8_0_BLOCK, 0, false, true, true, 2, ALL8,
                                                q8_0_dot_signs, q8_0_tile_signs, q8_0_unpack_nothing};

static void q8_0_mat_signs(const uint8_t *w, const struct act *x, float *y, size_t y_stride, uint32_t n_groups,
                           uint32_t n_cols, uint32_t n_tokens, void *scratch) {
  mat_quantised(&q8_0_form_signs, w, x, y, y_stride, n_groups, n_cols, n_tokens, scratch);
}

static void q8_0_pack_signs(const uint8_t *file, size_t row_bytes, uint8_t *packed, uint32_t n_rows, uint32_t n_cols) {
  q8_0_pack_biased(file, row_bytes, packed, n_rows, n_cols, v_i32(0));
}

static void q8_0_row_signs(const uint8_t *packed, uint32_t row, uint32_t n_cols, float *out) {
  q8_0_row_biased(packed, row, n_cols, out, 0);
}

const struct mat_kernels mat_q8_0_signs = {16, 32, Q8_0_BLOCK, 0, ACT_SIGNS, q8_0_pack_signs, q8_0_row_signs,
                                           q8_0_mat_signs};
#endif
