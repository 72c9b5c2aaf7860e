/* model_rope.c: rotary frequencies: one per pair of dimensions, theta^(-2i / rope_dim) radians per
 * position, scaled for contexts longer than the trained one. Sines are made per token, so no table
 * grows with the context. */
#include "fmath.h"
#include "model_parts.h"

const char *const rope_scaling_names[N_ROPE_SCALINGS] = {
    [SCALE_NONE] = "none", [SCALE_LINEAR] = "linear", [SCALE_YARN] = "yarn", [SCALE_LLAMA3] = "llama3",
    [SCALE_LONGROPE] = "longrope", [SCALE_FACTORS] = "factors"};

static bool has_tensor(const struct gguf *g, const char *name) { return gguf_find_tensor(g, text_of(name)); }

static struct rope_scaling unscaled(uint32_t original_context) {
  return (struct rope_scaling){SCALE_NONE, 1, 1, 1, 32, 1, 1, 4, original_context};
}

static int read_scaling(const struct model *m, const struct gguf *g, struct rope_scaling *s) {
  *s = unscaled(m->n_ctx_train);
  const struct key k = key_of(m, "rope.scaling.type");
  struct text type = text_of("none");
  LM_TRY(gguf_text(g, k.name, &type));
  int given = optional_f32(m, g, "rope.scaling.factor", &s->factor);
  if (!given) given = optional_f32(m, g, "rope.scale_linear", &s->factor);
  if (given < 0) return given;
  if (text_equal(type, text_of("yarn"))) s->kind = SCALE_YARN;
  else if (text_equal(type, text_of("llama3"))) s->kind = SCALE_LLAMA3;
  else if (text_equal(type, text_of("linear"))) s->kind = SCALE_LINEAR;
  else if (text_equal(type, text_of("longrope"))) s->kind = SCALE_LONGROPE;
  else if (!text_equal(type, text_of("none")))
    LM_FAIL(UNSUPPORTED, "key %s is \"%t\"; none, linear, yarn, llama3 and longrope are supported", k.name, &type);
  else if (given && !gguf_find(g, text_of(k.name))) s->kind = SCALE_LINEAR; /* older files: a factor alone */
  else if (has_tensor(g, "rope_factors_short.weight") || has_tensor(g, "rope_factors_long.weight"))
    s->kind = SCALE_LONGROPE;
  else if (has_tensor(g, "rope_freqs.weight")) s->kind = SCALE_FACTORS;
  if (!(s->factor > 0 && s->factor < 1e6f)) LM_FAIL(FORMAT, "the rope scaling factor is %g", (double)s->factor);
  LM_TRY(optional_u32(m, g, "rope.scaling.original_context_length", &s->original_context));
  LM_TRY(optional_f32(m, g, "rope.scaling.attn_factor", &s->magnitude));
  LM_TRY(optional_f32(m, g, "rope.scaling.yarn_ext_factor", &s->extrapolation));
  LM_TRY(optional_f32(m, g, "rope.scaling.yarn_attn_factor", &s->magnitude));
  LM_TRY(optional_f32(m, g, "rope.scaling.yarn_beta_fast", &s->beta_fast));
  LM_TRY(optional_f32(m, g, "rope.scaling.yarn_beta_slow", &s->beta_slow));
  LM_TRY(optional_f32(m, g, "rope.scaling.low_freq_factor", &s->low_turns));
  LM_TRY(optional_f32(m, g, "rope.scaling.high_freq_factor", &s->high_turns));
  if (!s->original_context || !(s->beta_fast > 0) || !(s->beta_slow > 0) || !(s->high_turns > s->low_turns))
    LM_FAIL(FORMAT, "the keys %s.rope.scaling.* contradict each other", m->arch->name);
  return LM_OK;
}

/* A scaling given by the user replaces all that the file says of one, tensors of factors included; a number
 * given alone must be one that the file's scaling uses. */
static int override_scaling(const struct model *m, struct rope_scaling *s) {
  const double *user = m->overrides;
  const bool factor = overridden(m, OVERRIDE_ROPE_FACTOR), original = overridden(m, OVERRIDE_ROPE_ORIGINAL_CONTEXT);
  if (overridden(m, OVERRIDE_ROPE_SCALING)) {
    *s = unscaled(s->original_context);
    s->kind = (enum rope_scaling_kind)user[OVERRIDE_ROPE_SCALING];
    if (s->kind && !factor)
      LM_FAIL(ARGUMENT, "rope.scaling is %s, which needs rope.factor", rope_scaling_names[s->kind]);
  }
  const bool has_factor = s->kind == SCALE_LINEAR || s->kind == SCALE_YARN || s->kind == SCALE_LLAMA3;
  if (factor && !has_factor)
    LM_FAIL(ARGUMENT, "rope.factor is %g, but the rope scaling is %s, which has no factor", user[OVERRIDE_ROPE_FACTOR],
            rope_scaling_names[s->kind]);
  if (original && (s->kind == SCALE_NONE || s->kind == SCALE_LINEAR || s->kind == SCALE_FACTORS))
    LM_FAIL(ARGUMENT, "rope.originalContext is %g, but the rope scaling is %s, which has no use for it",
            user[OVERRIDE_ROPE_ORIGINAL_CONTEXT], rope_scaling_names[s->kind]);
  if (factor) s->factor = (float)user[OVERRIDE_ROPE_FACTOR];
  if (original) s->original_context = (uint32_t)user[OVERRIDE_ROPE_ORIGINAL_CONTEXT];
  return LM_OK;
}

#define TWO_PI 6.283185307179586

