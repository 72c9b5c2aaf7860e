/** evaluator.js: a loaded model on token ids: sequences, logits, sampling; every call is synchronous. */
import { ModelError } from './errors.js';
import { WINDOW_BYTES, camelCase, ptr } from './instance.js';
import { Pace } from './pace.js';
import { suggest } from './suggest.js';

/** @typedef {import('./instance.js').Instance} Instance */
/** @typedef {import('./loader.js').EngineInfo} EngineInfo */
/** @typedef {import('./metadata.js').MetaValue} MetaValue */
/** @typedef {import('./threads.js').Threads} Threads */

/**
 * Token and sequence in turn, as pairs or flat; or tokens of one sequence.
 * @typedef {Int32Array | Iterable<[token: number, seq: number]> | { tokens: ArrayLike<number>, seq: number }} Rows
 */

/** enum lm_want. */
const WANTS = ['none', 'last', 'all'];

/**
 * @param {number} value
 * @param {string} what
 */
function int32(value, what) {
  if ((value | 0) !== value) throw new RangeError(`${what} is ${value}, must be an integer`);
  return value;
}

/**
 * @param {Rows} rows
 * @returns {Int32Array} token, seq, token, seq ...
 */
function flatten(rows) {
  if (rows instanceof Int32Array) {
    if (rows.length % 2) throw new RangeError('rows are pairs of token and sequence');
    return rows;
  }
  const pairs = 'tokens' in rows ? Array.from(rows.tokens, (token) => [token, rows.seq]) : [...rows];
  return Int32Array.from(pairs.flat(), (value, i) => int32(value, i % 2 ? 'seq' : 'token'));
}

/** A model in memory. Sequences are small integers, each a context of its own. */
export class Engine {
  #instance;
  #threads;
  #pace = new Pace();
  /** Whether one thread works for the others. */
  #alone = false;

  /**
   * @param {Instance} instance
   * @param {Threads | undefined} threads
   * @param {EngineInfo} info
   */
  constructor(instance, threads, info) {
    this.#instance = instance;
    this.#threads = threads;
    /** @readonly */
    this.info = info;
  }

  /**
   * A metadata value of the file; undefined if it has no such key.
   * @param {string} key
   * @returns {MetaValue | undefined}
   */
  meta(key) {
    return this.#instance.meta(key);
  }

  /** All metadata keys, in file order. */
  keys() {
    return this.#instance.keys();
  }

  /** All tensors, in file order. */
  tensors() {
    return this.#instance.tensors();
  }

  /** A new empty sequence. */
  seq() {
    return this.#instance.check('lm_seq');
  }

  /** A new sequence that holds what `seq` holds, sharing its memory, with its sampler and random state.
   * @param {number} seq */
  fork(seq) {
    return this.#instance.check('lm_fork', int32(seq, 'seq'));
  }

  /** Ends a sequence.
   * @param {number} seq */
  drop(seq) {
    this.#instance.check('lm_drop', int32(seq, 'seq'));
  }

  /** Tokens in a sequence.
   * @param {number} seq */
  pos(seq) {
    return this.#instance.check('lm_pos', int32(seq, 'seq'));
  }

  /** Forgets a sequence's tokens from position `pos` on.
   * @param {number} seq
   * @param {number} pos */
  rewind(seq, pos) {
    this.#instance.check('lm_rewind', int32(seq, 'seq'), int32(pos, 'pos'));
  }

  /**
   * Appends rows to their sequences and computes. On an error nothing has changed.
   * @param {Rows} rows  1 .. info.maxBatch (with 'all' info.maxAll); those of one sequence together, in order
   * @param {'none' | 'last' | 'all'} [want]  which logits to keep: of no row, of each sequence's last, of all
   * @returns {number} rows whose logits were kept
   */
  eval(rows, want = 'last') {
    if (!WANTS.includes(want)) throw new RangeError(`want is '${want}', must be one of ${WANTS.join(', ')}`);
    const flat = flatten(rows);
    const { maxBatch } = this.info;
    if (flat.length > 2 * maxBatch) {
      throw new ModelError('ARGUMENT', `${flat.length / 2} rows at once, at most ${maxBatch} can be`);
    }
    const alone = flat.length === 2 && this.#pace.alone;
    if (alone !== this.#alone) {
      this.#instance.check('lm_threads', alone ? 1 : this.info.threads);
      this.#alone = alone;
    }
    this.#instance.view(Int32Array, this.#instance.window, flat.length).set(flat);
    const start = performance.now();
    const kept = this.#instance.check('lm_eval', flat.length / 2, WANTS.indexOf(want));
    if (flat.length === 2 && this.info.threads > 1) this.#pace.took(performance.now() - start);
    return kept;
  }

