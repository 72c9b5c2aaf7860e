/* float.c: F32, F16 and BF16 weights against float activations, fused where the machine is relaxed.
 *
 * R16: column after column, 16 rows each; any n_cols. F32: 64 bytes per column. F16, BF16: 32 bytes,
 * each eight rows in the order 0 4 1 5 2 6 3 7, so that the even lanes of a vector are rows 0..3.
 *
 * F16: the group's header holds what its weights, of one exponent bias or another, are to be multiplied by. */
#include "half.h"
#include "mat.h"

enum float_type { FLOAT_F32, FLOAT_F16, FLOAT_BF16 };
enum { FLOAT_COLUMN_F32 = 64, FLOAT_COLUMN_F16 = 32, FLOAT_COLUMN_BF16 = 32 };
enum { FLOAT_HEADER_F32 = 0, FLOAT_HEADER_F16 = 64, FLOAT_HEADER_BF16 = 0 };
INLINE size_t float_column_bytes(enum float_type type) { return type == FLOAT_F32 ? 64 : 32; }
INLINE size_t float_header(enum float_type type) { return type == FLOAT_F16 ? FLOAT_HEADER_F16 : 0; }
INLINE size_t float_group_bytes(enum float_type type, uint32_t n_cols) {
  return float_header(type) + n_cols * float_column_bytes(type);
}

struct float_constants {
  v128_t f16_bits, scale, high_halves;
};
INLINE struct float_constants float_constants(enum float_type type, const uint8_t *group) {
  const v128_t scale = type == FLOAT_F16 ? v_load_splat(group) : v_i32(0);
  return (struct float_constants){v_constant(F16_BITS), scale, v_constant(HIGH_HALVES)};
}

/* Row r of a group stands at this place in a column of two-byte weights. */
INLINE size_t float_lane(size_t r) { return (r & 8) | (r & 3) << 1 | (r >> 2 & 1); }

/* One column as floats: w[v] = rows 4v .. 4v + 3; of F16 with `bare` what is yet to be multiplied by the scale. */
INLINE void float_column(v128_t w[4], const uint8_t *p, enum float_type type, const struct float_constants *k,
                         bool bare) {
  UNROLLED for (int v = 0; v < 4; v += 2) {
    if (type == FLOAT_F32) {
      w[v] = v_load(p + 16 * v), w[v + 1] = v_load(p + 16 * v + 16);
    } else {
      const v128_t odd = v_load(p + 8 * v), even = v_shl32(odd, 16);
      if (type == FLOAT_BF16) {
        w[v] = even, w[v + 1] = v_and(odd, k->high_halves);
      } else {
        w[v] = v_and(v_shr32(even, 3), k->f16_bits), w[v + 1] = v_and(v_shr32(odd, 3), k->f16_bits);
        if (!bare) w[v] = v_mul(w[v], k->scale), w[v + 1] = v_mul(w[v + 1], k->scale);
      }
    }
  }
}

/* Columns k .. k + n - 1 of a group; adds to y when it holds the columns before. bare: x is multiplied by F16's scale,
 * not w: one product for four (10.6 -> 13.4 GB/s), of the same bits while it does not overflow. */
INLINE void float_decode_columns(enum float_type type, const uint8_t *group, const float *x, float *y, uint32_t k,
                                 uint32_t n, bool bare) {
  const struct float_constants constants = float_constants(type, group);
  const uint8_t *w = group + float_header(type) + k * float_column_bytes(type);
  v128_t c[4];
  UNROLLED for (int v = 0; v < 4; v++) c[v] = k ? v_load(y + 4 * v) : v_i32(0);
  ROLLED for (uint32_t i = k; i < k + n; i++, w += float_column_bytes(type)) {
    const v128_t xi = bare ? v_mul(v_load_splat(x + i), constants.scale) : v_load_splat(x + i);
    v128_t wi[4];
    float_column(wi, w, type, &constants, bare);
    UNROLLED for (int v = 0; v < 4; v++) c[v] = v_madd(wi[v], xi, c[v]);
  }
  UNROLLED for (int v = 0; v < 4; v++) v_store(y + 4 * v, c[v]);
}

