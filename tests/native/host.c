/* host.c: platform.h on POSIX: the arena is one reserved range of addresses that is made usable as
 * it grows, workers are threads. */
#define _GNU_SOURCE
#include "host.h"

#include <linux/futex.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "platform.h"
#include "team.h"

/* As much as wasm32 has where addresses have 64 bits. */
#define RESERVED (sizeof(void *) == 8 ? (uint64_t)1 << 32 : (uint64_t)1 << 29)
enum { PAGE = 65536 };

static uint8_t *base;
static uint64_t size;

/* A fresh arena for each model: old bytes must not look like zeros. */
uint8_t *platform_base(void) {
  if (!base) {
    base = mmap(0, RESERVED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) abort();
  } else if (mmap(base, RESERVED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != base)
    abort();
  size = 0;
  return base;
}

uint64_t platform_before(void) { return 0; }
uint64_t platform_size(void) { return size; }
uint64_t platform_limit(void) { return RESERVED - PAGE; }

bool platform_grow(uint64_t n_bytes) {
  if (n_bytes > platform_limit()) return false;
  n_bytes = (n_bytes + PAGE - 1) / PAGE * PAGE;
  if (n_bytes <= size) return true;
  if (mprotect(base + size, n_bytes - size, PROT_READ | PROT_WRITE)) return false;
  size = n_bytes;
  return true;
}

void platform_wait(uint32_t *p, uint32_t value, int64_t ns) {
  const struct timespec t = {ns / 1000000000, ns % 1000000000};
  syscall(SYS_futex, p, FUTEX_WAIT_PRIVATE, value, ns < 0 ? 0 : &t, 0, 0);
}

void platform_wake(uint32_t *p) { syscall(SYS_futex, p, FUTEX_WAKE_PRIVATE, 0x7fffffff, 0, 0, 0); }
void platform_sync(void) {}
void platform_pause(void) {}

static pthread_t threads[TEAM_MAX];
static uint32_t n_threads;

static void *work(void *i) {
  lm_work((uint32_t)(uintptr_t)i);
  return 0;
}

int host_load(const uint8_t *file, size_t n, struct options o) {
  lm_open();
  n_threads = 1;
  if (lm_file_bytes((double)n)) return lm_file_bytes((double)n);
  int got = LM_MORE;
  size_t at = 0;
  while (at < n) {
    const size_t step = n - at < o.step ? n - at : o.step;
    memcpy(lm_io(), file + at, step);
    got = lm_feed((uint32_t)step);
    at += step;
    if (got == LM_HEADER) {
      at = (size_t)lm_info(LM_INFO_HEADER_BYTES);
      if ((got = lm_bind(o.n_ctx, o.kv_type, o.precision, o.n_threads)) < 0 || (got = lm_alloc()) < 0) return got;
      got = LM_MORE;
    }
    if (got <= 0) break;
  }
  if (got) return got < 0 ? got : LM_ERR_FORMAT;
  n_threads = o.n_threads;
  for (uint32_t i = 1; i < n_threads; i++)
    if (pthread_create(&threads[i], 0, work, (void *)(uintptr_t)i)) abort();
  return 0;
}

void host_stop(void) {
  if (n_threads > 1) lm_stop();
  for (uint32_t i = 1; i < n_threads; i++) pthread_join(threads[i], 0);
  n_threads = 1;
}

uint8_t *host_read(const char *path, size_t *n) {
  FILE *f = fopen(path, "rb");
  if (!f || fseek(f, 0, SEEK_END)) {
    perror(path);
    exit(1);
  }
  *n = (size_t)ftell(f);
  rewind(f);
  uint8_t *bytes = malloc(*n + 1);
  if (!bytes || fread(bytes, 1, *n, f) != *n) {
    perror(path);
    exit(1);
  }
  fclose(f);
  return bytes;
}
