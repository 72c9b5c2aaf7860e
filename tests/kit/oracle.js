/**
 * oracle.js: the forward pass of the llama architecture as a textbook writes it, in float64, one token after
 * the other: what the engine is compared with. Shares nothing with the engine, not even the file reader;
 * validated itself against reference values from outside (golden.test.js).
 *
 *   x = E[token]
 *   per layer:  x += Wo attention(rope(Wq n), rope(Wk n), Wv n) + bo     n = rmsnorm(x) * attn_norm
 *               x += Wdown (silu(Wgate n) * Wup n)                       n = rmsnorm(x) * ffn_norm
 *   logits = Wout (rmsnorm(x) * output_norm)
 *
 * Options put single roundings of the engine into the exact pass, or break it on purpose:
 *   activations  'fast' | 'high'   inputs of quantised matrices rounded to 8 or 15 bits per block of 32
 *   kv           'q16' | 'f16' | 'q8_0' | 'q4_0'   keys and values rounded as such a cache stores them
 *   attention    'q16'             queries and weights rounded as they meet such a cache
 *   pairing      'halves'          the other way to pair RoPE's dimensions (wrong for llama)
 *   kvHead       (h, nHeads, nKvHeads) => index    which KV head query head h reads
 */
import { readGguf } from './read-gguf.js';
import { TYPES, f16Bits, f16Value, roundToEven } from './tensor-types.js';

const STEPS = { fast: 127, high: 16383 };
const QUANTISED = new Set(Object.keys(TYPES).filter((name) => TYPES[name].items > 1));
const F16_SMALLEST_NORMAL = 2 ** -14;
const F16_MAX = 65504;

const largest = (x) => x.reduce((max, v) => Math.max(max, Math.abs(v)), 0);

/** x with each block of `length` on a grid of 2 * steps + 1 values between -max and max. */
function roundBlocks(x, steps, length = 32) {
  const out = new Float64Array(x.length);
  for (let b = 0; b < x.length; b += length) {
    const block = x.subarray(b, b + length);
    const max = largest(block);
    if (max > 0) block.forEach((v, i) => (out[b + i] = (roundToEven((v * steps) / max) * max) / steps));
  }
  return out;
}

function roundF16(x) {
  return x.map((v) => {
    const rounded = f16Value(f16Bits(Math.min(Math.max(v, -F16_MAX), F16_MAX)));
    return Math.abs(rounded) < F16_SMALLEST_NORMAL ? 0 : rounded;
  });
}

/**
 * x with each block of 32 as integers times a scale of its own, which is kept as f16; as GGML, which rounds by the
 * scale that is not rounded yet.
 */
function roundScaled(x, scaleOf, toInteger) {
  const out = new Float64Array(x.length);
  for (let b = 0; b < x.length; b += 32) {
    const block = x.subarray(b, b + 32);
    const d = scaleOf(block.reduce((a, v) => (Math.abs(v) > Math.abs(a) ? v : a), 0));
    for (let i = 0; i < 32; i++) out[b + i] = d ? toInteger(block[i] / d) * f16Value(f16Bits(d)) : 0;
  }
  return out;
}

const roundQ16 = (x, length) => roundBlocks(x, 8191, length);

/** Weights of values, times whose scales they are integers: each 32 positions have one scale. */
function roundWeights(weights, rows) {
  const scales = rows.map(largest);
  const products = Float64Array.from(weights, (w, t) => w * scales[t]);
  return roundQ16(products, 32).map((w, t) => (scales[t] > 0 ? w / scales[t] : 0));
}

const STORES = {
  q16: roundQ16,
  f32: (row) => row,
  f16: roundF16,
  q8_0: (row) => roundScaled(row, (most) => Math.abs(most) / 127, roundToEven),
  q4_0: (row) => roundScaled(row, (most) => most / -8, (v) => Math.min(15, Math.floor(v + 8.5)) - 8),
};

const add = (x, y) => x.forEach((_, i) => (x[i] += y[i]));

