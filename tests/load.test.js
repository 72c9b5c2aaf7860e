/**
 * load.test.js: what a header says arrives as it stands, a file may come in any pieces and end anywhere,
 * and what is wrong with a call changes nothing.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sameBits } from './kit/compare.js';
import { BUILDS, allLogits, header, loader, using } from './kit/engines.js';
import { absent, fixture, fixtureNames } from './kit/fixtures.js';
import { SHAPE, VALUE_TYPES, makeModel } from './kit/make-model.js';
import { readGguf } from './kit/read-gguf.js';
import { NANO, assertRefused, refusal } from './kit/refusal.js';

const [build] = BUILDS;

test('metadata of every type, tensors, and their order arrive as the file has them', async () => {
  const samples = {
    u8: 200,
    i8: -5,
    u16: 60000,
    i16: -30000,
    u32: 4e9,
    i32: -2e9,
    f32: 0.1,
    bool: true,
    string: 'Grüße\0\n',
    u64: 2n ** 63n + 1n,
    i64: -5,
    f64: Math.PI,
  };
  const meta = {};
  for (const type of VALUE_TYPES.filter((t) => t !== 'array')) {
    meta[`one.${type}`] = [type, samples[type]];
    meta[`some.${type}`] = ['array', [type, [samples[type], samples[type]]]];
    meta[`none.${type}`] = ['array', [type, []]];
  }
  meta['in.arrays'] = ['array', ['array', [['string', ['a', 'bc']], ['array', [['u8', [1, 2, 3]]]]]]];
  for (const version of [2, 3]) {
    const loaded = await header(build, [makeModel({ ...NANO, meta, version, alignment: 64 })]);
    const plain = (v) => {
      if (Array.isArray(v)) return v.map(plain);
      return typeof v === 'bigint' && Number.isSafeInteger(Number(v)) ? Number(v) : v;
    };
    const arrays = (v) => (typeof v === 'object' ? Array.from(v, arrays) : v);
    const expected = readGguf(makeModel({ ...NANO, meta, version, alignment: 64 }));
    assert.deepEqual(loaded.keys(), [...expected.meta.keys()]);
    for (const [key, value] of expected.meta) {
      const own = loaded.meta(key);
      assert.deepEqual(arrays(own), plain(value), key);
    }
    assert.equal(loaded.meta('absent'), undefined);
    assert.equal(loaded.meta(''), undefined);
    const tensors = [...expected.tensors].map(([name, { dims, type, start }]) => ({
      name,
      dims,
      type,
      offset: start,
    }));
    assert.deepEqual(
      loaded.tensors().map(({ bytes, ...t }) => t),
      tensors,
    );
    assert.equal(loaded.info.headerBytes, expected.headerBytes);
  }
});

test('the header ends where it ends, whatever comes with it', async () => {
  const file = makeModel(NANO);
  const { headerBytes } = readGguf(file);
  for (const size of [1, 3, 64, headerBytes - 1, headerBytes, headerBytes + 1, file.length]) {
    const loaded = await loader(build);
    let taken = 0;
    while (loaded.state === 'header') {
      const used = loaded.push(file.subarray(taken, taken + size));
      assert.ok(used > 0);
      taken += used;
      assert.equal(loaded.state, taken === headerBytes ? 'ready' : 'header', `after ${taken} bytes`);
    }
    assert.equal(taken, headerBytes);
    assert.throws(() => loaded.push(file.subarray(taken)), { code: 'STATE' });
    await loaded.allocate();
    while (loaded.state === 'data') {
      const rest = file.subarray(taken, taken + size);
      assert.ok(rest.length > 0, 'the last byte of the last tensor is enough');
      loaded.push(rest);
      taken += rest.length;
    }
    assert.equal(taken >= loaded.info.fileBytes, true);
    const engine = loaded.finish();
    assert.equal(engine.info.nVocab, NANO.nVocab);
  }
});

test('every truncation wants more or is an error, and never a trap', async () => {
  const file = makeModel(NANO);
  const { headerBytes } = readGguf(file);
  const bytewise = await loader(build);
  for (let n = 0; n < headerBytes; n++) {
    assert.equal(bytewise.state, 'header', `${n} bytes`);
    assert.equal(bytewise.truncated().code, 'FORMAT');
    bytewise.push(file.subarray(n, n + 1));
  }
  assert.equal(bytewise.state, 'ready');
  const lastNeeded = bytewise.info.fileBytes;
  for (let n = 0; n < lastNeeded; n += n < headerBytes ? 37 : 997) {
    const error = await refusal(file.subarray(0, n));
    assert.equal(error?.code, 'FORMAT', `${n} bytes`);
    assert.match(error.message, new RegExp(`\\b${n}\\b`), `${n} bytes`);
    if (n > headerBytes) assert.match(error.message, /tensor|\b\d+ of \d+\b/);
  }
  await assertRefused(file.subarray(0, lastNeeded - 1), new RegExp(`${lastNeeded}.*${lastNeeded - 1}`));
  assert.equal(
    await refusal(file.subarray(0, lastNeeded)),
    null,
    'padding after the last tensor is not needed',
  );
});

test('a known length tells of a truncated file before its weights are there', async () => {
  const file = makeModel(NANO);
  const loaded = await loader(build, { fileBytes: file.length - 100 });
  loaded.push(file.subarray(0, 4000));
  await assert.rejects(async () => loaded.allocate(), {
    code: 'FORMAT',
    message: new RegExp(`${file.length - 100}`),
  });
});

test('fixtures: headers read alike by the engine and by the tests', { skip: absent() }, async () => {
  for (const name of fixtureNames('tiny').filter((n) => n.endsWith('.gguf'))) {
    const file = fixture(`tiny/${name}`);
    const expected = readGguf(file);
    const loaded = await header(build, [file]);
    assert.deepEqual(loaded.keys(), [...expected.meta.keys()], name);
    for (const [key, value] of expected.meta) {
      assert.deepEqual(
        Array.isArray(value) ? Array.from(loaded.meta(key)) : loaded.meta(key),
        value,
        `${name}: ${key}`,
      );
    }
    const tensors = [...expected.tensors].map(([tensor, { dims, start }]) => ({
      name: tensor,
      dims,
      offset: start,
    }));
    assert.deepEqual(
      loaded.tensors().map(({ name, dims, offset }) => ({ name, dims, offset })),
      tensors,
    );
  }
});

test('no output.weight: the embedding is used, and held once', async () => {
  for (const type of ['F32', 'Q8_0', 'Q4_1']) {
    const tied = makeModel({ ...SHAPE, tied: true, type });
    const embedding = readGguf(tied).tensors.get('token_embd.weight').values();
    const copied = makeModel({ ...SHAPE, type, weights: { 'output.weight': embedding } });
    const tokens = [1, 5, 300, 7, 44];
    const run = (file) =>
      using([build, file, {}], (engine) => ({
        logits: allLogits(engine, tokens),
        weights: engine.memory().weights,
        info: engine.info,
      }));
    const [one, two] = [await run(tied), await run(copied)];
    one.logits.forEach((logits, i) => assert.ok(sameBits(logits, two.logits[i]), `${type}, token ${i}`));
    assert.deepEqual([one.info.tied, two.info.tied], [1, 0]);
    const embeddingBytes =
      readGguf(tied).tensors.get('blk.0.attn_norm.weight').start -
      readGguf(tied).tensors.get('token_embd.weight').start;
    assert.ok(two.weights - one.weights >= embeddingBytes, `${type}: no second copy`);
  }
});

test('wrong calls are refused, and change nothing', async () => {
  await assert.rejects(loader(build, { contextLength: 0 }), { name: 'RangeError', message: /contextLength/ });
  await assert.rejects(loader(build, { contextLength: 1.5 }), {
    name: 'RangeError',
    message: /contextLength/,
  });
  await assert.rejects(
    using([build, makeModel(NANO), { kvType: 'q9' }], () => 0),
    { name: 'RangeError', message: /q9.*f16/ },
  );
  await assert.rejects(
    using([build, makeModel(NANO), { precision: 'low' }], () => 0),
    { name: 'RangeError', message: /low.*fast/ },
  );
  await using([build, makeModel(NANO), {}], (engine) => {
    const seq = engine.seq();
    engine.eval({ tokens: [1, 2, 3], seq });
    const before = engine.logits();
    const wrong = [
      [() => engine.eval({ tokens: [NANO.nVocab], seq }), 'TOKEN'],
      [() => engine.eval({ tokens: [4, -1], seq }), 'TOKEN'],
      [() => engine.eval({ tokens: new Array(NANO.nCtx - 2).fill(1), seq }), 'CONTEXT'],
      [() => engine.eval({ tokens: [1], seq: seq + 1 }), 'SEQ'],
      [() => engine.eval({ tokens: [], seq }), 'ARGUMENT'],
      [() => engine.eval({ tokens: new Array(engine.info.maxBatch + 1).fill(1), seq }), 'ARGUMENT'],
      [() => engine.rewind(seq, 4), 'ARGUMENT'],
      [() => engine.fork(99), 'SEQ'],
      [() => engine.drop(-1), 'SEQ'],
    ];
    for (const [call, code] of wrong) assert.throws(call, { code }, code);
    const other = engine.seq();
    const apart = [
      [1, seq],
      [1, other],
      [1, seq],
    ];
    assert.throws(() => engine.eval(apart), { code: 'ARGUMENT' });
    assert.deepEqual([engine.pos(seq), engine.pos(other)], [3, 0]);
    assert.ok(sameBits(engine.logits(), before));
    const all = Array.from({ length: engine.info.maxSeqs - 2 }, () => engine.seq());
    assert.throws(() => engine.seq(), { code: 'SEQ' });
    assert.throws(() => engine.fork(seq), { code: 'SEQ' });
    engine.drop(all[0]);
    assert.equal(engine.pos(engine.seq()), 0);
    for (let i = 3; i < NANO.nCtx; i++) engine.eval({ tokens: [i % NANO.nVocab], seq });
    assert.throws(() => engine.eval({ tokens: [1], seq }), {
      code: 'CONTEXT',
      message: new RegExp(`${NANO.nCtx}`),
    });
  });
});
