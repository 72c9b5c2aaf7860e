/* platform.c: platform.h on WebAssembly. */
#include "../src/platform.h"

extern uint8_t __heap_base; /* the linker's: first byte behind stack and data */

enum { PAGE = 65536 };

/* What memory.grow has told, never memory.size: V8 tells other threads late (docs/architecture.md). */
static uint64_t n_pages;

static uint64_t first(void) { return ((uint64_t)(uintptr_t)&__heap_base + 63) / 64 * 64; }

uint8_t *platform_base(void) {
  n_pages = __builtin_wasm_memory_grow(0, 0);
  return (uint8_t *)(uintptr_t)first();
}

uint64_t platform_before(void) { return first(); }
uint64_t platform_size(void) { return n_pages * PAGE - first(); }

/* What an address can name, or V8 gives to one memory of 64-bit addresses; a page less, so that no sum
 * of addresses wraps. The Makefile's --max-memory. */
#ifdef __wasm64__
#define MOST ((uint64_t)1 << 34)
#else
#define MOST ((uint64_t)1 << 32)
#endif
uint64_t platform_limit(void) { return MOST - PAGE - first(); }

bool platform_grow(uint64_t n_bytes) {
  const uint64_t wanted = (first() + n_bytes + PAGE - 1) / PAGE;
  if (wanted <= n_pages) return true;
  const size_t before = __builtin_wasm_memory_grow(0, (size_t)(wanted - n_pages));
  if (before == (size_t)-1) return false;
  n_pages = wanted;
  return true;
}

#ifdef __wasm_atomics__
void platform_wait(uint32_t *p, uint32_t value, int64_t ns) {
  __builtin_wasm_memory_atomic_wait32((int *)p, (int)value, ns);
}

void platform_wake(uint32_t *p) { __builtin_wasm_memory_atomic_notify((int *)p, 0x7fffffff); }

void platform_sync(void) {
  static volatile size_t nothing; /* volatile: or an optimiser may make memory.size of the grow */
  __builtin_wasm_memory_grow(0, nothing);
}
#else
void platform_wait(uint32_t *p, uint32_t value, int64_t ns) { (void)p, (void)value, (void)ns; }
void platform_wake(uint32_t *p) { (void)p; }
void platform_sync(void) {}
#endif

void platform_pause(void) {}
