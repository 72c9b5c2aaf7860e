/**
 * engine.js (`tabllama/engine`): a model on token ids, without a tokenizer. Created asynchronously,
 * evaluated synchronously; for Node and for workers, with one thread anywhere.
 *
 *   const engine = await createEngine('model.gguf', { threads: 4 });
 *   const seq = engine.seq();
 *   engine.eval({ tokens: [1, 403, 407], seq });
 *   const next = engine.sample(seq);
 *
 * Who has the bytes in another way feeds them:
 *
 *   const loader = await createLoader();
 *   loader.push(bytes)              until loader.state is 'ready': metadata, tensors and sizes are known
 *   await loader.allocate();        memory taken, compute workers started
 *   loader.push(bytes)              the rest, until loader.state is 'done'
 *   const engine = loader.finish();
 */
import * as loading from './loader.js';
import { describe, filesOf } from './describe.js';
import { CREATE, HEADER, LOADER, check } from './options.js';
import { withSource } from './source.js';

export { runnable, support } from './features.js';

/** @typedef {import('./evaluator.js').Engine} Engine */
/** @typedef {import('./loader.js').Loader} Loader */
/** @typedef {import('./loader.js').EngineInfo} EngineInfo */
/** @typedef {import('./loader.js').EngineOptions & Partial<import('./loader.js').Assets>} EngineOptions */
/**
 * A URL, in Node a path; a file, or those of a split model; or the bytes, or chunks of them.
 * @typedef {string | URL | Blob | FileSystemFileHandle | Blob[] | FileSystemFileHandle[] | BufferSource
 *   | ReadableStream | Iterable<Uint8Array> | AsyncIterable<Uint8Array>} Source
 */

/** One literal each, for bundlers.
 * @type {Record<string, () => URL>} */
const MODULES = {
  simd: () => new URL('../dist/lm-simd.wasm', import.meta.url),
  relaxed: () => new URL('../dist/lm-relaxed.wasm', import.meta.url),
  'relaxed-dot': () => new URL('../dist/lm-relaxed-dot.wasm', import.meta.url),
  'simd-mt': () => new URL('../dist/lm-simd-mt.wasm', import.meta.url),
  'relaxed-mt': () => new URL('../dist/lm-relaxed-mt.wasm', import.meta.url),
  'relaxed-dot-mt': () => new URL('../dist/lm-relaxed-dot-mt.wasm', import.meta.url),
  'relaxed-m64': () => new URL('../dist/lm-relaxed-m64.wasm', import.meta.url),
  'relaxed-m64-mt': () => new URL('../dist/lm-relaxed-m64-mt.wasm', import.meta.url),
};

/**
 * A loader that wants its first byte.
 * @param {EngineOptions} [options]
 */
export async function createLoader(options) {
  const wasm = (/** @type {string} */ variant) => MODULES[variant]();
  return loading.createLoader({ wasm, thread: new URL('./thread.js', import.meta.url), ...check(options, LOADER) });
}

/**
 * What says how to read, beside what is read; signal ends it, the others as for load().
 * @typedef {import('./describe.js').Access & { signal?: AbortSignal, sha256?: string | string[], cache?: boolean | string }} ReadOptions
 */

/**
 * @param {Source} source
 * @returns {source is Iterable<Uint8Array> | AsyncIterable<Uint8Array>}
 */
function isChunks(source) {
  if (typeof source !== 'object' || ArrayBuffer.isView(source) || source instanceof ReadableStream) return false;
  if (Array.isArray(source)) return ArrayBuffer.isView(source[0]);
  return Symbol.iterator in source || Symbol.asyncIterator in source;
}

/**
 * @template T
 * @param {Source} source
 * @param {ReadOptions & { header?: boolean }} how
 * @param {EngineOptions} options
 * @param {(loader: Loader, opened: { chunks: Iterable<Uint8Array> | AsyncIterable<Uint8Array>, total?: number, exact: boolean,
 *   toEnd?: boolean }) => Promise<T>} use
 * @returns {Promise<T>}
 */
async function reading(source, { signal = new AbortController().signal, headers, token, hub, ...how }, options, use) {
  const withLoader = await loading.loaders(() => createLoader(options));
  if (isChunks(source)) return withLoader((loader) => use(loader, { chunks: source, exact: false }));
  const { origin, reader } = describe(await filesOf(source), { headers, token, hub });
  const newLoader = () => createLoader({ threads: 1 });
  const from = { signal, read: reader.read, newLoader, ...how };
  return withSource(origin, from, (opened) => withLoader((loader) => use(loader, opened)));
}

/**
 * Reads no further than the header: metadata and tensors, and after bind() the sizes. What follows it may
 * be missing.
 * @param {Source} source
 * @param {EngineOptions & Omit<ReadOptions, 'sha256'>} [options]
 * @returns {Promise<Loader>} in state 'ready'
 */
export async function readHeader(source, options) {
  const { signal, headers, token, hub, cache, ...engine } = check(options, HEADER);
  const how = { signal, headers, token, hub, cache, header: true };
  return reading(source, how, { threads: 1, ...engine }, (loader, { chunks }) => loading.feedHeader(loader, chunks));
}

/**
 * A model from anything that holds one.
 * @param {Source} source
 * @param {EngineOptions & ReadOptions} [options]
 * @returns {Promise<Engine>}
 */
export async function createEngine(source, options) {
  const { signal, sha256, headers, token, hub, cache, ...engine } = check(options, CREATE);
  const how = { signal, sha256, headers, token, hub, cache };
  return reading(source, how, engine, async (loader, { chunks, total, exact, toEnd }) => {
    if (exact) loader.fileBytes ??= total;
    for await (const chunk of chunks) {
      const taken = loader.push(chunk);
      if (loader.state === 'ready') {
        await loader.allocate();
        loader.push(chunk.subarray(taken));
      }
      if (loader.state === 'done' && !toEnd) break;
    }
    return loader.finish();
  });
}
