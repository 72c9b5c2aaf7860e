/* team.h: the whole threading model. Every worker runs the same program, with barriers between steps; what a
 * step has to do is shared out: each worker has a run of its own, and who is through with it helps the others, so
 * that a slow core, or one that other programs want too, holds nobody up for long. Nothing can fail inside. Worker 0
 * is whoever calls lm_eval; the others sit in team_work. With one worker a barrier is nothing. */
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

/* A step's items, as one worker gets them; at most one such loop between two barriers:
 *   for (struct team_share s = {n_items, grain, i, n_workers}; team_take(&s);) ... s.got ... */
struct team_share {
  uint32_t n_items, grain, i, n_workers; /* grain: items that are not worth cutting up */
  uint32_t n_left;                       /* workers whose share has been found empty */
  struct slice got;
};
/* Half of what is left of this worker's share, else of another's; false: nothing is left of any. */
bool team_take(struct team_share *s);

typedef void team_job(void *data, uint32_t i, uint32_t n_workers);

/* How many workers there are, worker 0 included. Before any of them starts. */
void team_open(uint32_t n_workers);
/* How many of them take part from the next job on. With one nobody is woken. */
void team_use(uint32_t n_workers);
/* Runs job on all that take part and returns when they are through. */
void team_run(team_job *job, void *data);
/* Inside a job: no worker goes on before all are here. */
void team_barrier(void);
/* A worker's life: until team_stop. */
void team_work(uint32_t i);
void team_stop(void);
/* A worker has trapped: all that wait for it trap too. */
void team_fail(void);
