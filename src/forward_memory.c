/* forward_memory.c: the buffers of the forward pass: sized by the model, taken once. */
#include "forward_parts.h"

#define MIB ((uint64_t)1 << 20)
/* Bytes of the buffers of one batch: an eighth of the weights, within these. */
#define BATCH_LEAST (3 * MIB)
#define BATCH_MOST (5 * MIB)
#define LOGITS_BUDGET (2 * MIB)
#define PARTIALS_MAX MIB /* floats */

static uint32_t stride_of(uint64_t n) { return (uint32_t)align_up(n, 64); }

/* Bytes of activations of n rows, whichever product they are for. */
static uint64_t act_most(const struct model *m, uint32_t n) {
  uint64_t most = KERNELS.act_bytes(m->d_model, n, m->output.kernels->needs);
  for (uint32_t l = 0; l < m->n_layers; l++) {
    const struct layer *y = &m->layers[l];
    const uint64_t bytes[] = {
        KERNELS.act_bytes(m->d_model, n, qkv_needs(y)),
        KERNELS.act_bytes(y->wo.n_cols, n, weight_needs(&y->wo)),
        KERNELS.act_bytes(m->d_model, n * m->n_experts_used, ffn_needs(y)),
        KERNELS.act_bytes(m->d_ff, n * m->n_experts_used, weight_needs(&y->w_down)),
        KERNELS.act_bytes(m->d_model, 1, weight_needs(&y->router)),
    };
    for (uint32_t i = 0; i < LM_COUNT(bytes); i++) most = LM_MAX(most, bytes[i]);
  }
  return most;
}

static bool has_parallel(const struct model *m) {
  for (uint32_t l = 0; l < m->n_layers; l++)
    if (m->layers[l].is_parallel) return true;
  return false;
}

void forward_open(struct forward *f, const struct model *m, struct kv *kv, uint32_t n_workers) {
  *f = (struct forward){.m = m, .kv = kv, .n_workers = n_workers};
  f->d_stride = stride_of(m->d_model);
  f->q_stride = stride_of((uint64_t)m->n_heads * m->head_dim);
  f->kv_stride = stride_of((uint64_t)m->n_kv_heads * m->head_dim);
  f->ff_stride = stride_of(m->d_ff);
  f->vocab_stride = stride_of(m->n_vocab);
  const uint32_t group = m->n_heads / m->n_kv_heads;
  f->n_splits = (group + ATTEND_VECTORS - 1) / ATTEND_VECTORS;
  f->group_heads = (group + f->n_splits - 1) / f->n_splits;
  const uint64_t hidden = (uint64_t)f->ff_stride * m->n_experts_used;
  const uint64_t row = 8 * ((uint64_t)f->d_stride + f->q_stride + f->kv_stride + hidden) + act_most(m, 1);
  const uint64_t budget = LM_MIN(BATCH_MOST, LM_MAX(BATCH_LEAST, m->weight_bytes / 8));
  f->max_batch = (uint32_t)LM_MIN(256, LM_MAX(16, budget / row / 16 * 16));
  f->max_all = (uint32_t)LM_MIN(64, LM_MAX(8, LOGITS_BUDGET / 4 / f->vocab_stride));
  const uint64_t heads = (uint64_t)m->n_kv_heads * f->n_splits * align_up(f->group_heads, 4);
  f->n_partials = LM_MIN(PARTIALS_MAX, heads * kv->max_chunks * (m->head_dim + 2));
}

static void place_worker(struct worker *w, const struct model *m, struct arena *a) {
  const uint64_t vectors = (uint64_t)ATTEND_VECTORS * m->head_dim * sizeof(float);
  const uint64_t scalars = ATTEND_VECTORS * sizeof(float);
  w->xn = arena_take(a, (uint64_t)stride_of(m->d_model) * sizeof(float));
  w->router = arena_take(a, (uint64_t)stride_of(m->n_experts) * sizeof(float));
  w->act = arena_take(a, act_most(m, 1));
  w->mat_scratch = arena_take(a, MAT_SCRATCH);
  w->q = arena_take(a, vectors);
  w->o = arena_take(a, vectors);
  w->chunk_o = arena_take(a, vectors);
  w->max = arena_take(a, scalars);
  w->sum = arena_take(a, scalars);
  w->chunk_max = arena_take(a, scalars);
  w->chunk_sum = arena_take(a, scalars);
  w->first = arena_take(a, scalars);
  w->n_seen = arena_take(a, scalars);
  w->attend_scratch = arena_take(a, KERNELS.attend_scratch(m->head_dim));
}

void forward_place(struct forward *f, struct arena *a) {
  const struct model *m = f->m;
  const uint64_t n = f->max_batch, n_used = n * m->n_experts_used, floats = sizeof(float);
  f->x = arena_take(a, n * f->d_stride * floats);
  f->y = arena_take(a, n * f->d_stride * floats);
  f->q = arena_take(a, n * f->q_stride * floats);
  f->att = arena_take(a, n * f->q_stride * floats);
  f->k = arena_take(a, n * f->kv_stride * floats);
  f->v = arena_take(a, n * f->kv_stride * floats);
  f->side = has_parallel(m) ? arena_take(a, n * f->d_stride * floats) : 0;
  f->gate = arena_take(a, n_used * f->ff_stride * floats);
  f->up = arena_take(a, n_used * f->ff_stride * floats);
  f->rope_c = arena_take(a, m->n_ropes * n * m->rope_dim / 2 * floats);
  f->rope_s = arena_take(a, m->n_ropes * n * m->rope_dim / 2 * floats);
  if (m->n_experts) {
    f->choices = arena_take(a, n_used * sizeof *f->choices);
    f->choice_rows = arena_take(a, n_used * sizeof *f->choice_rows);
    f->expert_first = arena_take(a, (m->n_experts + 1) * sizeof *f->expert_first);
    f->expert_y = arena_take(a, n_used * f->d_stride * floats);
  }
  f->act = arena_take(a, act_most(m, f->max_batch));
  f->n_logits = 0;
  forward_reserve(f, a, 1);
  f->partials = arena_take(a, f->n_partials * floats);
  f->rows = arena_take(a, n * sizeof *f->rows);
  f->blocks = arena_take(a, n * sizeof *f->blocks);
  f->keep = arena_take(a, f->max_all * sizeof *f->keep);
  for (uint32_t i = 0; i < f->n_workers; i++) place_worker(&f->workers[i], m, a);
}

bool forward_reserve(struct forward *f, struct arena *a, uint32_t n) {
  if (n <= f->n_logits) return true;
  const uint32_t rows = n > 1 ? f->max_all : 1;
  float *logits = arena_take(a, (uint64_t)rows * f->vocab_stride * sizeof(float));
  if (!logits) return false;
  f->logits = logits, f->n_logits = rows;
  return true;
}
