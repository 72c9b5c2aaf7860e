/* What web/session.js does to text and tokens, on an engine whose next token is a function of the tokens
 * before: any wrong cache, order or rewinding changes the answer. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { ModelError } from '../web/errors.js';
import { SAMPLERS } from '../web/options.js';
import { Session } from '../web/session.js';
import { StopMatcher } from '../web/writer.js';
import { randomNumbers } from './kit/make-model.js';

/** Integers from 0 to n - 1. */
function integers(seed) {
  const random = randomNumbers(seed);
  return (n) => Math.floor(random() * n);
}

/* ---- stop strings ---- */

/** The definition, one character at a time. */
function cutAtStop(text, stops) {
  for (let end = 1; end <= text.length; end++) {
    const here = stops.filter((stop) => text.slice(0, end).endsWith(stop)).sort((a, b) => b.length - a.length);
    if (here.length > 0) return { text: text.slice(0, end - here[0].length), stop: here[0] };
  }
  return { text, stop: undefined };
}

function match(pieces, stops) {
  const matcher = new StopMatcher(stops);
  const shown = pieces.map((piece) => matcher.push(piece));
  return { shown: [...shown, matcher.end()], stop: matcher.found };
}

test('stop strings: any text in any pieces, as by definition', () => {
  const random = integers(20240726);
  const string = (length) => Array.from({ length }, () => 'ab\n?'[random(4)]).join('');
  for (let round = 0; round < 10_000; round++) {
    const pieces = Array.from({ length: random(8) }, () => string(random(5)));
    const stops = Array.from({ length: random(4) }, () => string(1 + random(5)));
    const whole = pieces.join('');
    const wanted = cutAtStop(whole, stops);
    const got = match(pieces, stops);
    assert.deepEqual({ text: got.shown.join(''), stop: got.stop }, wanted, JSON.stringify({ pieces, stops }));
    // Never shown too late: what is held back could all become a stop string.
    let [given, shown] = ['', ''];
    pieces.forEach((piece, i) => {
      given += piece;
      shown += got.shown[i];
      const held = given.slice(shown.length);
      const alive = cutAtStop(given, stops).stop === undefined;
      if (alive && held !== '') assert.ok(stops.some((stop) => stop.startsWith(held)), JSON.stringify({ given, held, stops }));
    });
  }
});

test('stop strings: inside a token, across tokens, none at all', () => {
  assert.deepEqual(match(['AB', 'C', 'DEF', 'G'], ['DE']), { shown: ['AB', 'C', '', '', ''], stop: 'DE' });
  assert.deepEqual(match(['C', 'DEF', 'G', 'HI', 'J', 'K'], ['DEFGHIJ']), { shown: ['C', '', '', '', '', '', ''], stop: 'DEFGHIJ' });
  assert.deepEqual(match(['DEF', 'GX'], ['DEFGHIJ']), { shown: ['', 'DEFGX', ''], stop: undefined });
  assert.deepEqual(match(['?\n', ' Alice!'], ['\n', 'Alice:']), { shown: ['?', '', ''], stop: '\n' });
  assert.deepEqual(match(['x', ' Alice!'], ['\n', 'Alice:']), { shown: ['x', ' Alice!', ''], stop: undefined });
  assert.deepEqual(match(['a', 'b'], []), { shown: ['a', 'b', ''], stop: undefined });
});

/* ---- the loop ---- */

const N_VOCAB = 64;
const END = 63;
/** Tokens spell themselves: 'a' to 'z' and on. */
const spell = (id) => String.fromCharCode(97 + (id % 26)) + (id % 5 === 0 ? ' ' : '');

const tokenizer = {
  bos: undefined,
  eogIds: new Set([END]),
  prompt: (text) => Array.from(text, (char) => char.charCodeAt(0) % (N_VOCAB - 1)),
  stream: () => ({ push: spell, end: () => '' }),
};
const template = { encode: (messages) => tokenizer.prompt(messages.map(({ role, content }) => `[${role[0]}]${content}`).join('')) };

