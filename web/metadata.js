/**
 * metadata.js: GGUF metadata values as JS values. Integers are numbers, bigint only beyond 2^53; arrays of
 * numbers are typed arrays, of 64-bit integers plain ones; everything is copied out of the memory it came from.
 */
import { Strings } from './strings.js';

/**
 * @typedef {number | bigint | boolean | string | Scalars | string[] | boolean[] | (number | bigint)[]} MetaValue
 * @typedef {Uint8Array | Int8Array | Uint16Array | Int16Array | Uint32Array | Int32Array | Float32Array
 *   | Float64Array} Scalars
 */

/** GGUF type numbers, where they are not just rows of SCALARS. */
const BOOL = 7;
export const STRING = 8;
/** Of elements of one type, which may be arrays. */
export const ARRAY = 9;

/** @type {Record<number, { bytes: number, get: (view: DataView, at: number) => any, Array?: any }>} */
const SCALARS = {
  0: { bytes: 1, get: (v, at) => v.getUint8(at), Array: Uint8Array },
  1: { bytes: 1, get: (v, at) => v.getInt8(at), Array: Int8Array },
  2: { bytes: 2, get: (v, at) => v.getUint16(at, true), Array: Uint16Array },
  3: { bytes: 2, get: (v, at) => v.getInt16(at, true), Array: Int16Array },
  4: { bytes: 4, get: (v, at) => v.getUint32(at, true), Array: Uint32Array },
  5: { bytes: 4, get: (v, at) => v.getInt32(at, true), Array: Int32Array },
  6: { bytes: 4, get: (v, at) => v.getFloat32(at, true), Array: Float32Array },
  [BOOL]: { bytes: 1, get: (v, at) => v.getUint8(at) !== 0 },
  10: { bytes: 8, get: (v, at) => exact(v.getBigUint64(at, true)) },
  11: { bytes: 8, get: (v, at) => exact(v.getBigInt64(at, true)) },
  12: { bytes: 8, get: (v, at) => v.getFloat64(at, true), Array: Float64Array },
};

/** @param {bigint} n */
const exact = (n) => (Number.isSafeInteger(Number(n)) ? Number(n) : n);

/** Walks values that C has already checked. */
export class Values {
  #view;
  #bytes;
  #at;

  /**
   * @param {Uint8Array} bytes  may be shared
   * @param {number} at  where the first value starts
   */
  constructor(bytes, at = 0) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#at = at;
  }

  #length() {
    const length = this.#view.getUint32(this.#at, true) + this.#view.getUint32(this.#at + 4, true) * 2 ** 32;
    this.#at += 8;
    return length;
  }

  /**
   * @param {number} type  not ARRAY
   * @returns {MetaValue}
   */
  scalar(type) {
    if (type === STRING) return /** @type {string} */ (this.strings(1).at(0));
    const { bytes, get } = SCALARS[type];
    this.#at += bytes;
    return get(this.#view, this.#at - bytes);
  }

  /**
   * @param {number} element
   * @param {number} count
   * @returns {Scalars | Array<any>}
   */
  array(element, count) {
    if (element === STRING) return [...this.strings(count)];
    if (element === ARRAY) return Array.from({ length: count }, () => this.#nested());
    const { bytes, Array: Typed } = SCALARS[element];
    if (!Typed) return Array.from({ length: count }, () => this.scalar(element));
    const from = this.#at;
    this.#at += bytes * count;
    return new Typed(this.#bytes.slice(from, this.#at).buffer);
  }

  /** An array within an array: its type and length first. @returns {any[] | Scalars} */
  #nested() {
    const element = this.#view.getUint32(this.#at, true);
    this.#at += 4;
    return this.array(element, this.#length());
  }

  /** One copy for all of them, as TextDecoder takes no shared memory.
   * @param {number} count */
  strings(count) {
    const start = this.#at;
    const view = this.#view;
    const spans = new Uint32Array(2 * count);
    let at = 0;
    for (let i = 0; i < spans.length; i += 2) {
      const length = view.getUint32(start + at, true); // the upper half is 0: a header is shorter than 2^32
      spans[i] = at + 8;
      spans[i + 1] = at += 8 + length;
    }
    this.#at += at;
    return new Strings(this.#bytes.slice(start, this.#at), spans);
  }
}
