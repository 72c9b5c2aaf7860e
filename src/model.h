/* model.h: a file becomes a struct model: every key checked, every tensor bound, before a byte of
 * weights is there. The forward pass sees no file.
 *
 * Tensors arrive in file order and are laid down in order of use: matrices packed group by group,
 * an embedding that is only looked up as it is, vectors as f32. Fused tensors are cut by rows, so
 * every model becomes the same struct layer; a weight that is there is the flag for its step. */
#pragma once
#include "arena.h"
#include "gguf.h"
#include "kernels.h"

enum rope_pairing { ROPE_NONE, ROPE_PAIRS, ROPE_HALVES };
enum embed_scale { EMBED_ONE, EMBED_SQRT_D };

struct arch {
  const char *name;
  enum rope_pairing rope;
  enum activation act;
  enum embed_scale embed;
  struct {
    uint32_t n, of;   /* local: layer mod of < n */
    bool required;    /* the file must tell the window */
  } local;
  float local_theta;
  uint32_t no_rope, wide;
};
#ifndef LM_ARCH_TABLE
#define LM_ARCH_TABLE "arch.def" /* tests put a wrong one in its place */
#endif
enum arch_id {
#define ARCH(name, rope, act, embed, local, local_theta, no_rope, wide) ARCH_##name,
#include LM_ARCH_TABLE
#undef ARCH
  N_ARCHS
};
extern const struct arch archs[N_ARCHS];

/* What the user sets in place of the file's keys. */
enum override_id {
#define OVERRIDE(id, name, least, most, whole) OVERRIDE_##id,
#include "override.def"
#undef OVERRIDE
  N_OVERRIDES
};
struct override_row {
  const char *name;
  double least, most;
  bool whole;
};
extern const struct override_row override_rows[N_OVERRIDES];
/* Whether row id of the table may have this value. */
int check_override(uint32_t id, double value);

/* y = W x. */
struct weight {
  const struct mat_kernels *kernels;
  uint32_t quant;
  uint32_t n_rows, n_cols; /* of one matrix; those of experts follow each other */
  uint8_t *packed; /* [n_rows / group_rows][n_cols / block_cols] blocks of kernels->block_bytes */
};

/* y = (x - mean) / deviation * w + b, or RMSNorm, by the model's norm; w null: none. */
struct norm {
  float *w, *b; /* [d_model]; b may be null */
};

/* Optional parts are null (a weight: its kernels are) where the file lacks them. */
struct layer {
  struct norm attn_norm, attn_norm_2; /* before attention; both: the second is attention's */
  struct weight wq, wk, wv;  /* [n_heads * head_dim], [n_kv_heads * head_dim] x [d_model] */
  float *bq, *bk, *bv;       /* biases of these rows */
  float *q_norm, *k_norm;    /* RMSNorm of each head [head_dim], or of all at once */
  struct weight wo;          /* [d_model] x [n_heads * head_dim] */
  float *bo;                 /* [d_model] */
  struct norm attn_post_norm; /* of attention's output */
  struct norm ffn_norm;      /* none though attn_norm is there: side by side with attention */
  struct weight router;      /* [n_experts] x [d_model] */
  struct weight w_gate, w_up; /* [n_experts or 1][d_ff] x [d_model] */
  float *b_gate, *b_up;      /* [d_ff] */
  struct weight w_down;      /* [n_experts or 1][d_model] x [d_ff] */
  float *b_down;             /* [d_model] */
  struct norm ffn_post_norm;
  bool is_local;             /* attends to the last `window` positions, turns with ropes[1] */
  bool has_rope;
  bool is_parallel;          /* feed-forward and attention read the same normed input */
};

/* FACTORS: frequencies are divided by the file's rope_freqs.weight; LONGROPE: by one of two such tensors. */
enum rope_scaling_kind {
  SCALE_NONE, SCALE_LINEAR, SCALE_YARN, SCALE_LLAMA3, SCALE_LONGROPE, SCALE_FACTORS, N_ROPE_SCALINGS
};
extern const char *const rope_scaling_names[N_ROPE_SCALINGS];
struct rope_scaling {
  enum rope_scaling_kind kind;
  float factor, extrapolation, magnitude, beta_fast, beta_slow, low_turns, high_turns;
  uint32_t original_context;
};

