/* forward.h: the forward pass, for any number of rows at once: one row is decoding, many are a
 * prompt, and rows of several sequences may stand together. */
#pragma once
#include "kv.h"
#include "model.h"

struct row {
  int32_t token;
  uint32_t seq, pos;
};

/* Consecutive rows of one sequence whose attention is computed together. */
struct block {
  uint32_t row, n_rows;
};

struct worker {
  float *xn;          /* [d_model] its own normed row, when there is one row */
  float *router;      /* [n_experts] */
  void *act;          /* its own activations of one row */
  void *mat_scratch;
  float *q, *o, *chunk_o;     /* [ATTEND_VECTORS][head_dim] */
  float *max, *sum, *chunk_max, *chunk_sum; /* [ATTEND_VECTORS] */
  uint32_t *first, *n_seen; /* [ATTEND_VECTORS] */
  void *attend_scratch;
};

struct forward {
  const struct model *m;
  struct kv *kv;
  uint32_t n_workers, max_batch, max_all, n_logits;
  uint32_t d_stride, q_stride, kv_stride, ff_stride, vocab_stride; /* floats per row, whole groups */
  uint32_t group_heads, n_splits; /* query heads that attend together; parts of a KV head's group */
  float *x;           /* [max_batch][d_stride]   residual stream */
  float *y;           /* [max_batch][d_stride]   normed input of a block, then its output */
  float *q, *att;     /* [max_batch][q_stride] */
  float *k, *v;       /* [max_batch][kv_stride] */
  float *side;        /* [max_batch][d_stride]   normed input of a parallel feed-forward, or null */
  float *gate, *up;   /* [max_batch * n_experts_used][ff_stride] */
  float *rope_c, *rope_s; /* [n_ropes][max_batch][rope_dim / 2] */
  void *act;          /* activations of a batch, shared */
  float *logits;      /* [n_logits][vocab_stride]: one row, or max_all once more have been wanted */
  float *partials;    /* attention results of single chunks */
  uint64_t n_partials; /* floats there */
  struct worker workers[64];

  /* Mixture of experts: the batch's rows once per expert that they use, sorted by expert. */
  struct choice {
    uint32_t expert, at; /* at: where in that order */
    float weight;
  } *choices;         /* [max_batch][n_experts_used], best first */
  uint32_t *choice_rows;  /* [max_batch * n_experts_used] row of the batch */
  uint32_t *expert_first; /* [n_experts + 1] */
  float *expert_y;    /* [max_batch * n_experts_used][d_stride] */

  struct row *rows;   /* [max_batch] the batch */
  struct block *blocks; /* [max_batch] */
  uint32_t *keep;     /* [max_all] rows whose logits are wanted */
  uint32_t n, n_blocks, n_keep, n_chunks; /* n_chunks: of the longest sequence of the batch */
};

/* Sizes of all buffers for m; no memory. */
void forward_open(struct forward *f, const struct model *m, struct kv *kv, uint32_t n_workers);
/* Takes the buffers, or only counts them. */
void forward_place(struct forward *f, struct arena *a);
/* Room for the logits of n rows; false: no memory. May grow memory, once. */
bool forward_reserve(struct forward *f, struct arena *a, uint32_t n);
/* Computes f->rows, f->keep: appends to the cache, which has room, and leaves the logits. */
void forward_run(struct forward *f);