/** Angles per position of each pair, and the factor that YaRN puts on q and k. */
function ropeTable(meta, tensors, arch, ropeDim) {
  const base = meta.get(`${arch}.rope.freq_base`) ?? 10000;
  const scaling = meta.get(`${arch}.rope.scaling.type`) ?? 'none';
  const factor = scaling === 'none' ? 1 : (meta.get(`${arch}.rope.scaling.factor`) ?? 1);
  const divisors = tensors.get('rope_freqs.weight')?.values();
  const freqs = Float64Array.from(
    { length: ropeDim / 2 },
    (_, i) => base ** ((-2 * i) / ropeDim) / (divisors?.[i] ?? 1),
  );
  if (scaling !== 'yarn') return { freqs: freqs.map((f) => f / factor), magnitude: 1 };
  /* YaRN: pairs that turn more than 32 times in the original context stay, those that turn less than once are
   * interpolated, between them a ramp. */
  const context =
    meta.get(`${arch}.rope.scaling.original_context_length`) ?? meta.get(`${arch}.context_length`);
  const pairOfTurns = (turns) => (ropeDim * Math.log(context / (turns * 2 * Math.PI))) / (2 * Math.log(base));
  const first = Math.max(0, Math.floor(pairOfTurns(32)));
  const last = Math.min(ropeDim - 1, Math.ceil(pairOfTurns(1)));
  const ramp = (i) => Math.min(1, Math.max(0, (i - first) / Math.max(0.001, last - first)));
  return {
    freqs: freqs.map((f, i) => f * (1 - ramp(i)) + (f / factor) * ramp(i)),
    magnitude: 1 + 0.1 * Math.log(factor),
  };
}

export class Oracle {
  #tensors;
  #options;
  #arch;
  #layers;
  #rope;
  #cache; /* [layer] { k, v }: [position] of [nKvHeads * headDim] */

