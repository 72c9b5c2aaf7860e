/* load.c: loads files and runs what loads, under sanitizers; says for each what it came to.
 *   load FILE...    prints "NAME CODE" a file: 0, or the number of the error */
#include <string.h>

#include "host.h"

/* A prompt and one more token: what loads must also run. */
static int run(void) {
  const int seq = lm_seq();
  struct lm_row *rows = lm_io();
  for (int32_t i = 0; i < 4; i++) rows[i] = (struct lm_row){i, seq};
  const int got = lm_eval(4, LM_LAST);
  if (got < 0) return got;
  rows[0] = (struct lm_row){1, seq};
  return lm_eval(1, LM_LAST) < 0 ? -1 : 0;
}

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    size_t n;
    uint8_t *bytes = host_read(argv[i], &n);
    /* steps of 1 byte to a whole window */
    const struct options o = {0, 0, LM_HIGH, 1, i % 2 ? LM_IO_BYTES : 1 + (uint32_t)i % 97};
    int got = host_load(bytes, n, o);
    if (!got) got = run();
    printf("%s %d\n", strrchr(argv[i], '/') + 1, got);
    host_stop();
    free(bytes);
  }
  return 0;
}
