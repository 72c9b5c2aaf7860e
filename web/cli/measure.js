/** measure.js: `logits` and `bench`: the engine on ids, without a tokenizer. */
import { createEngine } from '../engine.js';
import { ModelError } from '../errors.js';
import { UsageError, engineOptions, sourceOptions } from './options.js';
import { breathe, readCases, warnOf, write, writeJson } from './output.js';
import { computePeak, readPeak } from './peaks.js';

/** @typedef {import('../engine.js').Engine} Engine */
/** @typedef {import('./options.js').Options} Options */

/**
 * @param {string} model
 * @param {Options} options
 */
export async function openEngine(model, options) {
  const engine = await createEngine(model, { ...engineOptions(options), ...sourceOptions(model, options) });
  warnOf(engine.info, options);
  return engine;
}

/** @param {Float32Array} logits  the lowest id wins a tie */
const likeliest = (logits) => logits.reduce((best, value, id) => (value > logits[best] ? id : best), 0);

/** @param {Float32Array} logits */
const base64 = (logits) =>
  Buffer.from(logits.buffer, logits.byteOffset, logits.byteLength).toString('base64');

/**
 * @param {any} value
 * @param {string} where
 */
function checkCase({ tokens, positions = [] }, where) {
  if (!Array.isArray(tokens) || !tokens.length || !tokens.every((id) => (id | 0) === id)) {
    throw new Error(`${where}: 'tokens' must be a list of ids`);
  }
  if (!Array.isArray(positions)) throw new Error(`${where}: 'positions' must be a list`);
  for (const position of positions) {
    const at = position?.at;
    if (!(Number.isInteger(at) && at >= 0 && at < tokens.length)) {
      throw new Error(`${where}: position ${at} is not one of its ${tokens.length} tokens`);
    }
  }
}

/**
 * Feeds a prompt and calls `keep` at the wanted positions, with a momentary view. Far from the next one
 * no logits are computed; near it as many rows as can be kept at once.
 * @param {Engine} engine
 * @param {number} seq
 * @param {number[]} tokens
 * @param {Set<number>} wanted
 * @param {(at: number, logits: Float32Array) => void} keep
 */
export async function feed(engine, seq, tokens, wanted, keep) {
  const { maxAll, maxBatch } = engine.info;
  const sorted = [...wanted].sort((a, b) => a - b);
  for (let at = 0; at < tokens.length;) {
    const next = sorted.find((w) => w >= at) ?? tokens.length;
    const far = next - at >= maxAll;
    const n = far ? Math.min(maxBatch, next - at) : Math.min(maxAll, tokens.length - at);
    engine.eval({ tokens: tokens.slice(at, at + n), seq }, far ? 'none' : 'all');
    for (let i = 0; i < n && !far; i++) if (wanted.has(at + i)) keep(at + i, engine.logitsView(i));
    at += n;
    await breathe();
  }
}

/**
 * @param {Engine} engine
 * @param {any} testCase
 * @param {number | undefined} greedy
 */
async function answer(engine, { tokens, positions = [] }, greedy) {
  const seq = engine.seq();
  /** @type {Map<number, string>} */
  const kept = new Map();
  const last = tokens.length - 1;
  let next = -1;
  const wanted = new Set([...positions.map((/** @type {any} */ p) => p.at), ...(greedy ? [last] : [])]);
  await feed(engine, seq, tokens, wanted, (at, logits) => {
    kept.set(at, base64(logits));
    if (at === last) next = likeliest(logits);
  });
  const ids = [];
  while (ids.length < (greedy ?? 0)) {
    ids.push(next);
    if (ids.length === greedy) break;
    engine.eval({ tokens: [next], seq });
    next = likeliest(engine.logitsView());
    await breathe();
  }
  engine.drop(seq);
  return {
    positions: positions.map((/** @type {any} */ { at }) => ({ at, logits: kept.get(at) })),
    ...(greedy === undefined ? {} : { greedy: ids }),
  };
}

/**
 * @param {string} model
 * @param {Options} options
 */
export async function logits(model, options) {
  if (!options.cases) throw new UsageError('logits needs --cases FILE');
  const cases = await readCases(options.cases);
  cases.forEach((c, i) => checkCase(c, `case ${i} of ${options.cases}`));
  const engine = await openEngine(model, options);
  await write('{"cases":[');
  for (const [i, testCase] of cases.entries()) {
    try {
      await write((i ? ',\n' : '\n') + JSON.stringify(await answer(engine, testCase, options.greedy)));
    } catch (cause) {
      if (!(cause instanceof ModelError)) throw cause;
      throw new Error(`case ${i} of ${options.cases}: ${cause.message}`, { cause });
    }
  }
  await write('\n]}\n');
  await engine.close();
}

