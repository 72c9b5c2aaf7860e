/** inspect.test.js: the commands that read a model or look into it: info, tokenize, render, logits, bench. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import { gunzipSync } from 'node:zlib';
import { createEngine, runnable } from '../web/engine.js';
import { TEMPLATE, bad, file, good } from './kit/command-line.js';
import { SMOLLM2, absent, fixture, fixtureJson, floats } from './kit/fixtures.js';
import { makeGguf, makeModel } from './kit/make-model.js';

const MODEL = file('model.gguf', makeModel({ vocabulary: 'bpe', chatTemplate: TEMPLATE }));

test('info says what the header says', async () => {
  const shape = {
    nLayers: 4,
    dModel: 128,
    nHeads: 8,
    nKvHeads: 2,
    dFf: 256,
    nVocab: 300,
    type: 'Q8_0',
    nCtx: 4096,
  };
  const model = file('info.gguf', makeModel(shape));
  const facts = JSON.parse(await good(['info', model, '--json', '--context', '1024']));
  const engine = await createEngine(model, { contextLength: 1024, threads: 1 });
  for (const name of ['nLayers', 'dModel', 'nHeads', 'nKvHeads', 'dFf', 'nVocab'])
    assert.equal(facts[name], shape[name], name);
  assert.equal(facts.architecture, 'llama');
  assert.equal(facts.quantisation, 'Q8_0');
  assert.equal(facts.fileBytes, readFileSync(model).length);
  assert.deepEqual([facts.kv.type, facts.kv.bytesPerToken], ['q16', 2 * 4 * 2 * (2 * 16 + 4)]);
  assert.equal(facts.memory.context, 1024);
  assert.equal(facts.memory.kv, 1024 * facts.kv.bytesPerToken);
  assert.equal(facts.memory.weights, engine.memory().weights);
  const sum = (shares, what) => Object.values(shares).reduce((total, share) => total + share[what], 0);
  assert.equal(sum(facts.types, 'parameters'), facts.parameters);
  assert.equal(sum(facts.parts, 'parameters'), facts.parameters);
  assert.equal(facts.parts.attention.parameters, 4 * (2 * 128 * 128 + 2 * 128 * 32));
  assert.equal(facts.parts.feedForward.parameters, 4 * 3 * 128 * 256);
  assert.equal(facts.parts.feedForward.bytes, (4 * 3 * 128 * 256 * 34) / 32);
  assert.equal(
    JSON.parse(await good(['info', model, '--json', '--kv', 'f32'])).kv.bytesPerToken,
    2 * 4 * 2 * 16 * 4,
  );

  const seq = engine.seq();
  for (let at = 0; at < 1024; at += 64) engine.eval({ tokens: Array(64).fill(1), seq }, 'none');
  assert.equal(engine.memory().wasm, Math.ceil(facts.memory.total / 65536) * 65536, 'memory for the context, to the page');
  await engine.close();
  assert.match(await good(['info', model]), /^architecture +llama$/m);
});

test('info needs no more than the header, and says what does not run', async () => {
  const header = file(
    'header.gguf',
    makeModel({
      nCtx: 32768,
      nLayers: 80,
      dModel: 8192,
      nHeads: 64,
      nKvHeads: 8,
      dFf: 28672,
      nVocab: 32000,
      type: 'Q8_0',
      headerOnly: true,
    }),
  );
  const facts = JSON.parse(await good(['info', header, '--json', '--context', '32768', '--kv', 'f16']));
  assert.equal(facts.kv.bytesPerToken, 327680);
  assert.equal(facts.memory.kv, 10 * 2 ** 30);
  assert.match(facts.unsupported, /./);
  assert.equal(facts.parts.feedForward.parameters, 80 * 3 * 8192 * 28672);
  const walrus = JSON.parse(
    await good(['info', file('walrus.gguf', makeModel({ arch: 'walrus' })), '--json']),
  );
  assert.equal(walrus.architecture, 'walrus');
  assert.match(walrus.unsupported, /walrus/);
  const llama = JSON.parse(await good(['info', file('llama.gguf', makeModel({})), '--json']));
  for (const size of ['nLayers', 'dModel', 'dFf', 'nHeads', 'nKvHeads', 'headDim', 'nVocab']) {
    assert.ok(llama[size] > 0);
    assert.equal(walrus[size], llama[size], size);
  }
});

test('info --variants lists what runs here', async () => {
  assert.deepEqual(JSON.parse(await good(['info', '--variants', '--json'])), runnable());
  assert.deepEqual((await good(['info', '--variants'])).trim().split('\n'), runnable());
});

test('tokenize: ids of texts, without a model', async () => {
  const vocabulary = file('vocabulary.gguf', makeGguf({ meta: [...gpt2Vocabulary()] }));
  const input = JSON.stringify(['abc', '', 'é', '<|end|>']);
  assert.deepEqual(JSON.parse(await good(['tokenize', vocabulary, '--json'], { input })), [
    [14, 2],
    [],
    [3, 4],
    [7, 8, 9, 10, 11, 8, 12],
  ]);
  assert.deepEqual(
    JSON.parse(await good(['tokenize', vocabulary, '--json', '--special'], { input })).at(-1),
    [13],
  );
  assert.equal(await good(['tokenize', vocabulary], { input: 'ac' }), '      0  "a"\n      2  "c"\n');
});

/** A byte-level vocabulary of an architecture that no build knows. */
function gpt2Vocabulary() {
  const tokens = ['a', 'b', 'c', 'Ã', '©', 'x', 'y', '<', '|', 'e', 'n', 'd', '>', '<|end|>', 'ab'];
  return Object.entries({
    'general.architecture': ['string', 'walrus'],
    'tokenizer.ggml.model': ['string', 'gpt2'],
    'tokenizer.ggml.pre': ['string', 'gpt-2'],
    'tokenizer.ggml.tokens': ['array', ['string', tokens]],
    'tokenizer.ggml.token_type': ['array', ['i32', tokens.map((token) => (token.length > 2 ? 3 : 1))]],
    'tokenizer.ggml.merges': ['array', ['string', ['a b']]],
  });
}

