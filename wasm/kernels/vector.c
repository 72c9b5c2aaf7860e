/* vector.c: what a layer does element by element. */
#include "exp.h"
#include "set.h"

/* The last n < 4 elements, filled up with zeros. */
INLINE v128_t vector_load_last(const float *x, uint32_t n) {
  float last[4] = {0};
  copy_bytes(last, x, n * sizeof *x);
  return v_load(last);
}
INLINE void vector_store_last(float *y, v128_t v, uint32_t n) {
  float last[4];
  v_store(last, v);
  copy_bytes(y, last, n * sizeof *y);
}

void vector_rms_norm(const float *x, const float *w, float *y, uint32_t n, float eps) {
  const uint32_t n4 = n & ~3u, n8 = n & ~7u;
  v128_t a = v_i32(0), b = v_i32(0);
  ROLLED for (uint32_t i = 0; i < n8; i += 8) {
    a = v_add(a, v_mul(v_load(x + i), v_load(x + i)));
    b = v_add(b, v_mul(v_load(x + i + 4), v_load(x + i + 4)));
  }
  if (n8 < n4) a = v_add(a, v_mul(v_load(x + n8), v_load(x + n8)));
  const v128_t last = vector_load_last(x + n4, n - n4);
  b = v_add(b, v_mul(last, last));
  const v128_t scale = v_f32(1 / __builtin_sqrtf(v_sum(v_add(a, b)) / (float)n + eps));
  ROLLED for (uint32_t i = 0; i < n4; i += 4) v_store(y + i, v_mul(v_mul(v_load(x + i), scale), v_load(w + i)));
  vector_store_last(y + n4, v_mul(v_mul(last, scale), vector_load_last(w + n4, n - n4)), n - n4);
}

void vector_layer_norm(const float *x, const float *w, const float *b, float *y, uint32_t n, float eps) {
  const uint32_t n4 = n & ~3u;
  v128_t sum = v_i32(0);
  ROLLED for (uint32_t i = 0; i < n4; i += 4) sum = v_add(sum, v_load(x + i));
  float total = v_sum(sum);
  for (uint32_t i = n4; i < n; i++) total += x[i];
  const float mean = total / (float)n;
  const v128_t means = v_f32(mean);
  v128_t squares = v_i32(0);
  ROLLED for (uint32_t i = 0; i < n4; i += 4) {
    const v128_t d = v_sub(v_load(x + i), means);
    squares = v_add(squares, v_mul(d, d));
  }
  total = v_sum(squares);
  for (uint32_t i = n4; i < n; i++) total += (x[i] - mean) * (x[i] - mean);
  const float scale = 1 / __builtin_sqrtf(total / (float)n + eps);
  ROLLED for (uint32_t i = 0; i < n4; i += 4) {
    const v128_t scaled = v_mul(v_mul(v_sub(v_load(x + i), means), v_f32(scale)), v_load(w + i));
    v_store(y + i, b ? v_add(scaled, v_load(b + i)) : scaled);
  }
  for (uint32_t i = n4; i < n; i++) y[i] = (x[i] - mean) * scale * w[i] + (b ? b[i] : 0);
}

/* Both are x / (1 + e^-z): silu with z = x, gelu with z = 2 sqrt(2 / pi) (x + 0.044715 x^3). */
INLINE v128_t vector_activated(enum activation kind, v128_t x, const struct exp_constants *e) {
  v128_t z = x;
  if (kind == ACTIVATION_GELU) {
    const v128_t cubic = v_mul(v_mul(v_mul(x, x), x), v_f32(0.044715f));
    z = v_mul(v_add(x, cubic), v_f32(1.5957691216057308f));
  }
  return v_div(x, v_one_plus_exp_minus(z, e));
}

void vector_activate(enum activation kind, const float *g, const float *u, float *y, uint32_t n) {
  const struct exp_constants e = exp_constants();
  const uint32_t n4 = n & ~3u;
  ROLLED for (uint32_t i = 0; i < n4; i += 4) {
    const v128_t a = vector_activated(kind, v_load(g + i), &e);
    v_store(y + i, u ? v_mul(a, v_load(u + i)) : a);
  }
  const v128_t last = vector_activated(kind, vector_load_last(g + n4, n - n4), &e);
  vector_store_last(y + n4, u ? v_mul(last, vector_load_last(u + n4, n - n4)) : last, n - n4);
}

