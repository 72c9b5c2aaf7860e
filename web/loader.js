/**
 * loader.js: from a file's bytes to an engine. The header goes through a small instance first, whose plan
 * says how much memory the model needs; the real instance starts with all of it, so that weights never
 * depend on growth.
 */
import { ModelError } from './errors.js';
import { Engine } from './evaluator.js';
import { chooseVariant, support, wideVariant } from './features.js';
import { ADDRESSABLE, ADDRESSABLE_WIDE, Instance, WINDOW_BYTES, createMemory } from './instance.js';
import { absolutePath, onNode, readFile } from './node.js';
import { overridesOf, ropeOf, warningsOf } from './rope.js';
import { Threads, chooseThreads } from './threads.js';

/** What lm_feed says. */
const [LM_DONE, LM_MORE, LM_HEADER] = [0, 1, 2];
/** Most that a header with its vocabulary may take: some 20 MB are usual, and shared memory reserves it. */
const HEADER_MAXIMUM = 2 ** 28;
/** Below so many parameters 8-bit activations cost more quality than they save time. */
const SMALL_MODEL = 500e6;

/**
 * @typedef {object} EngineOptions
 * @property {string} [variant]  'simd', 'relaxed', 'relaxed-dot', 'simd-mt', 'relaxed-mt', 'relaxed-dot-mt', 'relaxed-m64',
 *   'relaxed-m64-mt'; default: the best that runs here, -m64 only for models that need it
 * @property {number} [threads]  default: half of the logical cores, 1 to 8, where shared memory is to be had
 * @property {number} [contextLength]  positions per sequence; default: the model's, at most 8192 and what fits
 * @property {string} [kvType]  'q16' (default), 'f16', 'f32', 'q8_0', 'q4_0'
 * @property {string} [precision]  'fast', 'high'; default: high below 500 M parameters
 * @property {import('./rope.js').RopeOptions} [rope]  in place of what the file says
 * @property {number} [fileBytes]  the file's whole length, where known: a truncated one is then refused at once
 */

/** @typedef {import('./metadata.js').MetaValue} MetaValue */
/** @typedef {import('./instance.js').TensorInfo} TensorInfo */

/**
 * Facts of lm_info in camelCase (nVocab, nLayers, nCtx, maxBatch, bytesWeights ...), and what was chosen.
 * @typedef {Record<string, any> & { architecture: string, quantisation: string, variant: string, threads: number,
 *   threadsReason: string | null, precision: string, kvType: string,
 *   rope: import('./index.js').ModelInfo['rope'], warnings: string[] }} EngineInfo
 */

/**
 * Where the package's files are.
 * @typedef {object} Assets
 * @property {(variant: string) => string | URL | BufferSource | WebAssembly.Module} wasm
 * @property {string | URL} thread  address of thread.js
 */

/**
 * One of the engine's own files.
 * @param {string | URL} address
 * @returns {Promise<BufferSource>}
 */
async function readAsset(address) {
  const url = new URL(address, globalThis.location?.href);
  if (url.protocol === 'file:' && onNode()) return readFile(absolutePath(url));
  try {
    const response = await fetch(url);
    if (!response.ok) throw new Error(`status ${response.status}`);
    return await response.arrayBuffer();
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new ModelError(
      'NETWORK',
      `the engine's file ${url.pathname.split('/').pop()} can't be fetched: ${why}`,
      { cause },
    );
  }
}

/**
 * @param {ReturnType<Assets['wasm']>} source
 * @returns {Promise<WebAssembly.Module>}
 */
async function compile(source) {
  if (source instanceof WebAssembly.Module) return source;
  const bytes = typeof source === 'string' || source instanceof URL ? await readAsset(source) : source;
  try {
    return await WebAssembly.compile(bytes);
  } catch (cause) {
    throw new ModelError(
      'MISMATCH',
      `the engine's wasm file is not valid: ${/** @type {Error} */ (cause).message}`,
      { cause },
    );
  }
}

/** A page's main thread may not wait for others. */
const mayWait = () => onNode() || typeof document === 'undefined';

/**
 * @param {EngineOptions} options
 * @returns {import('./threads.js').ThreadChoice}
 */
function threadsFor({ threads, variant }) {
  const features = support();
  if (variant !== undefined && !variant.endsWith('-mt')) {
    if (threads !== undefined && threads > 1)
      throw new RangeError(`variant '${variant}' has one thread, not ${threads}`);
    return { threads: 1, reason: threads === 1 ? null : `variant '${variant}' has one thread` };
  }
  const alone = "a page's main thread may not wait for others";
  if (variant !== undefined && threads !== undefined && threads > 1 && features.threads && !mayWait()) {
    throw new ModelError('THREADS', `variant '${variant}' can't have ${threads} threads here: ${alone}`);
  }
  const unsupported = features.threads
    ? alone
    : features.reasons.find((reason) => reason.endsWith('one thread'));
  return chooseThreads({ asked: threads, supported: features.threads && mayWait(), unsupported });
}

