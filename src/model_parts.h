/* model_parts.h: how model.c's steps are shared out: keys, rotary frequencies, tensors. Each fills its
 * part of struct model and says what is wrong. */
#pragma once
#include "model.h"

/* model_keys.c: sizes, norm, factors; refuses keys that change the maths in a way that is not there. */
int model_read_keys(struct model *m, const struct gguf *g);
/* model_rope.c: the frequencies of m->ropes; memory from the arena. */
int model_read_rope(struct model *m, const struct gguf *g, struct arena *a);
/* model_tensors.c: layers and parts, every tensor bound; memory from the arena. */
int model_bind_tensors(struct model *m, const struct gguf *g, struct arena *a);
/* Sizes that a placed part takes. */
uint64_t part_bytes(const struct part *p);
uint64_t part_group_rows(const struct part *p);

/* "ARCH.NAME" of the model's architecture. */
struct key { char name[96]; };
struct key key_of(const struct model *m, const char *name);
/* Whether the user has set it. */
static inline bool overridden(const struct model *m, enum override_id id) {
  return m->overrides[id] == m->overrides[id];
}
/* As gguf_u32 and gguf_f32, of ARCH.NAME. */
int optional_u32(const struct model *m, const struct gguf *g, const char *name, uint32_t *out);
int optional_f32(const struct model *m, const struct gguf *g, const char *name, float *out);
