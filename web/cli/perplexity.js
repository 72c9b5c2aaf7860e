/** perplexity.js: `perplexity`: how well a model foretells a text. */
import { createTokenizer } from '../tokenizer.js';
import { feed, openEngine } from './measure.js';
import { UsageError } from './options.js';
import { readText, write, writeJson } from './output.js';

/** @typedef {import('../engine.js').Engine} Engine */
/** First length of a bucket of positions; each next one is as long as all before it. */
const FIRST_BUCKET = 64;

/**
 * Negative logarithm of the probability of an id, in float64.
 * @param {Float32Array} logits
 * @param {number} id
 */
function surprise(logits, id) {
  let most = -Infinity;
  for (const logit of logits) if (logit > most) most = logit;
  let sum = 0;
  for (const logit of logits) sum += Math.exp(logit - most);
  return most + Math.log(sum) - logits[id];
}

/**
 * Windows of a text, as long as the context, each with how many of its first tokens are not scored: all of it
 * once, none with less than half a context before it. What a text begins with (BOS) each window does.
 * @param {number[]} ids
 * @param {number} nHead  how many ids that are
 * @param {number} length
 */
function* windows(ids, nHead, length) {
  const half = Math.ceil((length - nHead) / 2);
  yield { tokens: ids.slice(0, length), known: 1 };
  for (let end = length; end < ids.length; end += half) {
    const from = end + half - (length - nHead);
    yield { tokens: [...ids.slice(0, nHead), ...ids.slice(from, end + half)], known: end - from + nHead };
  }
}

/**
 * Mean of the surprises at positions from `from` up to, not including, `to`.
 * @param {{ at: number, value: number }[]} scores
 */
function mean(scores, from = 0, to = Infinity) {
  const within = scores.filter(({ at }) => at >= from && at < to);
  return { tokens: within.length, meanNll: within.reduce((sum, { value }) => sum + value, 0) / within.length };
}

/**
 * @param {Engine} engine
 * @param {number[]} ids
 * @param {number} nHead
 */
async function scoresOf(engine, ids, nHead) {
  /** @type {{ at: number, value: number }[]} */
  const scores = [];
  let count = 0;
  for (const { tokens, known } of windows(ids, nHead, Math.min(engine.info.nCtx, ids.length))) {
    const seq = engine.seq();
    const wanted = new Set(Array.from({ length: tokens.length - known }, (_, i) => known + i - 1));
    await feed(engine, seq, tokens, wanted, (before, logits) => {
      scores.push({ at: before + 1, value: surprise(logits, tokens[before + 1]) });
    });
    engine.drop(seq);
    count++;
  }
  return { scores, windows: count };
}

/**
 * @param {string} model
 * @param {import('./options.js').Options} options
 */
export async function perplexity(model, options) {
  if (!options.text) throw new UsageError('perplexity needs --text FILE');
  if (options.context === 1) throw new UsageError('--context is 1, must be at least 2');
  const text = await readText(options.text);
  const engine = await openEngine(model, options);
  const tokenizer = createTokenizer((key) => engine.meta(key));
  const ids = tokenizer.prompt(text);
  if (ids.length < 2) throw new Error(`${options.text} has ${ids.length} tokens in it, and at least 2 are needed`);
  const { scores, windows } = await scoresOf(engine, ids, ids[0] === tokenizer.bos && tokenizer.addBos ? 1 : 0);
  const { nCtx, variant, precision, kvType } = engine.info;
  await engine.close();

  const { meanNll } = mean(scores);
  const longest = Math.min(nCtx, ids.length);
  const buckets = [];
  for (let [from, to] = [0, FIRST_BUCKET]; from < longest; [from, to] = [to, 2 * to]) {
    buckets.push({ from: Math.max(1, from), to: Math.min(to, longest), ...mean(scores, from, to) });
  }
  if (options.json) {
    const run = { context: nCtx, variant, precision, kvType };
    return writeJson({ tokens: ids.length, windows, ...run, meanNll, perplexity: Math.exp(meanNll), buckets });
  }
  const line = (/** @type {string} */ what, /** @type {number} */ n, /** @type {number} */ nll) =>
    `${what.padEnd(16)}${String(n).padStart(8)} tokens  ${nll.toFixed(4)}  ${Math.exp(nll).toFixed(3)}\n`;
  const rows = buckets.map(({ from, to, tokens, meanNll }) => line(`from ${from}`, tokens, meanNll));
  await write(`position                          mean NLL  perplexity\n${rows.join('')}${line('all', scores.length, meanNll)}`);
}
