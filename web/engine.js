/**
 * engine.js (`tabllama/engine`): a model on token ids. Created asynchronously, evaluated synchronously; in
 * Node and in workers, and with one thread anywhere.
 *
 *   const loader = await createLoader({ threads: 4 });
 *   loader.push(bytes)              until loader.state is 'ready': metadata, tensors and sizes are known
 *   await loader.allocate();        memory taken, compute workers started
 *   loader.push(bytes)              the rest, until loader.state is 'done'
 *   const engine = loader.finish();
 *
 * The header goes through a small instance first, whose plan says how much memory the model needs; the
 * real instance starts with all of it, so that weights never depend on growth.
 */
import { ModelError } from './errors.js';
import { chooseVariant, support } from './features.js';
import { Instance, PAGE_BYTES, WINDOW_BYTES, camelCase, createMemory, ptr } from './instance.js';
import { suggest } from './suggest.js';
import { Threads, chooseThreads } from './threads.js';

/** What lm_feed says. */
const [LM_DONE, LM_MORE, LM_HEADER] = [0, 1, 2];
/** enum lm_want. */
const WANTS = ['none', 'last', 'all'];
/** Most that a header with its vocabulary may take. */
const HEADER_MAXIMUM = 2 ** 30;
/** What wasm32 addresses. */
const ADDRESSABLE = 2 ** 32 - PAGE_BYTES;
/** Below so many parameters 8-bit activations cost more quality than they save time. */
const SMALL_MODEL = 500e6;

/**
 * @typedef {object} EngineOptions
 * @property {string} [variant]  'simd', 'relaxed', 'simd-mt', 'relaxed-mt'; default: the best that runs here
 * @property {number} [threads]  default: half of the logical cores, 1 to 8, where shared memory is to be had
 * @property {number} [contextLength]  positions per sequence; default: the model's, at most 8192 and what fits
 * @property {string} [kvType]  'f16' (default), 'f32'
 * @property {string} [precision]  'fast', 'high'; default: high below 500 M parameters
 * @property {number} [fileBytes]  the file's whole length, where known: a truncated one is then refused at once
 * @property {(variant: string) => string | URL | BufferSource | WebAssembly.Module} [wasm]  where the module is
 * @property {string | URL} [thread]  where thread.js is
 */

/**
 * Facts of lm_info in camelCase (nVocab, nLayers, nCtx, maxBatch, bytesWeights ...), and what was chosen.
 * @typedef {Record<string, any> & { architecture: string, quantisation: string, variant: string, threads: number,
 *   threadsReason: string | null, precision: string, kvType: string }} EngineInfo
 */

/**
 * Token and sequence in turn, as pairs or flat; or tokens of one sequence.
 * @typedef {Int32Array | Iterable<[token: number, seq: number]> | { tokens: ArrayLike<number>, seq: number }} Rows
 */

/** @typedef {import('./metadata.js').MetaValue} MetaValue */
/** @typedef {import('./instance.js').TensorInfo} TensorInfo */

/** @param {string} variant */
const packagedWasm = (variant) => new URL(`../dist/lm-${variant}.wasm`, import.meta.url);

/** @returns {typeof import('node:fs') | undefined} */
const nodeFs = () => globalThis.process?.getBuiltinModule?.('node:fs');

/**
 * @param {string | URL} address
 * @returns {Promise<BufferSource>}
 */
async function readFile(address) {
  const url = new URL(address, globalThis.location?.href);
  try {
    if (url.protocol === 'file:') return await /** @type {any} */ (nodeFs()).promises.readFile(url);
    const response = await fetch(url);
    if (!response.ok) throw new Error(`status ${response.status}`);
    return await response.arrayBuffer();
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new ModelError('NETWORK', `the engine's file ${url.pathname.split('/').pop()} can't be read: ${why}`, { cause });
  }
}

/**
 * @param {ReturnType<NonNullable<EngineOptions['wasm']>>} source
 * @returns {Promise<WebAssembly.Module>}
 */
async function compile(source) {
  if (source instanceof WebAssembly.Module) return source;
  const bytes = typeof source === 'string' || source instanceof URL ? await readFile(source) : source;
  try {
    return await WebAssembly.compile(bytes);
  } catch (cause) {
    throw new ModelError('MISMATCH', `the engine's wasm file is not valid: ${/** @type {Error} */ (cause).message}`, { cause });
  }
}

