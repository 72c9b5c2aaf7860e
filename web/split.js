/**
 * split.js: a model in several GGUF files, NAME-00001-of-00003.gguf and so on, as one. Each has a header of
 * its own; the first has the metadata. What comes out is the file that was split: one header, written from
 * the parts', then their tensors' bytes, in order.
 */
import { ModelError } from './errors.js';

const NUMBERED = /-(\d{5})-of-(\d{5})\.gguf$/i;
/** Magic, version, number of tensors, number of keys. */
const START_BYTES = 24;
const PIECE_BYTES = 1 << 20;

/** @typedef {import('./loader.js').Loader} Loader */
/** @typedef {import('./source.js').Opened} Opened */

/**
 * Which part of how many a file is, by its name; undefined for a file of its own.
 * @param {string} name
 */
export function partOf(name) {
  const [, no, count] = NUMBERED.exec(name) ?? [];
  return Number(count) > 1 ? { no: Number(no), count: Number(count) } : undefined;
}

/**
 * Names of all parts by that of the first; the name alone if it is no part.
 * @param {string} first
 * @returns {string[]}
 */
export function partNames(first) {
  const part = partOf(first);
  if (!part) return [first];
  const name = (/** @type {number} */ no) =>
    first.replace(NUMBERED, (_, digits, count) => `-${String(no).padStart(digits.length, '0')}-of-${count}.gguf`);
  if (part.no !== 1) throw new TypeError(`${first} is part ${part.no} of ${part.count}: give the first, ${name(1).split('/').pop()}`);
  return Array.from({ length: part.count }, (_, i) => name(i + 1));
}

/**
 * Files in the order of their numbers.
 * @template {{ name?: string }} F
 * @param {F[]} files
 * @returns {F[]}
 */
export function inOrder(files) {
  const numbered = files.map((file) => ({ file, part: partOf(file.name ?? '') }));
  const sorted = numbered.sort((a, b) => (a.part?.no ?? 0) - (b.part?.no ?? 0));
  sorted.forEach(({ file, part }, i) => {
    if (part?.no === i + 1 && part.count === files.length) return;
    const is = part ? `part ${part.no} of ${part.count}` : 'no part';
    throw new TypeError(`'${file.name}' is ${is}, where part ${i + 1} of ${files.length} is needed: give all parts of one model`);
  });
  return sorted.map(({ file }) => file);
}

/** @param {number} n @param {number} to */
const align = (n, to) => Math.ceil(n / to) * to;

/**
 * What joining needs to know of a part.
 * @param {Loader} loader its header is whole
 */
function layoutOf(loader) {
  const { headerBytes, nTensors } = loader.info;
  const alignment = Number(loader.meta('general.alignment') ?? 32);
  const dataAt = align(headerBytes, alignment);
  const end = loader.tensors().reduce((most, { offset, bytes }) => Math.max(most, offset + bytes), dataAt);
  return { alignment, nTensors, dataAt, dataBytes: end - dataAt, records: loader.tensorRecords() };
}

/** @typedef {ReturnType<typeof layoutOf>} Layout */

/**
 * Adds to the offset of each tensor record.
 * @param {Layout} part
 * @param {number} base
 */
function moved({ nTensors, records }, base) {
  const view = new DataView(records.buffer, records.byteOffset, records.byteLength);
  for (let i = 0, at = 0; i < nTensors; i++) {
    at += 8 + Number(view.getBigUint64(at, true)); // name
    at += 4 + 8 * view.getUint32(at, true) + 4; // dimensions, type
    view.setBigUint64(at, view.getBigUint64(at, true) + BigInt(base), true);
    at += 8;
  }
  return records;
}

/**
 * @param {Loader} loader
 * @param {string} name
 * @param {number} i
 * @param {number} count
 */
function checkPart(loader, name, i, count) {
  const [no, of] = [loader.meta('split.no'), loader.meta('split.count')];
  if (no === i && of === count) return;
  throw new ModelError('FORMAT', `${name} says that it is part ${Number(no) + 1} of ${of}, not ${i + 1} of ${count}`);
}

/**
 * Feeds a header; what its last chunk holds beyond.
 * @param {Loader} loader
 * @param {string} name
 * @param {AsyncIterator<Uint8Array>} chunks
 */
async function readHeader(loader, name, chunks) {
  try {
    for (let next; !(next = await chunks.next()).done;) {
      const taken = loader.push(next.value);
      if (loader.state === 'ready') return next.value.subarray(taken);
    }
    throw loader.truncated();
  } catch (error) {
    throw error instanceof ModelError && error.code === 'FORMAT' ? new ModelError('FORMAT', `${name}: ${error.message}`, { cause: error }) : error;
  }
}

