/* sample.c: the chain of sample.def over a heap: the vocabulary is never sorted, only as many
 * candidates are taken from the heap as the truncations leave. Ties go to the lower id, so results
 * do not depend on how the heap was built.
 *
 * The generator is PCG-XSH-RR 64/32 (O'Neill 2014): state = state * 6364136223846793005 +
 * 1442695040888963407; output = the xored-shifted state rotated by its top five bits. Seeding: state
 * = 0, step, += seed, step. A draw takes 53 bits of two outputs as a fraction of the total weight. */
#include "sample.h"

#include "error.h"
#include "fmath.h"

const struct sampler_row sampler_rows[N_SAMPLERS] = {
#define SAMPLER(id, name, preset, least, most) {name, preset, least, most},
#include "sample.def"
#undef SAMPLER
};

void sampler_reset(struct sampler *s) {
  for (int i = 0; i < N_SAMPLERS; i++) s->value[i] = sampler_rows[i].preset;
  s->n_bias = 0;
  sampler_seed(s, 0);
}

static uint32_t next_u32(struct sampler *s) {
  const uint64_t state = s->state;
  s->state = state * 6364136223846793005u + 1442695040888963407u;
  const uint32_t xored = (uint32_t)(((state >> 18) ^ state) >> 27), turn = (uint32_t)(state >> 59);
  return xored >> turn | xored << (-turn & 31);
}

void sampler_seed(struct sampler *s, uint64_t seed) {
  s->state = 0;
  next_u32(s);
  s->state += seed;
  next_u32(s);
}

/* In [0, 1). */
static double next_fraction(struct sampler *s) {
  const uint64_t high = next_u32(s) >> 5, low = next_u32(s) >> 6;
  return (double)(high << 26 | low) * 0x1p-53;
}

int sampler_set(struct sampler *s, uint32_t id, double value) {
  if (id >= N_SAMPLERS) LM_FAIL(ARGUMENT, "there is no sampler parameter %u", (uint64_t)id);
  const struct sampler_row *row = &sampler_rows[id];
  if (!(value >= row->least && value <= row->most))
    LM_FAIL(ARGUMENT, "%s is %g, not between %g and %g", row->name, value, row->least, row->most);
  if (id == SAMPLER_TOP_K && value != fmath_floor(value))
    LM_FAIL(ARGUMENT, "%s is %g, no whole number", row->name, value);
  s->value[id] = value;
  return LM_OK;
}

void sample_place(struct sample_scratch *z, struct arena *a, uint32_t n_vocab) {
  z->heap = arena_take(a, (uint64_t)n_vocab * sizeof *z->heap);
  z->kept = arena_take(a, (uint64_t)n_vocab * sizeof *z->kept);
  z->last = arena_take(a, LAST_MAX * sizeof *z->last);
}

/* ---- heap: the best candidate on top ---- */

