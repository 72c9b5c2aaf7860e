/* quant.h: tensor types as a table. What a block's bytes mean stands in quants/FAMILY.c, once, as
 * to_float; how fast kernels lay the same blocks out is theirs (wasm/kernels). */
#pragma once
#include "base.h"

enum quant_id { /* rows of quant.def, in its order */
#define QUANT(name, id, items, bytes) QUANT_##name,
#define QUANT_NAMED(name, id, items, bytes) QUANT_##name,
#include "quant.def"
#undef QUANT
#undef QUANT_NAMED
  N_QUANTS
};

enum { /* QUANT_BYTES_Q8_0 = 34: bytes of one block in the file */
#define QUANT(name, id, items, bytes) QUANT_BYTES_##name = (bytes),
#define QUANT_NAMED(name, id, items, bytes)
#include "quant.def"
#undef QUANT
#undef QUANT_NAMED
};

struct quant {
  const char *name;
  uint32_t gguf_id;
  uint32_t items; /* weights per block */
  uint32_t bytes; /* bytes per block */
  /* src: blocks as in the file, unaligned; dst: n floats, n % items = 0. 0: known by size only. */
  void (*to_float)(const void *src, float *dst, uint32_t n);
};

extern const struct quant quants[N_QUANTS];

/* Row of the table for a type number of the file; N_QUANTS if there is none. */
uint32_t quant_of_gguf(uint32_t gguf_id);

/* quants/: to_float of each QUANT row. */
#define QUANT(name, id, items, bytes) void quant_to_float_##name(const void *src, float *dst, uint32_t n);
#define QUANT_NAMED(name, id, items, bytes)
#include "quant.def"
#undef QUANT
#undef QUANT_NAMED

/* The types that the KV cache is quantised to, block by block as GGML does. NaN becomes 0. */
void quant_from_float_Q8_0(const float *src, void *dst, uint32_t n);
void quant_from_float_Q4_0(const float *src, void *dst, uint32_t n);

extern const int8_t quant_iq4_values[16]; /* what the 4 bits of IQ4_NL and IQ4_XS mean */