/* Runs side by side, as mat_decode. */
INLINE void float_decode(enum float_type type, const uint8_t *w, const float *x, float *y, uint32_t n_groups,
                         uint32_t n_cols, bool bare) {
  enum { COLUMNS = 32 };
  const size_t group = float_group_bytes(type, n_cols);
  while (n_groups) {
    const uint32_t n_runs = LM_MIN(n_groups, (uint32_t)MAT_RUNS), n = n_groups / n_runs;
    for (uint32_t g = 0; g < n; g++)
      for (uint32_t k = 0; k < n_cols; k += COLUMNS)
        ROLLED for (uint32_t i = g; i < n_runs * n; i += n)
          float_decode_columns(type, w + i * group, x, y + 16 * (size_t)i, k,
                               LM_MIN(n_cols - k, (uint32_t)COLUMNS), bare);
    w += n_runs * n * group, y += 16 * (size_t)(n_runs * n), n_groups -= n_runs * n;
  }
}

/* 16 rows x 2 tokens, n columns of floats; adds to y0 and y1 when they hold the columns before. */
INLINE void float_tile(const float *w, const float *x0, const float *x1, uint32_t n, float *y0, float *y1, bool adds) {
  v128_t c[8];
  UNROLLED for (int v = 0; v < 4; v++) {
    c[v] = adds ? v_load(y0 + 4 * v) : v_i32(0);
    c[v + 4] = adds ? v_load(y1 + 4 * v) : v_i32(0);
  }
  ROLLED for (uint32_t k = 0; k < n; k++, w += 16) {
    const v128_t a = v_load_splat(x0 + k), b = v_load_splat(x1 + k);
    UNROLLED for (int v = 0; v < 4; v++) {
      const v128_t wv = v_load(w + 4 * v);
      c[v] = v_madd(wv, a, c[v]);
      c[v + 4] = v_madd(wv, b, c[v + 4]);
    }
  }
  UNROLLED for (int v = 0; v < 4; v++) v_store(y0 + 4 * v, c[v]), v_store(y1 + 4 * v, c[v + 4]);
}

/* Columns k0 .. k0 + n - 1 of a group, 16 floats each. */
INLINE void float_unpack(enum float_type type, float *panel, const uint8_t *group, uint32_t k0, uint32_t n) {
  const struct float_constants constants = float_constants(type, group);
  const uint8_t *w = group + float_header(type) + k0 * float_column_bytes(type);
  ROLLED for (uint32_t k = 0; k < n; k++, w += float_column_bytes(type)) {
    v128_t column[4];
    float_column(column, w, type, &constants, false);
    UNROLLED for (int v = 0; v < 4; v++) v_store(panel + 16 * k + 4 * v, column[v]);
  }
}

/* All |x| below 2^14, so that 2^112 x is finite; a NaN may count as small and stays a NaN. */
INLINE bool float_is_small(const float *x, uint32_t n) {
  v128_t max = v_i32(0);
  ROLLED for (uint32_t i = 0; i < n; i += 4) max = v_max32(max, v_abs(v_load(x + i)));
  return v_max_lane(max) < 0x1p14f;
}

INLINE void float_mat(enum float_type type, const uint8_t *w, const struct act *x, float *y, size_t y_stride,
                      uint32_t n_groups, uint32_t n_cols, uint32_t n_tokens, float *panel) {
  _Static_assert(PANEL_COLS * 16 * sizeof *panel <= MAT_SCRATCH, "scratch");
  const uint32_t even = n_tokens & ~1u;
  for (uint32_t g = 0; even && g < n_groups; g++)
    for (uint32_t k = 0; k < n_cols; k += PANEL_COLS) {
      const uint32_t n = LM_MIN(n_cols - k, (uint32_t)PANEL_COLS);
      const uint8_t *group = w + g * float_group_bytes(type, n_cols);
      const float *wk = type == FLOAT_F32 ? (const float *)group + 16 * (size_t)k : panel;
      if (type != FLOAT_F32) float_unpack(type, panel, group, k, n);
      for (uint32_t t = 0; t < even; t += 2) {
        const float *xt = x->f + (size_t)t * x->n_cols + k;
        float *yt = y + t * y_stride + 16 * (size_t)g;
        float_tile(wk, xt, xt + x->n_cols, n, yt, yt + y_stride, k > 0);
      }
    }
  if (even == n_tokens) return;
  const float *last = x->f + (size_t)even * x->n_cols;
  if (type == FLOAT_F16 && float_is_small(last, x->n_cols))
    float_decode(type, w, last, y + even * y_stride, n_groups, n_cols, true);
  else float_decode(type, w, last, y + even * y_stride, n_groups, n_cols, false);
}