static bool better(struct candidate a, struct candidate b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

static void heap_sift(struct candidate *heap, uint32_t i, uint32_t n) {
  const struct candidate moving = heap[i];
  for (uint32_t child; (child = 2 * i + 1) < n; i = child) {
    if (child + 1 < n && better(heap[child + 1], heap[child])) child++;
    if (!better(heap[child], moving)) break;
    heap[i] = heap[child];
  }
  heap[i] = moving;
}

static struct candidate take_best(struct candidate *heap, uint32_t *n) {
  const struct candidate best = heap[0];
  heap[0] = heap[--*n];
  if (*n) heap_sift(heap, 0, *n);
  return best;
}

/* ---- the chain ---- */

static void sort_ids(int32_t *ids, uint32_t n) { /* Shell sort: at most LAST_MAX of them */
  for (uint32_t gap = n / 2; gap; gap /= 2)
    for (uint32_t i = gap; i < n; i++) {
      const int32_t id = ids[i];
      uint32_t j = i;
      for (; j >= gap && ids[j - gap] > id; j -= gap) ids[j] = ids[j - gap];
      ids[j] = id;
    }
}

/* Repetition (Keskar et al. 2019): away from zero; frequency and presence: subtracted, by count and
 * once. Each token counts once however often it stands in `last`. */
static void penalise(const struct sampler *s, struct sample_scratch *z, const int32_t *last, uint32_t n_last) {
  const float repeat = (float)s->value[SAMPLER_REPEAT_PENALTY];
  const double frequency = s->value[SAMPLER_FREQUENCY_PENALTY], presence = s->value[SAMPLER_PRESENCE_PENALTY];
  if (repeat == 1 && frequency == 0 && presence == 0) return;
  copy_bytes(z->last, last, n_last * sizeof *last);
  sort_ids(z->last, n_last);
  for (uint32_t i = 0, count; i < n_last; i += count) {
    for (count = 1; i + count < n_last && z->last[i + count] == z->last[i]; count++) {}
    float *logit = &z->heap[z->last[i]].logit;
    *logit = *logit > 0 ? *logit / repeat : *logit * repeat;
    *logit -= (float)(count * frequency + presence);
  }
}

/* Logits with bias and penalties, in order of token. */
static int prepare(const struct sampler *s, struct sample_scratch *z, const float *logits, uint32_t n_vocab,
                   const int32_t *last, uint32_t n_last) {
  for (uint32_t i = 0; i < n_vocab; i++) {
    if (!(logits[i] <= 3.4e38f))
      LM_FAIL(LOGITS, "the logit of token %u is %s", (uint64_t)i, logits[i] != logits[i] ? "NaN" : "infinite");
    z->heap[i] = (struct candidate){logits[i], (int32_t)i};
  }
  for (uint32_t i = 0; i < s->n_bias; i++) z->heap[s->bias[i].token].logit += s->bias[i].value;
  penalise(s, z, last, n_last);
  return LM_OK;
}

static struct candidate best_of(const struct candidate *all, uint32_t n) {
  struct candidate best = all[0];
  for (uint32_t i = 1; i < n; i++)
    if (all[i].logit > best.logit) best = all[i];
  return best;
}

/* Total weight of all candidates relative to the best, at temperature 1. */
static double total_weight(const struct candidate *all, uint32_t n, float best) {
  double total = 0;
  for (uint32_t i = 0; i < n; i++) {
    const float below = all[i].logit - best;
    if (below > -40) total += fmath_exp(below); /* e^-40 times a vocabulary is below 1e-11 */
  }
  return total;
}

/* Takes candidates from the heap, best first, until top-k, top-p or min-p says enough. Returns how
 * many are in z->kept, at least one. */
static uint32_t truncate_heap(const struct sampler *s, struct sample_scratch *z, uint32_t n, float best) {
  const double top_k = s->value[SAMPLER_TOP_K], top_p = s->value[SAMPLER_TOP_P], min_p = s->value[SAMPLER_MIN_P];
  for (uint32_t i = n / 2; i--;) heap_sift(z->heap, i, n);
  const uint32_t most = top_k && top_k < n ? (uint32_t)top_k : n;
  double total = 1; /* top-p is a share of what top-k leaves */
  uint32_t n_kept = 0;
  if (most < n) {
    total = 0;
    while (n_kept < most) {
      z->kept[n_kept] = take_best(z->heap, &n);
      total += fmath_exp(z->kept[n_kept++].logit - best);
    }
  } else if (top_p < 1) total = total_weight(z->heap, n, best);
  const uint32_t taken = n_kept;
  double sum = 0;
  for (n_kept = 0; n_kept < most; n_kept++) {
    const struct candidate c = n_kept < taken ? z->kept[n_kept] : take_best(z->heap, &n);
    const double weight = fmath_exp(c.logit - best);
    /* a weight of 0 is no end: a high temperature still reaches what is far below the best */
    if (n_kept && (weight < min_p || (top_p < 1 && sum >= top_p * total) || c.logit == -__builtin_inff())) break;
    z->kept[n_kept] = c;
    sum += weight;
  }
  return n_kept;
}

int sample(struct sampler *s, struct sample_scratch *z, const float *logits, uint32_t n_vocab, const int32_t *last,
           uint32_t n_last) {
  LM_TRY(prepare(s, z, logits, n_vocab, last, n_last));
  const struct candidate best = best_of(z->heap, n_vocab);
  if (!(best.logit >= -3.4e38f)) LM_FAIL(LOGITS, "no token is left to choose from: every logit is -infinity");
  const double temperature = s->value[SAMPLER_TEMPERATURE];
  if (temperature == 0) return best.token;
  const uint32_t n = truncate_heap(s, z, n_vocab, best.logit);
  double total = 0;
  for (uint32_t i = 0; i < n; i++) total += fmath_exp((z->kept[i].logit - best.logit) / temperature);
  double left = next_fraction(s) * total;
  for (uint32_t i = 0; i + 1 < n; i++) {
    left -= fmath_exp((z->kept[i].logit - best.logit) / temperature);
    if (left < 0) return z->kept[i].token;
  }
  return z->kept[n - 1].token;
}
