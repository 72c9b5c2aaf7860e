/* exp.h: e^x for softmax and SiLU, the same bits on every machine; never the host's. */
#pragma once
#include "../vec.h"

/* Lowest and highest x, log2 e, 1.5 * 2^23 (adding it rounds), ln 2 in two parts, the polynomial's
 * coefficients from x^5 down to 1. */
static const volatile float exp_table[] = {
  -87.3f,         88.0f,          1.44269504f,    0x1.8p23f,      0.693145751953125f, 1.42860682e-6f, 1.98756915e-4f,
  1.39819995e-3f, 8.33345191e-3f, 4.16657959e-2f, 1.66666655e-1f, 0.5f,               1.0f,
};
struct exp_constants {
  v128_t c[13];
};
INLINE struct exp_constants exp_constants(void) {
  struct exp_constants e;
  UNROLLED for (int i = 0; i < 13; i++) e.c[i] = v_f32(exp_table[i]);
  return e;
}

/* At most 0.97 ulp over [-87, 0]; below -87.3 it stays at e^-87.3; x <= 88. */
INLINE v128_t v_exp(v128_t x, const struct exp_constants *e) {
  x = v_pmax(x, e->c[0]);
  const v128_t t = v_add(v_mul(x, e->c[2]), e->c[3]), n = v_sub(t, e->c[3]);
  const v128_t r = v_sub(v_sub(x, v_mul(n, e->c[4])), v_mul(n, e->c[5]));
  v128_t p = e->c[6];
  UNROLLED for (int i = 7; i < 12; i++) p = v_add(v_mul(p, r), e->c[i]);
  p = v_add(v_add(v_mul(v_mul(p, r), r), r), e->c[12]);
  return v_add32(p, v_shl32(t, 23)); /* * 2^n */
}

/* 1 + e^-x, the divisor of a sigmoid. */
INLINE v128_t v_one_plus_exp_minus(v128_t x, const struct exp_constants *e) {
  return v_add(e->c[12], v_exp(v_pmin(v_neg(x), e->c[1]), e));
}

/* cap tanh(x / cap) = cap - 2 cap / (1 + e^(2 x / cap)): an absolute error of 2e-7 cap. */
INLINE v128_t v_soft_cap(v128_t x, float cap, const struct exp_constants *e) {
  return v_sub(v_f32(cap), v_div(v_f32(2 * cap), v_one_plus_exp_minus(v_mul(x, v_f32(-2 / cap)), e)));
}
