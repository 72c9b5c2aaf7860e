/* set.h: what the files of this folder give kernels_simd.c besides mat.h. Contracts: src/kernels.h. */
#pragma once
#include "../../src/kernels.h"

size_t act_bytes(uint32_t n_cols, uint32_t n_tokens, uint32_t needs);
void act_place(struct act *a, void *mem, uint32_t n_cols, uint32_t n_tokens, uint32_t needs);
void act_make(const struct act *a, const float *x, size_t x_stride, uint32_t n_cols, uint32_t t0, uint32_t t1,
              uint32_t needs, uint32_t precision);

void vector_rms_norm(const float *x, const float *w, float *y, uint32_t n, float eps);
void vector_layer_norm(const float *x, const float *w, const float *b, float *y, uint32_t n, float eps);
void vector_activate(enum activation kind, const float *g, const float *u, float *y, uint32_t n);
void vector_add(float *y, const float *x, uint32_t n);
void vector_scale(float *y, float factor, uint32_t n);
void vector_add_scaled(float *y, const float *x, float factor, uint32_t n);
void vector_soft_cap(float *y, float cap, uint32_t n);
void vector_rope_pairs(float *x, const float *c, const float *s, uint32_t n_heads, uint32_t head_dim,
                       uint32_t rope_dim);
void vector_rope_halves(float *x, const float *c, const float *s, uint32_t n_heads, uint32_t head_dim,
                       uint32_t rope_dim);

void attend_store_key(uint32_t kv_type, const float *x, void *rows, uint32_t t, uint32_t head_dim);
void attend_store_value(uint32_t kv_type, const float *x, void *rows, uint32_t t, uint32_t head_dim);
size_t attend_scratch(uint32_t head_dim);
void attend_chunk(const struct attend *a);
void attend_fold(float *o, float *max, float *sum, const float *bo, const float *bmax, const float *bsum,
                 uint32_t n_vectors, uint32_t head_dim);
void attend_finish(const float *o, const float *sum, float *out, uint32_t n_vectors, uint32_t head_dim);