/** The next token: a mix of all before it and of the seed; now and then the end. */
function nextOf(ids, seed, endEvery) {
  let hash = 2166136261 ^ seed;
  for (const id of ids) hash = Math.imul(hash ^ id, 16777619);
  hash ^= hash >>> 15;
  return endEvery && (hash >>> 0) % endEvery === 0 ? END : (hash >>> 0) % (N_VOCAB - 1);
}

function fakeEngine({ nCtx = 200, maxSeqs = 8, rowMs = 0, endEvery = 0, cells = Infinity, nParams = 1e9 } = {}) {
  const seqs = new Map();
  const log = [];
  let [last, used] = [undefined, 0];
  return {
    log,
    seqs,
    info: { nCtx, maxBatch: 64, nVocab: N_VOCAB, nParams },
    seq() {
      const id = [...Array(maxSeqs).keys()].find((i) => !seqs.has(i));
      if (id === undefined) throw new ModelError('SEQ', 'all sequences are in use');
      seqs.set(id, { ids: [], seed: 0, sampler: {} });
      return id;
    },
    drop(seq) {
      used -= seqs.get(seq).ids.length;
      seqs.delete(seq);
    },
    rewind(seq, pos) {
      const { ids } = seqs.get(seq);
      assert.ok(pos <= ids.length);
      used -= ids.length - pos;
      ids.length = pos;
    },
    eval({ tokens, seq }, want) {
      const { ids } = seqs.get(seq);
      assert.ok(tokens.length > 0 && ids.length + tokens.length <= nCtx);
      if (used + tokens.length > cells) throw new ModelError('MEMORY', 'the cache cannot grow');
      used += tokens.length;
      const end = performance.now() + rowMs * tokens.length;
      while (performance.now() < end);
      ids.push(...tokens);
      last = want === 'last' ? seq : undefined;
      log.push(tokens.length);
    },
    setSampler: (seq, sampler) => (seqs.get(seq).sampler = sampler),
    seed: (seq, seed) => (seqs.get(seq).seed = seed),
    bias: (seq, bias) => (seqs.get(seq).bias = bias),
    sample(seq) {
      assert.equal(seq, last, 'the logits of this sequence are there');
      return nextOf(seqs.get(seq).ids, seqs.get(seq).seed, endEvery);
    },
  };
}

function job() {
  const [abort, stop, pieces] = [new AbortController(), new AbortController(), []];
  const send = (piece) => {
    pieces.push(piece);
    made.onPiece?.();
  };
  const made = { signal: abort.signal, stop: stop.signal, send, abort, stopNow: () => stop.abort(), pieces };
  return made;
}

const sessionOf = (engine) => new Session(engine, tokenizer, template);

/** The answer by definition. */
function expected(ids, { seed, maxTokens, nCtx = 200, endEvery = 0 }) {
  const tokens = [];
  for (;;) {
    if (tokens.length === maxTokens) return { tokens, reason: 'length' };
    if (ids.length + tokens.length > nCtx) return { tokens, reason: 'context' };
    const id = nextOf([...ids, ...tokens], seed, endEvery);
    if (id === END) return { tokens, reason: 'stop' };
    tokens.push(id);
  }
}

const fields = ({ tokens, reason }) => ({ tokens, reason });

test('answers end by length, end of turn, context; text and pieces agree', async () => {
  const session = sessionOf(fakeEngine({ endEvery: 30 }));
  for (const maxTokens of [0, 1, 5, undefined]) {
    for (let seed = 0; seed < 20; seed++) {
      const work = job();
      const prompt = `prompt ${seed}`;
      const result = await session.generate(0, { text: prompt }, { seed, maxTokens }, work);
      assert.deepEqual(fields(result), expected(tokenizer.prompt(prompt), { seed, maxTokens, endEvery: 30 }));
      assert.equal(result.text, result.tokens.map(spell).join(''));
      assert.equal(work.pieces.map(({ text }) => text).join(''), result.text);
      assert.deepEqual(work.pieces.flatMap(({ tokens }) => tokens), result.tokens);
      assert.equal(result.usage.completionTokens, result.tokens.length);
      assert.equal(result.usage.promptTokens, prompt.length);
      assert.equal(result.seed, seed);
    }
  }
});

