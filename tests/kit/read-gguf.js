/**
 * read-gguf.js: a GGUF file as JS sees it, read without the engine so that tests have a second opinion:
 * metadata, tensor list, and the weights as float64, each block exactly as its format defines it. Trusts
 * the file.
 */
import { TYPES } from './tensor-types.js';

const BY_ID = new Map(Object.entries(TYPES).map(([name, type]) => [type.id, { name, ...type }]));

class Cursor {
  constructor(bytes) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.at = 0;
  }
  #scalar(get, size) {
    const v = this.view[get](this.at, true);
    this.at += size;
    return v;
  }
  u32() {
    return this.#scalar('getUint32', 4);
  }
  u64() {
    return Number(this.#scalar('getBigUint64', 8));
  }
  string() {
    const n = this.u64();
    this.at += n;
    return new TextDecoder().decode(this.bytes.subarray(this.at - n, this.at));
  }
  value(type) {
    switch (type) {
      case 0:
        return this.#scalar('getUint8', 1);
      case 1:
        return this.#scalar('getInt8', 1);
      case 2:
        return this.#scalar('getUint16', 2);
      case 3:
        return this.#scalar('getInt16', 2);
      case 4:
        return this.u32();
      case 5:
        return this.#scalar('getInt32', 4);
      case 6:
        return this.#scalar('getFloat32', 4);
      case 7:
        return this.#scalar('getUint8', 1) !== 0;
      case 8:
        return this.string();
      case 9:
        return this.#array();
      case 10:
        return this.#scalar('getBigUint64', 8);
      case 11:
        return this.#scalar('getBigInt64', 8);
      case 12:
        return this.#scalar('getFloat64', 8);
      default:
        throw new Error(`value type ${type}`);
    }
  }
  #array() {
    const element = this.u32();
    const n = this.u64();
    return Array.from({ length: n }, () => this.value(element));
  }
}

function weights(view, start, type, n) {
  const out = new Float64Array(n);
  for (let i = 0; i < n; i++) {
    out[i] = type.value(view, start + Math.floor(i / type.items) * type.bytes, i % type.items);
  }
  return out;
}

/** @typedef {{ dims: number[], typeId: number, type?: string, start: number, values: () => Float64Array }} Tensor
 *  start counts from the file's first byte; type is missing where it is not one of TYPES */

/**
 * @param {Uint8Array} bytes a whole file
 * @returns {{ version: number, meta: Map<string, any>, headerBytes: number, tensors: Map<string, Tensor> }}
 *   64-bit integers in meta are BigInt
 */
export function readGguf(bytes) {
  const c = new Cursor(bytes);
  if (c.u32() !== 0x46554747) throw new Error('not GGUF');
  const version = c.u32();
  const nTensors = c.u64();
  const nKeys = c.u64();
  const meta = new Map();
  for (let i = 0; i < nKeys; i++) {
    const key = c.string();
    meta.set(key, c.value(c.u32()));
  }
  const list = Array.from({ length: nTensors }, () => {
    const name = c.string();
    const dims = Array.from({ length: c.u32() }, () => c.u64());
    return { name, dims, typeId: c.u32(), offset: c.u64() };
  });
  const headerBytes = c.at;
  const alignment = meta.get('general.alignment') ?? 32;
  const data = Math.ceil(headerBytes / alignment) * alignment;
  const tensors = new Map(
    list.map(({ name, dims, typeId, offset }) => {
      const type = BY_ID.get(typeId);
      const start = data + offset;
      const n = dims.reduce((a, b) => a * b, 1);
      return [name, { dims, typeId, type: type?.name, start, values: () => weights(c.view, start, type, n) }];
    }),
  );
  return { version, meta, headerBytes, tensors };
}
