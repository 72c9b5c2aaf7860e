/* model_keys.c: the numbers of a model, from the file's keys and its architecture's row. */
#include "fmath.h"
#include "model_parts.h"

struct key key_of(const struct model *m, const char *name) {
  struct key k;
  text_format(k.name, sizeof k.name, "%s.%s", m->arch->name, name);
  return k;
}

static int required_u32(const struct model *m, const struct gguf *g, const char *name, uint32_t least, uint32_t most,
                        uint32_t *out) {
  const struct key k = key_of(m, name);
  const int got = gguf_u32(g, k.name, out);
  if (got < 0) return got;
  if (!got) LM_FAIL(FORMAT, "key %s is missing", k.name);
  if (*out < least || *out > most)
    LM_FAIL(FORMAT, "key %s is %u, not between %u and %u", k.name, (uint64_t)*out, (uint64_t)least, (uint64_t)most);
  return LM_OK;
}

int optional_u32(const struct model *m, const struct gguf *g, const char *name, uint32_t *out) {
  const struct key k = key_of(m, name);
  return gguf_u32(g, k.name, out);
}

int optional_f32(const struct model *m, const struct gguf *g, const char *name, float *out) {
  const struct key k = key_of(m, name);
  return gguf_f32(g, k.name, out);
}

/* Keys that change the maths in a way that is not there, unless they have the value that says so. */
static const struct {
  const char *name;
  float harmless;
} refused[] = {
    {"attention.causal", true}, {"expert_weights_norm", true}, {"expert_gating_func", 1 /* softmax */},
    {"attention.clamp_kqv", 0}, {"attention.max_alibi_bias", 0}, {"attention.temperature_scale", 0},
    {"expert_shared_count", 0}, {"expert_weights_scale", 1}, {"expert_group_count", 0},
    {"leading_dense_block_count", 0}, {"attention.kv_lora_rank", 0}, {"attention.q_lora_rank", 0},
    {"attention.shared_kv_layers", 0}, {"rope.scaling.yarn_log_multiplier", 0}, {"nextn_predict_layers", 0},
};

static int refuse_unknown_maths(const struct model *m, const struct gguf *g) {
  uint32_t value_length = m->head_dim;
  LM_TRY(optional_u32(m, g, "attention.value_length", &value_length));
  if (value_length != m->head_dim)
    LM_FAIL(UNSUPPORTED, "heads with key_length %u and value_length %u: they must be equal", (uint64_t)m->head_dim,
            (uint64_t)value_length);
  for (uint32_t i = 0; i < LM_COUNT(refused); i++) {
    const struct key k = key_of(m, refused[i].name);
    const struct gguf_key *found = gguf_find(g, text_of(k.name));
    if (!found) continue;
    float value = 0;
    if (found->type == GGUF_F32 || found->type == GGUF_F64) LM_TRY(gguf_f32(g, k.name, &value));
    else if (found->type == GGUF_BOOL) {
      bool yes = false;
      LM_TRY(gguf_bool(g, k.name, &yes));
      value = yes;
    } else {
      uint32_t whole = 0;
      LM_TRY(gguf_u32(g, k.name, &whole));
      value = (float)whole;
    }
    if (value != refused[i].harmless)
      LM_FAIL(UNSUPPORTED, "key %s is %g, which is not supported", k.name, (double)value);
  }
  return LM_OK;
}

static int read_heads(struct model *m, const struct gguf *g) {
  LM_TRY(required_u32(m, g, "attention.head_count", 1, 1 << 14, &m->n_heads));
  m->n_kv_heads = m->n_heads;
  LM_TRY(optional_u32(m, g, "attention.head_count_kv", &m->n_kv_heads));
  if (!m->n_kv_heads || m->n_heads % m->n_kv_heads)
    LM_FAIL(FORMAT, "%u query heads cannot share %u key/value heads", (uint64_t)m->n_heads, (uint64_t)m->n_kv_heads);
  const int own = optional_u32(m, g, "attention.key_length", &m->head_dim);
  if (own < 0) return own;
  if (!own) {
    if (m->d_model % m->n_heads)
      LM_FAIL(FORMAT, "embedding length %u is no multiple of the %u heads", (uint64_t)m->d_model, (uint64_t)m->n_heads);
    m->head_dim = m->d_model / m->n_heads;
  }
  if (m->head_dim % 8 || !m->head_dim || m->head_dim > 1024)
    LM_FAIL(UNSUPPORTED, "heads of size %u: a multiple of 8 up to 1024 is needed", (uint64_t)m->head_dim);
  return LM_OK;
}

/* Which epsilon the file has tells which norm the model uses. */
static int read_norm(struct model *m, const struct gguf *g) {
  int found = optional_f32(m, g, "attention.layer_norm_rms_epsilon", &m->norm_eps);
  if (!found) {
    found = optional_f32(m, g, "attention.layer_norm_epsilon", &m->norm_eps);
    m->layer_norm = true;
  }
  if (found < 0) return found;
  if (!found)
    LM_FAIL(FORMAT, "keys %s.attention.layer_norm_rms_epsilon and layer_norm_epsilon are both missing", m->arch->name);
  if (!(m->norm_eps >= 0 && m->norm_eps < 1))
    LM_FAIL(FORMAT, "the epsilon of the norms is %g, not between 0 and 1", (double)m->norm_eps);
  return LM_OK;
}

