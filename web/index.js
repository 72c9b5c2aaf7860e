/**
 * index.js: the public API. It runs no model: that is done in a worker (worker.js), which it starts, asks
 * and ends. Importing it does nothing, with or without a window.
 */
import { deleteModel, listModels } from './cache.js';
import { describe, filesOf } from './describe.js';
import { ModelError } from './errors.js';
import { Model } from './model.js';
import { fileUrl, onNode, startNodeWorker } from './node.js';
import { ESTIMATE, LOAD, MODELS, check } from './options.js';
import { Rpc, workerPort } from './rpc.js';
import { openStore } from './storage.js';
import { HostedWorkers } from './workers.js';

export { ModelError };
export { support } from './features.js';

/**
 * Where the package's other files are. Bundlers look for these very forms and put the files in place; in
 * dist/ all stand beside this file.
 */
const FILES = {
  thread: () => new URL('./thread.js', import.meta.url),
  template: () => new URL('../dist/template.js', import.meta.url),
  /** In Node, where one file is loaded sooner than twenty; not in a form that bundlers look for. */
  nodeWorker: () => new URL('worker.js', FILES.template()),
  wasm: () => ({
    simd: new URL('../dist/lm-simd.wasm', import.meta.url).href,
    relaxed: new URL('../dist/lm-relaxed.wasm', import.meta.url).href,
    'relaxed-dot': new URL('../dist/lm-relaxed-dot.wasm', import.meta.url).href,
    'simd-mt': new URL('../dist/lm-simd-mt.wasm', import.meta.url).href,
    'relaxed-mt': new URL('../dist/lm-relaxed-mt.wasm', import.meta.url).href,
    'relaxed-dot-mt': new URL('../dist/lm-relaxed-dot-mt.wasm', import.meta.url).href,
    'relaxed-m64': new URL('../dist/lm-relaxed-m64.wasm', import.meta.url).href,
    'relaxed-m64-mt': new URL('../dist/lm-relaxed-m64-mt.wasm', import.meta.url).href,
  }),
};

/** @typedef {NonNullable<import('./index.js').LoadOptions['assets']>} Assets */

/**
 * An address as the caller writes it, relative to the page or, in Node, to the working directory.
 * @param {string} address
 */
const resolve = (address) =>
  onNode() ? fileUrl(address) : new URL(address, globalThis.document?.baseURI ?? globalThis.location?.href).href;

/**
 * The addresses that the worker needs, as strings.
 * @param {Assets} assets
 */
function filesFor(assets) {
  const thread = assets.thread ? resolve(assets.thread) : FILES.thread().href;
  const template = assets.template ? resolve(assets.template) : FILES.template().href;
  const wasm = FILES.wasm();
  if (assets.wasm === undefined) return { thread, template, wasm };
  const folder = resolve(assets.wasm.endsWith('/') ? assets.wasm : `${assets.wasm}/`);
  return { thread, template, wasm: Object.fromEntries(Object.keys(wasm).map((name) => [name, new URL(`lm-${name}.wasm`, folder).href])) };
}

/**
 * @param {Assets} assets
 * @returns {import('./rpc.js').Port}
 */
function startWorker(assets) {
  if (onNode()) return startNodeWorker(assets.worker ? resolve(assets.worker) : FILES.nodeWorker());
  if (assets.worker) return workerPort(new Worker(resolve(assets.worker), { type: 'module' }));
  return workerPort(new Worker(new URL('./worker.js', import.meta.url), { type: 'module' }));
}

/**
 * Starts a worker that can ask for the source's bytes, and ends it unless `use` goes well and keeps it.
 * @template T
 * @param {unknown} source
 * @param {Record<string, any>} options checked
 * @param {(rpc: Rpc, args: { origin: import('./describe.js').Origin, files: object }) => Promise<T>} use
 * @param {boolean} keep
 * @returns {Promise<T>}
 */
async function withWorker(source, { signal, cache, assets = {}, ...access }, use, keep) {
  const { origin, reader } = describe(await filesOf(source), access);
  signal?.throwIfAborted();
  let started = false;
  /** @param {Error} cause */
  const explain = (cause) => {
    const [code, what] = started ? ['CRASHED', "the model's worker has ended"] : ['WORKER', `${assets.worker ?? 'worker.js'} could not be started`];
    return new ModelError(code, `${what}: ${cause.message}`, { cause });
  };
  /** @type {Rpc | undefined} */
  let rpc;
  let kept = false;
  try {
    const [worker, hosted] = [startWorker(assets), new HostedWorkers()];
    const close = () => {
      hosted.end();
      return worker.close();
    };
    rpc = new Rpc({ ...worker, close }, { read: reader.read, startWorker: hosted.start }, explain);
    await rpc.call('hello', null, { signal });
    started = true;
    const result = await use(rpc, { origin, files: filesFor(assets) });
    kept = keep;
    return result;
  } catch (error) {
    throw rpc || error instanceof ModelError ? error : explain(/** @type {Error} */ (error));
  } finally {
    if (!kept && cache) await rpc?.call('settle', null).catch(() => {}); // it has failed otherwise, which the caller knows
    if (!kept) await rpc?.fail(new ModelError('CLOSED', 'the model was not loaded'));
    reader.cancel(new ModelError('CLOSED', 'nothing more is needed'));
  }
}

/** @type {typeof import('./index.js').load} */
export async function load(source, options) {
  const { signal, onProgress, sha256, cache, headers, token, hub, assets, ...engine } = check(options, LOAD);
  return withWorker(
    source,
    { signal, cache, headers, token, hub, assets },
    async (rpc, args) => new Model(rpc, await rpc.call('load', { ...args, sha256, cache, options: engine }, { signal, onItem: onProgress })),
    true,
  );
}

/** @type {typeof import('./index.js').estimate} */
export async function estimate(source, options) {
  const { signal, memoryLimit, cache, headers, token, hub, assets, ...engine } = check(options, ESTIMATE);
  const ask = (/** @type {Rpc} */ rpc, /** @type {object} */ args) =>
    rpc.call('estimate', { ...args, memoryLimit, cache, options: engine }, { signal });
  return withWorker(source, { signal, headers, token, hub, assets }, ask, false);
}

/** @type {typeof import('./index.js').models} */
export async function models(options) {
  const { cache = true } = check(options, MODELS);
  const store = await openStore(cache || true);
  return (await listModels(store)).reverse().map(({ key, url, bytes, used, complete }) => ({
    url,
    bytes,
    complete,
    used: new Date(used),
    delete: () => deleteModel(store, key),
  }));
}

/** @type {typeof import('./index.js').persist} */
export const persist = async () => onNode() || ((await globalThis.navigator?.storage?.persist?.()) ?? false);
