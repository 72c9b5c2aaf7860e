/* kquants.h: the loops of the types with superblocks of 256 columns: q2_k .. q6_k, iq4_xs. A sub-block of 16 or
 * 32 columns has an integer scale, and with minima one of these too; the superblock one float for all scales
 * and one for all minima:  w = d * scale * (q - bias) - dmin * min.
 *
 * R8: 8 rows (16 would need more accumulators than V8 has registers): 16 bytes, of which the first four are the
 * f32 that d and dmin are to be multiplied by (half.h), then per 256 columns:
 *    0  d of row r: f16 at 2r; with minima dmin at 16 + 2r
 *       scales: int8 [sub-block][row]; KQUANT_MIN16: minimum << 4 | scale
 *       KQUANT_MIN32: minima: uint8 [pair of sub-blocks][row][2]
 *       16 strips (strips.h)
 *
 * Bits: per sub-block s += f32(integer sum * scale) * dx, per superblock c += s * d, less n * dmin, where n is
 * dm * f32(sum of m * min) or, over sub-blocks of 16, the sum of f32(s16 * min) * dx. */
#pragma once
#include "strips.h"

enum { KQUANT_HEADER = 16 };
enum kquant_min { KQUANT_NO_MIN, KQUANT_MIN16, KQUANT_MIN32 };
struct kquant_form {
  const struct strip_form *strip;
  uint32_t block_bytes; /* of 8 rows x 256 columns */
  uint32_t sub;  /* columns of a sub-block */
  int32_t bias;
  bool centre;   /* pairs of int16 sums hold a sub-block's products less 16 times x alone, which is added again: q5_k */
  enum kquant_min min;
  /* the file */
  uint32_t file_bytes, d_at, dmin_at;
  v128_t (*values)(const uint8_t *block, uint32_t strip); /* columns 16 strip .. + 15, bytes */
  void (*scales)(const uint8_t *block, int8_t *scales, uint8_t *mins); /* one per sub-block */
};

INLINE size_t kquant_group_bytes(const struct kquant_form *f, size_t n_blocks) {
  return KQUANT_HEADER + n_blocks * f->block_bytes;
}
INLINE size_t kquant_scales_off(const struct kquant_form *f) { return f->min ? 32 : 16; }
INLINE size_t kquant_mins_off(const struct kquant_form *f) { return kquant_scales_off(f) + 2048 / f->sub; }
INLINE size_t kquant_strips_off(const struct kquant_form *f) { return f->block_bytes - 16 * f->strip->bytes; }

/* Sums of u7 are two int16 to a row: one dot with the scale in both adds and scales them. */
INLINE bool kquant_pairs(bool u7) { return u7 && !VEC_HAS_DOT; }
/* Or they are int32, and times a scale below 2^24: floats multiply them as exactly, in one step where many x86
 * take two. */
INLINE bool kquant_floats(bool u7) { return u7 && VEC_HAS_DOT; }

/* Of rows 4v .. 4v + 3, in the form that kquant_scaled takes. */
INLINE void kquant_scales(const struct kquant_form *f, bool u7, v128_t scale[2], const uint8_t *p) {
  v128_t s = v_load_i8x8(p);
  if (f->min == KQUANT_MIN16) s = v_shr_u16(v_shl16(s, 12), 12);
  scale[0] = kquant_pairs(u7) ? v_shuffle16(s, 0, 0, 1, 1, 2, 2, 3, 3) : v_low16(s);
  scale[1] = kquant_pairs(u7) ? v_shuffle16(s, 4, 4, 5, 5, 6, 6, 7, 7) : v_high16(s);
  UNROLLED for (int v = 0; v < 2 && kquant_floats(u7); v++) scale[v] = v_from_i32(scale[v]);
}

/* Sums times scale, as floats. start: what they started from. */
INLINE v128_t kquant_scaled(const struct kquant_form *f, bool u7, v128_t sums, v128_t scale, v128_t start) {
  if (kquant_floats(u7)) return v_mul(v_from_i32(sums), scale);
  if (!kquant_pairs(u7)) return v_from_i32(v_mul32(sums, scale));
  const v128_t scaled = v_dot16(sums, scale);
  return v_from_i32(f->centre ? v_sub32(scaled, v_dot16(start, scale)) : scaled);
}

INLINE void kquant_mins16(v128_t min[2], const uint8_t *p) {
  const v128_t m = v_shr_u16(v_load_u8x8(p), 4);
  min[0] = v_low16(m), min[1] = v_high16(m);
}

/* What the sums of sub-block j of x start from: there the bias leaves. int16 lanes may wrap on the way: they end
 * within +-32,512 (16 products of 127 and 16, or 8 of 127 and 32). */