static int read_experts(struct model *m, const struct gguf *g) {
  m->n_experts_used = 1;
  LM_TRY(optional_u32(m, g, "expert_count", &m->n_experts));
  if (!m->n_experts) return LM_OK;
  LM_TRY(required_u32(m, g, "expert_used_count", 1, 64, &m->n_experts_used));
  if (m->n_experts > 1024 || m->n_experts_used > m->n_experts)
    LM_FAIL(FORMAT, "%u experts of which %u are used", (uint64_t)m->n_experts, (uint64_t)m->n_experts_used);
  LM_TRY(optional_u32(m, g, "expert_feed_forward_length", &m->d_ff));
  if (!m->d_ff || m->d_ff > 1 << 22)
    LM_FAIL(FORMAT, "key %s.expert_feed_forward_length is %u", m->arch->name, (uint64_t)m->d_ff);
  return LM_OK;
}

static int read_window(struct model *m, const struct gguf *g) {
  const double user = m->overrides[OVERRIDE_ROPE_WINDOW];
  if (!m->arch->local.n && overridden(m, OVERRIDE_ROPE_WINDOW))
    LM_FAIL(ARGUMENT, "rope.window is %g, but architecture %s has no layers with a window", user, m->arch->name);
  if (!m->arch->local.n) return LM_OK;
  LM_TRY(optional_u32(m, g, "attention.sliding_window", &m->window));
  if (overridden(m, OVERRIDE_ROPE_WINDOW)) m->window = (uint32_t)user;
  uint32_t pattern = m->arch->local.of;
  LM_TRY(optional_u32(m, g, "attention.sliding_window_pattern", &pattern));
  if (pattern != m->arch->local.of)
    LM_FAIL(UNSUPPORTED, "key %s.attention.sliding_window_pattern is %u; %u is supported", m->arch->name,
            (uint64_t)pattern, (uint64_t)m->arch->local.of);
  if (!m->window && m->arch->local.required)
    LM_FAIL(FORMAT, "key %s.attention.sliding_window is missing", m->arch->name);
  return LM_OK;
}

static int read_factors(struct model *m, const struct gguf *g) {
  const uint32_t head = m->arch->wide && m->n_layers == m->arch->wide ? m->d_model / m->n_heads : m->head_dim;
  m->embed_scale = m->arch->embed == EMBED_SQRT_D ? (float)fmath_sqrt(m->d_model) : 1;
  m->residual_scale = m->logit_scale = 1;
  m->attn_scale = (float)(1 / fmath_sqrt(head));
  float divisor = 1;
  LM_TRY(optional_f32(m, g, "embedding_scale", &m->embed_scale));
  LM_TRY(optional_f32(m, g, "residual_scale", &m->residual_scale));
  LM_TRY(optional_f32(m, g, "attention.scale", &m->attn_scale));
  LM_TRY(optional_f32(m, g, "logit_scale", &divisor));
  LM_TRY(optional_f32(m, g, "attn_logit_softcapping", &m->attn_soft_cap));
  LM_TRY(optional_f32(m, g, "final_logit_softcapping", &m->logit_soft_cap));
  m->logit_scale = 1 / divisor;
  const struct {
    const char *name;
    float value;
  } finite[] = {{"embedding_scale", m->embed_scale}, {"residual_scale", m->residual_scale},
                {"attention.scale", m->attn_scale}, {"logit_scale", m->logit_scale}};
  for (uint32_t i = 0; i < LM_COUNT(finite); i++)
    if (!(finite[i].value > 0 && finite[i].value < 1e6f))
      LM_FAIL(FORMAT, "key %s.%s makes a factor of %g", m->arch->name, finite[i].name, (double)finite[i].value);
  if (!(m->attn_soft_cap >= 0 && m->attn_soft_cap < 1e6f && m->logit_soft_cap >= 0 && m->logit_soft_cap < 1e6f))
    LM_FAIL(FORMAT, "the soft caps are %g and %g", (double)m->attn_soft_cap, (double)m->logit_soft_cap);
  return LM_OK;
}

int model_read_keys(struct model *m, const struct gguf *g) {
  LM_TRY(required_u32(m, g, "block_count", 1, 1 << 16, &m->n_layers));
  LM_TRY(required_u32(m, g, "embedding_length", 1, 1 << 20, &m->d_model));
  LM_TRY(required_u32(m, g, "feed_forward_length", 1, 1 << 22, &m->d_ff));
  LM_TRY(required_u32(m, g, "context_length", 1, UINT32_MAX, &m->n_ctx_train));
  LM_TRY(read_heads(m, g));
  LM_TRY(read_norm(m, g));
  LM_TRY(read_experts(m, g));
  LM_TRY(read_window(m, g));
  LM_TRY(read_factors(m, g));
  return refuse_unknown_maths(m, g);
}
