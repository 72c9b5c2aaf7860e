/**
 * worker.js: the far side of index.js. It holds one model and answers calls about it; it ends when the
 * page ends it.
 */
import { createTemplate } from './chat.js';
import { ModelError } from './errors.js';
import { estimate } from './estimate.js';
import { createLoader, feedHeader, loaders } from './loader.js';
import { onNode, parentNodePort } from './node.js';
import { Renderer } from './renderer.js';
import { Rpc, parentPort } from './rpc.js';
import { Session } from './session.js';
import { progress, withSource } from './source.js';
import { createTokenizer } from './tokenizer.js';
import { letPageStart } from './workers.js';

/** @typedef {{ engine: import('./evaluator.js').Engine, tokenizer: import('./tokenizer.js').Tokenizer, template: ReturnType<typeof createTemplate>, session: Session }} Loaded */

/** @type {Loaded | undefined} */
let loaded;
/** @type {ModelError | undefined} what ended the engine */
let crash;
/** Settles when a load that nobody waits for any more has put its files in order. @type {Promise<unknown>} */
let settled = Promise.resolve();
const SETTLE_MS = 2_000;

/** @type {Record<string, (args: any, job: import('./rpc.js').Job) => any>} */
const handlers = {
  hello: () => null,
  async load({ origin, sha256, cache, options, files }, job) {
    const report = { files: 0, kept: 0, warnings: [] };
    const how = { origin, sha256, cache, report };
    const work = reading(how, engineOptions(options, files), job, (source, loader) => load(source, loader, files.template, job));
    settled = work.catch(() => {}); // the await below throws it
    loaded = await work;
    return infoOf(loaded, report);
  },
  estimate: ({ origin, memoryLimit, cache, options, files }, job) =>
    reading({ origin, cache, header: true }, engineOptions(options, files), job, async ({ chunks }, loader) =>
      estimate(await feedHeader(loader, chunks), { ...options, memoryLimit }),
    ),
  settle: () => Promise.race([settled, new Promise((resolve) => setTimeout(resolve, SETTLE_MS))]),
  tokenize: ({ text, options }) => model().tokenizer.encode(text, options),
  detokenize: ({ tokens }) => model().tokenizer.decode(tokens),
  render: ({ messages, options }) => model().template.render(messages, options),
  async generate({ slot, prompt, options }, job) {
    const { engine, session } = model();
    const result = await session.generate(slot, prompt, options, job);
    return { result, memory: engine.memory().wasm };
  },
  forget: ({ slot }) => model().session.forget(slot),
};

/** @returns {Loaded} */
function model() {
  return /** @type {Loaded} */ (loaded);
}

/**
 * After a trap nothing is what it was: every later call says so, also those that need no engine.
 * @param {(args: any, job: import('./rpc.js').Job) => any} handler
 * @returns {import('./rpc.js').Handler}
 */
function guarded(handler) {
  return async (args, job) => {
    if (crash) throw crash;
    try {
      return await handler(args, job);
    } catch (error) {
      if (error instanceof ModelError && error.code === 'CRASHED') crash = error;
      throw error;
    }
  };
}

/**
 * @param {import('./loader.js').EngineOptions} options
 * @param {{ thread: string, wasm: Record<string, string> }} files
 */
const engineOptions = (options, files) => ({ ...options, thread: files.thread, wasm: (/** @type {string} */ name) => files.wasm[name] });

/**
 * Reads a source into a loader.
 * @template T
 * @param {{ origin: import('./describe.js').Origin } & import('./source.js').OpenOptions} what
 * @param {import('./loader.js').EngineOptions & import('./loader.js').Assets} options
 * @param {import('./rpc.js').Job} job
 * @param {(source: import('./source.js').Opened, loader: import('./loader.js').Loader) => Promise<T>} use
 * @returns {Promise<T>}
 */
async function reading({ origin, ...how }, options, { signal }, use) {
  const withLoader = await loaders(() => createLoader(options));
  const read = (/** @type {{ part: number, at: number }} */ where) => rpc.call('read', where);
  const newLoader = () => createLoader({ threads: 1, thread: options.thread, wasm: options.wasm });
  const from = { signal, read, newLoader, ...how };
  return withSource(origin, from, (source) => withLoader((loader) => use(source, loader)));
}

/**
 * Everything that can be refused from the header alone is refused before the weights are asked for.
 * @param {import('./source.js').Opened} source
 * @param {import('./loader.js').Loader} loader
 * @param {string} templateUrl
 * @param {import('./rpc.js').Job} job
 * @returns {Promise<Loaded>}
 */
async function load(source, loader, templateUrl, job) {
  const meter = progress(job.send, source.total);
  if (source.exact) loader.fileBytes = source.total;
  let tokenizer, template;
  for await (const chunk of source.chunks) {
    job.signal.throwIfAborted();
    let taken = loader.push(chunk);
    if (loader.state === 'ready') {
      await loader.plan();
      const meta = (/** @type {string} */ key) => loader.packedMeta(key);
      tokenizer = createTokenizer(meta);
      template = createTemplate(meta, tokenizer, new Renderer(templateUrl));
      await loader.allocate();
      taken += loader.push(chunk.subarray(taken));
    }
    meter.add(taken);
    if (loader.state === 'done' && !source.toEnd) break;
  }
  const engine = loader.finish();
  if (!tokenizer || !template) throw new ModelError('FORMAT', 'the file ends within its header');
  meter.end();
  return { engine, tokenizer, template, session: new Session(engine, tokenizer, template) };
}

/**
 * @param {Loaded} loaded
 * @param {import('./cache.js').Report} report
 */
function infoOf({ engine, tokenizer }, { files, kept, warnings }) {
  const { info } = engine;
  const string = (/** @type {string} */ key) => {
    const value = engine.meta(key);
    return typeof value === 'string' ? value : undefined;
  };
  return {
    name: string('general.name'),
    license: string('general.license'),
    architecture: info.architecture,
    quantisation: info.quantisation,
    parameters: info.nParams,
    nLayers: info.nLayers,
    dModel: info.dModel,
    dFf: info.dFf,
    nHeads: info.nHeads,
    nKvHeads: info.nKvHeads,
    headDim: info.headDim,
    nVocab: info.nVocab,
    contextLength: info.nCtx,
    trainedContextLength: info.nCtxTrain,
    rope: info.rope,
    cached: files > 0 && kept === files,
    warnings: [...info.warnings, ...warnings],
    tokenizer: tokenizer.pre ?? tokenizer.model,
    hasTemplate: engine.meta('tokenizer.chat_template') !== undefined,
    kvType: info.kvType,
    precision: info.precision,
    variant: info.variant,
    threads: info.threads,
    threadsReason: info.threadsReason ?? undefined,
    bytes: {
      file: info.fileBytes,
      weights: info.bytesWeights,
      kvPerToken: info.bytesKvToken,
      memory: engine.memory().wasm,
    },
  };
}

const rpc = new Rpc(
  onNode() ? parentNodePort() : parentPort(),
  Object.fromEntries(Object.entries(handlers).map(([name, handler]) => [name, guarded(handler)])),
);
if (!onNode()) letPageStart(rpc);
