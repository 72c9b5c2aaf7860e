/**
 * describe.js: where a model's bytes come from, on the page's side: what the caller gave as a plain Origin
 * that can be posted, and a reader for what has to be read on the page: Blobs, bytes and streams.
 */
import { ModelError } from './errors.js';
import { absolutePath, onNode } from './node.js';
import { inOrder, partNames, partOf } from './split.js';

/** Read and posted at a time. */
export const CHUNK_BYTES = 1 << 20;
const HUB = 'https://huggingface.co';

/**
 * What the worker is told. `name` is what sentences call it; `part` which of the page's files is meant.
 * @typedef {{kind: 'url', name: string, headers: [string, string][]}
 *   | {kind: 'path', name: string}
 *   | {kind: 'page', name: string, total?: number, part: number}} Single
 * @typedef {Single | {kind: 'parts', name: string, parts: Single[]}} Origin
 */

/**
 * The page's half of an Origin of kind 'page'.
 * @typedef {object} PageReader
 * @property {(where: { part: number, at: number }) => Promise<Uint8Array | null>} read the chunk that begins
 *   there, a buffer of its own; null at the end. A stream gives what comes next.
 * @property {(reason: any) => void} cancel
 */

/** What only a URL has. @typedef {{ headers?: HeadersInit, token?: string, hub?: string }} Access */

/**
 * Handles of files stand for the files.
 * @param {unknown} source
 * @returns {Promise<unknown>}
 */
export async function filesOf(source) {
  if (Array.isArray(source)) return Promise.all(source.map(filesOf));
  if (kindOf(source) !== 'FileSystemFileHandle') return source;
  const handle = /** @type {FileSystemFileHandle} */ (source);
  return handle.getFile().catch((cause) => {
    throw new ModelError('FILE', `${handle.name} can't be opened: ${cause.message}`, { cause });
  });
}

/**
 * @param {unknown} source
 * @param {Access} [access]
 * @returns {{origin: Origin, reader: PageReader}}
 */
export function describe(source, access = {}) {
  const address = addressOf(source, access.hub);
  for (const name of /** @type {const} */ (['headers', 'token', 'hub'])) {
    if (access[name] !== undefined && address?.kind !== 'url') {
      throw new TypeError(`${name} ${name === 'headers' ? 'are' : 'is'} for a model from a URL: this one comes from elsewhere`);
    }
  }
  if (address) return { origin: whole(address.name, namesOf(address).map((name) => located(address.kind, name, access))), reader: NOTHING };
  if (Array.isArray(source) && source.length > 0 && source.every(isBlob)) return filesPage(inOrder(source));
  if (isBlob(source)) {
    const blob = /** @type {File} */ (source);
    const part = partOf(blob.name ?? '');
    if (part) throw new TypeError(`${blob.name} is part ${part.no} of ${part.count}: give all of them, in an array`);
    return filesPage([blob]);
  }
  if (kindOf(source) === 'ReadableStream') return page('the stream', undefined, streamReader(/** @type {ReadableStream} */ (source)));
  const bytes = viewOf(source);
  if (!bytes) {
    throw new TypeError('source must be a string, URL, Blob, File, array of Files, ArrayBuffer, typed array or ReadableStream');
  }
  const copy = async (/** @type {number} */ at, /** @type {number} */ end) => bytes.slice(at, end).buffer;
  return page('the bytes', bytes.length, sliceReader([{ total: bytes.length, slice: copy }]));
}

/** @param {unknown} value */
const isBlob = (value) => ['Blob', 'File'].includes(kindOf(value));

/** @type {PageReader} */
const NOTHING = { read: async () => null, cancel() {} };

/**
 * @param {string} name
 * @param {number | undefined} total
 * @param {PageReader} reader
 * @returns {{origin: Origin, reader: PageReader}}
 */
const page = (name, total, reader) => ({ origin: { kind: 'page', name, total, part: 0 }, reader });

/**
 * @param {(Blob & { name?: string })[]} files
 * @returns {{origin: Origin, reader: PageReader}}
 */