INLINE bool float_below_128(const uint8_t *file, size_t row_bytes, uint32_t n_rows, uint32_t n_cols) {
  uint32_t all = 0;
  for (size_t r = 0; r < n_rows; r++)
    for (size_t k = 0; k < n_cols; k++) all = LM_MAX(all, read_u16(file + r * row_bytes + 2 * k) & 0x7fffu);
  return half_is_small((f16)all);
}

INLINE void float_pack(enum float_type type, const uint8_t *file, size_t row_bytes, uint8_t *packed, uint32_t n_rows,
                       uint32_t n_cols) {
  const bool rebias = type == FLOAT_F16 && float_below_128(file, row_bytes, n_rows, n_cols);
  zero_bytes(packed, n_rows < 16 ? float_group_bytes(type, n_cols) : float_header(type));
  if (type == FLOAT_F16) copy_bytes(packed, &(float){rebias ? HALF_UNIT_25 : HALF_UNIT_15}, 4);
  packed += float_header(type);
  for (size_t k = 0; k < n_cols; k++, packed += float_column_bytes(type))
    for (size_t r = 0; r < n_rows; r++) {
      const uint8_t *p = file + r * row_bytes + k * float_column_bytes(type) / 16;
      if (type == FLOAT_F32) copy_bytes(packed + 4 * r, p, 4);
      else half_pack(packed + 2 * float_lane(r), p, rebias);
    }
}

INLINE void float_row_to_float(enum float_type type, const uint8_t *packed, uint32_t row, uint32_t n_cols, float *out) {
  const uint8_t *group = packed + row / 16 * float_group_bytes(type, n_cols), *p = group + float_header(type);
  for (uint32_t k = 0; k < n_cols; k++, p += float_column_bytes(type)) {
    const uint32_t r = row % 16, bits = type == FLOAT_F32 ? read_u32(p + 4 * r) : read_u16(p + 2 * float_lane(r));
    if (type == FLOAT_F16)
      out[k] = half_value((f16)bits, f32_from_bits(read_u32(group)));
    else out[k] = f32_from_bits(type == FLOAT_BF16 ? bits << 16 : bits);
  }
}

#define FLOAT_TYPE(name, TYPE) \
  static void name##_mat(const uint8_t *w, const struct act *x, float *y, size_t y_stride, uint32_t n_groups, \
                         uint32_t n_cols, uint32_t n_tokens, void *scratch) { \
    float_mat(FLOAT_##TYPE, w, x, y, y_stride, n_groups, n_cols, n_tokens, scratch); \
  } \
  static void name##_pack(const uint8_t *file, size_t row_bytes, uint8_t *packed, uint32_t n_rows, uint32_t n_cols) { \
    float_pack(FLOAT_##TYPE, file, row_bytes, packed, n_rows, n_cols); \
  } \
  static void name##_row_to_float(const uint8_t *packed, uint32_t row, uint32_t n_cols, float *out) { \
    float_row_to_float(FLOAT_##TYPE, packed, row, n_cols, out); \
  } \
  const struct mat_kernels mat_##name = {16, 1, FLOAT_COLUMN_##TYPE, FLOAT_HEADER_##TYPE, ACT_F32, \
                                         name##_pack, name##_row_to_float, name##_mat};
FLOAT_TYPE(f32, F32)
FLOAT_TYPE(f16, F16)
FLOAT_TYPE(bf16, BF16)
#undef FLOAT_TYPE