/**
 * @param {string[]} names
 * @param {(i: number, header: boolean) => Promise<Opened>} open
 * @param {() => Promise<Loader>} newLoader for a header
 * @param {boolean} header no more than the header will be read
 * @returns {Promise<{ total: number, chunks: AsyncIterable<Uint8Array> }>}
 */
export async function join(names, open, newLoader, header) {
  /** @type {AsyncIterator<Uint8Array>[]} */
  const opened = [];
  const openPart = async (/** @type {number} */ i, /** @type {boolean} */ header) =>
    (opened[i] = (await open(i, header)).chunks[Symbol.asyncIterator]());
  const close = () => Promise.all(opened.map((chunks) => chunks.return?.()));
  try {
    const first = await newLoader();
    const rest = await readHeader(first, names[0], await openPart(0, header));
    /** @type {Layout[]} */
    const parts = [];
    for (const [i, name] of names.entries()) {
      const loader = i ? await newLoader() : first;
      if (i) await readHeader(loader, name, await openPart(i, true));
      if (i) await opened[i].return?.();
      checkPart(loader, name, i, names.length);
      parts.push(layoutOf(loader));
    }
    const nTensors = parts.reduce((sum, part) => sum + part.nTensors, 0);
    const wanted = first.meta('split.tensors.count');
    if (wanted !== undefined && wanted !== nTensors) {
      throw new ModelError('FORMAT', `${names[0]} speaks of ${wanted} tensors, its ${names.length} parts have ${nTensors}`);
    }
    return assemble(names, parts, first, { rest, openPart, chunks: opened[0], close });
  } catch (error) {
    await close();
    throw error;
  }
}

/**
 * @param {string[]} names
 * @param {Layout[]} parts
 * @param {Loader} first
 * @param {{ rest: Uint8Array, chunks: AsyncIterator<Uint8Array>, close: () => Promise<unknown>,
 *   openPart: (i: number, header: boolean) => Promise<AsyncIterator<Uint8Array>> }} files
 */
function assemble(names, parts, first, { rest, chunks, close, openPart }) {
  const { alignment } = parts[0];
  let headerBytes = first.info.headerBytes;
  for (const part of parts.slice(1)) headerBytes += part.records.length;
  let end = 0;
  const bases = parts.map(({ dataBytes }) => {
    const base = align(end, alignment);
    end = base + dataBytes;
    return base;
  });
  const dataAt = align(headerBytes, alignment);
  async function* all() {
    try {
      yield* headerOf(first, parts, bases);
      yield new Uint8Array(dataAt - headerBytes);
      for (const [i, part] of parts.entries()) {
        const [from, source] = i ? [0, await openPart(i, false)] : [first.info.headerBytes, chunks];
        yield* slice(names[i], source, rest, { from, start: part.dataAt, end: part.dataAt + part.dataBytes });
        rest = new Uint8Array(0); // was of the first part
        if (i + 1 < parts.length) yield new Uint8Array(bases[i + 1] - bases[i] - part.dataBytes);
      }
    } finally {
      await close();
    }
  }
  return { total: dataAt + end, chunks: notEmpty(all()) };
}

/**
 * The header of all parts: the first one's keys, and the tensors of each.
 * @param {Loader} first
 * @param {Layout[]} parts
 * @param {number[]} bases
 */
function* headerOf(first, parts, bases) {
  const start = first.headerBytes(0, START_BYTES);
  const nTensors = parts.reduce((sum, part) => sum + part.nTensors, 0);
  new DataView(start.buffer).setBigUint64(8, BigInt(nTensors), true);
  yield start;
  const keysEnd = first.info.headerBytes - parts[0].records.length;
  for (let at = START_BYTES; at < keysEnd; at += PIECE_BYTES) yield first.headerBytes(at, Math.min(at + PIECE_BYTES, keysEnd));
  for (const [i, part] of parts.entries()) yield moved(part, bases[i]);
}

/**
 * The bytes of a file from `start` to `end`.
 * @param {string} name
 * @param {AsyncIterator<Uint8Array>} chunks
 * @param {Uint8Array} rest what has come of it already
 * @param {{ from: number, start: number, end: number }} where from: of the first byte that comes
 */
async function* slice(name, chunks, rest, { from, start, end }) {
  for (let at = from, chunk = rest; at < end;) {
    const piece = chunk.subarray(Math.max(0, start - at), end - at);
    at += chunk.length;
    if (piece.length > 0) yield piece;
    if (at >= end) break;
    const { done, value } = await chunks.next();
    if (done) throw new ModelError('FORMAT', `${name}: the file ends after ${at} of ${end} bytes`);
    chunk = value;
  }
  while (!(await chunks.next()).done); // a copy of it is kept when it was read to its end
}

/** @param {AsyncIterable<Uint8Array>} chunks */
async function* notEmpty(chunks) {
  for await (const chunk of chunks) if (chunk.length > 0) yield chunk;
}