INLINE v128_t kquant_start(const struct kquant_form *f, bool u7, const struct act *x, size_t j) {
  if (kquant_pairs(u7) && f->centre) return v_shl16(v_load_splat(x->b8 + 2 * j), 1);
  if (!f->bias) return v_i32(0);
  if (!kquant_pairs(u7)) return v_i32(-f->bias * (f->sub == 16 ? x->s16[j] : x->s[j]));
  const v128_t start = v_load_splat(x->b32 + 2 * j);
  return f->bias == 32 ? start : v_shr16(start, 3); /* 4 */
}

/* ---- decode */

/* Runs that share what is loaded of x; int16 has too many words of it for the registers. */
INLINE int kquant_at_once(bool u7) { return u7 ? 2 : 1; }

/* n of rows 4v .. 4v + 3 (above) for the superblock at w and superblock b of x. */
INLINE void kquant_minima(const struct kquant_form *f, v128_t n[2], const uint8_t *w, const struct act *x, size_t b) {
  n[0] = n[1] = v_i32(0);
  if (f->min == KQUANT_MIN32) {
    const uint8_t *p = w + kquant_mins_off(f);
    const int16_t *m = x->m + 8 * b;
    ROLLED for (int i = 0; i < 4; i++, p += 16, m += 2) {
      const v128_t mi = v_load_splat(m);
      UNROLLED for (int v = 0; v < 2; v++) n[v] = v_add32(n[v], v_dot16(mi, v_load_u8x8(p + 8 * v)));
    }
    UNROLLED for (int v = 0; v < 2; v++) n[v] = v_mul(v_from_i32(n[v]), v_load_splat(x->dm + b));
  } else {
    const uint8_t *p = w + kquant_scales_off(f);
    ROLLED for (size_t j = 16 * b; j < 16 * b + 16; j++, p += 8) {
      const v128_t sum = v_load_splat(x->s16 + j), dx = v_load_splat(x->d + j / 2);
      v128_t min[2];
      kquant_mins16(min, p);
      UNROLLED for (int v = 0; v < 2; v++) n[v] = v_add(n[v], v_mul(v_from_i32(v_mul32(sum, min[v])), dx));
    }
  }
}

/* Sums of the strips at w and sub-block j of x, times the scales at p; of n runs, `run` bytes apart. */
INLINE void kquant_dot(const struct kquant_form *f, bool u7, const int n, v128_t *s, const uint8_t *w, const uint8_t *p,
                       size_t run, const struct act *x, size_t j, const struct strip_masks *masks, v128_t bytes) {
  const v128_t start = kquant_start(f, u7, x, j);
  UNROLLED for (int v = 0; v < 2 * n; v++) s[v] = start;
  const size_t k = f->sub * j;
  ROLLED for (uint32_t i = 0; i < f->sub; i += STRIP_COLS, w += f->strip->bytes) {
#if VEC_HAS_RELAXED
    if (u7) {
      strip_dot_u7(f->strip, s, 2 * n, w, run, x->q + k + i, masks);
      continue;
    }
#endif
    strip_dot_i16(f->strip, s, 2 * n, w, run, x->q16 + k + i, masks, bytes);
  }
  UNROLLED for (int i = 0; i < n; i++) {
    v128_t scale[2];
    kquant_scales(f, u7, scale, p + i * run);
    UNROLLED for (int v = 0; v < 2; v++) s[2 * i + v] = kquant_scaled(f, u7, s[2 * i + v], scale[v], start);
  }
}

/* c[i] += one superblock of each of n runs times superblock b of x. unit: of the groups' headers. */
INLINE void kquant_block(const struct kquant_form *f, bool u7, const int n, v128_t (*c)[2], const uint8_t *w, size_t run,
                         const struct act *x, size_t b, const struct strip_masks *masks, v128_t f16_bits,
                         const v128_t *unit, v128_t bytes) {
  const size_t n_subs = 256 / f->sub;
  const uint8_t *strips = w + kquant_strips_off(f), *scales = w + kquant_scales_off(f);
  v128_t s[4];
  UNROLLED for (int v = 0; v < 2 * n; v++) s[v] = v_i32(0);
  ROLLED for (size_t j = n_subs * b; j < n_subs * (b + 1); j++, scales += 8) {
    v128_t sums[4];
    kquant_dot(f, u7, n, sums, strips, scales, run, x, j, masks, bytes);
    strips += f->sub / STRIP_COLS * f->strip->bytes;
    const v128_t dx = v_load_splat(x->d + j * f->sub / 32);
    UNROLLED for (int v = 0; v < 2 * n; v++) s[v] = v_add(s[v], v_mul(sums[v], dx));
  }
  UNROLLED for (int i = 0; i < n; i++) {
    const uint8_t *at = w + i * run;
    v128_t min[2];
    if (f->min) kquant_minima(f, min, at, x, b);
    UNROLLED for (int v = 0; v < 2; v++) {
      v128_t part = v_mul(s[2 * i + v], v_load_f16(at + 8 * v, f16_bits, unit[i]));
      if (f->min) part = v_sub(part, v_mul(min[v], v_load_f16(at + 16 + 8 * v, f16_bits, unit[i])));
      c[i][v] = v_add(c[i][v], part);
    }
  }
}

