/* fmath.h: the mathematical functions the engine needs, in double: ours, so that wasm and native,
 * and every browser, agree to the bit. Errors are relative to the exact value. */
#pragma once

/* e^x: 0 below -745, infinity above 709; error below 4e-16 otherwise. NaN gives NaN. */
double fmath_exp(double x);
/* Natural logarithm of a positive normal x: error below 4e-16 (absolute near 1). */
double fmath_log(double x);
/* x^y for positive normal x: error below 1e-15 * (1 + |y log x|). */
double fmath_pow(double x, double y);
/* Sine and cosine, |x| <= 2^31: absolute error below 2e-16 up to 2^20. */
void fmath_sincos(double x, double *sine, double *cosine);
/* Largest integer <= x and smallest >= x, |x| < 2^52. */
double fmath_floor(double x);
double fmath_ceil(double x);
double fmath_sqrt(double x);