/** @param {number[]} values */
function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const [low, high] = [sorted[(sorted.length - 1) >> 1], sorted[sorted.length >> 1]];
  return (low + high) / 2;
}

/**
 * Milliseconds to append tokens in batches of at most `batch`.
 * @param {Engine} engine
 * @param {number} seq
 * @param {number[]} tokens
 * @param {number} batch
 */
async function time(engine, seq, tokens, batch) {
  let ms = 0;
  for (let at = 0; at < tokens.length; at += batch) {
    const start = performance.now();
    engine.eval(
      { tokens: tokens.slice(at, at + batch), seq },
      at + batch < tokens.length && batch > 1 ? 'none' : 'last',
    );
    ms += performance.now() - start;
    await breathe();
  }
  return ms;
}

/**
 * The median of several runs from the same depth, after one that is thrown away: it compiles.
 * @param {Engine} engine
 * @param {number} seq
 * @param {number[]} tokens
 * @param {number} batch
 * @param {number} repeat
 */
async function measure(engine, seq, tokens, batch, repeat) {
  const depth = engine.pos(seq);
  const runs = [];
  for (let i = 0; i <= repeat; i++) {
    const ms = await time(engine, seq, tokens, batch);
    engine.rewind(seq, depth);
    if (i > 0) runs.push(ms);
  }
  const ms = median(runs);
  return { tokens: tokens.length, ms, tokensPerSecond: (1000 * tokens.length) / ms };
}

/**
 * @param {string} model
 * @param {Options} options
 */
export async function bench(model, options) {
  const { prompt = 128, predict = 64, depth = 0, repeat = 3, json } = options;
  const start = performance.now();
  const engine = await openEngine(model, options);
  const load = { ms: performance.now() - start, bytes: engine.info.fileBytes };
  const { nVocab, nCtx, dModel, maxBatch, gigaOpsToken, bytesToken, variant, threads } = engine.info;
  const most = Math.max(prompt, predict);
  if (depth + most > nCtx) throw new Error(`${depth} tokens and ${most} more do not fit the context of ${nCtx}`);
  const ids = Array.from({ length: depth + most }, (_, i) => (i * 7919 + 1) % nVocab);
  const seq = engine.seq();
  if (depth) await time(engine, seq, ids.slice(0, depth), maxBatch);

  const prefill = await measure(engine, seq, ids.slice(depth, depth + prompt), maxBatch, repeat);
  const head = (2 * nVocab * dModel) / 1e9; // the output matrix is multiplied for the last token alone
  const gops = ((prompt * (gigaOpsToken - head) + head) * 1000) / prefill.ms;
  const decode = await measure(engine, seq, ids.slice(depth, depth + predict), 1, repeat);
  const gbPerSecond = (bytesToken * decode.tokensPerSecond) / 1e9;
  const { wasm, weights, kv } = engine.memory();
  await engine.close();
  const peaks = { gops: computePeak(engine.info), gbPerSecond: readPeak() };

  const result = {
    variant,
    threads,
    load,
    prefill: { ...prefill, gops },
    decode: { ...decode, gbPerSecond },
    peaks,
    memory: { wasm, weights, kv },
  };
  if (json) return writeJson(result);
  const mb = (/** @type {number} */ bytes) => `${(bytes / 1e6).toFixed(1)} MB`;
  const rate = (/** @type {typeof prefill} */ { tokens, ms, tokensPerSecond }) =>
    `${tokensPerSecond.toFixed(1)} tokens/s (${tokens} in ${ms.toFixed(0)} ms`;
  const share = (/** @type {number} */ part, /** @type {number} */ peak) => `${Math.round((100 * part) / peak)} %`;
  await write(
    [
      `${variant}, ${threads} thread${threads > 1 ? 's' : ''}`,
      `load     ${load.ms.toFixed(0)} ms, ${mb(load.bytes)}`,
      `prefill  ${rate(prefill)}, ${gops.toFixed(1)} Gop/s: ${share(gops, peaks.gops * threads)} of ${(peaks.gops * threads).toFixed(0)} of products alone)`,
      `decode   ${rate(decode)}, ${gbPerSecond.toFixed(2)} GB/s: ${share(gbPerSecond, peaks.gbPerSecond)} of ${peaks.gbPerSecond.toFixed(1)} that one thread reads)`,
      `memory   ${mb(wasm)}: weights ${mb(weights)}, cache ${mb(kv)}`,
      '',
    ].join('\n'),
  );
}