void vector_scale(float *y, float factor, uint32_t n) {
  const uint32_t n4 = n & ~3u;
  ROLLED for (uint32_t i = 0; i < n4; i += 4) v_store(y + i, v_mul(v_load(y + i), v_f32(factor)));
  for (uint32_t i = n4; i < n; i++) y[i] *= factor;
}

void vector_add_scaled(float *y, const float *x, float factor, uint32_t n) {
  const uint32_t n4 = n & ~3u;
  ROLLED for (uint32_t i = 0; i < n4; i += 4)
    v_store(y + i, v_add(v_load(y + i), v_mul(v_load(x + i), v_f32(factor))));
  for (uint32_t i = n4; i < n; i++) y[i] += x[i] * factor;
}

void vector_soft_cap(float *y, float cap, uint32_t n) {
  const struct exp_constants e = exp_constants();
  const uint32_t n4 = n & ~3u;
  ROLLED for (uint32_t i = 0; i < n4; i += 4) v_store(y + i, v_soft_cap(v_load(y + i), cap, &e));
  vector_store_last(y + n4, v_soft_cap(vector_load_last(y + n4, n - n4), cap, &e), n - n4);
}

void vector_add(float *y, const float *x, uint32_t n) {
  const uint32_t n4 = n & ~3u;
  ROLLED for (uint32_t i = 0; i < n4; i += 4) v_store(y + i, v_add(v_load(y + i), v_load(x + i)));
  for (uint32_t i = n4; i < n; i++) y[i] += x[i];
}

void vector_rope_pairs(float *x, const float *c, const float *s, uint32_t n_heads, uint32_t head_dim,
                       uint32_t rope_dim) {
  const uint32_t half = rope_dim / 2, half4 = half & ~3u;
  for (uint32_t h = 0; h < n_heads; h++, x += head_dim) {
    ROLLED for (uint32_t i = 0; i < half4; i += 4) {
      const v128_t ci = v_load(c + i), si = v_load(s + i), minus = v_neg(si);
      const v128_t a = v_load(x + 2 * i), b = v_load(x + 2 * i + 4);
      const v128_t a_swapped = v_shuffle32(a, a, 1, 0, 3, 2), b_swapped = v_shuffle32(b, b, 1, 0, 3, 2);
      v_store(x + 2 * i, v_add(v_mul(a, v_shuffle32(ci, ci, 0, 0, 1, 1)),
                               v_mul(a_swapped, v_shuffle32(minus, si, 0, 4, 1, 5))));
      v_store(x + 2 * i + 4, v_add(v_mul(b, v_shuffle32(ci, ci, 2, 2, 3, 3)),
                                   v_mul(b_swapped, v_shuffle32(minus, si, 2, 6, 3, 7))));
    }
    for (uint32_t i = half4; i < half; i++) {
      const float a = x[2 * i], b = x[2 * i + 1];
      x[2 * i] = a * c[i] - b * s[i];
      x[2 * i + 1] = b * c[i] + a * s[i];
    }
  }
}

void vector_rope_halves(float *x, const float *c, const float *s, uint32_t n_heads, uint32_t head_dim,
                        uint32_t rope_dim) {
  const uint32_t half = rope_dim / 2, half4 = half & ~3u;
  for (uint32_t h = 0; h < n_heads; h++, x += head_dim) {
    ROLLED for (uint32_t i = 0; i < half4; i += 4) {
      const v128_t a = v_load(x + i), b = v_load(x + half + i), ci = v_load(c + i), si = v_load(s + i);
      v_store(x + i, v_sub(v_mul(a, ci), v_mul(b, si)));
      v_store(x + half + i, v_add(v_mul(b, ci), v_mul(a, si)));
    }
    for (uint32_t i = half4; i < half; i++) {
      const float a = x[i], b = x[half + i];
      x[i] = a * c[i] - b * s[i];
      x[half + i] = b * c[i] + a * s[i];
    }
  }
}
