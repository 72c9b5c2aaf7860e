#!/usr/bin/env node
/**
 * fuzz_tokenizer.js: hostile tokenizer tables, and texts of their pieces. What a vocabulary is refused for is a
 * ModelError; one that loads holds its promises on every text. A run depends on its seed alone.
 *   node tests/fuzz/fuzz_tokenizer.js [RUNS [FIRST SEED]]
 */
import assert from 'node:assert/strict';
import { fileURLToPath } from 'node:url';
import { ModelError } from '../../web/errors.js';
import { PRE_NAMES } from '../../web/pretokenizers.js';
import { createTokenizer } from '../../web/tokenizer.js';

const CONTROL = 3;
const PIECES = ['a', 'b', 'ab', ' ', '  ', '\n', '\u2581', '\u2581a', '1', '23', "'s", '\u00e9', '\ud83d\ude00', '\ud83d', '<s>', '</s>',
  '<|im_end|>', '<|x|>', '<unk>', '<0x00>', '<0x0A>', '<0xFF>', '<0xZZ>', '', 'Ġ', 'Ċ', 'Ġa', 'ÃĿ', '\u0000', 'aaaaaaaaaaaaaaaa', 'constructor', '__proto__'];
const WRONG = [undefined, 5n, 0, -1, 0xffffffff, 1e9, NaN, true, 'x', [], [1], ['a'], new Int32Array(3), new Float32Array(0), [['a'], [1]], new BigInt64Array(2)];

/** The numbers of a run: mulberry32.
 * @param {number} seed */
function numbers(seed) {
  const next = () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let x = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x;
    return (x ^ (x >>> 14)) >>> 0;
  };
  const below = (/** @type {number} */ n) => next() % n;
  return {
    below,
    chance: (/** @type {number} */ n) => below(n) === 0,
    /** @template T @param {readonly T[]} list @returns {T} */
    of: (list) => list[below(list.length)],
  };
}

/** @typedef {ReturnType<typeof numbers>} Numbers */

/** Mostly right tables: those that are wrong everywhere end at the first check.
 * @param {Numbers} random
 * @returns {Record<string, any>} */
function tables({ below, chance, of }) {
  const n = 1 + below(24);
  const tokens = Array.from({ length: n }, () => of(PIECES) + (chance(3) ? of(PIECES) : ''));
  if (chance(4)) for (let byte = 0; byte < 256; byte++) tokens.push(`<0x${byte.toString(16).padStart(2, '0').toUpperCase()}>`);
  const size = chance(20) ? below(40) : tokens.length;
  const keys = {
    model: of(['llama', 'gpt2']),
    pre: of(PRE_NAMES),
    tokens,
    token_type: Int32Array.from({ length: size }, (_, id) => (id < n ? below(chance(9) ? 99 : 7) : 6)),
    scores: Float32Array.from({ length: size }, () => of([0, -1, -2, -3, 7, NaN, Infinity, -Infinity])),
    merges: Array.from({ length: 1 + below(20) }, () => of([`${of(PIECES)} ${of(PIECES)}`, of(PIECES), 'a b c', ' '])),
    bos_token_id: below(n),
    eos_token_id: below(n),
    unknown_token_id: below(n),
    eot_token_id: below(n),
    add_bos_token: chance(2),
    add_space_prefix: chance(2),
  };
  for (const key of Object.keys(keys)) {
    if (chance(40)) keys[key] = of(WRONG);
    else if (chance(9)) delete keys[key];
  }
  return keys;
}

/** @param {string} text whole characters */
const whole = (text) => text.replace(/\p{Surrogate}/gu, '\ufffd');

/**
 * @param {import('../../web/tokenizer.js').Tokenizer} tokenizer
 * @param {Record<string, any>} keys
 * @param {Numbers} random
 */
function holds(tokenizer, keys, { below, of }) {
  const text = Array.from({ length: below(12) }, () => of(below(3) ? PIECES : keys.tokens)).join('');
  for (const special of [false, true]) {
    const ids = tokenizer.encode(text, { special });
    assert.ok(ids.every((id) => Number.isInteger(id) && id >= 0 && id < tokenizer.nVocab), 'ids of the vocabulary');
    if (!special) assert.ok(ids.every((id) => keys.token_type?.[id] !== CONTROL), 'no control token of plain text');
    const stream = tokenizer.stream([], { special });
    const pieces = ids.map((id) => stream.push(id));
    assert.ok(pieces.every((piece) => whole(piece) === piece), 'no half characters');
    assert.equal(pieces.join('') + stream.end(), tokenizer.decode(ids, { special }), 'a stream is the text');
  }
  const prompt = tokenizer.prompt(text);
  if (tokenizer.addBos) assert.equal(prompt[0], tokenizer.bos);
  for (let id = -1; id <= tokenizer.nVocab; id += 1 + below(9)) assert.equal(typeof tokenizer.piece(id), 'string');
}

/**
 * @param {number} runs
 * @param {number} first seed
 * @returns {number} how many of the tables were accepted
 */
export function fuzzTokenizer(runs, first) {
  let accepted = 0;
  for (let seed = first; seed < first + runs; seed++) {
    const random = numbers(seed);
    const keys = tables(random);
    try {
      const tokenizer = createTokenizer((key) => keys[key.slice('tokenizer.ggml.'.length)]);
      accepted++;
      holds(tokenizer, keys, random);
    } catch (cause) {
      if (!(cause instanceof ModelError)) throw new Error(`seed ${seed}: ${/** @type {Error} */ (cause).message}`, { cause });
    }
  }
  return accepted;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [runs = 1e6, first = 0] = process.argv.slice(2).map(Number);
  const start = performance.now();
  const accepted = fuzzTokenizer(runs, first);
  console.log(`${runs} tables, ${accepted} accepted, ${((performance.now() - start) / 1000).toFixed(0)} s`);
}