struct rope {
  double *freqs;   /* [rope_dim / 2] radians per position, scaling included */
  float magnitude; /* factor of cosines and sines */
};

/* Where a tensor, or some rows of it, goes. */
enum part_kind { PART_MATRIX, PART_ROWS, PART_VECTOR };
struct part {
  uint64_t at;                       /* offset in the file */
  uint64_t row_bytes;                /* there; a vector is one row */
  uint64_t n_rows, n_cols;           /* of one matrix */
  uint64_t n_matrices;
  enum part_kind kind;
  uint32_t quant;
  const struct mat_kernels *kernels; /* of a matrix */
  uint8_t **to;                      /* the model's pointer to it */
};

struct model {
  const struct arch *arch;
  const double *overrides; /* [N_OVERRIDES] NaN: as the file says */
  uint32_t n_layers, d_model, n_heads, n_kv_heads, head_dim, d_ff, n_vocab;
  uint32_t n_experts, n_experts_used; /* 0, 1: dense */
  uint32_t n_ctx_train, n_ctx, rope_dim;
  uint32_t window;         /* of local layers: positions seen, the own one included */
  bool layer_norm;         /* else RMSNorm */
  bool norm_whole_rows;    /* q_norm, k_norm span all heads */
  float norm_eps, rope_theta;
  float embed_scale, residual_scale, attn_scale, logit_scale; /* factors */
  float attn_soft_cap, logit_soft_cap; /* 0: none */
  struct rope ropes[2];    /* of all layers, or of those that are not local; of local layers */
  uint32_t n_ropes;
  struct rope_scaling scaling; /* of ropes[0] */
  float *rope_factors;     /* [rope_dim / 2] of rope_freqs.weight and the like, or null: divisors of ropes[0] */
  const char *rope_factors_name;
  uint32_t precision;
  struct layer *layers;    /* [n_layers] */
  bool tied;               /* no output.weight: the embedding is the output matrix */
  uint8_t *embedding;      /* [n_vocab] rows as in the file; null when tied */
  uint32_t embedding_quant;
  uint8_t *positions;      /* [n_ctx_train] rows as in the file, added to the embedding; or null */
  uint32_t positions_quant, n_positions;
  struct norm output_norm;
  struct weight output;    /* [n_vocab] x [d_model]; tied: the embedding */
  struct part *parts;      /* [n_parts], in order of use */
  uint32_t n_parts, max_parts;
  uint32_t *by_offset;     /* [n_parts] parts in file order */
  uint64_t weight_bytes;   /* of all parts, as they lie in memory */
  uint64_t staging_bytes;  /* the largest row group as it arrives */
  uint64_t token_bytes;    /* weight bytes read for one token */
  uint64_t token_macs;     /* multiply-adds of its matrices */
};

/* Checks the header against an architecture and binds every tensor. n_ctx 0: the model's own, at
 * most 8192. Takes the tables' memory from the arena, none for weights. overrides live as long as m. */
int model_bind(struct model *m, const struct gguf *g, struct arena *a, uint32_t n_ctx, uint32_t precision,
               const double *overrides);
/* Takes the memory of the weights, or only counts it. */
void model_place(struct model *m, struct arena *a);
/* After the last tensor byte: the rotary frequencies by their factors, where the file has them. */
int model_scale_rope(struct model *m);

/* Takes tensor bytes in file order and puts them where they belong. */
struct intake {
  uint64_t at;       /* offset in the file of the next byte */
  uint32_t part;     /* index into by_offset */
  uint64_t row;      /* rows of that part behind us, over all its matrices */
  uint64_t filled;   /* bytes of the group in `staging` */
  uint8_t *staging;
};
/* The next n bytes; readable 16 bytes beyond. LM_MORE or LM_DONE. */
int intake_feed(struct intake *in, struct model *m, const uint8_t *bytes, uint64_t n);
