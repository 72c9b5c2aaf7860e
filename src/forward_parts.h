/* forward_parts.h: what the files of the forward pass share: forward.c, attention.c, experts.c. */
#pragma once
#include "forward.h"
#include "team.h"

/* What one worker knows while it runs. */
struct run {
  struct forward *f;
  struct worker *w;
  uint32_t i, n_workers;
  struct act act; /* of the coming product */
};

static inline struct slice slice_of(const struct run *r, uint32_t n_items) {
  return team_slice(n_items, r->i, r->n_workers);
}

static inline struct team_share share_of(const struct run *r, uint32_t n_items) {
  return (struct team_share){.n_items = n_items, .grain = 1, .i = r->i, .n_workers = r->n_workers};
}

/* Rows of a matrix: whole groups of every packed layout, and as many side by side as products read them. */
enum { ROW_UNIT = 16, ROW_GRAIN = 4 };
struct row_share {
  struct team_share units;
  uint32_t n_rows;
  struct slice rows; /* that next_rows gave last */
};
static inline struct row_share row_share(const struct run *r, uint32_t n_rows) {
  struct row_share s = {.units = share_of(r, (n_rows + ROW_UNIT - 1) / ROW_UNIT), .n_rows = n_rows};
  s.units.grain = ROW_GRAIN;
  return s;
}
static inline bool next_rows(struct row_share *s) {
  if (!team_take(&s->units)) return false;
  s->rows = (struct slice){s->units.got.from * ROW_UNIT, LM_MIN(s->units.got.to * ROW_UNIT, s->n_rows)};
  return true;
}

/* The forms of activations that a product reads; none for a weight that is not there. */
static inline uint32_t weight_needs(const struct weight *w) { return w->kernels ? w->kernels->needs : 0; }
static inline uint32_t qkv_needs(const struct layer *y) {
  return weight_needs(&y->wq) | weight_needs(&y->wk) | weight_needs(&y->wv);
}
static inline uint32_t ffn_needs(const struct layer *y) { return weight_needs(&y->w_gate) | weight_needs(&y->w_up); }

/* forward.c */
void forward_norm(const struct model *m, const struct norm *norm, const float *x, float *y);
/* The given rows of y = W x, for n rows of activations; matrix: which of those that follow each other. */
void forward_mat(const struct run *r, const struct weight *w, uint32_t matrix, const struct act *act, struct slice rows,
                 float *y, size_t stride, uint32_t n);
/* Columns of the hidden layer, act(Wgate n) * Wup n, or act(Wup n) without a gate, for n_rows rows of
 * activations; into f->gate from row `first` on. */
void forward_hidden(const struct run *r, const struct layer *y, uint32_t expert, const struct act *act,
                    struct slice cols, uint32_t first, uint32_t n_rows);
/* Adds columns of what a block made, in y, to x; with a norm of the output only the bias, to y. */
void forward_residual(const struct run *r, struct slice cols, const float *bias, const struct norm *post);
/* The rest of it, where there is such a norm: this worker's rows. */
void forward_post_norm(const struct run *r, const struct norm *post);

/* attention.c: f->att from f->q and the cache; the caller's barrier follows. */
void attention(const struct run *r, uint32_t l);
/* experts.c: the feed-forward part of a layer with a router, residual and barriers included. */
void feed_experts(struct run *r, const struct layer *y);