/** A page's main thread may not wait for others. */
const mayWait = () => Boolean(nodeFs()) || typeof document === 'undefined';

/**
 * @param {EngineOptions} options
 * @returns {import('./threads.js').ThreadChoice}
 */
function threadsFor({ threads, variant }) {
  const features = support();
  if (variant !== undefined && !variant.endsWith('-mt')) {
    if (threads !== undefined && threads > 1) throw new RangeError(`variant '${variant}' has one thread, not ${threads}`);
    return { threads: 1, reason: threads === 1 ? null : `variant '${variant}' has one thread` };
  }
  const unsupported = features.threads ? "a page's main thread may not wait for others" : features.reasons.at(-1);
  return chooseThreads({ asked: threads, supported: features.threads && mayWait(), unsupported });
}

/**
 * Chooses and compiles the module.
 * @param {EngineOptions} [options]
 * @returns {Promise<Loader>}
 */
export async function createLoader(options = {}) {
  const { contextLength: n } = options;
  if (n !== undefined && !(Number.isInteger(n) && n > 0 && n < 2 ** 31)) {
    throw new RangeError(`contextLength is ${n}, must be an integer from 1`);
  }
  const choice = threadsFor(options);
  const loader = new Loader(options, chooseVariant(options.variant, choice.threads), choice);
  await loader.open();
  return loader;
}

/** Takes a file's bytes from the first to the last that is needed. */
class Loader {
  #options;
  #variant;
  #choice;
  /** @type {WebAssembly.Module} */ // @ts-ignore: set by open()
  #module;
  /** @type {Instance} */ // @ts-ignore: set by open()
  #instance;
  /** @type {Threads | undefined} */
  #threads;
  #precision = '';
  #bound = false;
  #fed = 0;

  /** 'header': bytes of the header are wanted; 'ready': it is whole, allocate() is next; 'data': bytes of
   * the tensors are wanted; 'done': nothing more is needed.
   * @type {'header' | 'ready' | 'data' | 'done'} */
  state = 'header';

  /**
   * @param {EngineOptions} options
   * @param {string} variant
   * @param {import('./threads.js').ThreadChoice} choice
   */
  constructor(options, variant, choice) {
    this.#options = options;
    this.#variant = variant;
    this.#choice = choice;
    /** Set it before bind() where it is known only later. */
    this.fileBytes = options.fileBytes;
  }

  /** Makes the instance for the header. Once, by createLoader. */
  async open() {
    try {
      this.#module = await this.#compile();
      this.#instance = new Instance(this.#module, this.#memory(0, HEADER_MAXIMUM));
    } catch (error) {
      await this.#fallBack(error);
      this.#instance = new Instance(this.#module, this.#memory(0, HEADER_MAXIMUM));
    }
  }