  /** @param {Uint8Array} file */
  constructor(file, options = {}) {
    const { meta, tensors } = readGguf(file);
    this.#tensors = tensors;
    this.#options = options;
    const arch = meta.get('general.architecture');
    const get = (key) => meta.get(`${arch}.${key}`);
    const nHeads = get('attention.head_count');
    const dModel = get('embedding_length');
    const headDim = get('attention.key_length') ?? dModel / nHeads;
    const ropeDim = get('rope.dimension_count') ?? headDim;
    this.#arch = {
      nLayers: get('block_count'),
      nHeads,
      nKvHeads: get('attention.head_count_kv') ?? nHeads,
      headDim,
      ropeDim,
      dModel,
      eps: get('attention.layer_norm_rms_epsilon'),
      nVocab: tensors.get('token_embd.weight').dims[1],
    };
    this.#rope = ropeTable(meta, tensors, arch, ropeDim);
    this.#layers = Array.from({ length: this.#arch.nLayers }, (_, l) => this.#layer(`blk.${l}.`));
    this.embedding = this.#weight('token_embd.weight');
    this.output = this.#weight('output.weight') ?? this.embedding;
    this.outputNorm = this.#weight('output_norm.weight').values;
    this.reset();
  }

  #weight(name) {
    const t = this.#tensors.get(name);
    return t && { values: t.values(), dims: t.dims, quantised: QUANTISED.has(t.type) };
  }

  #layer(prefix) {
    const w = (name) => this.#weight(prefix + name);
    return {
      attnNorm: w('attn_norm.weight').values,
      ffnNorm: w('ffn_norm.weight').values,
      q: w('attn_q.weight'),
      k: w('attn_k.weight'),
      v: w('attn_v.weight'),
      o: w('attn_output.weight'),
      qBias: w('attn_q.bias')?.values,
      kBias: w('attn_k.bias')?.values,
      vBias: w('attn_v.bias')?.values,
      oBias: w('attn_output.bias')?.values,
      gate: w('ffn_gate.weight'),
      up: w('ffn_up.weight'),
      down: w('ffn_down.weight'),
    };
  }

  /** Forgets all tokens. */
  reset() {
    this.#cache = this.#layers.map(() => ({ k: [], v: [] }));
  }

  #multiply(w, x, bias) {
    const [nCols, nRows] = w.dims;
    const steps = w.quantised ? STEPS[this.#options.activations] : 0;
    const input = steps ? roundBlocks(x, steps) : x;
    const out = new Float64Array(nRows);
    for (let r = 0, o = 0; r < nRows; r++) {
      let sum = bias ? bias[r] : 0;
      for (let c = 0; c < nCols; c++, o++) sum += w.values[o] * input[c];
      out[r] = sum;
    }
    return out;
  }

  #norm(x, w) {
    const scale = 1 / Math.sqrt(x.reduce((sum, v) => sum + v * v, 0) / x.length + this.#arch.eps);
    return x.map((v, i) => v * scale * w[i]);
  }

  /** Turns the first ropeDim of each head by its position, in place. */
  #turn(x, position) {
    const { headDim, ropeDim } = this.#arch;
    const { freqs, magnitude } = this.#rope;
    const halves = this.#options.pairing === 'halves';
    for (let head = 0; head < x.length; head += headDim) {
      for (let i = 0; i < ropeDim / 2; i++) {
        const a = head + (halves ? i : 2 * i);
        const b = head + (halves ? i + ropeDim / 2 : 2 * i + 1);
        const c = Math.cos(position * freqs[i]) * magnitude;
        const s = Math.sin(position * freqs[i]) * magnitude;
        [x[a], x[b]] = [x[a] * c - x[b] * s, x[a] * s + x[b] * c];
      }
    }
    return x;
  }

  /** All heads of one query against everything cached. */
  #attention(q, { k, v }) {
    const { nHeads, nKvHeads, headDim } = this.#arch;
    const kvHead = this.#options.kvHead ?? ((h) => Math.floor(h / (nHeads / nKvHeads)));
    const isQ16 = this.#options.attention === 'q16';
    const out = new Float64Array(nHeads * headDim);
    for (let h = 0; h < nHeads; h++) {
      const at = kvHead(h, nHeads, nKvHeads) * headDim;
      const own = q.subarray(h * headDim, (h + 1) * headDim);
      const query = isQ16 ? roundQ16(own, headDim) : own;
      const scores = k.map((row) => {
        let dot = 0;
        for (let i = 0; i < headDim; i++) dot += query[i] * row[at + i];
        return dot / Math.sqrt(headDim);
      });
      const max = scores.reduce((a, b) => Math.max(a, b));
      const weights = scores.map((s) => Math.exp(s - max));
      const sum = weights.reduce((a, b) => a + b);
      const met = isQ16 ? roundWeights(weights, v.map((row) => row.subarray(at, at + headDim))) : weights;
      met.forEach((w, t) => {
        for (let i = 0; i < headDim; i++) out[h * headDim + i] += (w / sum) * v[t][at + i];
      });
    }
    return out;
  }

  /** Appends one token; returns its logits. */
  step(token) {
    const { dModel, headDim } = this.#arch;
    const store = STORES[this.#options.kv ?? 'f32'];
    const x = this.embedding.values.slice(token * dModel, (token + 1) * dModel);
    const position = this.#cache[0].k.length;
    this.#layers.forEach((w, l) => {
      const cache = this.#cache[l];
      const n = this.#norm(x, w.attnNorm);
      const q = this.#turn(this.#multiply(w.q, n, w.qBias), position);
      cache.k.push(store(this.#turn(this.#multiply(w.k, n, w.kBias), position), headDim));
      cache.v.push(store(this.#multiply(w.v, n, w.vBias), headDim));
      add(x, this.#multiply(w.o, this.#attention(q, cache), w.oBias));
      const m = this.#norm(x, w.ffnNorm);
      const gate = this.#multiply(w.gate, m);
      const up = this.#multiply(w.up, m);
      add(
        x,
        this.#multiply(
          w.down,
          gate.map((g, i) => (g / (1 + Math.exp(-g))) * up[i]),
        ),
      );
    });
    return this.#multiply(this.output, this.#norm(x, this.outputNorm));
  }

  /** Logits of each of `tokens`, from an empty context. */
  run(tokens) {
    this.reset();
    return tokens.map((token) => this.step(token));
  }
}