/**
 * Chooses and compiles the module.
 * @param {EngineOptions & Assets} options
 * @returns {Promise<Loader>}
 */
export async function createLoader(options) {
  const { contextLength: n } = options;
  if (n !== undefined && !(Number.isInteger(n) && n > 0 && n < 2 ** 31)) {
    throw new RangeError(`contextLength is ${n}, must be an integer from 1`);
  }
  const choice = threadsFor(options);
  const loader = new Loader(options, chooseVariant(options.variant, choice.threads), choice);
  await loader.open();
  return loader;
}

/**
 * A new loader for each time a source is read; the first is made now, so that wrong options are refused
 * before anything is asked for. One whose reading fails is closed.
 * @param {() => Promise<Loader>} make
 * @returns {Promise<<T>(use: (loader: Loader) => Promise<T>) => Promise<T>>}
 */
export async function loaders(make) {
  /** @type {Loader | undefined} */
  let first = await make();
  return async (use) => {
    const loader = first ?? (await make());
    first = undefined;
    try {
      return await use(loader);
    } catch (error) {
      loader.close();
      throw error;
    }
  };
}

/**
 * Feeds no more than the header.
 * @param {Loader} loader
 * @param {Iterable<Uint8Array> | AsyncIterable<Uint8Array>} chunks
 * @returns {Promise<Loader>} the same, in state 'ready'
 */
export async function feedHeader(loader, chunks) {
  for await (const chunk of chunks) {
    loader.push(chunk);
    if (loader.state === 'ready') return loader;
  }
  throw loader.truncated();
}

/** Takes a file's bytes from the first to the last that is needed. */
export class Loader {
  #options;
  #variant;
  #choice;
  #overrides;
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
   * @param {EngineOptions & Assets} options
   * @param {string} variant
   * @param {import('./threads.js').ThreadChoice} choice
   */
  constructor(options, variant, choice) {
    this.#options = options;
    this.#variant = variant;
    this.#choice = choice;
    this.#overrides = overridesOf(options.rope);
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
    return compile(this.#options.wasm(this.#variant));
  }

  /**
   * @param {number} bytes
   * @param {number} maximum
   */
  #memory(bytes, maximum) {
    const shared = this.#variant.endsWith('-mt');
    return createMemory({ bytes, maximum, shared, wide: this.#wide });
  }

  /** Bytes that a memory can have at most, for this model and the variants that may be taken. */
  get addressable() {
    const wide = this.#wide || (this.#options.variant === undefined && wideVariant(this.#variant) !== undefined);
    return wide ? ADDRESSABLE_WIDE : ADDRESSABLE;
  }

  get #wide() {
    return this.#variant.includes('-m64');
  }

  /**
   * Goes on with one thread where shared memory was refused or workers did not start. A variant that was
   * asked for stays, so that without its memory it is an error.
   * @param {unknown} error
   */
  async #fallBack(error) {
    const asked = this.#options.variant !== undefined;
    const curable =
      error instanceof ModelError && (error.code === 'THREADS' || (error.code === 'MEMORY' && !asked));
    if (!curable || !this.#variant.endsWith('-mt')) throw error;
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
    this.#bind();
    return this.info;
  }

  #bind() {
    if (this.state === 'header') throw new ModelError('STATE', 'the header is not whole');
    if (!this.#bound) {
      const small =
        this.tensors().reduce((sum, { dims }) => sum + dims.reduce((a, b) => a * b, 1), 0) < SMALL_MODEL;
      this.#precision = this.#options.precision ?? (small ? 'high' : 'fast');
      if (this.fileBytes !== undefined) this.#instance.check('lm_file_bytes', this.fileBytes);
      this.#plan(this.#instance, this.#options.contextLength ?? 0);
      this.#bound = true;
    }
  }

  /**
   * bind(), with 64-bit addresses where the model needs them, they are to be had, and no variant was asked
   * for.
   */
  async plan() {
    try {
      this.#bind();
    } catch (error) {
      const tooLarge = error instanceof ModelError && error.code === 'MEMORY' && this.#instance.info('bytes_now') > ADDRESSABLE;
      const wide = tooLarge && !this.#wide && this.#options.variant === undefined ? wideVariant(this.#variant) : undefined;
      if (!wide) throw error;
      this.#variant = wide;
      this.#module = await this.#compile();
      this.#instance = this.#copyOf(this.#instance, 0, HEADER_MAXIMUM);
      this.#bind();
    }
  }