test('a full context ends well; a prompt that is too long is an error with both numbers', async () => {
  const session = sessionOf(fakeEngine({ nCtx: 20 }));
  for (const length of [1, 19, 20]) {
    const result = await session.generate(0, { text: 'x'.repeat(length) }, { seed: 1 }, job());
    assert.equal(result.reason, 'context');
    assert.equal(result.tokens.length, 21 - length);
  }
  await assert.rejects(session.generate(0, { text: 'x'.repeat(21) }, {}, job()), (error) => {
    assert.ok(error instanceof ModelError && error.code === 'CONTEXT');
    assert.match(error.message, /\b21\b.*\b20\b/);
    return true;
  });
  await assert.rejects(session.generate(0, { text: '' }, {}, job()), RangeError);
  assert.equal((await session.generate(0, { text: 'x' }, { maxTokens: 1 }, job())).reason, 'length');
});

test('the longest common prefix is kept and changes nothing', async () => {
  const random = integers(7);
  const engine = fakeEngine();
  const session = sessionOf(engine);
  let before = [];
  for (let round = 0; round < 100; round++) {
    const prompt = 'abcabc'.slice(0, 1 + random(6)) + 'xyz'.slice(random(3)).repeat(random(4));
    const ids = tokenizer.prompt(prompt);
    const options = { seed: round, maxTokens: random(4) };
    const result = await session.generate(0, { text: prompt }, options, job());
    assert.deepEqual(fields(result), expected(ids, options));
    let shared = 0;
    while (shared < Math.min(before.length, ids.length - 1) && before[shared] === ids[shared]) shared++;
    assert.equal(result.usage.cachedTokens, shared);
    before = [...engine.seqs.get(0).ids];
  }
});

test('interleaved slots answer as they would alone, also when they are too many', async () => {
  for (const limits of [{}, { maxSeqs: 2 }, { maxSeqs: 1 }, { cells: 60 }]) {
    const session = sessionOf(fakeEngine(limits));
    const texts = ['one', 'two', 'three', 'four'];
    for (let round = 0; round < 3; round++) {
      for (const [slot, text] of texts.entries()) {
        const options = { seed: slot, maxTokens: 5 };
        const result = await session.generate(slot, { text }, options, job());
        assert.deepEqual(fields(result), expected(tokenizer.prompt(text), options));
        texts[slot] += result.text;
      }
    }
  }
});

test('calls run one after the other, in order', async () => {
  const session = sessionOf(fakeEngine());
  const order = [];
  const calls = ['a', 'b', 'c'].map((text, i) =>
    session.generate(i, { text }, { seed: 1, maxTokens: 3 }, { ...job(), send: () => order.push(text) }),
  );
  await session.forget(1);
  await Promise.all(calls);
  assert.equal(order.join(''), 'aaabbbccc');
});

test('forgetting gives the sequence back', async () => {
  const engine = fakeEngine();
  const session = sessionOf(engine);
  await session.generate(5, { text: 'a' }, { maxTokens: 1 }, job());
  assert.equal(engine.seqs.size, 1);
  await session.forget(5);
  await session.forget(5);
  assert.equal(engine.seqs.size, 0);
});

