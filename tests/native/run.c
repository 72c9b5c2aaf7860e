/* run.c: the engine as a native program, for perf, gdb and valgrind.
 *   run MODEL [-t THREADS] [-n TOKENS] [-p fast|high] ID...
 * Evaluates the ids as a prompt, prints the greedy ids that follow and the rates. */
#define _GNU_SOURCE
#include <string.h>
#include <time.h>

#include "host.h"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int greedy(void) {
  const float *l = lm_logits(0);
  int best = 0;
  for (int i = 1; i < (int)lm_info(LM_INFO_N_VOCAB); i++)
    if (l[i] > l[best]) best = i;
  return best;
}

int main(int argc, char **argv) {
  struct options o = {0, 0, LM_HIGH, 1, LM_IO_BYTES};
  int n = 32, n_ids = 0, *ids = malloc(sizeof *ids * (size_t)argc);
  const char *path = 0;
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "-t") && i + 1 < argc) o.n_threads = (uint32_t)atoi(argv[++i]);
    else if (!strcmp(argv[i], "-n") && i + 1 < argc) n = atoi(argv[++i]);
    else if (!strcmp(argv[i], "-p") && i + 1 < argc) o.precision = strcmp(argv[++i], "fast") ? LM_HIGH : LM_FAST;
    else if (!path) path = argv[i];
    else ids[n_ids++] = atoi(argv[i]);
  }
  if (!path || !n_ids) {
    fprintf(stderr, "run MODEL [-t THREADS] [-n TOKENS] [-p fast|high] ID...\n");
    return 2;
  }
  size_t bytes;
  uint8_t *file = host_read(path, &bytes);
  CHECK(!host_load(file, bytes, o), "%s", path);
  free(file);
  const int seq = lm_seq();
  struct lm_row *rows = lm_io();
  const double start = now();
  for (int i = 0, batch; i < n_ids; i += batch) {
    batch = n_ids - i < (int)lm_info(LM_INFO_MAX_BATCH) ? n_ids - i : (int)lm_info(LM_INFO_MAX_BATCH);
    for (int j = 0; j < batch; j++) rows[j] = (struct lm_row){ids[i + j], seq};
    CHECK(lm_eval((uint32_t)batch, LM_LAST) == 1, "prompt");
  }
  const double prompt = now();
  for (int i = 0; i < n; i++) {
    const int id = greedy();
    printf("%d%c", id, i + 1 < n ? ' ' : '\n');
    rows[0] = (struct lm_row){id, seq};
    CHECK(lm_eval(1, LM_LAST) == 1, "token %d", i);
  }
  fprintf(stderr, "prompt %.1f tokens/s, then %.1f\n", n_ids / (prompt - start), n / (now() - prompt));
  host_stop();
  free(ids);
  return 0;
}
