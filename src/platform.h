/* platform.h: what a host must supply: wasm/platform.c in wasm, tests/native/host.c natively.
 *
 * Memory is one range of bytes that starts at platform_base() and only grows at its end. */
#pragma once
#include "base.h"

/* First byte of the arena, 64-byte aligned; and how many bytes of memory lie before it. */
uint8_t *platform_base(void);
uint64_t platform_before(void);
/* Bytes usable from platform_base() on now. */
uint64_t platform_size(void);
/* Makes at least n_bytes from platform_base() on usable; false if that cannot be. New bytes are 0. */
bool platform_grow(uint64_t n_bytes);
/* Most bytes that platform_grow could ever reach. */
uint64_t platform_limit(void);

/* Sleeps while *p == value, until platform_wake(p) or the time is over (ns < 0: for ever). */
void platform_wait(uint32_t *p, uint32_t value, int64_t ns);
void platform_wake(uint32_t *p);
/* Brings this thread's idea of the memory's size up to date after another thread has grown it. */
void platform_sync(void);
/* A short pause of the processor inside a spin loop, if the target has one. */
void platform_pause(void);