/* y[8 * n_groups] of token t, in runs as mat_decode. */
INLINE void kquant_decode(const struct kquant_form *f, bool u7, const uint8_t *w, const struct act *x, uint32_t t,
                          float *y, uint32_t n_groups, size_t n_blocks) {
  const v128_t f16_bits = v_constant(F16_BITS), bytes = v_constant(BYTES16);
  const struct strip_masks masks = strip_masks(f->strip);
  while (n_groups) {
    const uint32_t n_runs = LM_MIN(n_groups, (uint32_t)MAT_RUNS), n = n_groups / n_runs;
    const size_t run = n * kquant_group_bytes(f, n_blocks);
    for (uint32_t g = 0; g < n; g++, y += 8) {
      v128_t c[MAT_RUNS][2], unit[MAT_RUNS];
      UNROLLED for (int i = 0; i < MAT_RUNS; i++) c[i][0] = c[i][1] = v_i32(0);
      for (uint32_t i = 0; i < n_runs; i++) unit[i] = v_load_splat(w + i * run);
      w += KQUANT_HEADER;
      for (size_t b = t * n_blocks; b < (t + 1) * n_blocks; b++, w += f->block_bytes) {
        const int at_once = kquant_at_once(u7);
        uint32_t i = 0;
        ROLLED for (; i + at_once <= n_runs; i += at_once)
          kquant_block(f, u7, at_once, c + i, w + i * run, run, x, b, &masks, f16_bits, unit + i, bytes);
        if (i < n_runs) kquant_block(f, u7, 1, c + i, w + i * run, run, x, b, &masks, f16_bits, unit + i, bytes);
      }
      for (uint32_t i = 0; i < n_runs; i++)
        UNROLLED for (int v = 0; v < 2; v++) v_store(y + 8 * (size_t)(i * n) + 4 * v, c[i][v]);
    }
    w += (n_runs - 1) * run, y += 8 * (size_t)((n_runs - 1) * n), n_groups -= n_runs * n;
  }
}

/* ---- prefill: tiles of 8 rows x 4 tokens over a panel of unpacked columns */

struct kquant_panel {
  union {
    int16_t i16[PANEL_COLS / 2][8][2]; /* pair of columns in the order of q16, row: q - bias */
    uint8_t u7[PANEL_COLS / 4][8][4];  /* quad of columns, row: q */
  };
  uint32_t scales[PANEL_COLS / 16][8]; /* as kquant_scales gives them */
  int32_t mins[PANEL_COLS / 16][8];   /* KQUANT_MIN32: of pairs of sub-blocks, int16 */
  float d[PANEL_COLS / 256][8], dmin[PANEL_COLS / 256][8];
};
_Static_assert(sizeof(struct kquant_panel) <= MAT_SCRATCH, "scratch");

INLINE void kquant_unpack_strip(const struct kquant_form *f, bool u7, struct kquant_panel *p, size_t strip,
                                const uint8_t *w, const struct strip_masks *masks) {
  const v128_t bytes = v_constant(BYTES16), bias = v_i32(f->bias * 0x10001);
  UNROLLED for (int v = 0; v < 2; v++) {
    v128_t q[4];
    f->strip->read(q, w, v, masks);
    UNROLLED for (int i = 0; i < 4; i++) {
      if (u7) {
        v_store(p->u7[4 * strip + i][4 * v], q[i]);
      } else {
        v_store(p->i16[8 * strip + 2 * i][4 * v], v_sub16(v_and(q[i], bytes), bias));
        v_store(p->i16[8 * strip + 2 * i + 1][4 * v], v_sub16(v_shr_u16(q[i], 8), bias));
      }
    }
  }
}

