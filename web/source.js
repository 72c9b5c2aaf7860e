/**
 * source.js: where a model's bytes come from. Two halves:
 *
 *   on the page      describe() turns what the caller gave into a plain Origin that can be posted, and a
 *                    reader for what has to be read there: Blobs, bytes and streams;
 *   in the worker    openOrigin() gives the bytes, chunk by chunk: fetches, reads files, or asks the page.
 *
 * One chunk is in use while the next one is fetched, none is larger than the platform's own (fetch) or
 * CHUNK_BYTES, and a chunk may be overwritten as soon as the next one is asked for.
 */

import { sha256 as nobleHash } from '@noble/hashes/sha2.js';
import { Restart, download } from './download.js';
import { ModelError } from './errors.js';
import { absolutePath, nodeHash, onNode, openFile } from './node.js';

export const CHUNK_BYTES = 1 << 20;
/** How often a file that changes while it is read is begun again. */
const MOST_RESTARTS = 3;

/**
 * What the worker is told. `name` is what sentences call it.
 * @typedef {{kind: 'url', name: string, headers: [string, string][]}
 *   | {kind: 'path', name: string}
 *   | {kind: 'page', name: string, total?: number}} Origin
 */

/**
 * The page's half of an Origin of kind 'page'.
 * @typedef {object} PageReader
 * @property {() => Promise<Uint8Array | null>} read the next chunk, a buffer of its own; null at the end
 * @property {(reason: any) => void} cancel
 */

/**
 * @typedef {object} Opened
 * @property {string} name
 * @property {number} [total] bytes, where they are known
 * @property {boolean} exact whether total is the file's own length beyond doubt
 * @property {boolean} [toEnd] to be read to the end, also beyond what the model needs
 * @property {AsyncIterable<Uint8Array>} chunks to be read once; leaving the loop closes the source
 */

/**
 * @param {unknown} source
 * @param {HeadersInit} [headers]
 * @returns {{origin: Origin, reader: PageReader}}
 */
export function describe(source, headers) {
  const address = addressOf(source);
  if (headers !== undefined && address?.kind !== 'url') {
    throw new TypeError('headers are for a model from a URL: this one comes from elsewhere');
  }
  if (address?.kind === 'url') return { origin: { ...address, headers: [...new Headers(headers)] }, reader: NOTHING };
  if (address) return { origin: address, reader: NOTHING };
  const kind = kindOf(source);
  if (kind === 'Blob' || kind === 'File') {
    const blob = /** @type {File} */ (source);
    return page(blob.name ?? 'the Blob', blob.size, sliceReader(blob.size, (at, end) => blob.slice(at, end).arrayBuffer()));
  }
  if (kind === 'ReadableStream') return page('the stream', undefined, streamReader(/** @type {ReadableStream} */ (source)));
  const bytes = viewOf(source);
  if (!bytes) {
    throw new TypeError('source must be a string, URL, Blob, File, ArrayBuffer, typed array or ReadableStream');
  }
  return page('the bytes', bytes.length, sliceReader(bytes.length, async (at, end) => bytes.slice(at, end).buffer));
}

/** @type {PageReader} */
const NOTHING = { read: async () => null, cancel() {} };

/**
 * @param {string} name
 * @param {number | undefined} total
 * @param {PageReader} reader
 * @returns {{origin: Origin, reader: PageReader}}
 */
const page = (name, total, reader) => ({ origin: { kind: 'page', name, total }, reader });

/**
 * A string is a URL, or in Node a path: `C:` is a drive and no scheme, and file: URLs are paths too.
 * @param {unknown} source
 * @returns {{kind: 'url', name: string} | {kind: 'path', name: string} | undefined}
 */
function addressOf(source) {
  if (typeof source !== 'string' && kindOf(source) !== 'URL') return undefined;
  const text = String(source);
  if (text === '') throw new TypeError('source is an empty string');
  const scheme = /^([a-z][a-z0-9+.-]+):/i.exec(text)?.[1].toLowerCase();
  if (onNode() && (!scheme || scheme === 'file')) return { kind: 'path', name: absolutePath(text) };
  const { document, location } = globalThis;
  return { kind: 'url', name: new URL(text, document?.baseURI ?? location?.href).href };
}

/**
 * A view of a BufferSource's bytes, undefined if it is none.
 * @param {unknown} source
 */
function viewOf(source) {
  if (ArrayBuffer.isView(source)) return new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
  const isBuffer = ['ArrayBuffer', 'SharedArrayBuffer'].includes(kindOf(source));
  return isBuffer ? new Uint8Array(/** @type {ArrayBuffer} */ (source)) : undefined;
}

/**
 * The platform's name of an object's class, whichever frame or context it was made in.
 * @param {unknown} value
 */
export const kindOf = (value) => Object.prototype.toString.call(value).slice(8, -1);

/**
 * @param {number} total
 * @param {(at: number, end: number) => Promise<ArrayBufferLike>} slice copies a range
 * @returns {PageReader}
 */
function sliceReader(total, slice) {
  let at = 0;
  return {
    async read() {
      if (at === total) return null;
      const start = at;
      at = Math.min(at + CHUNK_BYTES, total);
      try {
        return new Uint8Array(await slice(start, at));
      } catch (cause) {
        throw new ModelError('FILE', `the file could not be read beyond ${start} of ${total} bytes`, { cause });
      }
    },
    cancel() {},
  };
}

/**
 * Copies what the stream gives: its chunks may be views of buffers that are still in use.
 * @param {ReadableStream} stream
 * @returns {PageReader}
 */
