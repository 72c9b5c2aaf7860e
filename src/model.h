/* model.h: a file becomes a struct model: every key checked, every tensor bound, before a byte of
 * weights is there. The forward pass sees no file.
 *
 * Tensors arrive in file order and are laid down in order of use: matrices packed group by group,
 * an embedding that is only looked up as it is, vectors as f32. */
#pragma once
#include "arena.h"
#include "gguf.h"
#include "kernels.h"

enum rope_pairing { ROPE_PAIRS, ROPE_HALVES };

struct arch {
  const char *name;
  enum rope_pairing rope;
};
enum arch_id {
#define ARCH(name, rope) ARCH_##name,
#include "arch.def"
#undef ARCH
  N_ARCHS
};
extern const struct arch archs[N_ARCHS];

/* y = W x. */
struct weight {
  const struct mat_kernels *kernels;
  uint32_t quant;
  uint32_t n_rows, n_cols;
  uint8_t *packed; /* [n_rows / group_rows][n_cols / block_cols] blocks of kernels->block_bytes */
};

struct layer {
  float *attn_norm;          /* [d_model] */
  struct weight wq, wk, wv;  /* [n_heads * head_dim], [n_kv_heads * head_dim] x [d_model] */
  float *bq, *bk, *bv;       /* biases of these rows, or null */
  struct weight wo;          /* [d_model] x [n_heads * head_dim] */
  float *bo;                 /* [d_model] or null */
  float *ffn_norm;           /* [d_model] */
  struct weight w_gate, w_up; /* [d_ff] x [d_model] */
  struct weight w_down;      /* [d_model] x [d_ff] */
};

/* Where a tensor goes. */
enum part_kind { PART_MATRIX, PART_ROWS, PART_VECTOR };
struct part {
  const struct gguf_tensor *tensor;
  enum part_kind kind;
  uint64_t n_rows, n_cols;
  const struct mat_kernels *kernels; /* of a matrix */
  uint8_t **to;                      /* the model's pointer to it */
};

struct model {
  const struct arch *arch;
  uint32_t n_layers, d_model, n_heads, n_kv_heads, head_dim, d_ff, n_vocab;
  uint32_t n_ctx_train, n_ctx, rope_dim;
  float norm_eps, rope_theta;
  float rope_magnitude;    /* factor of cosines and sines (YaRN), else 1 */
  double *rope_freqs;      /* [rope_dim / 2] radians per position, scaling included */
  float *rope_factors;     /* [rope_dim / 2] of rope_freqs.weight, or null: divisors of the above */
  uint32_t precision;
  struct layer *layers;    /* [n_layers] */
  uint8_t *embedding;      /* [n_vocab] rows as in the file; null when tied */
  uint32_t embedding_quant;
  bool tied;               /* no output.weight: the embedding is the output matrix */
  float *output_norm;      /* [d_model] */
  struct weight output;    /* [n_vocab] x [d_model]; tied: the embedding */
  struct part *parts;      /* [n_parts], in order of use */
  uint32_t n_parts;
  uint32_t *by_offset;     /* [n_parts] parts in file order */
  uint64_t weight_bytes;   /* of all parts, as they lie in memory */
  uint64_t staging_bytes;  /* the largest row group as it arrives */
  uint64_t token_bytes;    /* weight bytes read for one token */
  uint64_t token_macs;     /* multiply-adds of its matrices */
};

/* Checks the header against an architecture and binds every tensor. n_ctx 0: the model's own, at
 * most 8192. Takes the tables' memory from the arena, none for weights. */
int model_bind(struct model *m, const struct gguf *g, struct arena *a, uint32_t n_ctx, uint32_t precision);
/* Takes the memory of the weights, or only counts it. */
void model_place(struct model *m, struct arena *a);
/* After the last tensor byte: what is made of tensors, not of keys. */
int model_finish(struct model *m);

/* Takes tensor bytes in file order and puts them where they belong. */
struct intake {
  uint64_t at;       /* offset in the file of the next byte */
  uint32_t part;     /* index into by_offset */
  uint64_t row;      /* rows of that part behind us */
  uint64_t filled;   /* bytes of the group in `staging` */
  uint8_t *staging;
};
/* The next n bytes; readable 16 bytes beyond. LM_MORE or LM_DONE. */
int intake_feed(struct intake *in, struct model *m, const uint8_t *bytes, uint64_t n);