/* n superblocks from k on of a group. */
INLINE void kquant_unpack(const struct kquant_form *f, bool u7, struct kquant_panel *p, const uint8_t *group, size_t k,
                          size_t n) {
  const v128_t f16_bits = v_constant(F16_BITS), unit = v_load_splat(group);
  const uint8_t *w = group + KQUANT_HEADER + k * f->block_bytes;
  const struct strip_masks masks = strip_masks(f->strip);
  const size_t n_subs = 256 / f->sub;
  for (size_t b = 0; b < n; b++, w += f->block_bytes) {
    ROLLED for (size_t i = 0; i < 16; i++)
      kquant_unpack_strip(f, u7, p, 16 * b + i, w + kquant_strips_off(f) + i * f->strip->bytes, &masks);
    ROLLED for (size_t j = 0; j < n_subs; j++) {
      const uint8_t *at = w + kquant_scales_off(f) + 8 * j;
      v128_t scale[2], min[2];
      kquant_scales(f, u7, scale, at);
      kquant_mins16(min, at);
      UNROLLED for (int v = 0; v < 2; v++) {
        v_store(p->scales[n_subs * b + j] + 4 * v, scale[v]);
        if (f->min == KQUANT_MIN16) v_store(p->mins[n_subs * b + j] + 4 * v, min[v]);
      }
    }
    if (f->min == KQUANT_MIN32) {
      ROLLED for (size_t i = 0; i < 8; i++)
        v_store(p->mins[4 * b + i / 2] + i % 2 * 4, v_load_u8x8(w + kquant_mins_off(f) + 8 * i));
    }
    UNROLLED for (int v = 0; v < 2; v++) {
      v_store(p->d[b] + 4 * v, v_load_f16(w + 8 * v, f16_bits, unit));
      if (f->min) v_store(p->dmin[b] + 4 * v, v_load_f16(w + 16 + 8 * v, f16_bits, unit));
    }
  }
}

/* s[2i], s[2i + 1]: token i's rows 0..3 and 4..7, n columns from w and q on; tokens are `stride` apart. An index
 * beside w, not a moving q: LLVM keeps one pointer per token and adds nothing to it (q6_k 77 -> 83 GOPS). */
INLINE void kquant_dot_tile_i16(v128_t s[8], const int16_t *w, const int16_t *q, size_t stride, size_t n) {
  ROLLED for (size_t k = 0; k < n; k += 2, w += 16) {
    const v128_t w0 = v_load(w), w1 = v_load(w + 8);
    UNROLLED for (int i = 0; i < 4; i++) {
      const v128_t xi = v_load_splat(q + i * stride + k);
      s[2 * i] = v_add32(s[2 * i], v_dot16(xi, w0));
      s[2 * i + 1] = v_add32(s[2 * i + 1], v_dot16(xi, w1));
    }
  }
}

#if VEC_HAS_RELAXED
INLINE void kquant_dot_tile_u7(v128_t s[8], const uint8_t *w, const int8_t *q, size_t stride, size_t n) {
  ROLLED for (size_t k = 0; k < n; k += 4, w += 32) {
    const v128_t w0 = v_load(w), w1 = v_load(w + 16);
    UNROLLED for (int i = 0; i < 4; i++) {
      const v128_t xi = v_load_splat(q + i * stride + k);
      s[2 * i] = v_add_dot8(s[2 * i], xi, w0);
      s[2 * i + 1] = v_add_dot8(s[2 * i + 1], xi, w1);
    }
  }
}
#endif

/* s: as above, times the scale, as floats: sub-block j of the panel and j0 of x. */
INLINE void kquant_dot_tile(const struct kquant_form *f, bool u7, v128_t s[8], const struct kquant_panel *p, size_t j,
                            const struct act *x, size_t j0, size_t n_cols) {
  UNROLLED for (int i = 0; i < 8; i++) s[i] = u7 ? kquant_start(f, u7, x, j0 + i / 2 * n_cols / f->sub) : v_i32(0);
#if VEC_HAS_RELAXED
  if (u7) kquant_dot_tile_u7(s, p->u7[f->sub * j / 4][0], x->q + f->sub * j0, n_cols, f->sub);
#endif
  if (!u7) {
    kquant_dot_tile_i16(s, p->i16[f->sub * j / 2][0], x->q16 + f->sub * j0, n_cols, f->sub);
  }
  UNROLLED for (int i = 0; i < 8; i++) {
    const v128_t start = u7 ? kquant_start(f, u7, x, j0 + i / 2 * n_cols / f->sub) : v_i32(0);
    s[i] = kquant_scaled(f, u7, s[i], v_load(p->scales[j] + i % 2 * 4), start);
  }
}