function filesPage(files) {
  const slices = files.map((file) => ({
    total: file.size,
    slice: (/** @type {number} */ at, /** @type {number} */ end) => file.slice(at, end).arrayBuffer(),
  }));
  const parts = files.map(({ name = 'the Blob', size }, part) => /** @type {Single} */ ({ kind: 'page', name, total: size, part }));
  return { origin: whole(parts[0].name, parts), reader: sliceReader(slices) };
}

/**
 * @param {string} name
 * @param {Single[]} parts
 * @returns {Origin}
 */
const whole = (name, parts) => (parts.length > 1 ? { kind: 'parts', name, parts } : parts[0]);

/**
 * Of all files of a model; a URL's query is the same for each.
 * @param {{ kind: 'url' | 'path', name: string }} first
 */
function namesOf({ kind, name }) {
  if (kind === 'path') return partNames(name);
  const url = new URL(name);
  return partNames(url.pathname).map((pathname) => Object.assign(new URL(url), { pathname }).href);
}

/**
 * @param {'url' | 'path'} kind
 * @param {string} name
 * @param {Access} access
 * @returns {Single}
 */
function located(kind, name, { headers, token }) {
  if (kind === 'path') return { kind, name };
  if (headers === undefined && token === undefined) return { kind, name, headers: [] }; // Node takes 50 ms to make the first Headers
  const all = new Headers(headers);
  if (token !== undefined) all.set('authorization', `Bearer ${token}`);
  return { kind, name, headers: [...all] };
}

/**
 * A string is a URL, or in Node a path: `C:` is a drive and no scheme, and file: URLs are paths too.
 * @param {unknown} source
 * @param {string} [hub]
 * @returns {{kind: 'url', name: string} | {kind: 'path', name: string} | undefined}
 */
function addressOf(source, hub) {
  if (typeof source !== 'string' && kindOf(source) !== 'URL') return undefined;
  const text = String(source);
  if (text === '') throw new TypeError('source is an empty string');
  const scheme = /^([a-z][a-z0-9+.-]+):/i.exec(text)?.[1].toLowerCase();
  if (scheme === 'hf') return { kind: 'url', name: urlOf(onHub(text, hub)) };
  if (hub !== undefined) throw new TypeError(`hub is for a model by hf:owner/repo/file, not for ${text}`);
  if (onNode() && (!scheme || scheme === 'file')) return { kind: 'path', name: absolutePath(text) };
  return { kind: 'url', name: urlOf(text) };
}

/** @param {string} text */
function urlOf(text) {
  const { document, location } = globalThis;
  try {
    return new URL(text, document?.baseURI ?? location?.href).href;
  } catch (cause) {
    throw new TypeError(`'${text}' is not a URL`, { cause });
  }
}

/**
 * hf:owner/repo/file or hf:owner/repo@revision/file.
 * @param {string} text
 * @param {string} [hub]
 */
function onHub(text, hub = HUB) {
  const [, owner, repo, revision = 'main', file] = /^hf:([\w.-]+)\/([\w.-]+)(?:@([^/]+))?\/(.+)$/i.exec(text) ?? [];
  if (!file) throw new TypeError(`'${text}' must be hf:owner/repo/file.gguf, or with a revision hf:owner/repo@main/file.gguf`);
  const encode = (/** @type {string} */ one) => encodeURIComponent(decoded(one));
  return `${hub.replace(/\/+$/, '')}/${owner}/${repo}/resolve/${encode(revision)}/${file.split('/').map(encode).join('/')}`;
}

/** @param {string} name as a URL has it, or as it is */
function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return name; // its percent sign stands for itself
  }
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
 * @param {{ total: number, slice: (at: number, end: number) => Promise<ArrayBufferLike> }[]} parts slice
 *   copies a range
 * @returns {PageReader}
 */
function sliceReader(parts) {
  return {
    async read({ part, at }) {
      const { total, slice } = parts[part];
      if (at === total) return null;
      try {
        return new Uint8Array(await slice(at, Math.min(at + CHUNK_BYTES, total)));
      } catch (cause) {
        throw new ModelError('FILE', `the file could not be read beyond ${at} of ${total} bytes`, { cause });
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
        const { done, value } = await reader.read().catch((cause) => {
          throw new ModelError('FILE', `the stream broke off: ${cause?.message ?? cause}`, { cause });
        });
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
