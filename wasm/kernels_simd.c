/* kernels_simd.c: the set of kernels that ships. With VEC_HAS_RELAXED (vec.h), 8-bit activations meet
 * 4-bit weights in the relaxed int8 dot; every sum stays the same integer. */
#include "kernels/mat.h"
#include "kernels/set.h"
#include "../src/lm.h"

static const struct mat_kernels *simd_mat(uint32_t quant, uint32_t precision) {
  const bool fast = precision == LM_FAST;
  switch (quant) {
    case QUANT_F32: return &mat_f32;
    case QUANT_F16: return &mat_f16;
    case QUANT_BF16: return &mat_bf16;
    case QUANT_Q8_0: return fast ? &MAT_SIGNS(q8_0) : &mat_q8_0;
    case QUANT_Q4_0: return fast ? &MAT_FAST(q4_0) : &MAT_HALVES(q4_0);
    case QUANT_Q4_1: return fast ? &MAT_FAST(q4_1) : &MAT_HALVES(q4_1);
    case QUANT_Q5_0: return fast ? &MAT_FAST(q5_0) : &mat_q5_0;
    case QUANT_Q5_1: return fast ? &MAT_FAST(q5_1) : &mat_q5_1;
    case QUANT_IQ4_NL: return &mat_iq4_nl;
    case QUANT_Q2_K: return fast ? &MAT_FAST(q2_k) : &mat_q2_k;
    case QUANT_Q3_K: return fast ? &MAT_FAST(q3_k) : &mat_q3_k;
    case QUANT_Q4_K: return fast ? &MAT_FAST(q4_k) : &mat_q4_k;
    case QUANT_Q5_K: return fast ? &MAT_FAST(q5_k) : &mat_q5_k;
    case QUANT_Q6_K: return fast ? &MAT_FAST(q6_k) : &mat_q6_k;
    case QUANT_IQ4_XS: return &mat_iq4_xs;
    default: return 0;
  }
}

const struct kernels kernels_simd = {
  .name = "simd",
  .mat = simd_mat,
  .act_bytes = act_bytes,
  .act_place = act_place,
  .act_make = act_make,
  .rms_norm = vector_rms_norm,
  .layer_norm = vector_layer_norm,
  .activate = vector_activate,
  .add = vector_add,
  .scale = vector_scale,
  .add_scaled = vector_add_scaled,
  .soft_cap = vector_soft_cap,
  .rope_pairs = vector_rope_pairs,
  .rope_halves = vector_rope_halves,
  .kv_store_key = attend_store_key,
  .kv_store_value = attend_store_value,
  .attend_scratch = attend_scratch,
  .attend = attend_chunk,
  .attend_fold = attend_fold,
  .attend_finish = attend_finish,
};