/* n of all 8 sums, for superblock b of the panel and b0 of x. */
INLINE void kquant_minima_tile(const struct kquant_form *f, v128_t n[8], const struct kquant_panel *p, size_t b,
                               const struct act *x, size_t b0, size_t n_blocks) {
  UNROLLED for (int i = 0; i < 8; i++) n[i] = v_i32(0);
  if (f->min == KQUANT_MIN32) {
    ROLLED for (size_t j = 0; j < 4; j++)
      UNROLLED for (int i = 0; i < 8; i++) {
        const v128_t m = v_load_splat(x->m + 8 * (b0 + i / 2 * n_blocks) + 2 * j);
        n[i] = v_add32(n[i], v_dot16(m, v_load(p->mins[4 * b + j] + i % 2 * 4)));
      }
    UNROLLED for (int i = 0; i < 8; i++) n[i] = v_mul(v_from_i32(n[i]), v_load_splat(x->dm + b0 + i / 2 * n_blocks));
  } else {
    ROLLED for (size_t j = 0; j < 16; j++)
      UNROLLED for (int i = 0; i < 8; i++) {
        const size_t at = 16 * (b0 + i / 2 * n_blocks) + j;
        const v128_t product = v_mul32(v_load_splat(x->s16 + at), v_load(p->mins[16 * b + j] + i % 2 * 4));
        n[i] = v_add(n[i], v_mul(v_from_i32(product), v_load_splat(x->d + at / 2)));
      }
  }
}

/* n superblocks of the panel against tokens t .. t + 3 from superblock k on; y: their sums so far. */
INLINE void kquant_tile(const struct kquant_form *f, bool u7, const struct kquant_panel *p, const struct act *x,
                        uint32_t t, size_t n_blocks, size_t k, size_t n, float *y, size_t y_stride) {
  const size_t n_subs = 256 / f->sub;
  for (size_t b = 0; b < n; b++) {
    const size_t b0 = t * n_blocks + k + b;
    v128_t c[8];
    UNROLLED for (int i = 0; i < 8; i++) c[i] = v_i32(0);
    ROLLED for (size_t j = 0; j < n_subs; j++) {
      v128_t s[8];
      kquant_dot_tile(f, u7, s, p, n_subs * b + j, x, n_subs * b0 + j, 256 * n_blocks);
      UNROLLED for (int i = 0; i < 4; i++) {
        const v128_t dx = v_load_splat(x->d + 8 * (b0 + i * n_blocks) + j * f->sub / 32);
        c[2 * i] = v_add(c[2 * i], v_mul(s[2 * i], dx));
        c[2 * i + 1] = v_add(c[2 * i + 1], v_mul(s[2 * i + 1], dx));
      }
    }
    v128_t m[8];
    if (f->min) kquant_minima_tile(f, m, p, b, x, b0, n_blocks);
    UNROLLED for (int i = 0; i < 8; i++) {
      float *to = y + i / 2 * y_stride + i % 2 * 4;
      v128_t part = v_mul(c[i], v_load(p->d[b] + i % 2 * 4));
      if (f->min) part = v_sub(part, v_mul(m[i], v_load(p->dmin[b] + i % 2 * 4)));
      v_store(to, v_add(k + b ? v_load(to) : v_i32(0), part));
    }
  }
}

/* mat of struct mat_kernels: four tokens by tiles, what is left by decode. */
INLINE void kquant_mat(const struct kquant_form *f, bool u7, const uint8_t *w, const struct act *x, float *y,
                       size_t y_stride, uint32_t n_groups, uint32_t n_cols, uint32_t n_tokens, struct kquant_panel *p) {
  const size_t n_blocks = n_cols / 256;
  const uint32_t whole = n_tokens & ~3u;
  for (uint32_t g = 0; whole && g < n_groups; g++)
    for (size_t k = 0; k < n_blocks; k += PANEL_COLS / 256) {
      const size_t n = LM_MIN(n_blocks - k, PANEL_COLS / 256);
      kquant_unpack(f, u7, p, w + g * kquant_group_bytes(f, n_blocks), k, n);
      for (uint32_t t = 0; t < whole; t += 4)
        kquant_tile(f, u7, p, x, t, n_blocks, k, n, y + t * y_stride + 8 * (size_t)g, y_stride);
    }
  const size_t group_bytes = kquant_group_bytes(f, n_blocks);
  const uint32_t slice = mat_slice(n_groups, group_bytes, n_tokens - whole);
  for (uint32_t g = 0; g < n_groups; g += slice)
    for (uint32_t t = whole; t < n_tokens; t++)
      kquant_decode(f, u7, w + g * group_bytes, x, t, y + t * y_stride + 8 * (size_t)g, LM_MIN(slice, n_groups - g),
                    n_blocks);
}
