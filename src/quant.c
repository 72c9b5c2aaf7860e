/* quant.c: the table of quant.h. */
#include "quant.h"

const struct quant quants[N_QUANTS] = {
#define QUANT(name, id, items, bytes) {#name, id, items, bytes, quant_to_float_##name},
#define QUANT_NAMED(name, id, items, bytes) {#name, id, items, bytes, 0},
#include "quant.def"
#undef QUANT
#undef QUANT_NAMED
};

uint32_t quant_of_gguf(uint32_t gguf_id) {
  uint32_t i = 0;
  while (i < N_QUANTS && quants[i].gguf_id != gguf_id) i++;
  return i;
}
