/* kernel_cases.h: what the cases of check_kernels.c are made of: memory, the report, hashes of bits and
 * random numbers. */
#pragma once
#include "../../src/kernels.h"
#include "../../src/lm.h"

#ifdef __wasm__
static void *check_memory(size_t n_bytes) {
  return (void *)(__builtin_wasm_memory_grow(0, n_bytes / 65536) * 65536);
}
#else
#include <stdio.h>
#include <stdlib.h>
static void *check_memory(size_t n_bytes) { return aligned_alloc(64, n_bytes); }
#endif

enum { HEAP_BYTES = 64 << 20, TEXT_BYTES = 1 << 18, CANARY = 64 };
static uint8_t *heap;
static size_t heap_used;
static char text[TEXT_BYTES];
static size_t text_length;
static int n_failures;

/* 64-byte aligned, filled with NaN of all widths, a canary behind it. */
static void *take(size_t n_bytes) {
  uint8_t *p = heap + heap_used;
  heap_used += (n_bytes + 63) / 64 * 64 + CANARY;
  if (heap_used > HEAP_BYTES) __builtin_trap();
  for (uint8_t *b = p; b < heap + heap_used; b++) *b = 0xff;
  return p;
}

static void say(const char *s) {
  while (*s && text_length < TEXT_BYTES - 1) text[text_length++] = *s++;
}

static void say_number(uint64_t n, unsigned base) {
  char digits[24], *p = digits + sizeof digits;
  *--p = 0;
  do *--p = "0123456789abcdef"[n % base];
  while (n /= base);
  say(p);
}

static const char *case_name;
static uint32_t case_numbers[6];
static uint64_t case_hash;

static void say_case(void) {
  say(case_name);
  for (size_t i = 0; i < LM_COUNT(case_numbers); i++) say(" "), say_number(case_numbers[i], 10);
}

static void start(const char *name, uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t e, uint32_t f) {
  case_name = name, heap_used = 0, case_hash = 0xcbf29ce484222325;
  const uint32_t numbers[] = {a, b, c, d, e, f};
  copy_bytes(case_numbers, numbers, sizeof numbers);
}

static void finish(void) {
  say_case();
  say(" "), say_number(case_hash, 16), say("\n");
}

static void check(bool good, const char *what) {
  if (good) return;
  n_failures++;
  say("FAIL "), say_case(), say(": "), say(what), say("\n");
}

static void hash(const void *data, size_t n_bytes) {
  const uint8_t *p = data;
  for (size_t i = 0; i < n_bytes; i++) case_hash = (case_hash ^ p[i]) * 0x100000001b3;
}

static bool same(const void *a, const void *b, size_t n_bytes) {
  const uint8_t *p = a, *q = b;
  while (n_bytes && *p == *q) p++, q++, n_bytes--;
  return n_bytes == 0;
}

static uint32_t seed = 1;
static uint32_t random_u32(void) {
  seed ^= seed << 13, seed ^= seed >> 17, seed ^= seed << 5;
  return seed;
}
static float uniform(void) { return (float)(int32_t)random_u32() * 0x1p-31f; } /* -1 .. 1 */

static double magnitude(double v) { return v < 0 ? -v : v; }
static double root(double v) { return __builtin_sqrt(v); }
