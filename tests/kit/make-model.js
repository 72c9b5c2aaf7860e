/**
 * make-model.js: writes GGUF files of our own: any metadata, any tensor list, versions 2 and 3, any
 * alignment; and small models of the llama architecture with seeded random weights in every type that
 * the engine computes with. Same arguments, same bytes. Test models: no quality of quantisation is sought.
 *
 *   makeGguf({ meta: { 'general.architecture': ['string', 'llama'] }, tensors: [{ name, dims, values }] })
 *   makeModel({ nLayers: 2, type: 'Q4_1' })          a whole model
 *   makeModel({ ...BIG, headerOnly: true })          the header of one that would not fit
 */
import { vocabulary } from './make-vocabulary.js';
import { TYPES, encode } from './tensor-types.js';

/* ---- The container ---- */

const VALUE = {
  u8: [0, 1, 'setUint8'],
  i8: [1, 1, 'setInt8'],
  u16: [2, 2, 'setUint16'],
  i16: [3, 2, 'setInt16'],
  u32: [4, 4, 'setUint32'],
  i32: [5, 4, 'setInt32'],
  f32: [6, 4, 'setFloat32'],
  bool: [7, 1, 'setUint8'],
  string: [8],
  array: [9],
  u64: [10, 8, 'setBigUint64'],
  i64: [11, 8, 'setBigInt64'],
  f64: [12, 8, 'setFloat64'],
};

/** Names of all metadata types. */
export const VALUE_TYPES = Object.keys(VALUE);

class Writer {
  #bytes = new Uint8Array(1 << 16);
  length = 0;

