/* error.c: the sentence of the last error and its formatter. */
#include "error.h"

#include <stdarg.h>

static char sentence[512];

struct writer {
  char *out;
  uint32_t n, size;
};

static void put(struct writer *w, char c) {
  if (w->n + 1 < w->size) w->out[w->n++] = c;
}

static void put_text(struct writer *w, const char *s, uint64_t n) {
  for (uint64_t i = 0; i < n && i < 64; i++) put(w, s[i] >= ' ' && s[i] <= '~' ? s[i] : '?');
  if (n > 64)
    for (int i = 0; i < 3; i++) put(w, '.');
}

static void put_u64(struct writer *w, uint64_t v) {
  char digits[20];
  int n = 0;
  do digits[n++] = (char)('0' + v % 10);
  while (v /= 10);
  while (n) put(w, digits[--n]);
}

static void put_double(struct writer *w, double v) {
  if (v != v) {
    put_text(w, "NaN", 3);
    return;
  }
  if (v < 0) put(w, '-'), v = -v;
  if (v >= 0x1p63) {
    put_text(w, "huge", 4);
    return;
  }
  uint64_t whole = (uint64_t)v, rest = (uint64_t)((v - (double)whole) * 1e6 + 0.5);
  if (rest >= 1000000) whole++, rest = 0;
  put_u64(w, whole);
  if (!rest) return;
  put(w, '.');
  for (uint32_t unit = 100000; unit && rest; rest %= unit, unit /= 10) put(w, (char)('0' + rest / unit));
}

static uint32_t format_list(char *out, uint32_t size, const char *format, va_list list) {
  struct writer w = {out, 0, size};
  for (const char *f = format; *f; f++) {
    if (*f != '%') {
      put(&w, *f);
      continue;
    }
    switch (*++f) {
      case 's': {
        const char *s = va_arg(list, const char *);
        while (*s) put(&w, *s++);
        break;
      }
      case 't': {
        const struct text *t = va_arg(list, const struct text *);
        put_text(&w, t->bytes, t->n);
        break;
      }
      case 'u': put_u64(&w, va_arg(list, uint64_t)); break;
      case 'g': put_double(&w, va_arg(list, double)); break;
      default: LM_ASSERT(false);
    }
  }
  out[w.n] = 0;
  return w.n;
}

int error_set(int code, const char *format, ...) {
  va_list list;
  va_start(list, format);
  format_list(sentence, sizeof sentence, format, list);
  va_end(list);
  return code;
}

uint32_t text_format(char *out, uint32_t size, const char *format, ...) {
  va_list list;
  va_start(list, format);
  const uint32_t n = format_list(out, size, format, list);
  va_end(list);
  return n;
}

const char *error_sentence(void) { return sentence; }
void error_clear(void) { sentence[0] = 0; }