function streamReader(stream) {
  if (stream.locked) throw new TypeError('the ReadableStream is being read elsewhere');
  const reader = stream.getReader();
  let rest = /** @type {Uint8Array} */ (new Uint8Array(0));
  return {
    async read() {
      while (rest.length === 0) {
        const { done, value } = await reader.read();
        if (done) return null;
        const bytes = viewOf(value);
        if (!bytes) throw new TypeError('the ReadableStream gives something else than bytes');
        rest = bytes;
      }
      const chunk = rest.slice(0, CHUNK_BYTES);
      rest = rest.subarray(chunk.length);
      return chunk;
    },
    /* The caller's stream: what its own cancel() throws has nobody to tell. */
    cancel: (reason) => void reader.cancel(reason).catch(() => {}),
  };
}

/**
 * @typedef {Omit<import('./download.js').DownloadOptions, 'pieceBytes'> & OpenOptions} SourceOptions
 * @typedef {object} OpenOptions
 * @property {() => Promise<Uint8Array | null>} [read] asks the page for its next chunk
 * @property {string} [sha256] of the whole file, in hexadecimal
 * @property {boolean} [header] no more than the header will be read
 */

/**
 * Opens a source and uses it: once more from the start, with nothing kept, if what came turns out to be no
 * beginning of what is to come.
 * @template T
 * @param {Origin} origin
 * @param {SourceOptions} options
 * @param {(source: Opened) => Promise<T>} use
 * @returns {Promise<T>}
 */
export async function withSource(origin, options, use) {
  for (let restarts = 0; ; restarts++) {
    try {
      return await use(await openOrigin(origin, options));
    } catch (error) {
      if (!(error instanceof Restart)) throw error;
      if (restarts === MOST_RESTARTS) {
        throw new ModelError(error.code, `${error.message} (begun ${restarts + 1} times)`, { cause: error });
      }
    }
  }
}

/**
 * @param {Origin} origin
 * @param {SourceOptions} options
 * @returns {Promise<Opened>}
 */
export async function openOrigin(origin, { sha256, ...options }) {
  options.signal.throwIfAborted();
  const source = await openAny(origin, options);
  return sha256 === undefined ? source : verified(source, sha256);
}

/**
 * @param {Origin} origin
 * @param {SourceOptions} options
 * @returns {Promise<Opened>}
 */
async function openAny(origin, { read, header, ...options }) {
  if (origin.kind === 'url') return download(origin, { ...options, pieceBytes: header ? CHUNK_BYTES : undefined });
  if (origin.kind === 'path') return openPath(origin, options.signal);
  if (!read) throw new TypeError('nobody reads this source');
  return { name: origin.name, total: origin.total, exact: true, chunks: ahead(read, options.signal) };
}

/**
 * @param {{name: string}} origin
 * @param {AbortSignal} signal
 * @returns {Promise<Opened>}
 */
async function openPath({ name }, signal) {
  const file = await openFile(name, CHUNK_BYTES);
  const chunks = async function* () {
    try {
      for (let bytes; (bytes = await file.read()).length > 0; ) {
        signal.throwIfAborted();
        yield bytes;
      }
    } finally {
      await file.close();
    }
  };
  return { name, total: file.total, exact: true, chunks: chunks() };
}

/**
 * Asks for the next chunk while the one before is in use. A used one is posted to a port that nobody
 * reads, which frees it at once: a collector that sees small objects only would let a whole model pile up.
 * @param {() => Promise<Uint8Array | null>} read
 * @param {AbortSignal} signal
 */
async function* ahead(read, signal) {
  const { port1: nowhere, port2 } = new MessageChannel();
  port2.close();
  await new Promise((resolve) => setTimeout(resolve)); // Node closes it in the next turn
  try {
    let next = read();
    for (;;) {
      const bytes = await next;
      signal.throwIfAborted();
      if (!bytes) return;
      next = read();
      next.catch(() => {}); // seen by the await above, unless the loop is left first: then nobody asks
      yield bytes;
      nowhere.postMessage(null, [/** @type {ArrayBuffer} */ (bytes.buffer)]);
    }
  } finally {
    nowhere.close();
  }
}

/**
 * The same bytes, which end with an error if their hash is another than the one wanted.
 * @param {Opened} source
 * @param {string} sha256 hexadecimal
 * @returns {Opened}
 */
function verified(source, sha256) {
  const hash = nodeHash() ?? nobleHash.create();
  const chunks = async function* () {
    let total = 0;
    for await (const chunk of source.chunks) {
      hash.update(chunk);
      total += chunk.length;
      yield chunk;
    }
    const found = Array.from(hash.digest(), (byte) => byte.toString(16).padStart(2, '0')).join('');
    if (found !== sha256.toLowerCase()) {
      throw new ModelError('HASH', `${source.name} has the SHA-256 ${found} over ${total} bytes, not ${sha256}`);
    }
  };
  return { ...source, toEnd: true, chunks: chunks() };
}

/**
 * Progress as callers see it: at most ten a second, a first and a last one always, loaded never more
 * than total, and total only while it can be true.
 * @param {(progress: {loaded: number, total?: number}) => void} report
 * @param {number | undefined} total
 * @param {() => number} [now]
 */
export function progress(report, total, now = () => performance.now()) {
  let last = now();
  let loaded = 0;
  const tell = () => report(total === undefined ? { loaded } : { loaded, total });
  tell();
  return {
    /** @param {number} bytes */
    add(bytes) {
      loaded += bytes;
      if (total !== undefined && loaded > total) total = undefined;
      if (now() - last < 100) return;
      last = now();
      tell();
    },
    /** All that is needed is in; what the file may hold beyond is not read. */
    end() {
      if (total !== undefined) loaded = total;
      tell();
    },
  };
}