  /** Room for n bytes at the end; returns where they start. */
  #grow(n) {
    const at = this.length;
    this.length += n;
    if (this.length > this.#bytes.length) {
      const larger = new Uint8Array(Math.max(this.length, 2 * this.#bytes.length));
      larger.set(this.#bytes);
      this.#bytes = larger;
    }
    return at;
  }
  bytes(b) {
    const at = this.#grow(b.length);
    this.#bytes.set(b, at);
  }
  scalar(type, v) {
    const [, size, set] = VALUE[type];
    const at = this.#grow(size);
    new DataView(this.#bytes.buffer)[set](at, size === 8 && type !== 'f64' ? BigInt(v) : Number(v), true);
  }
  /** A string, or bytes that need not be UTF-8. */
  string(s) {
    const b = typeof s === 'string' ? new TextEncoder().encode(s) : s;
    this.scalar('u64', b.length);
    this.bytes(b);
  }
  /** Number of a metadata type; 'raw' brings its own. */
  type(type, v) {
    this.scalar('u32', type === 'raw' ? v.type : VALUE[type][0]);
  }
  /**
   * One metadata value: a scalar, a string, ['element type', [values]] for an array, or for 'raw' {type,
   * bytes}.
   */
  value(type, v) {
    if (type === 'raw') return this.bytes(v.bytes);
    if (type === 'string') return this.string(v);
    if (type !== 'array') return this.scalar(type, v);
    const [element, values] = v;
    this.type(element);
    this.scalar('u64', values.length);
    for (const one of values) this.value(element, one);
  }
  pad(alignment) {
    this.#grow((alignment - (this.length % alignment)) % alignment);
  }
  done() {
    return this.#bytes.slice(0, this.length);
  }
}

/** Type name or the number of one that has no encoder; the latter's tensors give their size. */
const typeId = (type) => (typeof type === 'number' ? type : TYPES[type].id);

function sizeOf({ dims, type = 'F32', bytes, size }) {
  if (bytes) return bytes.length;
  if (size !== undefined) return size;
  return (dims.reduce((a, b) => a * Number(b), 1) / TYPES[type].items) * TYPES[type].bytes;
}

/**
 * A GGUF file.
 * @param {object} file
 * @param {Record<string, [string, any]> | [string, [string, any]][]} [file.meta]  key to [type, value]
 * @param {object[]} [file.tensors]  {name, dims, type = 'F32', and values, bytes or neither (zeros);
 * offset and
 *   nDims overrule what stands in the header; type may be a number, then with bytes or size}
 * @param {number} [file.version]
 * @param {number} [file.alignment]  what the offsets obey; the key is written where it is not 32
 * @param {boolean} [file.headerOnly]  leaves the tensors' bytes out
 * @param {bigint | number} [file.nTensors]  overrules the count, as does nKeys
 */
export function makeGguf({
  meta = {},
  tensors = [],
  version = 3,
  alignment = 32,
  headerOnly = false,
  nTensors,
  nKeys,
}) {
  const entries = Array.isArray(meta) ? [...meta] : Object.entries(meta);
  if (alignment !== 32) entries.push(['general.alignment', ['u32', alignment]]);
  const w = new Writer();
  w.bytes(new TextEncoder().encode('GGUF'));
  w.scalar('u32', version);
  w.scalar('u64', nTensors ?? tensors.length);
  w.scalar('u64', nKeys ?? entries.length);
  for (const [key, [type, value]] of entries) {
    w.string(key);
    w.type(type, value);
    w.value(type, value);
  }
  let offset = 0;
  for (const t of tensors) {
    w.string(t.name);
    w.scalar('u32', t.nDims ?? t.dims.length);
    for (const d of t.dims) w.scalar('u64', d);
    w.scalar('u32', typeId(t.type ?? 'F32'));
    w.scalar('u64', t.offset ?? offset);
    offset = Math.ceil((offset + sizeOf(t)) / alignment) * alignment;
  }
  if (headerOnly) return w.done();
  for (const t of tensors) {
    w.pad(alignment);
    w.bytes(t.bytes ?? (t.values ? encode(t.type ?? 'F32', t.values) : new Uint8Array(sizeOf(t))));
  }
  return w.done();
}

/* ---- Models ---- */

/** Seeded numbers in [0, 1): xorshift of 32 bits. */
export function randomNumbers(seed) {
  let s = (Math.imul(seed, 0x9e3779b1) ^ 0x5bd1e995) | 0 || 1;
  const next = () => {
    s ^= s << 13;
    s ^= s >>> 17;
    s ^= s << 5;
    return (s >>> 0) / 2 ** 32;
  };
  for (let i = 0; i < 8; i++) next();
  return next;
}

/** n values around `mean`, nearly normal, of standard deviation sigma. */
function bell(random, n, sigma, mean = 0) {
  const out = new Float32Array(n);
  for (let i = 0; i < n; i++)
    out[i] = mean + sigma * (random() + random() + random() + random() - 2) * Math.sqrt(3);
  return out;
}

/** Tensors of the llama architecture: [name, dims, spread of the random weights, their mean]. */
function tensorList(s) {
  const { dModel: d, dFf, nVocab, headDim } = s;
  const q = s.nHeads * headDim;
  const kv = s.nKvHeads * headDim;
  const matrix = (name, n, k) => [name, [k, n], 1 / Math.sqrt(k)];
  const norm = (name) => [name, [d], 0.1, 1];
  const bias = (name, n) => [name, [n], 0.1];
  const list = [['token_embd.weight', [d, nVocab], 1]];
  if (s.ropeFreqs) list.push(['rope_freqs.weight', [s.ropeFreqs.length], 0]);
  for (let l = 0; l < s.nLayers; l++) {
    const layer = [
      norm('attn_norm.weight'),
      matrix('attn_q.weight', q, d),
      matrix('attn_k.weight', kv, d),
      matrix('attn_v.weight', kv, d),
      matrix('attn_output.weight', d, q),
      ...(s.bias
        ? [
            bias('attn_q.bias', q),
            bias('attn_k.bias', kv),
            bias('attn_v.bias', kv),
            bias('attn_output.bias', d),
          ]
        : []),
      norm('ffn_norm.weight'),
      matrix('ffn_gate.weight', dFf, d),
      matrix('ffn_up.weight', dFf, d),
      matrix('ffn_down.weight', d, dFf),
    ];
    for (const [name, ...rest] of layer) list.push([`blk.${l}.${name}`, ...rest]);
  }
  list.push(norm('output_norm.weight'));
  if (!s.tied) list.push(matrix('output.weight', nVocab, d));
  list.push(...s.extraTensors);
  return list;
}

function modelMeta(s) {
  const a = s.arch;
  const scaling = s.ropeScaling;
  return {
    'general.architecture': ['string', a],
    'general.name': ['string', `random ${s.type}`],
    [`${a}.context_length`]: ['u32', s.nCtx],
    [`${a}.embedding_length`]: ['u32', s.dModel],
    [`${a}.block_count`]: ['u32', s.nLayers],
    [`${a}.feed_forward_length`]: ['u32', s.dFf],
    [`${a}.attention.head_count`]: ['u32', s.nHeads],
    [`${a}.attention.head_count_kv`]: ['u32', s.nKvHeads],
    [`${a}.attention.layer_norm_rms_epsilon`]: ['f32', s.eps],
    ...(s.headDim * s.nHeads === s.dModel
      ? {}
      : {
          [`${a}.attention.key_length`]: ['u32', s.headDim],
          [`${a}.attention.value_length`]: ['u32', s.headDim],
        }),
    [`${a}.rope.dimension_count`]: ['u32', s.ropeDim],
    [`${a}.rope.freq_base`]: ['f32', s.ropeTheta],
    ...(scaling
      ? {
          [`${a}.rope.scaling.type`]: ['string', scaling.type],
          [`${a}.rope.scaling.factor`]: ['f32', scaling.factor],
          ...(scaling.originalContext
            ? { [`${a}.rope.scaling.original_context_length`]: ['u32', scaling.originalContext] }
            : {}),
        }
      : {}),
    [`${a}.vocab_size`]: ['u32', s.nVocab],
    ...vocabulary(s.vocabulary, s.nVocab),
    ...(s.chatTemplate ? { 'tokenizer.chat_template': ['string', s.chatTemplate] } : {}),
    ...s.meta,
  };
}

/** What makeModel makes unless told otherwise. */
export const SHAPE = {
  arch: 'llama',
  nLayers: 2,
  dModel: 64,
  nHeads: 4,
  nKvHeads: 2,
  dFf: 96,
  nVocab: 320,
  nCtx: 512,
  eps: 1e-5,
  ropeTheta: 10000,
  type: 'F32',
  seed: 1,
  vocabulary: 'spm',
  tied: false,
  bias: false,
  ropeScaling: null,
  ropeFreqs: null,
  chatTemplate: null,
  meta: {},
  weights: {},
  extraTensors: [],
};

/**
 * A whole model; names as in SHAPE. `headDim` is dModel / nHeads and `ropeDim` headDim unless given.
 * Matrices are of `type`, vectors F32. `weights` overrules single tensors: name to values, or to a
 * function of (column, row). Null in `meta` leaves a key out, null in `weights` a tensor; `extraTensors`
 * are rows as in tensorList. order 'reversed' writes the tensors last to first. Other options as
 * makeGguf.
 * @returns {Uint8Array}
 */
export function makeModel(options = {}) {
  const s = { ...SHAPE, ...options };
  s.headDim ??= s.dModel / s.nHeads;
  s.ropeDim ??= s.headDim;
  const random = randomNumbers(s.seed);
  const tensors = [];
  for (const [name, dims, spread, mean] of tensorList(s)) {
    const own = name === 'rope_freqs.weight' ? s.ropeFreqs : s.weights[name];
    if (own === null) continue;
    const type = dims.length === 1 ? 'F32' : s.type;
    if (s.headerOnly) {
      tensors.push({ name, dims, type });
      continue;
    }
    const n = dims.reduce((a, b) => a * b);
    let values = bell(random, n, spread, mean);
    if (typeof own === 'function') values = values.map((_, i) => own(i % dims[0], Math.floor(i / dims[0])));
    else if (own) values = Float32Array.from(own);
    tensors.push({ name, dims, type, values });
  }
  if (s.order === 'reversed') tensors.reverse();
  const meta = Object.entries(modelMeta(s)).filter(([, value]) => value !== null);
  const { version, alignment, headerOnly } = s;
  return makeGguf({ meta, tensors, version, alignment, headerOnly });
}
