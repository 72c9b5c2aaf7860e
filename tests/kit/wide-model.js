/**
 * wide-model.js: a model of more than 4 GiB, made as it is fed: its vocabulary repeats the same 1,024 rows, so
 * logits must repeat too, below and above the 4 GiB that 32-bit addresses end at. For Node and browsers.
 */
import { makeGguf } from './make-model.js';

const [D, FF, HEADS, PERIOD, REPEATS] = [1024, 32, 8, 1024, 3904];
const ROW_BYTES = (D / 32) * 34;
const VOCAB = PERIOD * REPEATS;

/** PERIOD rows of Q8_0, seeded. */
function rows() {
  const bytes = new Uint8Array(PERIOD * ROW_BYTES);
  const view = new DataView(bytes.buffer);
  let state = 7;
  for (let i = 0; i < bytes.length; i++) {
    state = (state * 1664525 + 1013904223) >>> 0;
    bytes[i] = state >>> 24;
  }
  for (let at = 0; at < bytes.length; at += 34) view.setUint16(at, 0x1400 + (at & 255), true); // about 1e-3
  return bytes;
}

/** @returns {Generator<Uint8Array>} the file's bytes */
function* file() {
  const matrix = (/** @type {string} */ name, /** @type {number[]} */ ...dims) => ({ name, dims, type: 'Q8_0' });
  const norm = (/** @type {string} */ name) => ({ name, dims: [D], type: 'F32' });
  const tensors = [
    matrix('token_embd.weight', D, VOCAB), norm('blk.0.attn_norm.weight'), norm('blk.0.ffn_norm.weight'),
    matrix('blk.0.attn_q.weight', D, D), matrix('blk.0.attn_k.weight', D, D / HEADS), matrix('blk.0.attn_v.weight', D, D / HEADS),
    matrix('blk.0.attn_output.weight', D, D), matrix('blk.0.ffn_gate.weight', D, FF), matrix('blk.0.ffn_up.weight', D, FF),
    matrix('blk.0.ffn_down.weight', FF, D), norm('output_norm.weight'),
  ];
  const u32 = (/** @type {number} */ n) => ['u32', n];
  const meta = {
    'general.architecture': ['string', 'llama'], 'llama.block_count': u32(1), 'llama.embedding_length': u32(D),
    'llama.feed_forward_length': u32(FF), 'llama.context_length': u32(64), 'llama.attention.head_count': u32(HEADS),
    'llama.attention.head_count_kv': u32(1), 'llama.attention.layer_norm_rms_epsilon': ['f32', 1e-5],
  };
  const header = makeGguf({ meta, tensors, headerOnly: true });
  yield header;
  yield new Uint8Array((32 - (header.length % 32)) % 32);
  const period = rows();
  for (let i = 0; i < REPEATS; i++) yield period;
  for (const { dims, type } of tensors.slice(1)) {
    const n = dims.reduce((a, b) => a * b, 1);
    if (type === 'F32') yield new Uint8Array(new Float32Array(n).fill(1).buffer);
    else yield period.subarray(0, (n / 32) * 34);
  }
}

/**
 * Loads it and evaluates tokens at both ends of the vocabulary.
 * @param {typeof import('../../web/engine.js').createLoader} createLoader
 * @param {object} options
 * @returns {Promise<{ variant: string, threads: number, bytes: number, wrong: number, largest: number }>}
 *   wrong: logits that differ from those of the first period
 */
export async function runWideModel(createLoader, options) {
  const loader = await createLoader(options);
  for (const chunk of file()) {
    for (let at = 0; at < chunk.length;) {
      at += loader.push(chunk.subarray(at));
      if (loader.state === 'ready') await loader.allocate();
    }
  }
  const engine = loader.finish();
  const { variant, threads } = engine.info;
  let [wrong, largest] = [0, 0];
  const first = [];
  for (const token of [5, VOCAB - PERIOD + 5]) { // the same embedding, 4 GiB apart
    const seq = engine.seq();
    engine.eval({ tokens: [token], seq });
    const logits = engine.logitsView();
    if (!first.length) first.push(...logits.subarray(0, PERIOD));
    for (let i = 0; i < VOCAB; i++) {
      if (logits[i] !== first[i % PERIOD]) wrong++;
      largest = Math.max(largest, Math.abs(logits[i]));
    }
    engine.drop(seq);
  }
  const bytes = engine.memory().wasm;
  await engine.close();
  return { variant, threads, bytes, wrong, largest };
}
