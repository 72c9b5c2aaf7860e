/* host.h: what the native programs share: threads for the team, and a file into the engine. */
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "lm.h"

/* Ends the program with a sentence when a condition does not hold. */
#define CHECK(condition, ...) \
  do { \
    if (!(condition)) { \
      fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
      fprintf(stderr, __VA_ARGS__); \
      fprintf(stderr, " (%s)\n", lm_error()); \
      exit(1); \
    } \
  } while (0)

struct options {
  uint32_t n_ctx, kv_type, precision, n_threads;
  uint32_t step; /* bytes per lm_feed */
};

/* Feeds a whole file through lm_feed, lm_bind and lm_alloc, and starts the workers. Returns the
 * first error or 0. */
int host_load(const uint8_t *file, size_t n, struct options o);
/* Ends the workers of the last host_load. */
void host_stop(void);
/* A file in memory; ends the program when it cannot be read. */
uint8_t *host_read(const char *path, size_t *n);
