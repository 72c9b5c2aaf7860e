/**
 * Loading: what a header says arrives as it stands, a file may come in any pieces, and whatever is wrong with one
 * is refused in a sentence that names it, at the earliest moment, without a trap and without great memory.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createTokenizer } from '../web/tokenizer.js';
import { sameBits } from './kit/compare.js';
import { BUILDS, allLogits, header, loader, using } from './kit/engines.js';
import { absent, fixture, fixtureJson, fixtureNames } from './kit/fixtures.js';
import { SHAPE, VALUE_TYPES, makeGguf, makeModel } from './kit/make-model.js';
import { readGguf } from './kit/read-gguf.js';

const [build] = BUILDS;
const NANO = { nLayers: 1, dModel: 32, nHeads: 2, nKvHeads: 1, dFf: 32, nVocab: 40, vocabulary: null, nCtx: 64 };
const CODES = ['FORMAT', 'UNSUPPORTED', 'MEMORY'];

/** What loading a file comes to, from a source that knows its length and from one that does not: both must agree.
 * @returns {Promise<Error | null>} the refusal */
async function refusal(file) {
  const attempt = (source) => using([build, source, {}], () => null).catch((error) => error);
  const [whole, stream] = [await attempt(file), await attempt([file])];
  assert.equal(whole?.code, stream?.code, `${whole?.message} | ${stream?.message}`);
  return whole;
}

async function assertRefused(file, message, code = 'FORMAT') {
  const error = await refusal(file);
  assert.ok(error, `loaded, instead of ${message}`);
  assert.equal(error.code, code, error.message);
  assert.match(error.message, message);
  assert.equal(error.name, 'ModelError');
}

/* ---- what a header says ---- */

