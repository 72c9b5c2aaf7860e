/**
 * The metadata of a GGUF file, read without the engine: for tests of what stands on metadata alone.
 * Trusts its input no further than JS does (a short file throws RangeError).
 */
import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';

const STRING = 8;
const ARRAY = 9;
/** @type {Record<number, (view: DataView, at: number) => number | bigint | boolean>} */
const SCALARS = {
  0: (view, at) => view.getUint8(at),
  1: (view, at) => view.getInt8(at),
  2: (view, at) => view.getUint16(at, true),
  3: (view, at) => view.getInt16(at, true),
  4: (view, at) => view.getUint32(at, true),
  5: (view, at) => view.getInt32(at, true),
  6: (view, at) => view.getFloat32(at, true),
  7: (view, at) => view.getUint8(at) !== 0,
  10: (view, at) => narrow(view.getBigUint64(at, true)),
  11: (view, at) => narrow(view.getBigInt64(at, true)),
  12: (view, at) => view.getFloat64(at, true),
};
/** @type {Record<number, number>} */
const SIZES = { 0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8 };
const TYPED = { 0: Uint8Array, 1: Int8Array, 2: Uint16Array, 3: Int16Array, 4: Uint32Array, 5: Int32Array,
  6: Float32Array, 12: Float64Array };
const utf8 = new TextDecoder('utf-8', { ignoreBOM: true }); // a piece may be U+FEFF

/** @param {bigint} value */
const narrow = (value) => (BigInt.asIntN(54, value) === value ? Number(value) : value);

/**
 * @param {string | URL} path `.gz` is unpacked
 * @returns {Map<string, any>} numbers, booleans, strings, typed arrays, arrays
 */
export function readMeta(path) {
  const raw = readFileSync(path);
  const file = String(path).endsWith('.gz') ? gunzipSync(raw) : raw;
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  let at = 8;
  const count = () => {
    const n = Number(view.getBigUint64(at, true));
    at += 8;
    return n;
  };
  const string = () => {
    const n = count();
    if (at + n > file.length) throw new RangeError('string past the end of the file');
    return utf8.decode(file.subarray(at, (at += n)));
  };
  /** @param {number} type @returns {any} */
  const value = (type) => {
    if (type === STRING) return string();
    if (type === ARRAY) return array();
    const result = SCALARS[type](view, at);
    at += SIZES[type];
    return result;
  };
  const array = () => {
    const type = view.getUint32(at, true);
    at += 4;
    const n = count();
    const Typed = TYPED[/** @type {keyof typeof TYPED} */ (type)];
    return Typed ? Typed.from({ length: n }, () => value(type)) : Array.from({ length: n }, () => value(type));
  };
  at += 8; // n_tensors
  const meta = new Map();
  for (let left = count(); left > 0; left--) {
    const key = string();
    const type = view.getUint32(at, true);
    at += 4;
    meta.set(key, value(type));
  }
  return meta;
}
