/* team.h: the whole threading model. Every worker runs the same program over its own slice of the
 * work, with barriers between steps; nothing can fail inside. Worker 0 is whoever calls lm_eval;
 * the others sit in team_work. With one worker a barrier is nothing. */
#pragma once
#include "base.h"

enum { TEAM_MAX = 64 };

struct slice {
  uint32_t from, to;
};

/* Worker i's share of n_items, in contiguous runs: one stream through memory for each. */
static inline struct slice team_slice(uint32_t n_items, uint32_t i, uint32_t n_workers) {
  const uint64_t n = n_items;
  return (struct slice){(uint32_t)(n * i / n_workers), (uint32_t)(n * (i + 1) / n_workers)};
}

typedef void team_job(void *data, uint32_t i, uint32_t n_workers);

/* How many workers there are, worker 0 included. Before any of them starts. */
void team_open(uint32_t n_workers);
uint32_t team_size(void);
/* Runs job on every worker and returns when all are through. */
void team_run(team_job *job, void *data);
/* Inside a job: no worker goes on before all are here. */
void team_barrier(void);
/* A worker's life: until team_stop. */
void team_work(uint32_t i);
void team_stop(void);
/* A worker has trapped: all that wait for it trap too. */
void team_fail(void);
