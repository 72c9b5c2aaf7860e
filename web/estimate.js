/**
 * estimate.js: what a model will need, from its header alone; also for one that can't run here, as far as
 * arithmetic goes.
 */
import { ModelError } from './errors.js';
import { ADDRESSABLE, createMemory } from './instance.js';

/**
 * Types of the cache, those of src/kv.def: values per block, bytes per block, bytes per row beside.
 * @type {Record<string, [values: number, bytes: number, row: number]>}
 */
export const KV_TYPES = { q16: [1, 2, 4], f16: [1, 2, 0], f32: [1, 4, 0], q8_0: [32, 34, 0], q4_0: [32, 18, 0] };
const MOST_CONTEXT = 8192;

/** @typedef {import('./loader.js').Loader} Loader */

/**
 * Rows of the cache per token, the keys and values of all heads of all layers, and the numbers in them; none where the
 * file's keys don't say.
 * @param {Loader} loader
 */
function cachePerToken(loader) {
  const architecture = loader.meta('general.architecture');
  const key = (/** @type {string} */ name) => {
    const value = loader.meta(`${architecture}.${name}`);
    return value === undefined ? undefined : Array.from(/** @type {any} */ (typeof value === 'object' ? value : [value]), Number);
  };
  const [layers] = key('block_count') ?? [];
  const heads = key('attention.head_count');
  const kvHeads = key('attention.head_count_kv') ?? heads;
  const [width] = key('embedding_length') ?? [];
  const [keyLength = width / /** @type {number[]} */ (heads)?.[0]] = key('attention.key_length') ?? [];
  const [valueLength = keyLength] = key('attention.value_length') ?? [];
  if (!kvHeads) return { rows: 0, values: 0 };
  const allHeads = kvHeads.length > 1 ? kvHeads.reduce((a, b) => a + b, 0) : layers * kvHeads[0];
  const values = allHeads * (keyLength + valueLength);
  return Number.isFinite(values) ? { rows: 2 * allHeads, values } : { rows: 0, values: 0 };
}

/**
 * Why it can't run, however small it were; undefined if it can.
 * @param {Loader} loader
 */
async function obstacle(loader) {
  if (loader.info.nTensors === 0) return 'the file has no tensors, only a vocabulary';
  try {
    await loader.plan();
    return undefined;
  } catch (error) {
    if (!(error instanceof ModelError)) throw error;
    if (error.code === 'MEMORY') return undefined; // the bytes will say it
    if (error.code === 'UNSUPPORTED' || error.code === 'FORMAT') return error.message;
    throw error;
  }
}

/**
 * The parts of the memory: as planned by the engine, else by arithmetic. One context, whole chunks.
 * @param {Loader} loader
 * @param {number} context
 * @param {number} kvPerToken
 */
function bytesOf(loader, context, kvPerToken) {
  const { bytesNow, bytesWeights, bytesChunk, chunkTokens, fileBytes } = loader.info;
  if (!bytesNow) {
    const weights = loader.tensors().reduce((sum, { bytes }) => sum + bytes, 0);
    const kv = context * kvPerToken;
    return { file: fileBytes, weights, kvPerToken, kv, scratch: 0, total: weights + kv };
  }
  const kv = Math.ceil(context / chunkTokens) * bytesChunk;
  const total = bytesNow - bytesChunk + kv;
  return { file: fileBytes, weights: bytesWeights, kvPerToken, kv, scratch: total - bytesWeights - kv, total };
}

/**
 * Why this device does not give the memory; undefined if it does.
 * @param {number} total
 * @param {boolean} wide
 */
function refused(total, wide) {
  try {
    createMemory({ bytes: total, maximum: total, shared: false, wide });
    return undefined;
  } catch (error) {
    if (error instanceof ModelError) return error.message;
    throw error;
  }
}

/**
 * @param {Loader} loader whose header is whole
 * @param {{ contextLength?: number, kvType?: string, memoryLimit?: number }} options
 * @returns {Promise<import('./index.js').Estimate>}
 */
export async function estimate(loader, { contextLength, kvType = 'q16', memoryLimit = loader.addressable }) {
  if (!Object.hasOwn(KV_TYPES, kvType)) {
    throw new RangeError(`kvType is '${kvType}', must be one of ${Object.keys(KV_TYPES).join(', ')}`);
  }
  const unknown = await obstacle(loader);
  const { info } = loader;
  const text = (/** @type {string} */ key) => loader.meta(key)?.toString();
  const trained = Number(loader.meta(`${info.architecture}.context_length`) ?? 0);
  const context = contextLength ?? (info.nCtx || Math.min(trained || MOST_CONTEXT, MOST_CONTEXT));
  const { rows, values } = cachePerToken(loader);
  const perToken = (/** @type {string} */ type) => {
    const [items, bytes, row] = KV_TYPES[type];
    return (values / items) * bytes + rows * row;
  };
  const bytes = bytesOf(loader, context, perToken(kvType));
  const needs = `it needs ${bytes.total} bytes of memory (weights ${bytes.weights}, cache ${bytes.kv})`;
  const wide = info.variant.includes('-m64');
  const most = wide ? loader.addressable : ADDRESSABLE;
  const tooLarge = bytes.total > most ? `${needs}, and ${wide ? 64 : 32}-bit WebAssembly addresses ${most}` : undefined;
  const runs = !unknown && !tooLarge;
  const above = bytes.total > memoryLimit ? `${needs}, and the limit is ${memoryLimit}` : undefined;
  const reason = unknown ?? tooLarge ?? above ?? refused(bytes.total, wide);
  return {
    name: text('general.name'),
    architecture: info.architecture,
    quantisation: info.quantisation,
    parameters: info.nParams,
    contextLength: context,
    trainedContextLength: trained || undefined,
    kvType,
    bytes,
    kv: /** @type {import('./index.js').Estimate['kv']} */ (
      Object.fromEntries(
        Object.keys(KV_TYPES).map((type) => [type, { perToken: perToken(type), context: context * perToken(type) }]),
      )
    ),
    sessions: bytes.kv > 0 ? Math.max(0, Math.floor((memoryLimit - (bytes.total - bytes.kv)) / bytes.kv)) : 0,
    runs,
    fits: reason === undefined,
    reason,
  };
}