test('stop keeps what is there; an abort drops it and rewinds; both at any token', async () => {
  for (const how of ['stop', 'abort']) {
    for (let at = 0; at < 6; at++) {
      const engine = fakeEngine();
      const session = sessionOf(engine);
      await session.generate(0, { text: 'abc' }, { seed: 1, maxTokens: 0 }, job());
      const work = job();
      const act = () => (how === 'stop' ? work.stopNow() : work.abort.abort(new Error('enough')));
      work.onPiece = () => work.pieces.length === at && act();
      if (at === 0) act();
      const call = session.generate(0, { text: 'abcdef' }, { seed: 1, maxTokens: 100 }, work);
      const all = expected(tokenizer.prompt('abcdef'), { seed: 1, maxTokens: at });
      if (how === 'stop') {
        assert.deepEqual(fields(await call), { tokens: all.tokens, reason: 'stopped' });
      } else {
        await assert.rejects(call, /enough/);
        assert.deepEqual(engine.seqs.get(0).ids, tokenizer.prompt('abc'));
      }
      const again = await session.generate(0, { text: 'abcdef' }, { seed: 2, maxTokens: 4 }, job());
      assert.deepEqual(fields(again), expected(tokenizer.prompt('abcdef'), { seed: 2, maxTokens: 4 }));
    }
  }
});

test('batches of a prompt are sized by the clock, so that an abort arrives', async () => {
  const engine = fakeEngine({ rowMs: 10, nCtx: 1000 });
  const session = sessionOf(engine);
  const work = job();
  const call = session.generate(0, { text: 'x'.repeat(500) }, {}, work);
  setTimeout(() => work.abort.abort(new Error('enough')), 300);
  const start = performance.now();
  await assert.rejects(call, /enough/);
  assert.ok(performance.now() - start < 2500, 'half of what the whole prompt takes');
  assert.ok(Math.max(...engine.log) <= 25, engine.log.join(' '));

  const quick = fakeEngine({ nCtx: 1000 });
  await sessionOf(quick).generate(0, { text: 'x'.repeat(500) }, { maxTokens: 0 }, job());
  assert.equal(Math.max(...quick.log), quick.info.maxBatch, 'a fast engine gets whole batches');

  const small = fakeEngine({ nParams: 135e6 });
  await sessionOf(small).generate(0, { text: 'x'.repeat(6) }, { maxTokens: 0 }, job());
  assert.equal(small.log.length, 1, "a small model's short prompt is one batch");
  assert.equal(engine.log[0], 2, "a large model's first batch is a careful one");
});

test('each call sets all sampler parameters, the seed and the biases anew', async () => {
  const engine = fakeEngine();
  const session = sessionOf(engine);
  await session.generate(0, { text: 'a' }, { temperature: 2, topK: 3, logitBias: [[5, -1]], seed: 9, maxTokens: 1 }, job());
  const seq = engine.seqs.get(0);
  assert.deepEqual([seq.sampler.temperature, seq.sampler.topK, seq.sampler.topP], [2, 3, SAMPLERS.topP.otherwise]);
  assert.deepEqual([seq.seed, [...seq.bias]], [9, [[5, -1]]]);
  const { seed } = await session.generate(0, { text: 'a' }, { maxTokens: 1 }, job());
  assert.deepEqual(seq.sampler, Object.fromEntries(Object.entries(SAMPLERS).map(([name, row]) => [name, row.otherwise])));
  assert.deepEqual([seq.seed, seq.bias.size], [seed, 0]);
  assert.notEqual((await session.generate(0, { text: 'a' }, { maxTokens: 1 }, job())).seed, seed);
});

test('the options of samplers are the rows of sample.def', () => {
  const rows = readFileSync(new URL('../src/sample.def', import.meta.url), 'utf8').matchAll(
    /^SAMPLER\(\w+,\s*"(\w+)",\s*([^,]+),\s*([^,]+),\s*([^,)]+)\)/gm,
  );
  const camel = (name) => name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase());
  const inC = Object.fromEntries([...rows].map(([, name, ...numbers]) => [camel(name), numbers.map(Number)]));
  const here = Object.entries(SAMPLERS).map(([name, { otherwise, least, most }]) => [name, [otherwise, least, most]]);
  assert.deepEqual(Object.fromEntries(here), inC);
});
