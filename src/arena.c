/* arena.c */
#include "arena.h"

#include "platform.h"

/* Under AddressSanitizer a poisoned line stands behind each block. */
#if defined(__SANITIZE_ADDRESS__)
#define LM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LM_ASAN 1
#endif
#endif
#ifdef LM_ASAN
void __asan_poison_memory_region(void const volatile *p, size_t n);
void __asan_unpoison_memory_region(void const volatile *p, size_t n);
enum { RED_ZONE = 64 };
static void poison(void *p, uint64_t n) { __asan_poison_memory_region(p, (size_t)n); }
static void unpoison(void *p, uint64_t n) { __asan_unpoison_memory_region(p, (size_t)n); }
#else
enum { RED_ZONE = 0 };
static void poison(void *p, uint64_t n) { (void)p, (void)n; }
static void unpoison(void *p, uint64_t n) { (void)p, (void)n; }
#endif

void arena_open(struct arena *a) { *a = (struct arena){.base = platform_base()}; }

/* Makes the bytes up to `end` usable. */
static bool reach(struct arena *a, uint64_t end) {
  if (end > platform_limit()) return false;
  return a->counting || end <= platform_size() || platform_grow(end);
}

void *arena_take(struct arena *a, uint64_t n) {
  const uint64_t start = align_up(a->used, 64);
  uint64_t end;
  if (!add_size(start, n, &end) || !add_size(end, RED_ZONE, &end)) return 0;
  if (a->counting) {
    a->used = end; /* past the limit too: the plan tells by how much */
    return a->base + (size_t)(start & SIZE_MAX);
  }
  if (!reach(a, end)) return 0;
  a->used = end;
  unpoison(a->base + start, n);
  if (RED_ZONE) poison(a->base + start + n, RED_ZONE);
  return a->base + start;
}

bool arena_extend(struct arena *a, uint64_t n) {
  uint64_t end;
  if (!add_size(a->used, n, &end) || !reach(a, end)) return false;
  unpoison(a->base + a->used, n);
  a->used = end;
  return true;
}

void arena_cut(struct arena *a, uint64_t used) {
  a->used = used;
}