/* The dimension whose pair turns `turns` times within the original context. */
static double yarn_dimension(const struct model *m, const struct rope_scaling *s, double turns) {
  return m->rope_dim * fmath_log(s->original_context / (turns * TWO_PI)) / (2 * fmath_log(m->rope_theta));
}

/* YaRN (Peng et al. 2023): dimensions that turn more than beta_fast times within the original
 * context keep their frequency, those below beta_slow turns are interpolated, with a ramp between;
 * the magnitude grows by 0.1 log(factor). */
static double scale_frequency(const struct model *m, const struct rope_scaling *s, uint32_t i, double freq) {
  switch (s->kind) {
    case SCALE_LINEAR: return freq / s->factor;
    case SCALE_YARN: {
      const double low = LM_MAX(0, fmath_floor(yarn_dimension(m, s, s->beta_fast)));
      const double high = LM_MIN(m->rope_dim - 1, fmath_ceil(yarn_dimension(m, s, s->beta_slow)));
      const double ramp = (i - low) / LM_MAX(0.001, high - low);
      const double keep = (1 - LM_MIN(1, LM_MAX(0, ramp))) * s->extrapolation;
      return freq / s->factor * (1 - keep) + freq * keep;
    }
    case SCALE_LLAMA3: {
      const double turns = s->original_context * freq / TWO_PI;
      if (turns > s->high_turns) return freq;
      if (turns < s->low_turns) return freq / s->factor;
      const double smooth = (turns - s->low_turns) / (s->high_turns - s->low_turns);
      return (1 - smooth) * freq / s->factor + smooth * freq;
    }
    default: return freq;
  }
}

/* At most a million positions times this fit the range of fmath_sincos. */
static int check_frequency(double freq, uint64_t i) {
  if (!(freq >= 0 && freq <= 1024))
    LM_FAIL(FORMAT, "rotary frequency %u is %g radians per position, not between 0 and 1024", i, freq);
  return LM_OK;
}

static int take_freqs(struct model *m, struct arena *a, const struct rope_scaling *s, float theta, struct rope *r) {
  r->freqs = arena_take(a, m->rope_dim / 2 * sizeof *r->freqs);
  if (!r->freqs) LM_FAIL(MEMORY, "no memory for %u rotary frequencies", (uint64_t)m->rope_dim / 2);
  for (uint32_t i = 0; i < m->rope_dim / 2; i++) {
    r->freqs[i] = scale_frequency(m, s, i, fmath_pow(theta, -2.0 * i / m->rope_dim));
    LM_TRY(check_frequency(r->freqs[i], i));
  }
  r->magnitude = s->magnitude;
  if (s->kind == SCALE_YARN && s->extrapolation != 0) r->magnitude *= (float)(1 + 0.1 * fmath_log(s->factor));
  return LM_OK;
}

int model_scale_rope(struct model *m) {
  for (uint32_t i = 0; m->rope_factors && i < m->rope_dim / 2; i++) {
    const double factor = (double)m->rope_factors[i];
    m->ropes[0].freqs[i] /= factor;
    if (!(factor > 0) || check_frequency(m->ropes[0].freqs[i], i))
      LM_FAIL(FORMAT, "factor %u of tensor %s is %g: no frequency that can be turned by", (uint64_t)i,
              m->rope_factors_name, factor);
  }
  return LM_OK;
}

static int check_theta(const struct model *m, const char *name, float theta) {
  if (!(theta > 1 && theta < 1e30f))
    LM_FAIL(FORMAT, "key %s.%s is %g: it must be a number above 1", m->arch->name, name, (double)theta);
  return LM_OK;
}

int model_read_rope(struct model *m, const struct gguf *g, struct arena *a) {
  m->n_ropes = m->arch->rope == ROPE_NONE ? 0 : m->window ? 2 : 1;
  m->rope_dim = m->head_dim;
  for (uint32_t i = 0; i < N_OVERRIDES && !m->n_ropes; i++)
    if (overridden(m, i))
      LM_FAIL(ARGUMENT, "%s is given, but architecture %s has no rotary positions", override_rows[i].name,
              m->arch->name);
  if (!m->n_ropes) return LM_OK;
  LM_TRY(optional_u32(m, g, "rope.dimension_count", &m->rope_dim));
  if (!m->rope_dim || m->rope_dim % 2 || m->rope_dim > m->head_dim)
    LM_FAIL(FORMAT, "key %s.rope.dimension_count is %u: it must be even and at most the head size %u", m->arch->name,
            (uint64_t)m->rope_dim, (uint64_t)m->head_dim);
  m->rope_theta = 10000;
  LM_TRY(optional_f32(m, g, "rope.freq_base", &m->rope_theta));
  LM_TRY(check_theta(m, "rope.freq_base", m->rope_theta));
  if (overridden(m, OVERRIDE_ROPE_BASE)) m->rope_theta = (float)m->overrides[OVERRIDE_ROPE_BASE];
  LM_TRY(read_scaling(m, g, &m->scaling));
  LM_TRY(override_scaling(m, &m->scaling));
  LM_TRY(take_freqs(m, a, &m->scaling, m->rope_theta, &m->ropes[0]));
  if (m->n_ropes == 1) return LM_OK;
  const struct rope_scaling none = {.kind = SCALE_NONE, .magnitude = 1};
  float local_theta = m->arch->local_theta != 0 ? m->arch->local_theta : m->rope_theta;
  LM_TRY(optional_f32(m, g, "rope.freq_base_swa", &local_theta));
  LM_TRY(check_theta(m, "rope.freq_base_swa", local_theta));
  return take_freqs(m, a, &none, local_theta, &m->ropes[1]);
}
