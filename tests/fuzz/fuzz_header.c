/* fuzz_header.c: any bytes as a header: read in pieces whose size the first byte gives, indexed, looked
 * up, bound in every way; never allocated. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  if (!n) return 0;
  const size_t step = data[0] ? data[0] : LM_IO_BYTES;
  data++, n--;
  lm_open();
  if (n % 3) lm_file_bytes((double)n);
  int got = LM_MORE;
  for (size_t at = 0; at < n && got == LM_MORE;) {
    const size_t take = n - at < step ? n - at : step;
    fuzz_copy(lm_io(), data + at, take);
    got = lm_feed((uint32_t)take);
    at += take;
  }
  if (got < 0) FUZZ_CHECK(lm_error()[0]);
  if (got != LM_HEADER) return 0;
  for (uint32_t i = 0; lm_meta_at(i); i++) {
    const struct lm_value v = *lm_meta_at(i);
    fuzz_copy(lm_io(), (const void *)(uintptr_t)v.key, (size_t)v.key_length);
    FUZZ_CHECK(lm_meta((uint32_t)v.key_length));
  }
  for (uint32_t i = 0; lm_tensor(i); i++) FUZZ_CHECK(lm_tensor(i)->bytes);
  for (uint32_t precision = LM_FAST; precision <= LM_HIGH; precision++)
    if (lm_bind(precision * 512, precision, precision, 1 + 3 * precision) < 0) FUZZ_CHECK(lm_error()[0]);
  return 0;
}
