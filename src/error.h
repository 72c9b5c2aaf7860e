/* error.h: errors are said once, in full, where they are found. */
#pragma once
#include "base.h"
#include "lm.h"

/* Bytes of a file shown in a sentence: not NUL-terminated. */
struct text {
  const char *bytes;
  uint64_t n;
};

/* Writes a sentence and returns code. Format: %s const char *, %t struct text * (at most 64 bytes,
 * anything but printable ASCII as '?'), %u uint64_t, %g double (six decimals at most). */
int error_set(int code, const char *format, ...);
const char *error_sentence(void);
void error_clear(void);

/* The same formatter into a buffer of the caller; NUL-terminated, cut at size - 1. Returns the
 * length. */
uint32_t text_format(char *out, uint32_t size, const char *format, ...);

static inline struct text text_of(const char *s) { return (struct text){s, __builtin_strlen(s)}; }
static inline bool text_equal(struct text a, struct text b) {
  return a.n == b.n && !__builtin_memcmp(a.bytes, b.bytes, a.n);
}

/* Says what is wrong and leaves the function. */
#define LM_FAIL(code, ...) return error_set(LM_ERR_##code, __VA_ARGS__)
/* Passes an error on; the value of a success is dropped. */
#define LM_TRY(expression) \
  do { \
    const int try_result = (expression); \
    if (try_result < 0) return try_result; \
  } while (0)