test('metadata of every type, tensors, and their order arrive as the file has them', async () => {
  const samples = {
    u8: 200, i8: -5, u16: 60000, i16: -30000, u32: 4e9, i32: -2e9, f32: 0.1, bool: true, string: 'Grüße\0\n',
    u64: 2n ** 63n + 1n, i64: -5, f64: Math.PI,
  };
  const meta = {};
  for (const type of VALUE_TYPES.filter((t) => t !== 'array')) {
    meta[`one.${type}`] = [type, samples[type]];
    meta[`some.${type}`] = ['array', [type, [samples[type], samples[type]]]];
    meta[`none.${type}`] = ['array', [type, []]];
  }
  for (const version of [2, 3]) {
    const loaded = await header(build, [makeModel({ ...NANO, meta, version, alignment: 64 })]);
    const plain = (v) => (typeof v === 'bigint' && Number.isSafeInteger(Number(v)) ? Number(v) : v);
    const expected = readGguf(makeModel({ ...NANO, meta, version, alignment: 64 }));
    assert.deepEqual(loaded.keys(), [...expected.meta.keys()]);
    for (const [key, value] of expected.meta) {
      const own = loaded.meta(key);
      assert.deepEqual(Array.isArray(value) ? Array.from(own) : own, Array.isArray(value) ? value.map(plain) : plain(value), key);
    }
    assert.equal(loaded.meta('absent'), undefined);
    assert.equal(loaded.meta(''), undefined);
    const tensors = [...expected.tensors].map(([name, { dims, type, start }]) => ({ name, dims, type, offset: start }));
    assert.deepEqual(loaded.tensors().map(({ bytes, ...t }) => t), tensors);
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

/* ---- truncation ---- */

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
  assert.equal(await refusal(file.subarray(0, lastNeeded)), null, 'padding after the last tensor is not needed');
});

test('a known length tells of a truncated file before its weights are there', async () => {
  const file = makeModel(NANO);
  const loaded = await loader(build, { fileBytes: file.length - 100 });
  loaded.push(file.subarray(0, 4000));
  await assert.rejects(async () => loaded.allocate(), { code: 'FORMAT', message: new RegExp(`${file.length - 100}`) });
});

/* ---- broken headers ---- */

const LLAMA = { 'general.architecture': ['string', 'llama'] };
const u64 = (n) => new Uint8Array(new BigUint64Array([BigInt(n)]).buffer);
const u32 = (n) => new Uint8Array(new Uint32Array([n]).buffer);
const join = (...parts) => new Uint8Array(Buffer.concat(parts));
const raw = (type, ...parts) => ['raw', { type, bytes: join(...parts) }];
const withKey = (key, value) => makeGguf({ meta: { ...LLAMA, [key]: value } });
const withTensors = (...tensors) => makeGguf({ meta: LLAMA, tensors, headerOnly: true });
const patched = (at, bytes) => {
  const file = makeModel(NANO);
  file.set(bytes, at);
  return file;
};
const nested = (depth) => raw(9, Buffer.concat(new Array(depth).fill(join(u32(9), u64(1)))), u32(0), u64(0));

test('not a GGUF file, or of another kind', async () => {
  await assertRefused(new Uint8Array(0), /\b0\b/);
  await assertRefused(new TextEncoder().encode('<!doctype html><title>404</title>'), /GGUF/);
  await assertRefused(new TextEncoder().encode('<!'), /GGUF/);
  await assertRefused(patched(4, [0, 0, 0, 3]), /big-endian/, 'UNSUPPORTED');
  await assertRefused(patched(4, u32(1)), /version 1/, 'UNSUPPORTED');
  await assertRefused(patched(4, u32(4)), /version 4/, 'UNSUPPORTED');
  await assertRefused(patched(4, u32(0)), /version 0/, 'UNSUPPORTED');
  assert.equal(await refusal(makeModel({ ...NANO, version: 2 })), null);
});

test('counts and lengths that no file can hold are refused at once, by name', async () => {
  const cases = [
    [makeGguf({ meta: LLAMA, nKeys: 2n ** 40n }), /1099511627776.*keys/],
    [makeGguf({ meta: LLAMA, nTensors: 2n ** 40n }), /1099511627776.*tensors/],
    [withKey('a.string', raw(8, u64(2n ** 63n))), /a\.string/],
    [withKey('an.array', raw(9, u32(4), u64(2n ** 62n))), /an\.array.*4611686018427387904/],
    [withKey('an.array', raw(9, u32(8), u64(2n ** 61n))), /an\.array/],
    [withKey('deep', nested(100000)), /deep/],
    [withKey('strange.element', raw(9, u32(99), u64(1), u64(0))), /strange\.element.*99/],
    [withKey('strange.type', raw(99, u64(0))), /strange\.type.*99/],
    [makeGguf({ meta: { ...LLAMA, ['k'.repeat(70000)]: ['u8', 1] } }), /70000/],
    [withTensors({ name: 'many.dims', dims: [32], nDims: 0xffffffff }), /many\.dims.*4294967295/],
    [withTensors({ name: 'no.dims', dims: [], nDims: 0, size: 4 }), /no\.dims/],
  ];
  const [simd] = BUILDS;
  for (const [file, message] of cases) {
    const start = performance.now();
    await assertRefused(file, message);
    assert.ok(performance.now() - start < 500, `${message} took ${performance.now() - start} ms`);
    const loaded = await loader(simd);
    assert.throws(() => {
      for (let at = 0; at < file.length; at += 1000) loaded.push(file.subarray(at, at + 1000));
      throw loaded.truncated();
    }, { code: 'FORMAT' });
  }
});

test('sizes that wrap, are zero or too large are refused with the tensor\'s name', async () => {
  const a = { name: 'a', dims: [64] };
  const b = (dims, type = 0) => withTensors(a, { name: 'tensor.b', dims, type, size: 64 });
  const impossible = [
    [4, 1073741823, 1073741825],
    [2n ** 63n - 1n, 2],
    [0],
    [32, 0],
    [2n ** 53n + 2n],
    [2n ** 32n, 2n ** 32n],
    [2n ** 42n + 1n, 2n ** 22n],
    [2n ** 16n, 2n ** 16n, 2n ** 16n, 2n ** 16n],
  ];
  for (const dims of impossible) await assertRefused(b(dims), /tensor\.b/);
  await assertRefused(b([2n ** 63n - 1n, 2], 24), /tensor\.b/);
  await assertRefused(b([48], 2), /tensor\.b.*48.*32/);
  await assertRefused(b([32], 99), /tensor\.b.*99/, 'UNSUPPORTED');
  await assertRefused(b([32], 4), /tensor\.b.*4/, 'UNSUPPORTED');
});

test('tensors that overlap, repeat, stand askew or past the end are refused by name', async () => {
  const two = (offset, name = 'second') => withTensors({ name: 'first', dims: [32, 4] }, { name, dims: [32, 4], offset });
  await assertRefused(two(480), /first.*second|second.*first/);
  await assertRefused(two(0), /first.*second|second.*first/);
  await assertRefused(two(512, 'first'), /first/);
  await assertRefused(two(516), /second.*516/);
  await assertRefused(two(2n ** 64n - 32n), /second/);
  await assertRefused(makeGguf({ meta: LLAMA, tensors: [{ name: '', dims: [32] }] }), /name/);
  await assertRefused(makeGguf({ meta: [...Object.entries(LLAMA), ['twice', ['u8', 1]], ['twice', ['u8', 2]]] }), /twice/);
  const far = makeModel(NANO);
  await assertRefused(far.subarray(0, far.length - 2048), /tensor|bytes/);
  for (const alignment of [0, 3, 7, 48, 2 ** 31]) {
    await assertRefused(makeGguf({ meta: { ...LLAMA, 'general.alignment': ['u32', alignment] } }), /general\.alignment/);
  }
  await assertRefused(makeGguf({ meta: { ...LLAMA, 'general.alignment': ['string', '32'] } }), /general\.alignment/);
});

/* ---- models that contradict themselves ---- */

test('keys: a missing one is named or has its default, a wrong one is named with its value', async () => {
  const without = (key) => makeModel({ ...NANO, meta: { [key]: null } });
  const needed = ['block_count', 'embedding_length', 'feed_forward_length', 'attention.head_count', 'context_length'];
  for (const key of [...needed, 'attention.layer_norm_rms_epsilon']) {
    await assertRefused(without(`llama.${key}`), new RegExp(`llama\\.${key.replaceAll('.', '\\.')}`));
  }
  await assertRefused(without('general.architecture'), /general\.architecture/);
  for (const key of ['rope.freq_base', 'rope.dimension_count', 'vocab_size']) assert.equal(await refusal(without(`llama.${key}`)), null, key);
  assert.equal(await refusal(makeModel({ ...NANO, nKvHeads: 2, meta: { 'llama.attention.head_count_kv': null } })), null);

  const withValue = (key, ...value) => makeModel({ ...NANO, meta: { [`llama.${key}`]: value } });
  for (const key of needed) {
    await assertRefused(withValue(key, 'u32', 0), new RegExp(`llama\\.${key.replaceAll('.', '\\.')}`));
    await assertRefused(withValue(key, 'f32', 32), new RegExp(`${key.replaceAll('.', '\\.')}.*float32`));
  }
  await assertRefused(withValue('block_count', 'u32', 2), /blk\.1\./);
  await assertRefused(withValue('block_count', 'u32', 2 ** 31), /block_count/);
  await assertRefused(withValue('block_count', 'i32', -1), /block_count/);
  await assertRefused(withValue('rope.dimension_count', 'u32', 15), /rope\.dimension_count.*15/);
  await assertRefused(withValue('rope.dimension_count', 'u32', 18), /rope\.dimension_count.*18.*16/);
  await assertRefused(withValue('rope.freq_base', 'f32', NaN), /rope\.freq_base/);
  await assertRefused(withValue('attention.layer_norm_rms_epsilon', 'f32', -1), /epsilon.*-1/);
  await assertRefused(withValue('rope.scaling.type', 'string', 'longrope'), /longrope/, 'UNSUPPORTED');
  await assertRefused(makeModel({ ...NANO, arch: 'mamba' }), /mamba/, 'UNSUPPORTED');
  for (const [heads, kvHeads] of [[4, 3], [4, 0], [4, 8]]) {
    const meta = { 'llama.attention.head_count': ['u32', heads], 'llama.attention.head_count_kv': ['u32', kvHeads] };
    await assertRefused(makeModel({ ...NANO, meta }), new RegExp(`\\b${heads}\\b.*\\b${kvHeads}\\b`));
  }
  const uneven = { 'llama.attention.key_length': ['u32', 16], 'llama.attention.value_length': ['u32', 24] };
  await assertRefused(makeModel({ ...NANO, meta: uneven }), /16.*24/, 'UNSUPPORTED');
});

test('tensors: a missing, misshapen or unknown one is named, with both shapes', async () => {
  const names = [...readGguf(makeModel(NANO)).tensors.keys()];
  for (const name of names.filter((n) => n !== 'output.weight')) {
    await assertRefused(makeModel({ ...NANO, weights: { [name]: null } }), new RegExp(name.replaceAll('.', '\\.')));
  }
  await assertRefused(makeModel({ ...NANO, meta: { 'llama.feed_forward_length': ['u32', 64] } }), /ffn_\w+\.weight.*32.*64/);
  await assertRefused(makeModel({ ...NANO, meta: { 'llama.attention.head_count_kv': ['u32', 2] } }), /attn_k\.weight.*16.*32/);
  await assertRefused(makeModel({ ...NANO, ropeFreqs: [1, 1, 1] }), /rope_freqs\.weight.*3.*8/);
  await assertRefused(makeModel({ ...NANO, ropeFreqs: [1, 1, 1, 0, 1, 1, 1, 1] }), /rope_freqs\.weight/);
  const unknown = ['tensor.of.another.model', [32], 0];
  await assertRefused(makeModel({ ...NANO, extraTensors: [unknown] }), /tensor\.of\.another\.model/, 'UNSUPPORTED');
});

test('no output.weight: the embedding is used, and held once', async () => {
  for (const type of ['F32', 'Q8_0', 'Q4_1']) {
    const tied = makeModel({ ...SHAPE, tied: true, type });
    const embedding = readGguf(tied).tensors.get('token_embd.weight').values();
    const copied = makeModel({ ...SHAPE, type, weights: { 'output.weight': embedding } });
    const tokens = [1, 5, 300, 7, 44];
    const run = (file) => using([build, file, {}], (engine) => ({ logits: allLogits(engine, tokens), weights: engine.memory().weights, info: engine.info }));
    const [one, two] = [await run(tied), await run(copied)];
    one.logits.forEach((logits, i) => assert.ok(sameBits(logits, two.logits[i]), `${type}, token ${i}`));
    assert.deepEqual([one.info.tied, two.info.tied], [1, 0]);
    const embeddingBytes = readGguf(tied).tensors.get('blk.0.attn_norm.weight').start - readGguf(tied).tensors.get('token_embd.weight').start;
    assert.ok(two.weights - one.weights >= embeddingBytes, `${type}: no second copy`);
  }
});

test('wrong calls are refused, and change nothing', async () => {
  await assert.rejects(loader(build, { contextLength: 0 }), { name: 'RangeError', message: /contextLength/ });
  await assert.rejects(loader(build, { contextLength: 1.5 }), { name: 'RangeError', message: /contextLength/ });
  await assert.rejects(using([build, makeModel(NANO), { kvType: 'q9' }], () => 0), { name: 'RangeError', message: /q9.*f16/ });
  await assert.rejects(using([build, makeModel(NANO), { precision: 'low' }], () => 0), { name: 'RangeError', message: /low.*fast/ });
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
    const apart = [[1, seq], [1, other], [1, seq]];
    assert.throws(() => engine.eval(apart), { code: 'ARGUMENT' });
    assert.deepEqual([engine.pos(seq), engine.pos(other)], [3, 0]);
    assert.ok(sameBits(engine.logits(), before));
    const all = Array.from({ length: engine.info.maxSeqs - 2 }, () => engine.seq());
    assert.throws(() => engine.seq(), { code: 'SEQ' });
    assert.throws(() => engine.fork(seq), { code: 'SEQ' });
    engine.drop(all[0]);
    assert.equal(engine.pos(engine.seq()), 0);
    for (let i = 3; i < NANO.nCtx; i++) engine.eval({ tokens: [i % NANO.nVocab], seq });
    assert.throws(() => engine.eval({ tokens: [1], seq }), { code: 'CONTEXT', message: new RegExp(`${NANO.nCtx}`) });
  });
});

