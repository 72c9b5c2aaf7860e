/* check_kernels.c: kernels_simd and kernels_ref against float64, at the shapes where packed kernels
 * break: rows % 16 = 0, 1, 15; K = 32 and 8192; 1, 2, 3 and 65 tokens; weights of -128; subnormal
 * scales; activations of 1e5; NaN behind the end of a cache.
 *
 * Freestanding, so that one source is the native check over the emulated vectors (make check) and a
 * wasm module over the real ones (tests/kernels.test.js). Each case is a line "name hash", the hash
 * being of the bits that kernels_simd gave: those lines must not differ between the two. A line that
 * starts with "FAIL" is a failure. */
#include "kernel_attention.h"
#include "kernel_elements.h"
#include "kernel_products.h"

/* Runs all; the report, NUL-terminated. */
LM_EXPORT const char *check_kernels(void);
const char *check_kernels(void) {
  heap = check_memory(HEAP_BYTES);
  check_elements();
  check_store();
  check_attention();
  check_products();
  text[text_length] = 0;
  return text;
}

#ifndef __wasm__
int main(int argc, char **argv) {
  (void)argv;
  const char *report = check_kernels();
  if (n_failures || argc > 1) fputs(report, stdout); /* any argument: the hashes too */
  return n_failures > 0;
}
#endif