test('logits: any positions of any length, as the engine has them', async () => {
  const tokens = Array.from({ length: 300 }, (_, i) => (i * 31 + 7) % 320);
  const all = tokens.map((_, at) => ({ at }));
  const cases = file('logits.json', {
    cases: [
      { tokens, positions: [{ at: 299 }, { at: 0 }, { at: 150 }, { at: 151 }] },
      { tokens: tokens.slice(0, 70), positions: all.slice(0, 70) },
      { tokens: [5] },
    ],
  });
  const args = ['logits', MODEL, '--cases', cases, '--threads', '1'];
  const out = JSON.parse(await good([...args, '--greedy', '4']));
  const engine = await createEngine(MODEL, { threads: 1 });
  const logitsOf = (ids) => {
    const seq = engine.seq();
    for (const id of ids) engine.eval({ tokens: [id], seq });
    const logits = engine.logits();
    engine.drop(seq);
    return logits;
  };
  assert.deepEqual(
    out.cases.map(({ positions }) => positions.length),
    [4, 70, 0],
  );
  for (const { at, logits } of out.cases[0].positions)
    assert.deepEqual(floats(logits), logitsOf(tokens.slice(0, at + 1)), `at ${at}`);
  assert.deepEqual(floats(out.cases[1].positions[69].logits), logitsOf(tokens.slice(0, 70)));
  const ids = [5];
  for (let i = 0; i < 4; i++) {
    const logits = logitsOf(ids);
    ids.push(logits.indexOf(Math.max(...logits)));
  }
  assert.deepEqual(out.cases[2].greedy, ids.slice(1));
  await engine.close();
  const plain = JSON.parse(await good(args));
  assert.deepEqual(
    plain.cases.map((result) => 'greedy' in result),
    [false, false, false],
  );
  assert.deepEqual(plain.cases[0].positions, out.cases[0].positions);
});

test("logits of a fixture are the reference's", { skip: absent('golden/tiny/llama-gqa.json') }, async () => {
  const golden = fixtureJson('golden/tiny/llama-gqa.json');
  const model = file('gqa.gguf', fixture('tiny/llama-gqa.gguf'));
  const out = JSON.parse(
    await good(['logits', model, '--cases', file('golden.json', golden), '--greedy', '32', '--kv', 'f32']),
  );
  for (const [i, { positions, greedy }] of golden.cases.entries()) {
    assert.deepEqual(out.cases[i].greedy, greedy);
    for (const [j, { at, logits }] of positions.entries()) {
      const got = floats(out.cases[i].positions[j].logits);
      assert.equal(out.cases[i].positions[j].at, at);
      floats(logits).forEach((expected, id) => assert.ok(Math.abs(got[id] - expected) < 1e-3));
    }
  }
});

