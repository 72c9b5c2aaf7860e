/** perplexity.test.js: `tabllama perplexity`: against the reference on a real model, and against logits on small ones. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createEngine } from '../web/engine.js';
import { createTokenizer } from '../web/tokenizer.js';
import { bad, file, good } from './kit/command-line.js';
import { logSumExp } from './kit/compare.js';
import { GEMMA3 } from './kit/gemma3.js';
import { SMOLLM2, absent, fixtureJson } from './kit/fixtures.js';
import { makeModel } from './kit/make-model.js';

/** How far the mean may be from the reference. */
const WITHIN = { high: 0.0005, fast: 0.005 };

for (const [golden, { path }] of Object.entries({ smollm2: SMOLLM2, gemma3: GEMMA3 })) {
  test(`${golden}: the recorded text, in both precisions`, { skip: absent(path) || absent() }, async (t) => {
    const { text, tokens, meanNll } = fixtureJson(`golden/real/${golden}.json`).text;
    const named = file(`${golden}.txt`, text);
    for (const [precision, within] of Object.entries(WITHIN)) {
      const told = JSON.parse(await good(['perplexity', path, '--text', named, '--json', '--precision', precision]));
      const difference = told.meanNll / meanNll - 1;
      t.diagnostic(`${precision}: ${(100 * difference).toFixed(4)} %`);
      assert.deepEqual([told.tokens, told.windows, told.precision], [tokens.length, 1, precision]);
      assert.ok(Math.abs(difference) < within, `${precision}: ${told.meanNll}, the reference says ${meanNll}`);
    }
  });
}

const TEXT = 'to sit on the sea and eat a tin of tea then a hen at one in ten '.repeat(5);

/** Surprise of each id after those before it. */
function surprises(engine, ids) {
  const seq = engine.seq();
  const values = ids.slice(1).map((id, i) => {
    engine.eval({ tokens: [ids[i]], seq });
    const logits = engine.logits();
    return logSumExp(logits) - logits[id];
  });
  engine.drop(seq);
  return values;
}
const mean = (values) => values.reduce((a, b) => a + b) / values.length;
const near = (a, b) => assert.ok(Math.abs(a - b) < 1e-5, `${a} and ${b}`);

test('each token after the first once, with at least half a context before it', async () => {
  for (const vocabulary of ['bpe', 'spm']) {
    const model = file(`${vocabulary}.gguf`, makeModel({ vocabulary, nCtx: 1024 }));
    const engine = await createEngine(model, { threads: 1 });
    const tokenizer = createTokenizer((key) => engine.meta(key));
    const ids = tokenizer.prompt(TEXT);
    assert.ok(ids.length > 130, `${ids.length} tokens`);
    const head = tokenizer.addBos ? ids.slice(0, 1) : [];
    const run = async (...args) =>
      JSON.parse(await good(['perplexity', model, '--text', file('text.txt', TEXT), '--json', '--threads', '1', ...args]));

    const whole = await run();
    const values = surprises(engine, ids);
    assert.deepEqual([whole.tokens, whole.windows, whole.context], [ids.length, 1, 1024]);
    near(whole.meanNll, mean(values));
    near(whole.perplexity, Math.exp(whole.meanNll));
    const sizes = whole.buckets.map(({ from, to, tokens }) => [from, to, tokens]);
    assert.deepEqual(sizes.slice(0, 2), [[1, 64, 63], [64, 128, 64]]);
    assert.equal(sizes.at(-1)[1], ids.length);
    whole.buckets.forEach(({ from, to, meanNll }) => near(meanNll, mean(values.slice(from - 1, to - 1))));

    for (const context of [2, 33, 64, ids.length - 1]) {
      const told = await run('--context', String(context));
      assert.equal(told.buckets.reduce((sum, { tokens }) => sum + tokens, 0), ids.length - 1, `context ${context}`);
      const half = Math.ceil((context - head.length) / 2);
      const expected = surprises(engine, ids.slice(0, context));
      let windows = 1;
      for (let end = context; end < ids.length; end += half, windows++) {
        const scored = Math.min(half, ids.length - end);
        const body = ids.slice(end + half - context + head.length, end + scored);
        expected.push(...surprises(engine, [...head, ...body]).slice(-scored));
      }
      near(told.meanNll, mean(expected));
      assert.equal(told.windows, windows);
    }
    await engine.close();
  }
});

test('plain output, and what is refused', async () => {
  const model = file('plain.gguf', makeModel({ vocabulary: 'bpe' }));
  const text = file('text.txt', TEXT);
  const out = await good(['perplexity', model, '--text', text]);
  assert.match(out, /^position .*\nfrom 1 +63 tokens +\d+\.\d{4} +\d+\.\d{3}\n(from \d+ .*\n)+all +\d+ tokens/);
  await bad(['perplexity', model], 2, /--text/);
  await bad(['perplexity', model, '--text', text, '--context', '1'], 2, /--context is 1/);
  await bad(['perplexity', model, '--text', file('one.txt', 'a')], 1, /one\.txt has 1 token/);
  await bad(['perplexity', model, '--text', `${text}.absent`], 1, /no such file/);
});
