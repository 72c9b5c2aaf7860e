/**
 * source.js: where a model's bytes come from, on the worker's side: they are fetched, read from files or the
 * cache, or asked of the page.
 *
 * One chunk is in use while the next one is fetched, none is larger than the platform's own (fetch) or
 * CHUNK_BYTES, and a chunk may be overwritten as soon as the next one is asked for.
 */

import { sha256 as nobleHash } from '@noble/hashes/sha2.js';
import { openThrough } from './copy.js';
import { CHUNK_BYTES } from './describe.js';
import { Restart, download } from './download.js';
import { ModelError } from './errors.js';
import { nodeHash, openFile } from './node.js';
import { join } from './split.js';
import { openStore } from './storage.js';

/** @typedef {import('./describe.js').Origin} Origin */
/** @typedef {import('./describe.js').Single} Single */
/** @typedef {import('./describe.js').PageReader} PageReader */

/** How often a file that changes while it is read is begun again. */
const MOST_RESTARTS = 3;

/**
 * @typedef {object} Opened
 * @property {string} name
 * @property {number} [total] bytes, where they are known
 * @property {boolean} exact whether total is the file's own length beyond doubt
 * @property {boolean} [toEnd] to be read to the end, also beyond what the model needs
 * @property {string} [etag] the server's strong one
 * @property {() => Promise<void>} [keep] a model was made of it: a copy may stay
 * @property {() => Promise<void>} [release] nothing more is done with it
 * @property {AsyncIterable<Uint8Array>} chunks to be read once; leaving the loop closes the source
 */

/**
 * @typedef {Omit<import('./download.js').DownloadOptions, 'pieceBytes'> & OpenOptions} SourceOptions
 * @typedef {object} OpenOptions
 * @property {PageReader['read']} [read] asks the page for a chunk
 * @property {() => Promise<import('./loader.js').Loader>} [newLoader] for the headers of a split model
 * @property {string | string[]} [sha256] of the whole file, in hexadecimal; of each, in their order
 * @property {boolean} [header] no more than the header will be read
 * @property {string | boolean} [cache] keep copies of what is downloaded: in a cache of this name
 * @property {import('./cache.js').Report} [report] filled with what came of that
 * @property {Opened[]} [opened] filled with what was opened
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
    /** @type {Opened[]} */
    const opened = [];
    if (options.report) Object.assign(options.report, { files: 0, kept: 0 });
    let name = '';
    try {
      const source = await openOrigin(origin, { ...options, opened });
      name = source.name;
      const result = await use(source);
      for (const one of opened) await one.keep?.();
      return result;
    } catch (error) {
      if (!(error instanceof Restart)) throw named(error, name);
      if (restarts === MOST_RESTARTS) {
        throw new ModelError(error.code, `${error.message} (begun ${restarts + 1} times)`, { cause: error });
      }
    } finally {
      for (const one of opened) await one.release?.();
    }
  }
}

/**
 * What is wrong with a file says which one.
 * @param {unknown} error
 * @param {string} name  empty: it was not open yet
 */
function named(error, name) {
  const ofTheFile = error instanceof ModelError && (error.code === 'FORMAT' || error.code === 'UNSUPPORTED');
  return ofTheFile && name ? new ModelError(error.code, `${name}: ${error.message}`, { cause: error }) : error;
}

/**
 * @param {Origin} origin
 * @param {SourceOptions} options
 * @returns {Promise<Opened>}
 */
export async function openOrigin(origin, options) {
  options.signal.throwIfAborted();
  const opened = options.opened ?? [];
  const parts = origin.kind === 'parts' ? origin.parts : [origin];
  const hashes = [options.sha256 ?? []].flat();
  if (hashes.length > 0 && hashes.length !== parts.length) {
    throw new TypeError(`sha256 must be one for each file: there are ${hashes.length}, and ${origin.name} comes in ${parts.length}`);
  }
  const open = async (/** @type {number} */ i, header = options.header) => {
    const source = await openSingle(parts[i], { ...options, header, sha256: header ? undefined : hashes[i] });
    opened.push(source);
    return source;
  };
  if (origin.kind !== 'parts') return open(0);
  if (!options.newLoader) throw new TypeError('nobody reads the headers of this source');
  const names = parts.map((part) => part.name);
  return { name: origin.name, exact: true, toEnd: true, ...(await join(names, open, options.newLoader, options.header ?? false)) };
}

/**
 * @param {Single} origin
 * @param {SourceOptions & { sha256?: string }} options
 * @returns {Promise<Opened>}
 */
async function openSingle(origin, { read, header = false, sha256, signal, ...options }) {
  const verify = (/** @type {Opened} */ source) => (sha256 === undefined ? source : verified(source, sha256));
  if (origin.kind === 'url') return openUrl(origin, { signal, header, verify, ...options });
  if (origin.kind === 'path') return verify(await openPath(origin, signal));
  if (!read) throw new TypeError('nobody reads this source');
  return verify({ name: origin.name, total: origin.total, exact: true, chunks: ahead(read, origin.part, signal) });
}

/**
 * @param {Extract<Single, { kind: 'url' }>} origin
 * @param {Omit<SourceOptions, 'read' | 'sha256'> & { header: boolean, verify: (source: Opened) => Opened }} options
 * @returns {Promise<Opened>}
 */
async function openUrl(origin, { cache = false, report = { files: 0, kept: 0, warnings: [] }, header, verify, ...options }) {
  const pieceBytes = header ? CHUNK_BYTES : undefined;
  const fetchFrom = (/** @type {import('./download.js').Resume | undefined} */ resume) => download(origin, { ...options, resume, pieceBytes });
  if (!header) report.files++;
  if (!cache || !/^https?:/.test(origin.name)) return verify(await fetchFrom(undefined));
  let store;
  try {
    store = await openStore(cache);
  } catch (error) {
    report.warnings.push(`the model is not stored: ${/** @type {Error} */ (error).message}`);
    return verify(await fetchFrom(undefined));
  }
  return openThrough(store, origin.name, { header, report, verify, download: fetchFrom });
}

/**
 * @param {{name: string}} origin
 * @param {AbortSignal} signal
 * @returns {Promise<Opened>}
 */
async function openPath({ name }, signal) {
  const file = await openFile(name);
  const chunks = async function* () {
    for await (const bytes of file.chunks) {
      signal.throwIfAborted();
      yield bytes;
    }
  };
  return { name, total: file.total, exact: true, chunks: chunks() };
}

/**
 * Asks for the next chunk while the one before is in use. A used one is posted to a port that nobody
 * reads, which frees it at once: a collector that sees small objects only would let a whole model pile up.
 * @param {PageReader['read']} read
 * @param {number} part
 * @param {AbortSignal} signal
 */
async function* ahead(read, part, signal) {
  const { port1: nowhere, port2 } = new MessageChannel();
  port2.close();
  await new Promise((resolve) => setTimeout(resolve)); // Node closes it in the next turn
  try {
    let at = 0;
    let next = read({ part, at });
    for (;;) {
      const bytes = await next;
      signal.throwIfAborted();
      if (!bytes) return;
      at += bytes.length;
      next = read({ part, at });
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