test('render: cases of a file, with a template file or a model', async () => {
  const template = file(
    'greeting.jinja',
    "{{ greeting }}, {{ name | upper }}{{ raise_exception('no name') if not name }} {{ strftime_now('%Y') }}",
  );
  const cases = file('render.json', { cases: [{ vars: { greeting: 'Hi', name: 'you' } }, { vars: {} }] });
  const out = JSON.parse(
    await good(['render', '--template', template, '--cases', cases, '--now', '2024-07-26T12:00:00']),
  );
  assert.deepEqual(out.cases[0], { text: 'Hi, YOU 2024' });
  assert.deepEqual(Object.keys(out.cases[1]), ['error']);
  const talk = file('talk.json', {
    cases: [{ vars: { messages: [{ role: 'user', content: 'hi' }], add_generation_prompt: true } }],
  });
  assert.deepEqual(JSON.parse(await good(['render', MODEL, '--cases', talk])), {
    cases: [{ text: '<user>hi\n<assistant>' }],
  });
  await bad(['render', MODEL, '--template', template, '--cases', cases], 2, /one of them/);
  await bad(['render', '--cases', cases], 2, /one of them/);
  await bad(['render', '--template', template, '--cases', cases, '--now', 'noon'], 2, /--now is 'noon'/);
  await bad(['render', file('mute.gguf', makeModel()), '--cases', cases], 1, /no chat template/);
});

test('logits need no tokenizer that is known', async () => {
  const strange = {
    'tokenizer.ggml.model': ['string', 'runes'],
    'tokenizer.ggml.pre': ['string', 'unheard-of'],
  };
  const model = file('strange.gguf', makeModel({ vocabulary: 'bpe', meta: strange }));
  const cases = file('ids.json', { cases: [{ tokens: [3, 1, 4], positions: [{ at: 2 }] }] });
  const known = await good([
    'logits',
    file('known.gguf', makeModel({ vocabulary: 'bpe' })),
    '--cases',
    cases,
  ]);
  assert.equal(await good(['logits', model, '--cases', cases]), known);
  await bad(['run', model, '--prompt', 'a'], 1, /runes/);
});

test('bench prints what its table says', async () => {
  const result = JSON.parse(
    await good([
      'bench',
      MODEL,
      '--prompt',
      '20',
      '--predict',
      '5',
      '--depth',
      '10',
      '--repeat',
      '2',
      '--json',
    ]),
  );
  const keys = (value) =>
    Object.fromEntries(
      Object.entries(value).map(([key, inner]) => [
        key,
        typeof inner === 'object' ? keys(inner) : typeof inner,
      ]),
    );
  assert.deepEqual(keys(result), {
    variant: 'string',
    threads: 'number',
    load: { ms: 'number', bytes: 'number' },
    prefill: { tokens: 'number', ms: 'number', tokensPerSecond: 'number', gops: 'number' },
    decode: { tokens: 'number', ms: 'number', tokensPerSecond: 'number', gbPerSecond: 'number' },
    peaks: { gops: 'number', gbPerSecond: 'number' },
    memory: { wasm: 'number', weights: 'number', kv: 'number' },
  });
  assert.deepEqual(
    [result.prefill.tokens, result.decode.tokens, result.load.bytes],
    [20, 5, readFileSync(MODEL).length],
  );
  assert.ok(runnable().includes(result.variant));
  assert.match(await good(['bench', MODEL, '--prompt', '8', '--predict', '4', '--repeat', '1']), /tokens\/s/);
});

test('the real model: logits of its whole vocabulary', { skip: absent(SMOLLM2.path) }, async () => {
  const cases = file('real.json', {
    cases: [{ tokens: [504, 3575, 282, 4649, 314], positions: [{ at: 4 }] }],
  });
  const out = JSON.parse(await good(['logits', SMOLLM2.path, '--cases', cases, '--greedy', '1']));
  const logits = floats(out.cases[0].positions[0].logits);
  assert.equal(logits.length, 49152);
  assert.equal(out.cases[0].greedy[0], logits.indexOf(logits.reduce((a, b) => Math.max(a, b))));
});

test('tokenize reads vocabularies of other models', { skip: absent('vocab') }, async () => {
  const model = file('gpt2-vocab.gguf', new Uint8Array(gunzipSync(fixture('vocab/gpt2.gguf.gz'))));
  const { cases } = fixtureJson('tokens/gpt2.json');
  const ids = JSON.parse(
    await good(['tokenize', model, '--json'], { input: JSON.stringify(cases.map(({ s }) => s)) }),
  );
  cases.forEach((c, i) => assert.deepEqual(ids[i], c.ids, JSON.stringify(c.s)));
});
