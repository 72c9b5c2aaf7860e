/**
 * instance.js: one instance of the engine's module and its memory; with thread.js the only code that
 * calls its exports. Contract: src/lm.h.
 */
import { ModelError } from './errors.js';
import { ARRAY, STRING, Values } from './metadata.js';

/** LM_ABI of the lm.h that this file is written for. */
export const ABI = 2;
/** LM_IO_BYTES: the window through which bytes, rows and ids go in. */
export const WINDOW_BYTES = 1 << 20;
export const PAGE_BYTES = 65536;
/** What wasm32 addresses, and what V8 gives to one memory of 64-bit addresses; less a page, so that no
 * sum of addresses wraps. */
export const ADDRESSABLE = 2 ** 32 - PAGE_BYTES;
export const ADDRESSABLE_WIDE = 2 ** 34 - PAGE_BYTES;
/** Pages that any instance starts with, at least the module's own --initial-memory. */
const FIRST_PAGES = 64;

/** Rows of enum lm_table, in its order. */
export const TABLES = ['errors', 'quants', 'kvTypes', 'archs', 'samplers', 'infos', 'precisions', 'overrides', 'ropeScalings'];

/** @typedef {{ name: string, type: string, dims: number[], offset: number, bytes: number }} TensorInfo */

/** @param {string} name  a C name, snake_case */
export const camelCase = (name) => name.replace(/_([a-z0-9])/g, (_, letter) => letter.toUpperCase());

/** Addresses are unsigned; a 32-bit one arrives signed, a 64-bit one as a bigint.
 * @param {number | bigint} address */
export const ptr = (address) => (typeof address === 'bigint' ? Number(address) : address >>> 0);

const utf8 = new TextDecoder();

/**
 * @param {number} initial
 * @param {number} maximum
 * @param {boolean} shared
 * @param {boolean} wide
 * @returns {WebAssembly.Memory}
 */
function newMemory(initial, maximum, shared, wide) {
  if (!wide) return new WebAssembly.Memory({ initial, maximum, shared });
  const descriptor = { initial: BigInt(initial), maximum: BigInt(maximum), shared, address: 'i64' };
  return new WebAssembly.Memory(/** @type {any} */ (descriptor));
}

/**
 * A memory of at least `bytes`, whose maximum is halved until the device accepts it: shared memory
 * reserves its maximum at once.
 * @param {{ bytes: number, maximum: number, shared: boolean, wide?: boolean }} options  wide: of 64-bit addresses
 * @returns {WebAssembly.Memory}
 */
export function createMemory({ bytes, maximum, shared, wide = false }) {
  const initial = Math.max(FIRST_PAGES, Math.ceil(bytes / PAGE_BYTES));
  const pages = Math.ceil((wide ? ADDRESSABLE_WIDE : ADDRESSABLE) / PAGE_BYTES) + 1;
  let most = Math.min(pages, Math.max(initial, Math.ceil(maximum / PAGE_BYTES)));
  for (;;) {
    try {
      return newMemory(initial, most, shared, wide);
    } catch (cause) {
      if (most <= initial) {
        const mib = Math.ceil((initial * PAGE_BYTES) / 2 ** 20);
        throw new ModelError('MEMORY', `this device refuses ${mib} MiB of ${shared ? 'shared ' : ''}memory`, {
          cause,
        });
      }
      most = Math.max(initial, Math.floor(most / 2));
    }
  }
}

export class Instance {
  /** @type {any} */
  #exports;
  /** @type {unknown} what ended it */
  #crash;
  #closed = false;
  /** @type {Map<string, string[]>} */
  #names = new Map();

  /**
   * @param {WebAssembly.Module} module
   * @param {WebAssembly.Memory} memory
   */
  constructor(module, memory) {
    this.memory = memory;
    try {
      this.#exports = new WebAssembly.Instance(module, { env: { memory } }).exports;
    } catch (cause) {
      throw new ModelError('MISMATCH', 'the wasm file is not one that this version can load', { cause });
    }
    const abi = this.#exports.lm_abi?.();
    if (abi !== ABI) {
      throw new ModelError(
        'MISMATCH',
        `engine files do not match (JS ${ABI}, wasm ${abi ?? 'none'}): reload all of them`,
      );
    }
    this.call('lm_open');
    this.window = ptr(this.call('lm_io'));
  }

  get crashed() {
    return this.#crash !== undefined;
  }

  /** Its workers have ended: a job would wait for them for ever. */
  close() {
    this.#closed = true;
  }

