/**
 * models.js: files to measure with: random weights in real models' exact shapes, written tensor by tensor
 * into the user's cache folder. Blocks are random bytes with scales that give each matrix a sensible spread,
 * so that activations stay ordinary; the text is noise, the speed is the model's.
 */
import { closeSync, existsSync, mkdirSync, openSync, renameSync, writeSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { cacheFolder } from '../../wasm/toolchain/cache.js';
import { makeGguf, randomNumbers } from '../kit/make-model.js';
import { vocabulary } from '../kit/make-vocabulary.js';
import { TYPES, f16Bits } from '../kit/tensor-types.js';

const SHAPES = {
  'smollm2-135m': {
    schemes: ['q8_0', 'q4_0'],
    nLayers: 30, dModel: 576, nHeads: 9, nKvHeads: 3, dFf: 1536, nVocab: 49152, nCtx: 8192, theta: 1e5,
    tied: true, vocabulary: 'bpe',
  },
  'tinyllama-1.1b': {
    schemes: ['q8_0', 'q4_0'],
    nLayers: 22, dModel: 2048, nHeads: 32, nKvHeads: 4, dFf: 5632, nVocab: 32000, nCtx: 2048, theta: 1e4,
    tied: false, vocabulary: 'spm',
  },
  'llama-3.2-1b': {
    schemes: ['q4_k_m'],
    nLayers: 16, dModel: 2048, nHeads: 32, nKvHeads: 8, dFf: 8192, nVocab: 128256, nCtx: 8192, theta: 5e5,
    tied: true, vocabulary: 'bpe',
  },
};
/** Types as quantisers choose them: a better one for the output, in mixtures for some of the layers too. */
const better = (l, n) => l < n >> 3 || l >= (7 * n) >> 3 || (l - (n >> 3)) % 3 === 2;
const SCHEMES = {
  q8_0: () => 'Q8_0',
  q4_0: (name) => (name === 'output' ? 'Q8_0' : 'Q4_0'),
  q4_k_m: (name, l, n) => (name === 'output' || (/attn_v|ffn_down/.test(name) && better(l, n)) ? 'Q6_K' : 'Q4_K'),
};

/** Standard deviation of the weights that random bytes give, and of their minima's unit: so that the mean is 0. */
const SPREAD = { Q8_0: 73.9, Q4_0: 4.61, Q4_K: 258, Q6_K: 1366 };
const MINIMUM = { Q4_K: 7.5 };

/** Standard deviation of what goes back into the residual stream. Real files of types with one scale per 32 have
 * next to none below f16's normal numbers, which some machines multiply in microcode: so nothing smaller. */
const BACK = 0.015;

export const REAL = 'smollm2-135m.q4_1';
export const MODELS = [
  REAL,
  ...Object.entries(SHAPES).flatMap(([shape, { schemes }]) => schemes.map((scheme) => `${shape}.${scheme}`)),
];

/** [name, dims, type, standard deviation]: vectors have 0 and are ones. */
function tensorList(s, typeOf) {
  const { dModel: d, dFf, nVocab } = s;
  const kv = (d / s.nHeads) * s.nKvHeads;
  const into = 1 / Math.sqrt(d);
  const list = [['token_embd.weight', [d, nVocab], typeOf(s.tied ? 'output' : 'token_embd'), into]];
  for (let l = 0; l < s.nLayers; l++) {
    const add = (name, dims, sigma) =>
      list.push([`blk.${l}.${name}.weight`, dims, sigma ? typeOf(name, l, s.nLayers) : 'F32', sigma]);
    add('attn_norm', [d], 0);
    add('attn_q', [d, d], into);
    add('attn_k', [d, kv], into);
    add('attn_v', [d, kv], into);
    add('attn_output', [d, d], BACK);
    add('ffn_norm', [d], 0);
    add('ffn_gate', [d, dFf], into);
    add('ffn_up', [d, dFf], into);
    add('ffn_down', [dFf, d], BACK);
  }
  list.push(['output_norm.weight', [d], 'F32', 0]);
  if (!s.tied) list.push(['output.weight', [d, nVocab], typeOf('output'), into]);
  return list;
}

function metaOf(name, s) {
  const headDim = s.dModel / s.nHeads;
  const keys = {
    context_length: s.nCtx, embedding_length: s.dModel, block_count: s.nLayers, feed_forward_length: s.dFf,
    'attention.head_count': s.nHeads, 'attention.head_count_kv': s.nKvHeads, 'rope.dimension_count': headDim,
    vocab_size: s.nVocab,
  };
  return {
    'general.architecture': ['string', 'llama'],
    'general.name': ['string', `${name}, random`],
    ...Object.fromEntries(Object.entries(keys).map(([key, value]) => [`llama.${key}`, ['u32', value]])),
    'llama.attention.layer_norm_rms_epsilon': ['f32', 1e-5],
    'llama.rope.freq_base': ['f32', s.theta],
    ...vocabulary(s.vocabulary, s.nVocab),
  };
}

/** n blocks of a type. */
function randomBlocks(random, type, n, sigma) {
  const { bytes, d, m } = TYPES[type];
  const words = new Uint32Array(Math.ceil((n * bytes) / 4));
  for (let i = 0; i < words.length; i++) words[i] = random() * 2 ** 32;
  const out = new DataView(words.buffer);
  for (let o = 0; o < n * bytes; o += bytes) {
    const scale = (sigma / SPREAD[type]) * (0.75 + random() / 2);
    out.setUint16(o + d, f16Bits(scale), true);
    if (m !== undefined) out.setUint16(o + m, f16Bits(scale * MINIMUM[type]), true);
  }
  return new Uint8Array(words.buffer, 0, n * bytes);
}

function writeModel(name, file) {
  const [shape, scheme] = name.split(/\.(?=q\d)/);
  const s = SHAPES[shape], random = randomNumbers(1);
  const tensors = tensorList(s, SCHEMES[scheme]).map(([name, dims, type, sigma]) => ({ name, dims, type, sigma }));
  const out = openSync(`${file}.part`, 'w');
  let length = 0;
  const put = (bytes) => (length += writeSync(out, bytes));
  const align = () => put(new Uint8Array(-length & 31));
  put(makeGguf({ meta: metaOf(name, s), tensors, headerOnly: true }));
  for (const { dims, type, sigma } of tensors) {
    align();
    const n = dims.reduce((a, b) => a * b) / TYPES[type].items;
    if (!sigma) put(new Float32Array(n).fill(1));
    else for (let i = 0; i < n; i += 1 << 17) put(randomBlocks(random, type, Math.min(n - i, 1 << 17), sigma));
  }
  closeSync(out);
  renameSync(`${file}.part`, file);
}

/**
 * @param {string} name  of MODELS
 * @returns {string} its file
 */
export function modelFile(name) {
  if (name === REAL) {
    const file = fileURLToPath(new URL('../../models/SmolLM2-135M-Instruct.Q4_1.gguf', import.meta.url));
    if (!existsSync(file)) throw new Error(`${file} is missing: npm run model`);
    return file;
  }
  const folder = path.join(cacheFolder, 'bench-models');
  const file = path.join(folder, `${name}.gguf`);
  if (!existsSync(file)) {
    mkdirSync(folder, { recursive: true });
    console.error(`writing ${file}`);
    writeModel(name, file);
  }
  return file;
}
