/** inspect.js: `info` and `tokenize`: what a file's header is enough for. */
import { readHeader, runnable } from '../engine.js';
import { ModelError } from '../errors.js';
import { estimate } from '../estimate.js';
import { createTokenizer } from '../tokenizer.js';
import { UsageError, engineOptions, hubOptions } from './options.js';
import { parseJson, readStdin, warn, write, writeJson } from './output.js';

/** @typedef {import('./options.js').Options} Options */
/** @typedef {import('../engine.js').Loader} Loader */
/** @typedef {{ tensors: number, parameters: number, bytes: number }} Share */

/** Which part of a model a tensor belongs to, by name; the first that fits.
 * @type {[part: string, pattern: RegExp][]} */
const PARTS = [
  ['embedding', /^token_embd\./],
  ['output', /^output\./],
  ['norms', /norm/],
  ['attention', /\.attn_/],
  ['feedForward', /\.ffn_/],
  ['other', /./],
];

/**
 * Tensors, parameters and bytes by what `keyOf` says.
 * @param {import('../loader.js').TensorInfo[]} tensors
 * @param {(tensor: import('../loader.js').TensorInfo) => string} keyOf
 */
function shares(tensors, keyOf) {
  /** @type {Record<string, Share>} */
  const sums = {};
  for (const tensor of tensors) {
    const sum = (sums[keyOf(tensor)] ??= { tensors: 0, parameters: 0, bytes: 0 });
    sum.tensors++;
    sum.parameters += tensor.dims.reduce((a, b) => a * b, 1);
    sum.bytes += tensor.bytes;
  }
  return sums;
}

/**
 * A file that is broken is an error; whatever else keeps one from running is for estimate() to tell.
 * @param {Loader} loader
 */
function refuseBroken(loader) {
  try {
    if (loader.info.nTensors > 0) loader.bind();
  } catch (error) {
    if (error instanceof ModelError && error.code === 'FORMAT') throw error;
  }
}

/**
 * Sizes as the engine has them, or of a model that can't run here as the file's keys say.
 * @param {Loader} loader
 */
function sizes(loader) {
  const { info } = loader;
  const key = (/** @type {string} */ name) => {
    const value = loader.meta(`${info.architecture}.${name}`);
    return typeof value === 'number' ? value : undefined; // a list: it differs by layer
  };
  const dModel = info.dModel || key('embedding_length');
  const nHeads = info.nHeads || key('attention.head_count');
  const tokens = /** @type {ArrayLike<string> | undefined} */ (loader.meta('tokenizer.ggml.tokens'));
  return {
    nLayers: info.nLayers || key('block_count'),
    dModel,
    dFf: info.dFf || key('feed_forward_length'),
    nHeads,
    nKvHeads: info.nKvHeads || (key('attention.head_count_kv') ?? nHeads),
    headDim: info.headDim || (key('attention.key_length') ?? (dModel && nHeads && dModel / nHeads)),
    nVocab: info.nVocab || tokens?.length,
  };
}

/**
 * @param {Loader} loader
 * @param {{ contextLength?: number, kvType?: string, memoryLimit?: number }} options
 */
async function describe(loader, options) {
  const { bytes, kv, sessions, fits, reason, runs, ...known } = await estimate(loader, options);
  const { info } = loader;
  const tensors = loader.tensors();
  const string = (/** @type {string} */ key) => loader.meta(key)?.toString();
  return {
    name: known.name,
    license: string('general.license'),
    architecture: info.architecture,
    quantisation: info.quantisation,
    tokenizer: [string('tokenizer.ggml.model'), string('tokenizer.ggml.pre')].filter(Boolean).join('/'),
    hasTemplate: loader.meta('tokenizer.chat_template') !== undefined,
    parameters: tensors.reduce((sum, { dims }) => sum + dims.reduce((a, b) => a * b, 1), 0),
    fileBytes: info.fileBytes,
    headerBytes: info.headerBytes,
    ...sizes(loader),
    nCtxTrain: known.trainedContextLength,
    rope: info.rope,
    types: shares(tensors, ({ type }) => type),
    parts: shares(
      tensors,
      ({ name }) => /** @type {any} */ (PARTS.find(([, pattern]) => pattern.test(name)))[0],
    ),
    kv: {
      type: known.kvType,
      bytesPerToken: bytes.kvPerToken,
      bytesPerChunk: info.bytesChunk,
      chunkTokens: info.chunkTokens,
    },
    kvTypes: kv,
    memory: {
      context: known.contextLength,
      weights: bytes.weights,
      kv: bytes.kv,
      scratch: bytes.scratch,
      total: bytes.total,
      sessions,
    },
    warnings: info.warnings,
    fits,
    unsupported: runs ? undefined : reason,
    reason,
  };
}

/**
 * Lines of `name value`; groups of groups are indented, a group of numbers is one line.
 * @param {Record<string, any>} facts
 * @param {string} [indent]
 * @returns {string}
 */
function plain(facts, indent = '') {
  return Object.entries(facts)
    .map(([name, value]) => {
      if (value === undefined || value === '') return '';
      const head = indent + name.padEnd(20 - indent.length);
      if (typeof value !== 'object') return `${head}${value}\n`;
      if (Object.values(value).some((inner) => typeof inner === 'object'))
        return `${head.trimEnd()}\n${plain(value, `${indent}  `)}`;
      return `${head}${Object.entries(value)
        .map((pair) => pair.join(' '))
        .join(', ')}\n`;
    })
    .join('');
}

/**
 * @param {string | undefined} model
 * @param {Options} options
 */
export async function info(model, { variants, json, ...options }) {
  if (variants) return json ? writeJson(runnable()) : write(`${runnable().join('\n')}\n`);
  if (model === undefined) throw new UsageError('info needs a model, or --variants');
  const loader = await readHeader(model, { ...engineOptions(options), ...hubOptions(model) });
  refuseBroken(loader);
  const facts = await describe(loader, { ...engineOptions(options), memoryLimit: options.memory });
  const { warnings, ...rest } = facts;
  warnings.forEach(warn);
  return json ? writeJson(facts) : write(plain(rest));
}

/**
 * @param {string} model
 * @param {Options} options
 */
export async function tokenize(model, { special = false, json, ...options }) {
  const loader = await readHeader(model, { ...engineOptions(options), ...hubOptions(model) });
  const tokenizer = createTokenizer((key) => loader.packedMeta(key));
  const input = await readStdin();
  if (!json) {
    const ids = tokenizer.encode(input, { special });
    return write(
      ids.map((id) => `${String(id).padStart(7)}  ${JSON.stringify(tokenizer.piece(id))}\n`).join(''),
    );
  }
  const texts = parseJson(input, 'stdin');
  if (!Array.isArray(texts) || texts.some((text) => typeof text !== 'string')) {
    throw new Error('stdin is not a JSON list of strings');
  }
  return writeJson(texts.map((text) => tokenizer.encode(text, { special })));
}
