/* libc.c: what LLVM may call by name whatever the source says: each is one bulk-memory instruction,
 * but for memcmp and strlen. */
#include <stddef.h>

__attribute__((no_builtin("memcpy"))) void *memcpy(void *restrict to, const void *restrict from, size_t n) {
  __asm__ volatile("local.get %0\nlocal.get %1\nlocal.get %2\nmemory.copy 0, 0" ::"r"(to), "r"(from), "r"(n)
                   : "memory");
  return to;
}

__attribute__((no_builtin("memmove"))) void *memmove(void *to, const void *from, size_t n) {
  __asm__ volatile("local.get %0\nlocal.get %1\nlocal.get %2\nmemory.copy 0, 0" ::"r"(to), "r"(from), "r"(n)
                   : "memory");
  return to;
}

__attribute__((no_builtin("memset"))) void *memset(void *to, int byte, size_t n) {
  __asm__ volatile("local.get %0\nlocal.get %1\nlocal.get %2\nmemory.fill 0" ::"r"(to), "r"(byte), "r"(n) : "memory");
  return to;
}

__attribute__((no_builtin("memcmp"))) int memcmp(const void *a, const void *b, size_t n) {
  const unsigned char *x = a, *y = b;
  for (size_t i = 0; i < n; i++)
    if (x[i] != y[i]) return x[i] - y[i];
  return 0;
}

__attribute__((no_builtin("strlen"))) size_t strlen(const char *s) {
  size_t n = 0;
  while (s[n]) n++;
  return n;
}
