/* sample.h: from logits to the next token. Each sequence has parameters and a generator of its own. */
#pragma once
#include "arena.h"

enum sampler_id {
#define SAMPLER(id, name, preset, least, most) SAMPLER_##id,
#include "sample.def"
#undef SAMPLER
  N_SAMPLERS
};
struct sampler_row {
  const char *name;
  double preset, least, most;
};
extern const struct sampler_row sampler_rows[N_SAMPLERS];

enum { BIAS_MAX = 1024, LAST_MAX = 4096 };

struct bias {
  int32_t token;
  float value;
};

struct sampler {
  double value[N_SAMPLERS];
  uint64_t state; /* of the generator */
  uint32_t n_bias;
  struct bias bias[BIAS_MAX];
};

/* A logit and its token. */
struct candidate {
  float logit;
  int32_t token;
};

/* Working memory for one draw, shared by all sequences. */
struct sample_scratch {
  struct candidate *heap; /* [n_vocab] */
  struct candidate *kept; /* [n_vocab] */
  int32_t *last;          /* [LAST_MAX] */
};

void sampler_reset(struct sampler *s);
void sampler_seed(struct sampler *s, uint64_t seed);
/* LM_ERR_ARGUMENT names the parameter and its range. */
int sampler_set(struct sampler *s, uint32_t id, double value);

void sample_place(struct sample_scratch *z, struct arena *a, uint32_t n_vocab);
/* The next token from logits [n_vocab]; last: the n_last ids the penalties look at (each checked to
 * be in the vocabulary). LM_ERR_LOGITS: a logit is NaN or +inf, or all are -inf. */
int sample(struct sampler *s, struct sample_scratch *z, const float *logits, uint32_t n_vocab, const int32_t *last,
           uint32_t n_last);