  #compile() {
    return compile((this.#options.wasm ?? packagedWasm)(this.#variant));
  }

  /**
   * @param {number} bytes
   * @param {number} maximum
   */
  #memory(bytes, maximum) {
    return createMemory({ bytes, maximum, shared: this.#variant.endsWith('-mt') });
  }

  /**
   * Goes on with one thread where shared memory was refused or workers did not start. A variant that was
   * asked for stays, so that without its memory it is an error.
   * @param {unknown} error
   */
  async #fallBack(error) {
    const refused = error instanceof ModelError && error.code === 'MEMORY';
    const late = error instanceof ModelError && error.code === 'THREADS';
    const asked = this.#options.variant !== undefined;
    if (!this.#variant.endsWith('-mt') || !(refused ? !asked : late)) throw error;
    this.#choice = { threads: 1, reason: error.message };
    if (asked) return;
    this.#variant = this.#variant.slice(0, -'-mt'.length);
    this.#module = await this.#compile();
  }

  /**
   * Feeds bytes that follow those before.
   * @param {Uint8Array} bytes
   * @returns {number} how many were taken: fewer than given when the header has become whole
   */
  push(bytes) {
    if (this.state === 'ready') throw new ModelError('STATE', 'the header is whole: allocate() comes first');
    let at = 0;
    while (at < bytes.length && (this.state === 'header' || this.state === 'data')) {
      at += this.#feed(bytes.subarray(at, at + WINDOW_BYTES));
    }
    return this.state === 'done' ? bytes.length : at;
  }

  /** @param {Uint8Array} piece */
  #feed(piece) {
    const said = this.#instance.feed(piece);
    this.#fed += piece.length;
    if (said === LM_DONE) this.state = 'done';
    if (said !== LM_HEADER) return piece.length;
    const beyond = this.#fed - this.#instance.info('header_bytes');
    this.#fed -= beyond;
    this.state = 'ready';
    return piece.length - beyond;
  }

  /**
   * Checks that this build can run the model, and plans its memory. Not needed for metadata and tensors.
   * @returns {EngineInfo}
   */
  bind() {
    if (this.state === 'header') throw new ModelError('STATE', 'the header is not whole');
    if (!this.#bound) {
      const small = this.tensors().reduce((sum, { dims }) => sum + dims.reduce((a, b) => a * b, 1), 0) < SMALL_MODEL;
      this.#precision = this.#options.precision ?? (small ? 'high' : 'fast');
      if (this.fileBytes !== undefined) this.#instance.check('lm_file_bytes', this.fileBytes);
      this.#plan(this.#instance, this.#options.contextLength ?? 0);
      this.#bound = true;
    }
    return this.info;
  }

  /**
   * @param {Instance} instance
   * @param {number} nCtx  0: the default
   */
  #plan(instance, nCtx) {
    const kvType = instance.index('kvTypes', this.#options.kvType ?? instance.names('kvTypes')[0], 'kvType');
    const precision = instance.index('precisions', this.#precision, 'precision');
    instance.check('lm_bind', nCtx, kvType, precision, this.#choice.threads);
    if (nCtx) return;
    const chunk = instance.info('chunk_tokens');
    const free = ADDRESSABLE - instance.info('bytes_now'); // the first chunk is in bytes_now
    const fits = chunk * (1 + Math.floor(free / instance.info('bytes_chunk')));
    if (fits < instance.info('n_ctx')) instance.check('lm_bind', fits, kvType, precision, this.#choice.threads);
  }

  /** Takes the model's memory and starts the compute workers; ends the header's instance. */
  async allocate() {
    if (this.state !== 'ready') throw new ModelError('STATE', 'allocate() follows the header, once');
    this.bind();
    try {
      this.#instance = await this.#allocated();
    } catch (error) {
      await this.#fallBack(error);
      this.#plan(this.#instance, this.#instance.info('n_ctx'));
      this.#instance = await this.#allocated();
    }
    this.state = 'data';
  }

  /** @returns {Promise<Instance>} */
  async #allocated() {
    const from = this.#instance;
    const instance = new Instance(this.#module, this.#memory(from.info('bytes_now'), from.info('bytes_max')));
    let said = LM_MORE;
    for (let at = 0; said === LM_MORE; at += WINDOW_BYTES) {
      said = instance.feed(from.header().subarray(at, at + WINDOW_BYTES));
    }
    if (this.fileBytes !== undefined) instance.check('lm_file_bytes', this.fileBytes);
    this.#plan(instance, from.info('n_ctx'));
    instance.check('lm_alloc');
    if (this.#choice.threads > 1) await this.#start(instance);
    return instance;
  }

  /** @param {Instance} instance */
  async #start(instance) {
    const stacks = Array.from({ length: this.#choice.threads - 1 }, (_, i) => ptr(instance.call('lm_stack', i + 1)));
    const url = this.#options.thread ?? new URL('./thread.js', import.meta.url);
    try {
      this.#threads = await Threads.start({ url, module: this.#module, memory: instance.memory, stacks });
    } catch (cause) {
      const why = cause instanceof Error ? cause.message : String(cause);
      throw new ModelError('THREADS', `compute workers did not start: ${why}`, { cause });
    }
  }

  /**
   * A metadata value; undefined if the file has no such key.
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

  /** What is known: sizes are 0 before bind().
   * @returns {EngineInfo} */
  get info() {
    /** @type {Record<string, number>} */
    const bytesOf = {};
    for (const { type, bytes } of this.tensors()) bytesOf[type] = (bytesOf[type] ?? 0) + bytes;
    const [quantisation = ''] = Object.keys(bytesOf).sort((a, b) => bytesOf[b] - bytesOf[a]);
    return {
      architecture: String(this.meta('general.architecture')),
      quantisation,
      variant: this.#variant,
      threads: this.#choice.threads,
      threadsReason: this.#choice.reason,
      precision: this.#precision,
      kvType: this.#options.kvType ?? this.#instance.names('kvTypes')[0],
      ...this.#instance.infos(),
    };
  }

  /** The engine, when state is 'done'.
   * @returns {Engine} */
  finish() {
    if (this.state === 'done') return new Engine(this.#instance, this.#threads, Object.freeze(this.info));
    const whole = this.state === 'header' ? '' : ` of ${this.#instance.info('file_bytes')}`;
    const where = this.state === 'header' ? ', within its header' : '';
    throw new ModelError('FORMAT', `the file ends after ${this.#fed}${whole} bytes${where}`);
  }

  /** Gives up: ends the workers. */
  close() {
    this.#threads?.terminate();
  }
}

/** A model in memory. Sequences are small integers, each a context of its own. */
class Engine {
  #instance;
  #threads;

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
    this.#instance.view(Int32Array, this.#instance.window, flat.length).set(flat);
    return this.#instance.check('lm_eval', flat.length / 2, WANTS.indexOf(want));
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
    if (typeof value === 'number' && !Number.isSafeInteger(value)) throw new RangeError(`seed is ${value}, must be an integer`);
    const bits = BigInt(value);
    if (bits !== BigInt.asUintN(64, bits)) throw new RangeError(`seed is ${value}, must be from 0 to 2^64 - 1`);
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
    if (view.byteLength > WINDOW_BYTES) throw new ModelError('ARGUMENT', `${pairs.length} biases are too many`);
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

  /** Bytes now: of the whole wasm memory, of weights, of the cache as taken and as held by sequences, of work space. */
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

  /** Ends the compute workers; the memory goes when the engine is dropped. */
  async close() {
    const threads = this.#threads;
    this.#threads = undefined;
    if (!threads) return;
    if (this.#instance.crashed) return void (await Promise.all(threads.terminate()));
    this.#instance.call('lm_stop');
    await threads.stop();
  }
}

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

/**
 * Bytes of a source, chunk by chunk.
 * @param {string | URL | BufferSource | AsyncIterable<Uint8Array> | Iterable<Uint8Array>} source  a string is a path
 * @returns {{ chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>, bytes?: number }}
 */
function open(source) {
  if (source instanceof ArrayBuffer) return { chunks: [new Uint8Array(source)], bytes: source.byteLength };
  if (ArrayBuffer.isView(source)) {
    const bytes = new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
    return { chunks: [bytes], bytes: bytes.length };
  }
  if (typeof source !== 'string' && !(source instanceof URL)) return { chunks: source };
  const fs = nodeFs();
  if (!fs) throw new TypeError('paths are for Node: give the bytes');
  return { chunks: fs.createReadStream(source, { highWaterMark: WINDOW_BYTES }), bytes: fs.statSync(source).size };
}

/**
 * Reads no further than the header: metadata and tensors, and after bind() the sizes.
 * @param {Parameters<typeof open>[0]} source
 * @param {EngineOptions} [options]
 * @returns {Promise<Loader>} in state 'ready'
 */
export async function readHeader(source, options = {}) {
  const { chunks, bytes } = open(source);
  const loader = await createLoader({ fileBytes: bytes, ...options });
  for await (const chunk of chunks) {
    loader.push(chunk);
    if (loader.state === 'ready') return loader;
  }
  throw loader.finish();
}

/**
 * A model from bytes, chunks or, in Node, a path.
 * @param {Parameters<typeof open>[0]} source
 * @param {EngineOptions} [options]
 * @returns {Promise<Engine>}
 */
export async function createEngine(source, options = {}) {
  const { chunks, bytes } = open(source);
  const loader = await createLoader({ fileBytes: bytes, ...options });
  try {
    for await (const chunk of chunks) {
      const taken = loader.push(chunk);
      if (loader.state === 'ready') {
        await loader.allocate();
        loader.push(chunk.subarray(taken));
      }
      if (loader.state === 'done') break;
    }
    return loader.finish();
  } catch (error) {
    loader.close();
    throw error;
  }
}
