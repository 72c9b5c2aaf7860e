/* strips.h: weights of 2 to 6 bits in strips of 16 columns x 8 rows, the unit that all types beyond q4_1
 * are packed in, and the inner products on them.
 *
 * A strip is four quads: quad i is columns 4i .. 4i + 3, two vectors of bytes, rows 4v .. 4v + 3 in
 * vector v = 0, 1, weight (r, k) in byte 4 (r % 4) + k % 4. The vectors share bytes:
 *   nibbles  64 bytes  32a + 16v: quads 2a (low), 2a + 1 (high); also indices into a table of values
 *   fives    80        plane p = 0, 1 at 32p + 16v: quad p, and above it the low three bits of quad 2 + p, whose
 *                      upper two stand at 64, bits 4v + 2p on
 *   sixes    96        plane p = 0..2 at 32p + 16v: quad p, and above it two bits of quad 3, highest first:
 *                      three quads of four cost one `and` (20 % faster than nibbles and pairs of bits)
 *   twos     32        16v: quad i in bits 2i, 2i + 1
 *   threes   48        twos; at 32 the third bits: vector v's quad i in bit 4v + i */
#pragma once
#include "mat.h"

enum { STRIP_COLS = 16, STRIP_ROWS = 8 };
struct strip_masks {
  v128_t low, high, middle;
  v128_t table; /* of nibbles that are indices: values + 128 */
};
struct strip_form {
  uint32_t bytes;
  enum vec_constant low, high, middle; /* masks; those not used are as low */
  const int8_t *const volatile *table; /* volatile: as vec_constants */
  /* Values of rows 4v .. 4v + 3, each 0..63 or, of a table, 0..255. */
  void (*read)(v128_t q[4], const uint8_t *strip, int v, const struct strip_masks *masks);
  void (*write)(uint8_t *strip, v128_t q[2][4]);
};

INLINE struct strip_masks strip_masks(const struct strip_form *f) {
  struct strip_masks masks = {v_constant(f->low), v_constant(f->high), v_constant(f->middle), v_i32(0)};
  if (f->table) masks.table = v_xor(v_load(*f->table), v_constant(SIGNS8));
  return masks;
}

/* Bit `from` of each byte to bit `to`; what else is in the byte is not cleared. */
INLINE v128_t strip_shift(v128_t bits, int from, int to) {
  return from > to ? v_shr_u16(bits, from - to) : v_shl16(bits, to - from);
}

INLINE void strip_read_nibbles(v128_t q[4], const uint8_t *p, int v, const struct strip_masks *masks) {
  UNROLLED for (int a = 0; a < 2; a++) {
    const v128_t w = v_load(p + 32 * a + 16 * v);
    q[2 * a] = v_and(w, masks->low), q[2 * a + 1] = v_and(v_shr_u16(w, 4), masks->low);
  }
}

INLINE void strip_write_nibbles(uint8_t *p, v128_t q[2][4]) {
  const v128_t low = v_constant(NIBBLES8);
  UNROLLED for (int v = 0; v < 2; v++)
    UNROLLED for (int a = 0; a < 2; a++)
      v_store(p + 32 * a + 16 * v, v_or(v_and(q[v][2 * a], low), v_shl16(v_and(q[v][2 * a + 1], low), 4)));
}

INLINE void strip_read_table(v128_t q[4], const uint8_t *p, int v, const struct strip_masks *masks) {
  strip_read_nibbles(q, p, v, masks);
  UNROLLED for (int i = 0; i < 4; i++) q[i] = v_look_up(masks->table, q[i]);
}

INLINE void strip_read_fives(v128_t q[4], const uint8_t *p, int v, const struct strip_masks *masks) {
  const v128_t tops = v_load(p + 64);
  UNROLLED for (int i = 0; i < 2; i++) {
    const v128_t w = v_load(p + 32 * i + 16 * v);
    q[i] = v_and(w, masks->low);
    q[i + 2] = v_or(v_and(v_shr_u16(w, 5), masks->middle), v_and(strip_shift(tops, 4 * v + 2 * i, 3), masks->high));
  }
}

INLINE void strip_write_fives(uint8_t *p, v128_t q[2][4]) {
  const v128_t low3 = v_constant(SEVENS8), high2 = v_constant(BITS34);
  v128_t tops = v_i32(0);
  UNROLLED for (int v = 0; v < 2; v++)
    UNROLLED for (int i = 0; i < 2; i++) {
      v_store(p + 32 * i + 16 * v, v_or(q[v][i], v_shl16(v_and(q[v][i + 2], low3), 5)));
      tops = v_or(tops, strip_shift(v_and(q[v][i + 2], high2), 3, 4 * v + 2 * i));
    }
  v_store(p + 64, tops);
}

INLINE void strip_read_sixes(v128_t q[4], const uint8_t *p, int v, const struct strip_masks *masks) {
  const v128_t a = v_load(p + 16 * v), b = v_load(p + 32 + 16 * v), c = v_load(p + 64 + 16 * v);
  q[0] = v_and(a, masks->low), q[1] = v_and(b, masks->low), q[2] = v_and(c, masks->low);
  q[3] = v_or(v_and(b, masks->high), v_shr_u16(v_and(c, masks->high), 2));
  q[3] = v_shr_u16(v_or(v_and(a, masks->high), v_shr_u16(q[3], 2)), 2);
}