  /**
   * An instance of the current variant that has read the same header.
   * @param {Instance} from
   * @param {number} bytes
   * @param {number} maximum
   */
  #copyOf(from, bytes, maximum) {
    const instance = new Instance(this.#module, this.#memory(bytes, maximum));
    let said = LM_MORE;
    for (let at = 0; said === LM_MORE; at += WINDOW_BYTES) {
      said = instance.feed(from.header().subarray(at, at + WINDOW_BYTES));
    }
    return instance;
  }

  /**
   * @param {Instance} instance
   * @param {number} nCtx  0: the default
   */
  #plan(instance, nCtx) {
    const kvType = instance.index('kvTypes', this.#options.kvType ?? instance.names('kvTypes')[0], 'kvType');
    const precision = instance.index('precisions', this.#precision, 'precision');
    for (const [name, value] of this.#overrides) instance.check('lm_override', instance.index('overrides', name, 'the option'), value);
    instance.check('lm_bind', nCtx, kvType, precision, this.#choice.threads);
    if (nCtx) return;
    const chunk = instance.info('chunk_tokens');
    const free = (this.#wide ? ADDRESSABLE_WIDE : ADDRESSABLE) - instance.info('bytes_now'); // the first chunk is in bytes_now
    const fits = chunk * (1 + Math.floor(free / instance.info('bytes_chunk')));
    if (fits < instance.info('n_ctx'))
      instance.check('lm_bind', fits, kvType, precision, this.#choice.threads);
  }

  /** Takes the model's memory and starts the compute workers; ends the header's instance. */
  async allocate() {
    if (this.state !== 'ready') throw new ModelError('STATE', 'allocate() follows the header, once');
    await this.plan();
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
    const instance = this.#copyOf(from, from.info('bytes_now'), from.info('bytes_max'));
    if (this.fileBytes !== undefined) instance.check('lm_file_bytes', this.fileBytes);
    this.#plan(instance, from.info('n_ctx'));
    instance.check('lm_alloc');
    if (this.#choice.threads > 1) await this.#start(instance);
    return instance;
  }

  /** @param {Instance} instance */
  async #start(instance) {
    const stacks = Array.from({ length: this.#choice.threads - 1 }, (_, i) =>
      instance.call('lm_stack', i + 1),
    );
    try {
      this.#threads = await Threads.start({
        url: this.#options.thread,
        module: this.#module,
        memory: instance.memory,
        stacks,
      });
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

  /**
   * The same, but an array of strings stays in one piece, as a tokenizer wants it.
   * @param {string} key
   */
  packedMeta(key) {
    return this.#instance.packedMeta(key);
  }

  /** All metadata keys, in file order. */
  keys() {
    return this.#instance.keys();
  }

  /** All tensors, in file order. */
  tensors() {
    return this.#instance.tensors();
  }

  /**
   * Bytes of the header, copied.
   * @param {number} from
   * @param {number} to
   */
  headerBytes(from, to) {
    return new Uint8Array(this.#instance.header().subarray(from, to));
  }

  /** The tensors' records as they stand in the header, copied. */
  tensorRecords() {
    return this.headerBytes(this.#instance.recordsAt(), this.#instance.info('header_bytes'));
  }

  /** What is known: sizes are 0 before bind().
   * @returns {EngineInfo} */
  get info() {
    /** @type {Record<string, number>} */
    const bytesOf = {};
    for (const { type, bytes } of this.tensors()) bytesOf[type] = (bytesOf[type] ?? 0) + bytes;
    const [quantisation = ''] = Object.keys(bytesOf).sort((a, b) => bytesOf[b] - bytesOf[a]);
    const infos = this.#instance.infos();
    return {
      architecture: String(this.meta('general.architecture')),
      quantisation,
      variant: this.#variant,
      threads: this.#choice.threads,
      threadsReason: this.#choice.reason,
      precision: this.#precision,
      kvType: this.#options.kvType ?? this.#instance.names('kvTypes')[0],
      rope: ropeOf(infos, this.#instance.names('ropeScalings')),
      warnings: warningsOf(infos),
      ...infos,
    };
  }

  /** The engine, when state is 'done'.
   * @returns {Engine} */
  finish() {
    if (this.state !== 'done') throw this.truncated();
    return new Engine(this.#instance, this.#threads, Object.freeze(this.info));
  }

  /** What is wrong with a file that ends here. */
  truncated() {
    const header = this.state === 'header';
    const where = header ? ' bytes, within its header' : ` of ${this.#instance.info('file_bytes')} bytes`;
    return new ModelError('FORMAT', `the file ends after ${this.#fed}${where}`);
  }

  /** Gives up: ends the workers. */
  close() {
    this.#threads?.terminate();
  }
}