  /** A copy of the i-th kept row of the last eval.
   * @param {number} i
   * @returns {Float32Array} [nVocab] */
  logits(i = 0) {
    return this.logitsView(i).slice();
  }

  /** The same without a copy: it stands in the engine's memory, valid until the next call of any method.
   * @param {number} i
   * @returns {Float32Array} */
  logitsView(i = 0) {
    const address = ptr(this.#instance.call('lm_logits', int32(i, 'row')));
    if (!address) throw new RangeError(`logits of row ${i} were not kept`);
    return this.#instance.view(Float32Array, address, this.info.nVocab);
  }

  /**
   * Sampler parameters of a sequence, by the names of src/sample.def in camelCase; others stay.
   * @param {number} seq
   * @param {Record<string, number>} parameters  temperature, topK, topP, minP, repeatPenalty ...
   */
  setSampler(seq, parameters) {
    const names = this.#instance.names('samplers').map(camelCase);
    for (const [name, value] of Object.entries(parameters)) {
      const id = names.indexOf(name);
      if (id < 0) throw new TypeError(`there is no sampler parameter '${name}'${suggest(name, names)}`);
      if (typeof value !== 'number') throw new TypeError(`${name} is ${typeof value}, must be a number`);
      this.#instance.check('lm_sample_set', int32(seq, 'seq'), id, value);
    }
  }

  /** Starts the random numbers of a sequence anew.
   * @param {number} seq
   * @param {number | bigint} value  an integer, 0 .. 2^64 - 1 */
  seed(seq, value) {
    if (typeof value === 'number' && !Number.isSafeInteger(value))
      throw new RangeError(`seed is ${value}, must be an integer`);
    const bits = BigInt(value);
    if (bits !== BigInt.asUintN(64, bits))
      throw new RangeError(`seed is ${value}, must be from 0 to 2^64 - 1`);
    this.#instance.check('lm_seed', int32(seq, 'seq'), Number(bits & 0xffffffffn), Number(bits >> 32n));
  }

  /**
   * What is added to the logits of single tokens before sampling; replaces what was set before.
   * @param {number} seq
   * @param {Map<number, number> | Record<string, number>} biases  -Infinity forbids a token
   */
  bias(seq, biases) {
    const pairs = [...(biases instanceof Map ? biases : Object.entries(biases))];
    const view = new DataView(new ArrayBuffer(8 * pairs.length));
    pairs.forEach(([id, value], i) => {
      view.setInt32(8 * i, int32(Number(id), 'token'), true);
      view.setFloat32(8 * i + 4, value, true);
    });
    if (view.byteLength > WINDOW_BYTES)
      throw new ModelError('ARGUMENT', `${pairs.length} biases are too many`);
    this.#instance.view(Uint8Array, this.#instance.window, view.byteLength).set(new Uint8Array(view.buffer));
    this.#instance.check('lm_bias', int32(seq, 'seq'), pairs.length);
  }

  /**
   * Draws the next token from a kept row.
   * @param {number} seq  whose sampler
   * @param {number} [i]  kept row
   * @param {ArrayLike<number>} [last]  the ids before, oldest first: what the penalties look at
   * @returns {number}
   */
  sample(seq, i = 0, last = []) {
    const ids = Int32Array.from(last).subarray(-4096);
    this.#instance.view(Int32Array, this.#instance.window, ids.length).set(ids);
    return this.#instance.check('lm_sample', int32(seq, 'seq'), int32(i, 'row'), ids.length);
  }

  /** Bytes now: of the whole wasm memory, of weights, of the cache as taken and as held by sequences, of
   * work space. */
  memory() {
    const info = (/** @type {string} */ name) => this.#instance.info(name);
    return {
      wasm: this.#instance.memory.buffer.byteLength,
      weights: info('bytes_weights'),
      kv: info('bytes_kv'),
      kvUsed: info('bytes_kv_used'),
      scratch: info('bytes_scratch'),
    };
  }

  /** Ends the compute workers; the memory goes when the engine is dropped. No other call may follow: each throws
   * CLOSED. */
  async close() {
    const threads = this.#threads;
    this.#threads = undefined;
    const { crashed } = this.#instance;
    if (threads && !crashed) this.#instance.call('lm_stop');
    this.#instance.close();
    await (crashed ? Promise.all(threads?.terminate() ?? []) : threads?.stop());
  }
}