  /**
   * A trap leaves the instance's stack and data as they were at that moment: nothing may run on them again.
   * @param {string} name
   * @param {...number} args
   * @returns {number}
   */
  call(name, ...args) {
    if (this.#closed) throw new ModelError('CLOSED', 'the engine is closed');
    if (this.#crash === undefined) {
      try {
        return this.#exports[name](...args);
      } catch (cause) {
        this.#crash = cause;
      }
    }
    throw new ModelError('CRASHED', 'the engine has crashed: load the model again', { cause: this.#crash });
  }

  /**
   * call() for exports whose negative results are errors.
   * @param {string} name
   * @param {...number} args
   * @returns {number}
   */
  check(name, ...args) {
    const result = this.call(name, ...args);
    if (result >= 0) return result;
    throw new ModelError(this.names('errors')[-result - 1], this.#string(ptr(this.call('lm_error'))));
  }

  /**
   * The one place that sees memory.buffer, which is another object after any growth: a view must not
   * outlive the next call.
   * @template V
   * @param {new (buffer: ArrayBufferLike, at: number, length?: number) => V} View
   * @param {number} address
   * @param {number} [length]  in elements; to the end of the memory if left out
   * @returns {V}
   */
  view(View, address, length) {
    return new View(this.memory.buffer, address, length);
  }

  /** @param {number} address of a NUL-terminated string */
  #string(address) {
    const bytes = this.view(Uint8Array, address);
    return utf8.decode(bytes.slice(0, bytes.indexOf(0)));
  }

  /**
   * All names of a table, in its order.
   * @param {string} table  of TABLES
   * @returns {string[]}
   */
  names(table) {
    let names = this.#names.get(table);
    if (!names) {
      names = [];
      for (let at; (at = ptr(this.call('lm_name', TABLES.indexOf(table), names.length)));)
        names.push(this.#string(at));
      this.#names.set(table, names);
    }
    return names;
  }

  /**
   * Index of a name that a caller gives.
   * @param {string} table
   * @param {string} name
   * @param {string} option  what it is called in messages
   */
  index(table, name, option) {
    const i = this.names(table).indexOf(name);
    if (i < 0) throw new RangeError(`${option} is '${name}', must be one of ${this.names(table).join(', ')}`);
    return i;
  }

  /**
   * Feeds up to a window of file bytes.
   * @param {Uint8Array} bytes  1 .. WINDOW_BYTES
   * @returns {number} LM_DONE, LM_MORE or LM_HEADER
   */
  feed(bytes) {
    this.view(Uint8Array, this.window, bytes.length).set(bytes);
    return this.check('lm_feed', bytes.length);
  }

  /** The header's bytes, where they stand; momentary as any view. */
  header() {
    return this.view(Uint8Array, ptr(this.call('lm_header')), this.info('header_bytes'));
  }

  /** Where in the header the tensors' records begin; the name of the first has its length before it. */
  recordsAt() {
    if (this.info('n_tensors') === 0) return this.info('header_bytes');
    const fields = this.view(DataView, ptr(this.call('lm_tensor', 0)), 8);
    return Number(fields.getBigUint64(0, true)) - 8 - ptr(this.call('lm_header'));
  }

  /** @param {string} name  as info.def spells it */
  info(name) {
    return this.call('lm_info', this.names('infos').indexOf(name));
  }

  /** All of lm_info, names in camelCase.
   * @returns {Record<string, number>} */
  infos() {
    return Object.fromEntries(
      this.names('infos').map((name, i) => [camelCase(name), this.call('lm_info', i)]),
    );
  }

  /**
   * A metadata value, undefined if the file has no such key.
   * @param {string} key
   */
  meta(key) {
    const found = this.#find(key);
    return found && (found.type === ARRAY ? found.values.array(found.element, found.count) : found.values.scalar(found.type));
  }

  /**
   * The same, but an array of strings stays in one piece.
   * @param {string} key
   */
  packedMeta(key) {
    const found = this.#find(key);
    return found?.type === ARRAY && found.element === STRING ? found.values.strings(found.count) : this.meta(key);
  }

  /** struct lm_value: u32 type, element; u64 count, address, key, key_length.
   * @param {string} key */
  #find(key) {
    const bytes = new TextEncoder().encode(key);
    if (bytes.length > WINDOW_BYTES) return undefined;
    this.view(Uint8Array, this.window, bytes.length).set(bytes);
    const record = ptr(this.call('lm_meta', bytes.length));
    if (!record) return undefined;
    const fields = this.view(DataView, record, 40);
    const [count, address] = [Number(fields.getBigUint64(8, true)), Number(fields.getBigUint64(16, true))];
    const values = new Values(this.view(Uint8Array, address));
    return { type: fields.getUint32(0, true), element: fields.getUint32(4, true), count, values };
  }

  /** All metadata keys in file order.
   * @returns {string[]} */
  keys() {
    return Array.from({ length: this.info('n_meta') }, (_, i) => {
      const fields = this.view(DataView, ptr(this.call('lm_meta_at', i)), 40);
      return this.#text(Number(fields.getBigUint64(24, true)), Number(fields.getBigUint64(32, true)));
    });
  }

  /** All tensors in file order. struct lm_tensor_info: u64 name, name_length; u32 type, n_dims;
   * u64 dims[4], offset, bytes.
   * @returns {TensorInfo[]} */
  tensors() {
    const types = this.names('quants');
    return Array.from({ length: this.info('n_tensors') }, (_, i) => {
      const fields = this.view(DataView, ptr(this.call('lm_tensor', i)), 72);
      const u64 = (/** @type {number} */ at) => Number(fields.getBigUint64(at, true));
      const dims = [24, 32, 40, 48].slice(0, fields.getUint32(20, true)).map(u64);
      return {
        name: this.#text(u64(0), u64(8)),
        type: types[fields.getUint32(16, true)],
        dims,
        offset: u64(56),
        bytes: u64(64),
      };
    });
  }

  /**
   * @param {number} address
   * @param {number} length
   */
  #text(address, length) {
    return utf8.decode(this.view(Uint8Array, address, length).slice());
  }
}
