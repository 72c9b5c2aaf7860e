/* kernel_elements.h: cases of check_kernels.c: norms, activations, RoPE and sums. */
#pragma once
#include "kernel_cases.h"

static void check_close(const float *got, const float *want, uint32_t n, double limit, const char *what) {
  for (uint32_t i = 0; i < n; i++)
    check(magnitude((double)got[i] - want[i]) <= limit * magnitude(want[i]) + 1e-37, what);
}

static void check_elementwise(uint32_t n) {
  start("elementwise", n, 0, 0, 0, 0, 0);
  float *x = take(n * sizeof *x), *w = take(n * sizeof *w), *y = take(n * sizeof *y), *z = take(n * sizeof *z);
  for (uint32_t i = 0; i < n; i++) x[i] = 30 * uniform(), w[i] = 2 + uniform();
  kernels_simd.rms_norm(x, w, y, n, 1e-5f);
  kernels_ref.rms_norm(x, w, z, n, 1e-5f);
  check_close(y, z, n, 1e-6, "rms_norm");
  hash(y, n * sizeof *y);
  double squares = 0, mean = 0;
  for (uint32_t i = 0; i < n; i++) squares += (double)z[i] / w[i] * z[i] / w[i], mean += (double)x[i] * x[i] / n;
  check(magnitude(squares / n * (mean + 1e-5) / mean - 1) < 1e-6, "rms_norm of ref");
  for (enum activation kind = ACTIVATION_SILU; kind <= ACTIVATION_GELU; kind++)
    for (int gated = 0; gated < 2; gated++) {
      kernels_simd.activate(kind, x, gated ? w : 0, y, n);
      kernels_ref.activate(kind, x, gated ? w : 0, z, n);
      /* gelu far below zero: e^-z of a z that f32 rounds; the value itself is as good as 0 */
      for (uint32_t i = 0; i < n; i++)
        check(magnitude((double)y[i] - z[i]) <= 1e-6 * magnitude(z[i]) + (kind == ACTIVATION_GELU ? 1e-6 : 1e-37),
              "activate");
      hash(y, n * sizeof *y);
    }
  kernels_simd.layer_norm(x, w, z, y, n, 1e-5f);
  float *want = take(n * sizeof *want);
  kernels_ref.layer_norm(x, w, z, want, n, 1e-5f);
  for (uint32_t i = 0; i < n; i++) check(magnitude((double)y[i] - want[i]) <= 2e-5, "layer_norm");
  hash(y, n * sizeof *y);
  copy_bytes(y, x, n * sizeof *y), copy_bytes(want, x, n * sizeof *want);
  kernels_simd.soft_cap(y, 20, n);
  kernels_ref.soft_cap(want, 20, n);
  for (uint32_t i = 0; i < n; i++) check(magnitude((double)y[i] - want[i]) <= 1e-5, "soft_cap");
  hash(y, n * sizeof *y);
  copy_bytes(y, x, n * sizeof *y);
  kernels_simd.scale(y, 3, n);
  kernels_simd.add_scaled(y, x, -2, n);
  for (uint32_t i = 0; i < n; i++) check(magnitude((double)y[i] - x[i]) <= 1e-5, "scale, add_scaled");
  kernels_simd.activate(ACTIVATION_SILU, x, w, y, n);
  kernels_ref.activate(ACTIVATION_SILU, x, w, z, n);
  kernels_simd.add(y, x, n);
  for (uint32_t i = 0; i < n; i++) check(y[i] == z[i] + x[i] || magnitude(y[i] - (double)(z[i] + x[i])) < 1e-5, "add");
  hash(y, n * sizeof *y);
  uint8_t past[CANARY];
  for (int i = 0; i < CANARY; i++) past[i] = 0xff;
  check(same(y + n, past, CANARY / 2) && same(z + n, past, CANARY / 2), "wrote past the end");
  float *in_place = take(n * sizeof *x);
  copy_bytes(in_place, x, n * sizeof *x);
  kernels_simd.rms_norm(x, w, y, n, 1e-5f);
  kernels_simd.rms_norm(in_place, w, in_place, n, 1e-5f);
  check(same(y, in_place, n * sizeof *y), "rms_norm in place");
  finish();
}

static void check_silu_far(void) {
  start("silu far", 0, 0, 0, 0, 0, 0);
  const float x[8] = {-1e30f, -200, -100, -88, 88, 100, 200, 1e30f}, one[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  float y[8];
  for (enum activation kind = ACTIVATION_SILU; kind <= ACTIVATION_GELU; kind++) {
    kernels_simd.activate(kind, x, one, y, 8);
    for (int i = 0; i < 8; i++) check(i < 4 ? magnitude(y[i]) < 1e-5 : y[i] == x[i], "activate far out");
    hash(y, sizeof y);
  }
  finish();
}

static void check_rope(uint32_t head_dim, uint32_t rope_dim, bool pairs) {
  enum { HEADS = 3 };
  start("rope", head_dim, rope_dim, pairs, 0, 0, 0);
  const uint32_t n = HEADS * head_dim, half = rope_dim / 2;
  float *x = take(n * sizeof *x), *y = take(n * sizeof *y), *z = take(n * sizeof *z);
  float *c = take(half * sizeof *c), *s = take(half * sizeof *s);
  for (uint32_t i = 0; i < n; i++) x[i] = uniform();
  for (uint32_t i = 0; i < half; i++) {
    const float t = uniform();
    c[i] = (1 - t * t) / (1 + t * t), s[i] = 2 * t / (1 + t * t);
  }
  copy_bytes(y, x, n * sizeof *x), copy_bytes(z, x, n * sizeof *x);
  (pairs ? kernels_simd.rope_pairs : kernels_simd.rope_halves)(y, c, s, HEADS, head_dim, rope_dim);
  (pairs ? kernels_ref.rope_pairs : kernels_ref.rope_halves)(z, c, s, HEADS, head_dim, rope_dim);
  for (uint32_t i = 0; i < n; i++) {
    const uint32_t d = i % head_dim, p = pairs ? d / 2 : d % half;
    const bool first = pairs ? d % 2 == 0 : d < half;
    double want = x[i];
    if (d < rope_dim) {
      const double other = pairs ? x[first ? i + 1 : i - 1] : x[first ? i + half : i - half];
      want = x[i] * (double)c[p] + (first ? -other : other) * s[p];
    }
    check(magnitude(y[i] - want) < 2e-7 && magnitude(z[i] - want) < 2e-7, "rope differs from float64");
  }
  hash(y, n * sizeof *y);
  finish();
}

static void check_elements(void) {
  static const uint32_t counts[] = {1, 2, 3, 4, 5, 7, 8, 12, 172, 576, 2048};
  for (size_t i = 0; i < LM_COUNT(counts); i++) check_elementwise(counts[i]);
  check_silu_far();
  static const uint32_t dims[][2] = {{8, 8}, {8, 6}, {8, 2}, {10, 10}, {64, 64}, {128, 64}, {80, 20}};
  for (size_t i = 0; i < LM_COUNT(dims); i++)
    for (int pairs = 0; pairs < 2; pairs++) check_rope(dims[i][0], dims[i][1], pairs);
}
