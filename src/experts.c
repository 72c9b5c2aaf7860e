/* experts.c: a feed-forward part with a router: each row of the batch goes to its best experts. Rows are
 * sorted by expert, so that an expert's weights are read once for all rows that use it; a row's results
 * are summed in the order of its choices, whatever else the batch holds. */
#include "fmath.h"
#include "forward_parts.h"

/* The experts of row t: softmax over all, the best n_experts_used of them (ties to the lower number),
 * their weights made to sum to 1. */
static void choose_experts(struct run *r, const struct layer *y, uint32_t t) {
  const struct forward *f = r->f;
  const struct model *m = f->m;
  float *logits = r->w->router;
  struct choice *choices = f->choices + (size_t)t * m->n_experts_used;
  const uint32_t needs = weight_needs(&y->router);
  KERNELS.act_place(&r->act, r->w->act, m->d_model, 1, needs);
  KERNELS.act_make(&r->act, f->y + (size_t)t * f->d_stride, f->d_stride, m->d_model, 0, 1, needs, m->precision);
  forward_mat(r, &y->router, 0, &r->act, (struct slice){0, m->n_experts}, logits, 0, 1);
  double top = 0, total = 0;
  for (uint32_t i = 0; i < m->n_experts_used; i++) {
    uint32_t best = 0;
    for (uint32_t e = 1; e < m->n_experts; e++)
      if (logits[e] > logits[best]) best = e;
    if (!i) top = (double)logits[best];
    const double weight = fmath_exp((double)logits[best] - top);
    choices[i] = (struct choice){.expert = best, .weight = (float)weight};
    total += weight;
    logits[best] = -__builtin_inff();
  }
  for (uint32_t i = 0; i < m->n_experts_used; i++) choices[i].weight = (float)((double)choices[i].weight / total);
}

/* Orders all choices of the batch by expert. */
static void sort_choices(struct forward *f) {
  const uint32_t n_experts = f->m->n_experts, n_used = f->m->n_experts_used, n = f->n * n_used;
  uint32_t *first = f->expert_first;
  zero_bytes(first, (n_experts + 1) * sizeof *first);
  for (uint32_t i = 0; i < n; i++) first[f->choices[i].expert + 1]++;
  for (uint32_t e = 0; e < n_experts; e++) first[e + 1] += first[e];
  for (uint32_t i = 0; i < n; i++) { /* moves first[e] to the end of e ... */
    f->choices[i].at = first[f->choices[i].expert]++;
    f->choice_rows[f->choices[i].at] = i / n_used;
  }
  for (uint32_t e = n_experts; e > 0; e--) first[e] = first[e - 1]; /* ... and back */
  first[0] = 0;
}

/* Weighted sum of row t's experts into y. */
static void sum_experts(const struct forward *f, uint32_t t) {
  const struct model *m = f->m;
  float *sum = f->y + (size_t)t * f->d_stride;
  zero_bytes(sum, m->d_model * sizeof *sum);
  for (uint32_t i = 0; i < m->n_experts_used; i++) {
    const struct choice *c = &f->choices[(size_t)t * m->n_experts_used + i];
    KERNELS.add_scaled(sum, f->expert_y + (size_t)c->at * f->d_stride, c->weight, m->d_model);
  }
}

void feed_experts(struct run *r, const struct layer *y) {
  struct forward *f = r->f;
  const struct model *m = f->m;
  const struct slice rows = slice_of(r, f->n);
  for (uint32_t t = rows.from; t < rows.to; t++) {
    forward_norm(m, &y->ffn_norm, f->x + (size_t)t * f->d_stride, f->y + (size_t)t * f->d_stride);
    choose_experts(r, y, t);
  }
  team_barrier();
  if (r->i == 0) sort_choices(f);
  team_barrier();
  const uint32_t n = f->n * m->n_experts_used, down_needs = weight_needs(&y->w_down);
  const struct slice mine = slice_of(r, n);
  KERNELS.act_place(&r->act, f->act, m->d_model, n, ffn_needs(y));
  for (uint32_t i = mine.from; i < mine.to; i++)
    KERNELS.act_make(&r->act, f->y + (size_t)f->choice_rows[i] * f->d_stride, 0, m->d_model, i, i + 1, ffn_needs(y),
                     m->precision);
  team_barrier();
  for (struct row_share s = row_share(r, m->d_ff); next_rows(&s);)
    for (uint32_t e = 0; e < m->n_experts; e++) {
      const uint32_t first = f->expert_first[e], n_rows = f->expert_first[e + 1] - first;
      const struct act act = act_from(&r->act, first);
      if (n_rows) forward_hidden(r, y, e, &act, s.rows, first, n_rows);
    }
  team_barrier();
  KERNELS.act_place(&r->act, f->act, m->d_ff, n, down_needs);
  KERNELS.act_make(&r->act, f->gate, f->ff_stride, m->d_ff, mine.from, mine.to, down_needs, m->precision);
  team_barrier();
  for (struct row_share s = row_share(r, m->d_model); next_rows(&s);)
    for (uint32_t e = 0; e < m->n_experts; e++) {
      const uint32_t first = f->expert_first[e], n_rows = f->expert_first[e + 1] - first;
      const struct act act = act_from(&r->act, first);
      if (n_rows)
        forward_mat(r, &y->w_down, e, &act, s.rows, f->expert_y + (size_t)first * f->d_stride, f->d_stride, n_rows);
    }
  team_barrier();
  for (uint32_t t = rows.from; t < rows.to; t++) sum_experts(f, t);
  team_barrier();
  for (struct row_share s = row_share(r, m->d_model); next_rows(&s);)
    forward_residual(r, s.rows, 0, &y->ffn_post_norm);
  forward_post_norm(r, &y->ffn_post_norm);
  team_barrier();
}
