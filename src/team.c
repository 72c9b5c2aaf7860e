/* team.c: jobs and barriers of team.h. A wait spins for about 15 us, the length of a phase of a
 * small model, then sleeps: waiting by sleep alone costs 22 us a barrier, spinning without bound
 * starves whoever else needs the core. */
#include "team.h"

#include "platform.h"

static struct {
  uint32_t n_open;  /* workers */
  uint32_t n;       /* that take part in jobs, the first ones */
  team_job *job;
  void *data;
  uint32_t jobs;    /* counts jobs; idle workers wait for it to move */
  uint32_t running; /* workers still inside the job */
  uint32_t arrived; /* at the barrier */
  uint32_t phase;   /* counts barriers */
  uint32_t failed;
  bool stopped;
} team = {.n_open = 1, .n = 1};

/* Items taken so far of each worker's share. */
static struct {
  _Alignas(64) uint32_t n;
} taken[TEAM_MAX];

enum { SPINS = 12000 };
#define FOREVER (-1)
#define LOOK_FOR_FAILURE 50000000 /* ns: how often a wait inside a job looks at `failed` */

static void wait_while(uint32_t *p, uint32_t value, int64_t ns) {
  for (uint32_t i = 0; i < SPINS; i++) {
    if (__atomic_load_n(p, __ATOMIC_ACQUIRE) != value) return;
    platform_pause();
  }
  while (__atomic_load_n(p, __ATOMIC_ACQUIRE) == value) {
    if (__atomic_load_n(&team.failed, __ATOMIC_RELAXED)) __builtin_trap();
    platform_wait(p, value, ns);
  }
}

void team_open(uint32_t n_workers) {
  team.n_open = team.n = n_workers;
  team.jobs = team.running = team.arrived = team.phase = team.failed = 0;
  team.stopped = false;
}

void team_use(uint32_t n_workers) { team.n = n_workers; }

/* Nobody is inside a loop of team_take now. */
static void restore_shares(void) {
  for (uint32_t i = 0; i < team.n; i++) __atomic_store_n(&taken[i].n, 0, __ATOMIC_RELAXED);
}

bool team_take(struct team_share *s) {
  if (s->n_workers == 1) {
    s->got = (struct slice){0, s->n_items};
    return !s->n_left++ && s->n_items;
  }
  for (; s->n_left < s->n_workers; s->n_left++) {
    const uint32_t who = (s->i + s->n_left) % s->n_workers;
    const struct slice share = team_slice(s->n_items, who, s->n_workers);
    const uint32_t n = share.to - share.from;
    uint32_t at = __atomic_load_n(&taken[who].n, __ATOMIC_RELAXED);
    while (at < n) {
      const uint32_t more = LM_MIN(n - at, LM_MAX(s->grain, (n - at) / 2));
      if (!__atomic_compare_exchange_n(&taken[who].n, &at, at + more, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) continue;
      s->got = (struct slice){share.from + at, share.from + at + more};
      return true;
    }
  }
  return false;
}

void team_run(team_job *job, void *data) {
  if (team.n == 1) {
    job(data, 0, 1);
    return;
  }
  team.job = job, team.data = data;
  restore_shares();
  __atomic_store_n(&team.running, team.n_open - 1, __ATOMIC_RELEASE);
  __atomic_add_fetch(&team.jobs, 1, __ATOMIC_RELEASE);
  platform_wake(&team.jobs);
  job(data, 0, team.n);
  for (uint32_t left; (left = __atomic_load_n(&team.running, __ATOMIC_ACQUIRE));)
    wait_while(&team.running, left, LOOK_FOR_FAILURE);
}

void team_barrier(void) {
  if (team.n == 1) return;
  const uint32_t phase = __atomic_load_n(&team.phase, __ATOMIC_ACQUIRE);
  if (__atomic_add_fetch(&team.arrived, 1, __ATOMIC_ACQ_REL) == team.n) {
    __atomic_store_n(&team.arrived, 0, __ATOMIC_RELAXED);
    restore_shares();
    __atomic_add_fetch(&team.phase, 1, __ATOMIC_RELEASE);
    platform_wake(&team.phase);
  } else wait_while(&team.phase, phase, LOOK_FOR_FAILURE);
}

void team_work(uint32_t i) {
  uint32_t seen = 0;
  for (;;) {
    wait_while(&team.jobs, seen, FOREVER);
    seen++;
    if (__atomic_load_n(&team.stopped, __ATOMIC_ACQUIRE)) return;
    platform_sync(); /* worker 0 may have grown memory since; nobody grows it inside a job */
    if (i < team.n) team.job(team.data, i, team.n);
    if (!__atomic_sub_fetch(&team.running, 1, __ATOMIC_ACQ_REL)) platform_wake(&team.running);
  }
}

void team_stop(void) {
  __atomic_store_n(&team.stopped, true, __ATOMIC_RELEASE);
  __atomic_add_fetch(&team.jobs, 1, __ATOMIC_RELEASE);
  platform_wake(&team.jobs);
}

void team_fail(void) {
  __atomic_store_n(&team.failed, 1, __ATOMIC_RELEASE);
}