/* ---- fixtures ---- */

/** Loads as an application does: the engine, then the tokenizer; then eight tokens. */
async function useWhole(file) {
  await using([build, file, {}], (engine) => {
    createTokenizer((key) => engine.meta(key));
    const seq = engine.seq();
    engine.setSampler(seq, { temperature: 0 });
    engine.eval({ tokens: [1], seq });
    for (let i = 0; i < 8; i++) engine.eval({ tokens: [engine.sample(seq)], seq });
  });
}

test('fixtures: malformed files are refused, sound ones load, none does harm', { skip: absent() }, async () => {
  const cases = fixtureJson('malformed/CASES.json').filter(({ file }) => file.endsWith('.gguf'));
  assert.ok(cases.length > 100);
  for (const { file, why, expect } of cases) {
    const start = performance.now();
    const error = await useWhole(fixture(`malformed/${file}`)).then(() => null, (e) => e);
    const what = `${file} (${why}): ${error?.stack ?? 'loads'}`;
    if (error) assert.ok([...CODES, 'LOGITS'].includes(error.code), what);
    if (expect === 'reject') assert.ok(CODES.includes(error?.code), what);
    if (expect === 'accept') assert.equal(error, null, what);
    assert.ok(performance.now() - start < 2000, `${file} took ${performance.now() - start} ms`);
  }
});

test('fixtures: headers read alike by the engine and by the tests', { skip: absent() }, async () => {
  for (const name of fixtureNames('tiny').filter((n) => n.endsWith('.gguf'))) {
    const file = fixture(`tiny/${name}`);
    const expected = readGguf(file);
    const loaded = await header(build, [file]);
    assert.deepEqual(loaded.keys(), [...expected.meta.keys()], name);
    for (const [key, value] of expected.meta) {
      assert.deepEqual(Array.isArray(value) ? Array.from(loaded.meta(key)) : loaded.meta(key), value, `${name}: ${key}`);
    }
    const tensors = [...expected.tensors].map(([tensor, { dims, start }]) => ({ name: tensor, dims, offset: start }));
    assert.deepEqual(loaded.tensors().map(({ name, dims, offset }) => ({ name, dims, offset })), tensors);
  }
});
