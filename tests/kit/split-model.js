/**
 * split-model.js: a model file in parts, as splitting tools write them.
 */
import assert from 'node:assert/strict';
import { makeGguf } from './make-model.js';
import { readGguf } from './read-gguf.js';

const BYTES = { F32: 4, Q8_0: 34 / 32 };
const digits = (/** @type {number} */ n) => String(n).padStart(5, '0');

/** Name of the part with index i. */
export const partName = (stem, i, count) => `${stem}-${digits(i + 1)}-of-${digits(count)}.gguf`;

/**
 * A file of F32 and Q8_0 in `count` parts; `change` overrules the keys of a part.
 * @param {Uint8Array} file
 * @param {number} count
 * @param {(i: number) => Record<string, [string, any]>} [change]
 */
export function split(file, count, change = () => ({})) {
  const { meta, tensors } = readGguf(file);
  const all = [...tensors].map(([name, { dims, type, start }], i, list) => {
    const end = list[i + 1]?.[1].start ?? file.length;
    const bytes = BYTES[type] * dims.reduce((a, b) => a * b, 1);
    assert.ok(start + bytes <= end);
    return { name, dims, type, bytes: file.subarray(start, start + bytes) };
  });
  const each = Math.ceil(all.length / count);
  return Array.from({ length: count }, (_, i) => {
    const keys = {
      ...(i === 0 && Object.fromEntries([...meta].map(([key, value]) => [key, typed(key, value)]))),
      'split.no': ['u16', i],
      'split.count': ['u16', count],
      'split.tensors.count': ['i32', all.length],
      ...change(i),
    };
    const { 'general.alignment': alignment = ['u32', 64], ...others } = keys;
    return makeGguf({ meta: others, tensors: all.slice(i * each, (i + 1) * each), alignment: alignment[1] });
  });
}

/** Types good enough for the keys of our own models. */
function typed(key, value) {
  if (Array.isArray(value) || ArrayBuffer.isView(value)) {
    const kind = typeof value[0] === 'string' ? 'string' : key.endsWith('scores') ? 'f32' : 'i32';
    return ['array', [kind, Array.from(value)]];
  }
  if (typeof value === 'string') return ['string', value];
  if (typeof value === 'boolean') return ['bool', value];
  return [/epsilon|freq_base|scale/.test(key) ? 'f32' : 'u32', value];
}
