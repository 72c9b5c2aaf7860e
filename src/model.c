/* model.c: binding, in order, and the way of tensor bytes into memory. */
#include "model.h"

#include "fmath.h"
#include "model_parts.h"

#define EVERY(n, of) {n, of, true}
#define MAYBE(n, of) {n, of, false}
#define NONE {0, 1, false}
const struct arch archs[N_ARCHS] = {
#define ARCH(name, rope, act, embed, local, theta, no_rope, wide) \
  {#name, ROPE_##rope, ACTIVATION_##act, EMBED_##embed, local, theta, no_rope, wide},
#include LM_ARCH_TABLE
#undef ARCH
};

const struct override_row override_rows[N_OVERRIDES] = {
#define OVERRIDE(id, name, least, most, whole) {name, least, most, whole},
#include "override.def"
#undef OVERRIDE
};

int check_override(uint32_t id, double value) {
  if (id >= N_OVERRIDES) LM_FAIL(ARGUMENT, "there is no override %u", (uint64_t)id);
  const struct override_row *row = &override_rows[id];
  if (value < row->least || value > row->most)
    LM_FAIL(ARGUMENT, "%s is %g, not between %g and %g", row->name, value, row->least, row->most);
  if (row->whole && value != fmath_floor(value) && value == value)
    LM_FAIL(ARGUMENT, "%s is %g, no whole number", row->name, value);
  return LM_OK;
}

static int find_arch(struct model *m, const struct gguf *g) {
  struct text name = {0};
  const int got = gguf_text(g, "general.architecture", &name);
  if (got < 0) return got;
  if (!got) LM_FAIL(FORMAT, "key general.architecture is missing");
  for (uint32_t i = 0; i < N_ARCHS; i++)
    if (text_equal(name, text_of(archs[i].name))) m->arch = &archs[i];
  if (!m->arch) LM_FAIL(UNSUPPORTED, "architecture \"%t\" is not supported", &name);
  return LM_OK;
}

int model_bind(struct model *m, const struct gguf *g, struct arena *a, uint32_t n_ctx, uint32_t precision,
               const double *overrides) {
  *m = (struct model){.precision = precision, .overrides = overrides};
  if (n_ctx > 1 << 20) LM_FAIL(ARGUMENT, "a context of %u tokens: at most 1048576", (uint64_t)n_ctx);
  LM_TRY(find_arch(m, g));
  LM_TRY(model_read_keys(m, g));
  m->n_ctx = n_ctx ? n_ctx : LM_MIN(m->n_ctx_train, 8192);
  LM_TRY(model_read_rope(m, g, a));
  return model_bind_tensors(m, g, a);
}

void model_place(struct model *m, struct arena *a) {
  for (uint32_t i = 0; i < m->n_parts; i++) *m->parts[i].to = arena_take(a, part_bytes(&m->parts[i]));
}

/* Puts the rows of one group, complete, where they belong. */
static void place_rows(const struct part *p, uint64_t row, uint64_t n_rows, const uint8_t *bytes) {
  uint8_t *to = *p->to;
  switch (p->kind) {
    case PART_MATRIX: {
      const struct mat_kernels *k = p->kernels;
      const uint64_t matrix = row / p->n_rows, group = row % p->n_rows / k->group_rows;
      to += matrix * packed_bytes(k, p->n_rows, p->n_cols) + group * packed_bytes(k, k->group_rows, p->n_cols);
      k->pack(bytes, (size_t)p->row_bytes, to, (uint32_t)n_rows, (uint32_t)p->n_cols);
      break;
    }
    case PART_ROWS: copy_bytes(to + row * p->row_bytes, bytes, (size_t)p->row_bytes); break;
    case PART_VECTOR: quants[p->quant].to_float(bytes, (float *)(void *)to, (uint32_t)p->n_cols);
  }
}

/* Takes bytes of part p from *bytes; whole groups straight from there, others through staging. */
static void take_group(struct intake *in, const struct part *p, const uint8_t **bytes, uint64_t *n) {
  const uint64_t rows = LM_MIN(part_group_rows(p), p->n_rows - in->row % p->n_rows), want = rows * p->row_bytes;
  uint64_t used = want;
  if (!in->filled && *n >= want) place_rows(p, in->row, rows, *bytes);
  else {
    used = LM_MIN(want - in->filled, *n);
    copy_bytes(in->staging + in->filled, *bytes, (size_t)used);
    in->filled += used;
    if (in->filled == want) place_rows(p, in->row, rows, in->staging);
  }
  *bytes += used, *n -= used, in->at += used;
  if (in->filled && in->filled < want) return;
  in->filled = 0;
  in->row += rows;
}

int intake_feed(struct intake *in, struct model *m, const uint8_t *bytes, uint64_t n) {
  while (in->part < m->n_parts) {
    const struct part *p = &m->parts[m->by_offset[in->part]];
    if (in->row == p->n_rows * p->n_matrices) {
      in->part++, in->row = 0;
      continue;
    }
    if (!n) return LM_MORE;
    if (!in->row && !in->filled && in->at < p->at) { /* padding, or a tensor that nothing needs */
      const uint64_t skip = LM_MIN(p->at - in->at, n);
      bytes += skip, n -= skip, in->at += skip;
      continue;
    }
    take_group(in, p, &bytes, &n);
  }
  return LM_DONE;
}
