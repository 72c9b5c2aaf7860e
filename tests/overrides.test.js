/**
 * overrides.test.js: rotary positions and windows of the user's choice: the same bits as a file that says so, told in
 * info, and never passed over; and the warning of a context beyond the trained length.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { load } from '../web/index.js';
import { bad, cli, file, good } from './kit/command-line.js';
import { sameBits } from './kit/compare.js';
import { BUILDS, allLogits, header, using } from './kit/engines.js';
import { absent, fixture } from './kit/fixtures.js';
import { makeModel } from './kit/make-model.js';
import { table } from './kit/tables.js';

const BUILD = BUILDS.find(({ name }) => name === 'simd');
const TOKENS = Array.from({ length: 90 }, (_, i) => (i * 31 + 7) % 320);
const SHAPE = { nHeads: 2, nKvHeads: 2, nCtx: 128 };
const YARN = { type: 'yarn', factor: 4, originalContext: 32 };
const FACTORS = { ropeFreqs: Array.from({ length: 16 }, (_, i) => 1 + i / 4) };
const LOCAL = { arch: 'gemma2', ...SHAPE };
const window = (n) => ({ 'gemma2.attention.sliding_window': ['u32', n] });
const kinds = (ropeScaling) => ({ ...SHAPE, ropeScaling });

const logitsOf = (model, rope) => using([BUILD, model, { rope }], (engine) => allLogits(engine, TOKENS));
const refusalOf = (model, rope) => header(BUILD, [model], { rope }).then((loader) => loader.bind()).then(() => null, (error) => error);

test('as if the file said so', async () => {
  for (const [options, rope, like] of [
    [SHAPE, { base: 500000 }, { ...SHAPE, ropeTheta: 500000 }],
    [SHAPE, { scaling: 'linear', factor: 3 }, kinds({ type: 'linear', factor: 3 })],
    [SHAPE, { scaling: 'yarn', factor: 4, originalContext: 32 }, kinds(YARN)],
    [kinds(YARN), { scaling: 'none' }, SHAPE],
    [kinds(YARN), { scaling: 'linear', factor: 3 }, kinds({ type: 'linear', factor: 3 })],
    [kinds(YARN), { factor: 8 }, kinds({ ...YARN, factor: 8 })],
    [kinds(YARN), { originalContext: 64 }, kinds({ ...YARN, originalContext: 64 })],
    [{ ...SHAPE, ...FACTORS }, { scaling: 'none' }, { ...SHAPE, ropeFreqs: new Array(16).fill(1) }],
    [{ ...SHAPE, ...FACTORS }, { base: 500000 }, { ...SHAPE, ...FACTORS, ropeTheta: 500000 }],
    [{ ...LOCAL, meta: window(8) }, { window: 20 }, { ...LOCAL, meta: window(20) }],
    [{ ...LOCAL, meta: window(8) }, { base: 500000, window: 8 }, { ...LOCAL, meta: window(8), ropeTheta: 500000 }],
  ]) {
    const what = JSON.stringify(rope);
    const [plain, overridden, said] = [await logitsOf(makeModel(options)), await logitsOf(makeModel(options), rope), await logitsOf(makeModel(like))];
    assert.ok(overridden.every((logits, i) => sameBits(logits, said[i])), what);
    assert.ok(!sameBits(plain.at(-1), said.at(-1)), `${what} makes a difference`);
    assert.deepEqual(await logitsOf(makeModel(options), {}), plain);
  }
});

test('an architecture where windows are optional gets one', async () => {
  const model = makeModel({ ...SHAPE, arch: 'phi3' });
  const like = makeModel({ ...SHAPE, arch: 'phi3', meta: { 'phi3.attention.sliding_window': ['u32', 8] } });
  assert.deepEqual(await logitsOf(model, { window: 8 }), await logitsOf(like));
});

test('fixtures: longrope, its factors chosen by the original context', { skip: absent() }, async () => {
  const model = fixture('tiny/phi3-longrope.gguf');
  const run = (rope) =>
    using([BUILD, model, { rope, contextLength: 100 }], (engine) => ({ last: allLogits(engine, TOKENS.slice(0, 20)).at(-1), rope: engine.info.rope }));
  const [long, short, none] = [await run({}), await run({ originalContext: 100 }), await run({ scaling: 'none' })];
  assert.deepEqual([long.rope.scaling, long.rope.originalContext, short.rope.originalContext, none.rope.scaling], ['longrope', 64, 100, 'none']);
  for (const [a, b] of [[long, short], [long, none], [short, none]]) assert.ok(!sameBits(a.last, b.last));
});

test('what a model has no use for is an error that names the option', async () => {
  for (const [options, rope, sentence] of [
    [SHAPE, { window: 8 }, /rope\.window.*llama/],
    [SHAPE, { factor: 2 }, /rope\.factor.*none/],
    [SHAPE, { originalContext: 64 }, /rope\.originalContext.*none/],
    [SHAPE, { scaling: 'yarn' }, /rope\.scaling is yarn.*rope\.factor/],
    [SHAPE, { scaling: 'none', factor: 2 }, /rope\.factor.*none/],
    [SHAPE, { scaling: 'linear', factor: 2, originalContext: 64 }, /rope\.originalContext.*linear/],
    [{ ...SHAPE, ...FACTORS }, { factor: 2 }, /rope\.factor.*factors/],
    ...[{ base: 500 }, { scaling: 'none' }, { factor: 2 }, { originalContext: 9 }].map((rope) => [
      { ...SHAPE, arch: 'gpt2' }, rope, new RegExp(`rope\\.${Object.keys(rope)[0]}.*gpt2`),
    ]),
  ]) {
    const error = await refusalOf(makeModel(options), rope);
    assert.equal(error?.code, 'ARGUMENT', `${JSON.stringify(rope)}: ${error}`);
    assert.match(error.message, sentence);
  }
});

const ROWS = table('override', 'OVERRIDE').map(([, name, least, most, whole]) => ({
  key: name.match(/^"rope\.(\w+)"$/)[1],
  least: Number(least),
  most: Number(most),
  whole: whole === 'true',
}));
const outside = ({ least, most, whole }) => [least - 1e-3, most * 1.001, -Infinity, NaN, ...(whole ? [1.5] : [])];

test('values out of range are refused by name, before anything is read and by the engine itself', async () => {
  assert.equal(ROWS.length, 5);
  const model = makeModel(SHAPE);
  const wrong = ROWS.filter(({ key }) => key !== 'scaling').flatMap((row) => outside(row).map((value) => [row.key, value]));
  for (const [key, value] of [...wrong, ['base', '10000'], ['scaling', 'dynamic'], ['scaling', 1], ['bases', 1]]) {
    const rope = { [key]: value };
    const named = { message: new RegExp(key === 'bases' ? `'bases'|rope\\.bases` : `rope\\.${key}`) };
    await assert.rejects(load(model, { rope }), (error) => {
      assert.ok(error instanceof TypeError || error instanceof RangeError, `${key} ${value}: ${error}`);
      assert.match(error.message, named.message);
      return true;
    });
    await assert.rejects(header(BUILD, [model], { rope }).then((loader) => loader.bind()), named, `${key} ${value}`);
  }
  for (const { key, least, most } of ROWS.filter(({ key }) => key === 'base' || key === 'factor')) {
    for (const value of [least, most]) {
      const other = await load(makeModel({ ...kinds(YARN), vocabulary: 'bpe' }), { threads: 1, rope: { [key]: value } });
      assert.equal(other.info.rope[key], Math.fround(value));
      await other.close();
    }
  }
  await assert.rejects(load(model, { rope: 5 }), TypeError);
});

test('info tells what is in force, and warns of a context beyond the trained length', async () => {
  const model = makeModel(SHAPE);
  const infoOf = async (options) => {
    const loaded = await load(model, { threads: 1, ...options });
    await loaded.close();
    return loaded.info;
  };
  const plain = await infoOf({});
  assert.deepEqual([plain.rope, plain.warnings], [{ base: 10000, scaling: 'none', factor: 1, originalContext: 128 }, []]);
  const rope = { base: 20000, scaling: 'yarn', factor: 4, originalContext: 100 };
  const long = await infoOf({ rope, contextLength: 129 });
  assert.deepEqual(long.rope, rope);
  assert.equal(long.warnings.length, 1);
  assert.match(long.warnings[0], /129.*128/);
  assert.deepEqual((await infoOf({ contextLength: 128 })).warnings, []);
  const local = await load(makeModel({ ...LOCAL, meta: window(8) }), { threads: 1, rope: { window: 9 } });
  assert.equal(local.info.rope.window, 9);
  await local.close();
  const positions = await header(BUILD, [makeModel({ ...SHAPE, arch: 'gpt2' })]);
  assert.equal(positions.bind().rope, undefined);
});

test('the command line takes the same, and warns on stderr', async () => {
  const model = file('model.gguf', makeModel({ ...SHAPE, vocabulary: 'bpe' }));
  const local = file('local.gguf', makeModel({ ...LOCAL, meta: window(8) }));
  const words = ['--rope-base', '2e4', '--rope-scaling', 'yarn', '--rope-factor', '4', '--rope-original-context', '100'];
  const facts = JSON.parse(await good(['info', model, ...words, '--json']));
  assert.deepEqual([facts.rope, facts.warnings], [{ base: 20000, scaling: 'yarn', factor: 4, originalContext: 100 }, []]);
  assert.match(await good(['info', local, '--window', '9']), /^rope +.*window 9$/m);
  const text = file('text.txt', 'to sit on the sea');
  for (const args of [
    ['run', '--prompt', 'a', '--max-tokens', '1'],
    ['chat', '--message', ''],
    ['bench', '--prompt', '4', '--predict', '1', '--repeat', '1'],
    ['logits', '--cases', file('cases.json', { cases: [] })],
    ['perplexity', '--text', text],
    ['info'],
  ]) {
    const [command, ...rest] = args;
    const { stderr } = await cli([command, model, ...rest, '--context', '129', ...words]);
    assert.match(stderr, /^tabllama: [^\n]*129[^\n]*128[^\n]*\n/, command);
  }
  for (const [args, sentence] of [
    [['--window', '9'], /rope\.window.*llama/],
    [['--window', 'wide'], /--window is 'wide'/],
    [['--rope-base', '1'], /rope\.base is 1/],
    [['--rope-scaling', 'dynamic'], /rope\.scaling is 'dynamic'.*yarn/],
    [['--rope-factor', '2'], /rope\.factor/],
    [['--rope-original-context', '0'], /--rope-original-context is '0'/],
  ]) {
    await bad(['run', model, '--prompt', 'a', ...args], 2, sentence);
    await bad(['info', model, ...args], 2, sentence);
  }
});
