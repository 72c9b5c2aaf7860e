/* fmath.c: argument reduction, then a Taylor series long enough for double. Not fast, and never in
 * an inner loop: a few dozen calls a token. */
#include "fmath.h"

#include "base.h"

static uint64_t bits_of(double x) { uint64_t bits; copy_bytes(&bits, &x, sizeof bits); return bits; }
static double of_bits(uint64_t bits) { double x; copy_bytes(&x, &bits, sizeof x); return x; }

double fmath_sqrt(double x) { return __builtin_sqrt(x); }

double fmath_floor(double x) {
  const double whole = (double)(int64_t)x;
  return whole > x ? whole - 1 : whole;
}

double fmath_ceil(double x) { return -fmath_floor(-x); }

/* Adding 1.5 * 2^52 leaves the nearest integer, ties to even, for |x| < 2^51. */
static double nearest(double x) { return x + 0x1.8p52 - 0x1.8p52; }

#define LN2_HIGH 0x1.62e42feep-1          /* 32 bits: k * LN2_HIGH is exact for |k| < 2^20 */
#define LN2_LOW 0x1.a39ef35793c76p-33

double fmath_exp(double x) {
  if (x != x) return x;
  if (x > 709) return __builtin_inf();
  if (x < -745) return 0;
  const double k = nearest(x * 0x1.71547652b82fep+0);
  const double r = (x - k * LN2_HIGH) - k * LN2_LOW; /* |r| <= 0.35 */
  double sum = 1;
  for (int i = 14; i > 0; i--) sum = 1 + sum * r / i;
  const int64_t half = (int64_t)k / 2, rest = (int64_t)k - half; /* 2^k may be subnormal: two steps */
  return sum * of_bits((uint64_t)(1023 + half) << 52) * of_bits((uint64_t)(1023 + rest) << 52);
}

double fmath_log(double x) {
  const uint64_t bits = bits_of(x);
  int64_t e = (int64_t)(bits >> 52) - 1023;
  double m = of_bits((bits & 0xfffffffffffff) | 0x3ff0000000000000);
  if (m > 0x1.6a09e667f3bcdp+0) m *= 0.5, e++; /* sqrt(1/2) < m <= sqrt(2) */
  const double z = (m - 1) / (m + 1), z2 = z * z; /* log m = 2 atanh z, |z| < 0.172 */
  double sum = 0;
  for (int i = 23; i > 0; i -= 2) sum = sum * z2 + 1.0 / i;
  return (double)e * LN2_HIGH + (2 * z * sum + (double)e * LN2_LOW);
}

double fmath_pow(double x, double y) { return fmath_exp(y * fmath_log(x)); }

/* pi / 2 in two parts; the first has 33 bits, so k times it is exact for |k| < 2^20. */
#define PI_2_HIGH 0x1.921fb544p+0
#define PI_2_LOW 0x1.0b4611a626331p-34

void fmath_sincos(double x, double *sine, double *cosine) {
  const double k = nearest(x * 0x1.45f306dc9c883p-1);
  const double r = (x - k * PI_2_HIGH) - k * PI_2_LOW, r2 = r * r; /* |r| <= pi / 4 */
  double s = 1, c = 1;
  for (int i = 18; i > 1; i -= 2) s = 1 - s * r2 / (i * (i + 1)), c = 1 - c * r2 / (i * (i - 1));
  s *= r;
  switch ((int64_t)k & 3) {
    case 0: *sine = s, *cosine = c; break;
    case 1: *sine = c, *cosine = -s; break;
    case 2: *sine = -s, *cosine = -c; break;
    default: *sine = -c, *cosine = s;
  }
}
