/**
 * seeds.js: writes the fuzzers' first inputs: the smallest model of each kind, one byte (the size of the
 * pieces it is read in) in front.
 *   node tests/fuzz/seeds.js FOLDER
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { makeGguf } from '../kit/make-model.js';

const [D, HEADS, KV_HEADS, DIM, FF, VOCAB, EXPERTS] = [32, 4, 2, 8, 32, 12, 3];

let state = 1;
const next = () => (state = (state * 1664525 + 1013904223) >>> 0) / 2 ** 31 - 1;
const values = (n) => Float32Array.from({ length: n }, () => 0.3 * next());
const ones = (n) => Float32Array.from({ length: n }, () => 1 + 0.1 * next());

const norm = (name, n = D) => ({ name, dims: [n], values: ones(n) });
const vector = (name, n) => ({ name, dims: [n], values: values(n) });
const matrix = (name, ...dims) => ({ name, dims, values: values(dims.reduce((a, b) => a * b)), wide: true });

const ATTENTION = [
  matrix('attn_q.weight', D, HEADS * DIM),
  matrix('attn_k.weight', D, KV_HEADS * DIM),
  matrix('attn_v.weight', D, KV_HEADS * DIM),
  matrix('attn_output.weight', HEADS * DIM, D),
];
const FUSED = [matrix('attn_qkv.weight', D, (HEADS + 2 * KV_HEADS) * DIM), ATTENTION[3]];
const BIASES = [vector('attn_q.bias', HEADS * DIM), vector('attn_k.bias', KV_HEADS * DIM), vector('attn_v.bias', KV_HEADS * DIM)];
const HEAD_NORMS = [norm('attn_q_norm.weight', DIM), norm('attn_k_norm.weight', DIM)];
const PRE = [norm('attn_norm.weight'), norm('ffn_norm.weight')];
const POST = [norm('post_attention_norm.weight'), norm('post_ffw_norm.weight')];
const GATED = [matrix('ffn_gate.weight', D, FF), matrix('ffn_up.weight', D, FF), matrix('ffn_down.weight', FF, D)];
const PLAIN = [matrix('ffn_up.weight', D, FF), matrix('ffn_down.weight', FF, D)];
const LAYER_NORM = [norm('attn_norm.weight'), vector('attn_norm.bias', D)];
const EXPERT = [
  matrix('ffn_gate_inp.weight', D, EXPERTS),
  matrix('ffn_gate_exps.weight', D, FF, EXPERTS),
  matrix('ffn_up_exps.weight', D, FF, EXPERTS),
  matrix('ffn_down_exps.weight', FF, D, EXPERTS),
];
const WINDOW = { 'attention.sliding_window': ['u32', 4] };
const CAPS = { 'attn_logit_softcapping': ['f32', 3], 'final_logit_softcapping': ['f32', 6] };
const YARN = { 'rope.scaling.type': ['string', 'yarn'], 'rope.scaling.factor': ['f32', 4] };

/** Name, architecture, tensors of a block, tensors of the model, keys, type of the matrices. */
const SEEDS = [
  ['llama', 'llama', [...PRE, ...ATTENTION, ...GATED], [matrix('output.weight', D, VOCAB)], {}, 'F32'],
  ['llama-q8_0', 'llama', [...PRE, ...ATTENTION, ...GATED], [], YARN, 'Q8_0'],
  ['llama-q4_0', 'llama', [...PRE, ...ATTENTION, ...GATED], [vector('rope_freqs.weight', DIM / 2)], {}, 'Q4_0'],
  ['llama-q4_1', 'llama', [...PRE, ...ATTENTION, ...GATED], [], {}, 'Q4_1'],
  ['experts', 'llama', [...PRE, ...ATTENTION, ...EXPERT], [], { expert_count: ['u32', EXPERTS], expert_used_count: ['u32', 2] }, 'F16'],
  ['qwen2', 'qwen2', [...PRE, ...ATTENTION, ...BIASES, ...GATED], [], {}, 'BF16'],
  ['qwen3', 'qwen3', [...PRE, ...ATTENTION, ...HEAD_NORMS, ...GATED], [], {}, 'Q8_0'],
  ['gemma3', 'gemma3', [...PRE, ...POST, ...ATTENTION, ...HEAD_NORMS, ...GATED], [], WINDOW, 'F32'],
  ['gemma2', 'gemma2', [...PRE, ...POST, ...ATTENTION, ...GATED], [], { ...WINDOW, ...CAPS }, 'F32'],
  ['phi3', 'phi3', [...PRE, ...FUSED, matrix('ffn_up.weight', D, 2 * FF), GATED[2]], [], WINDOW, 'Q4_0'],
  ['olmo2', 'olmo2', [...POST, ...ATTENTION, norm('attn_q_norm.weight', HEADS * DIM), norm('attn_k_norm.weight', KV_HEADS * DIM), ...GATED], [], WINDOW, 'F32'],
  ['gpt2', 'gpt2', [...LAYER_NORM, norm('ffn_norm.weight'), ...FUSED, ...PLAIN], [matrix('position_embd.weight', D, 64)], {}, 'F16'],
  ['falcon', 'falcon', [...LAYER_NORM, ...FUSED, ...PLAIN], [], {}, 'Q8_0'],
];

const folder = process.argv[2];
mkdirSync(folder, { recursive: true });
SEEDS.forEach(([name, arch, block, rest, extra, type], i) => {
  const layerNorm = block.some((t) => t.name === 'attn_norm.bias');
  const keys = {
    block_count: ['u32', 2], embedding_length: ['u32', D], feed_forward_length: ['u32', FF], context_length: ['u32', 64],
    'attention.head_count': ['u32', HEADS], 'attention.head_count_kv': ['u32', KV_HEADS],
    [`attention.layer_norm_${layerNorm ? '' : 'rms_'}epsilon`]: ['f32', 1e-5], ...extra,
  };
  const typed = (t) => (t.wide && t.name !== 'blk.0.ffn_gate_inp.weight' ? { ...t, type } : t);
  const blocks = [0, 1].flatMap((l) => block.map((t) => ({ ...t, name: `blk.${l}.${t.name}` })));
  const bytes = makeGguf({
    meta: { 'general.architecture': ['string', arch], ...Object.fromEntries(Object.entries(keys).map(([k, v]) => [`${arch}.${k}`, v])) },
    tensors: [matrix('token_embd.weight', D, VOCAB), ...blocks, norm('output_norm.weight'), ...rest].map(typed),
  });
  writeFileSync(join(folder, `${name}.seed`), Buffer.concat([Buffer.of(i * 19), bytes]));
});