INLINE void strip_write_sixes(uint8_t *p, v128_t q[2][4]) {
  const v128_t tops = v_constant(TOPS8);
  UNROLLED for (int v = 0; v < 2; v++)
    UNROLLED for (int i = 0; i < 3; i++)
      v_store(p + 32 * i + 16 * v, v_or(q[v][i], v_and(v_shl16(q[v][3], 2 + 2 * i), tops)));
}

INLINE void strip_read_twos(v128_t q[4], const uint8_t *p, int v, const struct strip_masks *masks) {
  const v128_t w = v_load(p + 16 * v);
  UNROLLED for (int i = 0; i < 4; i++) q[i] = v_and(v_shr_u16(w, 2 * i), masks->low);
}

INLINE void strip_write_twos(uint8_t *p, v128_t q[2][4]) {
  const v128_t low = v_constant(PAIRS8);
  UNROLLED for (int v = 0; v < 2; v++) {
    v128_t w = v_i32(0);
    UNROLLED for (int i = 0; i < 4; i++) w = v_or(w, v_shl16(v_and(q[v][i], low), 2 * i));
    v_store(p + 16 * v, w);
  }
}

INLINE void strip_read_threes(v128_t q[4], const uint8_t *p, int v, const struct strip_masks *masks) {
  const v128_t tops = v_load(p + 32);
  strip_read_twos(q, p, v, masks);
  UNROLLED for (int i = 0; i < 4; i++) q[i] = v_or(q[i], v_and(strip_shift(tops, 4 * v + i, 2), masks->high));
}

INLINE void strip_write_threes(uint8_t *p, v128_t q[2][4]) {
  const v128_t top = v_constant(BIT2);
  v128_t tops = v_i32(0);
  UNROLLED for (int v = 0; v < 2; v++)
    UNROLLED for (int i = 0; i < 4; i++) tops = v_or(tops, strip_shift(v_and(q[v][i], top), 2, 4 * v + i));
  strip_write_twos(p, q);
  v_store(p + 32, tops);
}

static const int8_t *const volatile strip_iq4_values = quant_iq4_values;

static const struct strip_form strip_nibbles = {64, NIBBLES8, NIBBLES8, NIBBLES8, 0, strip_read_nibbles,
                                                strip_write_nibbles};
static const struct strip_form strip_fives = {80, FIVES8, BITS34, SEVENS8, 0, strip_read_fives, strip_write_fives};
static const struct strip_form strip_sixes = {96, SIXES8, TOPS8, SIXES8, 0, strip_read_sixes, strip_write_sixes};
static const struct strip_form strip_twos = {32, PAIRS8, PAIRS8, PAIRS8, 0, strip_read_twos, strip_write_twos};
static const struct strip_form strip_threes = {48, PAIRS8, BIT2, PAIRS8, 0, strip_read_threes, strip_write_threes};
static const struct strip_form strip_iq4 = {64, NIBBLES8, NIBBLES8, NIBBLES8, &strip_iq4_values, strip_read_table,
                                            strip_write_nibbles};

/* s[v] += products of n_vectors / 2 strips, `next` bytes apart, with 16 columns of x from q on: four int32 of
 * rows 4v .. 4v + 3. The values' bytes become int16, columns 0,2 and 1,3 of a quad, by one `and` or shift. */
INLINE void strip_dot_i16(const struct strip_form *f, v128_t *s, int n_vectors, const uint8_t *w, size_t next,
                          const int16_t *q, const struct strip_masks *masks, v128_t bytes) {
  UNROLLED for (int v = 0; v < n_vectors; v++) {
    v128_t wv[4];
    f->read(wv, w + v / 2 * next, v % 2, masks);
    UNROLLED for (int i = 0; i < 4; i++) {
      s[v] = v_add32(s[v], v_dot16(v_load_splat(q + 4 * i), v_and(wv[i], bytes)));
      s[v] = v_add32(s[v], v_dot16(v_load_splat(q + 4 * i + 2), v_shr_u16(wv[i], 8)));
    }
  }
}

#if VEC_HAS_RELAXED
/* The same by the int8 dot, in the form of v_add_dot8. */
INLINE void strip_dot_u7(const struct strip_form *f, v128_t *s, int n_vectors, const uint8_t *w, size_t next,
                         const int8_t *q, const struct strip_masks *masks) {
  const v128_t x[4] = {v_load_splat(q), v_load_splat(q + 4), v_load_splat(q + 8), v_load_splat(q + 12)};
  UNROLLED for (int v = 0; v < n_vectors; v++) {
    v128_t wv[4];
    f->read(wv, w + v / 2 * next, v % 2, masks);
    UNROLLED for (int i = 0; i < 4; i++) s[v] = v_add_dot8(s[v], x[i], wv[i]);
  }
}
#endif

/* 16 columns of row-of-file bytes, one value each, of 8 rows, to a strip. */
INLINE void strip_pack(const struct strip_form *f, uint8_t *strip, const v128_t values[8]) {
  v128_t q[2][4];
  UNROLLED for (int v = 0; v < 2; v++) {
    UNROLLED for (int i = 0; i < 4; i++) q[v][i] = values[4 * v + i];
    v_transpose(q[v]);
  }
  f->write(strip, q);
}

/* One row's 16 values. */
INLINE void strip_row(const struct strip_form *f, const uint8_t *strip, uint32_t r, uint8_t values[16]) {
  const struct strip_masks masks = strip_masks(f);
  v128_t q[2][4];
  f->read(q[0], strip, 0, &masks);
  f->read(q[1], strip, 1, &masks);
  for (uint32_t i = 0; i < 4; i++) copy_bytes(values + 4 * i, (const uint8_t *)&q[r / 4][i] + 4 * (r % 4), 4);
}
