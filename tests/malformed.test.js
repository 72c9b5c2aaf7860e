/**
 * malformed.test.js: files that are broken, contradict themselves or ask for what is not there: each is
 * refused in a sentence that names the key or tensor, at the earliest moment, without a trap and without
 * great memory.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { createTokenizer } from '../web/tokenizer.js';
import { BUILDS, allLogits, loader, using } from './kit/engines.js';
import { ARCHS } from './kit/fixture-models.js';
import { absent, fixture, fixtureJson } from './kit/fixtures.js';
import { makeGguf, makeModel, randomNumbers } from './kit/make-model.js';
import { readGguf } from './kit/read-gguf.js';
import { NANO, assertRefused, refusal } from './kit/refusal.js';

const [build] = BUILDS;
/** How a bad file may be refused. */
const CODES = ['FORMAT', 'UNSUPPORTED', 'MEMORY'];

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
    assert.throws(
      () => {
        for (let at = 0; at < file.length; at += 1000) loaded.push(file.subarray(at, at + 1000));
        throw loaded.truncated();
      },
      { code: 'FORMAT' },
    );
  }
});

test("sizes that wrap, are zero or too large are refused with the tensor's name", async () => {
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
  const two = (offset, name = 'second') =>
    withTensors({ name: 'first', dims: [32, 4] }, { name, dims: [32, 4], offset });
  await assertRefused(two(480), /first.*second|second.*first/);
  await assertRefused(two(0), /first.*second|second.*first/);
  await assertRefused(two(512, 'first'), /first/);
  await assertRefused(two(516), /second.*516/);
  await assertRefused(two(2n ** 64n - 32n), /second/);
  await assertRefused(makeGguf({ meta: LLAMA, tensors: [{ name: '', dims: [32] }] }), /name/);
  await assertRefused(
    makeGguf({ meta: [...Object.entries(LLAMA), ['twice', ['u8', 1]], ['twice', ['u8', 2]]] }),
    /twice/,
  );
  const far = makeModel(NANO);
  await assertRefused(far.subarray(0, far.length - 2048), /tensor|bytes/);
  for (const alignment of [0, 3, 7, 48, 2 ** 31]) {
    await assertRefused(
      makeGguf({ meta: { ...LLAMA, 'general.alignment': ['u32', alignment] } }),
      /general\.alignment/,
    );
  }
  await assertRefused(
    makeGguf({ meta: { ...LLAMA, 'general.alignment': ['string', '32'] } }),
    /general\.alignment/,
  );
});

/* ---- models that contradict themselves ---- */

test('keys: a missing one is named or has its default, a wrong one is named with its value', async () => {
  const without = (key) => makeModel({ ...NANO, meta: { [key]: null } });
  const needed = [
    'block_count',
    'embedding_length',
    'feed_forward_length',
    'attention.head_count',
    'context_length',
  ];
  for (const key of [...needed, 'attention.layer_norm_rms_epsilon']) {
    await assertRefused(without(`llama.${key}`), new RegExp(`llama\\.${key.replaceAll('.', '\\.')}`));
  }
  await assertRefused(without('general.architecture'), /general\.architecture/);
  for (const key of ['rope.freq_base', 'rope.dimension_count', 'vocab_size'])
    assert.equal(await refusal(without(`llama.${key}`)), null, key);
  assert.equal(
    await refusal(makeModel({ ...NANO, nKvHeads: 2, meta: { 'llama.attention.head_count_kv': null } })),
    null,
  );

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
  await assertRefused(withValue('rope.scaling.type', 'string', 'dynamic'), /dynamic/, 'UNSUPPORTED');
  await assertRefused(makeModel({ ...NANO, arch: 'mamba' }), /mamba/, 'UNSUPPORTED');
  for (const [heads, kvHeads] of [
    [4, 3],
    [4, 0],
    [4, 8],
  ]) {
    const meta = {
      'llama.attention.head_count': ['u32', heads],
      'llama.attention.head_count_kv': ['u32', kvHeads],
    };
    await assertRefused(makeModel({ ...NANO, meta }), new RegExp(`\\b${heads}\\b.*\\b${kvHeads}\\b`));
  }
  const uneven = { 'llama.attention.key_length': ['u32', 16], 'llama.attention.value_length': ['u32', 24] };
  await assertRefused(makeModel({ ...NANO, meta: uneven }), /16.*24/, 'UNSUPPORTED');
});

test('tensors: a missing, misshapen or unknown one is named, with both shapes', async () => {
  const names = [...readGguf(makeModel(NANO)).tensors.keys()];
  for (const name of names.filter((n) => n !== 'output.weight')) {
    await assertRefused(
      makeModel({ ...NANO, weights: { [name]: null } }),
      new RegExp(name.replaceAll('.', '\\.')),
    );
  }
  await assertRefused(
    makeModel({ ...NANO, meta: { 'llama.feed_forward_length': ['u32', 64] } }),
    /ffn_\w+\.weight.*32.*64/,
  );
  await assertRefused(
    makeModel({ ...NANO, meta: { 'llama.attention.head_count_kv': ['u32', 2] } }),
    /attn_k\.weight.*16.*32/,
  );
  await assertRefused(makeModel({ ...NANO, ropeFreqs: [1, 1, 1] }), /rope_freqs\.weight.*3.*8/);
  await assertRefused(makeModel({ ...NANO, ropeFreqs: [1, 1, 1, 0, 1, 1, 1, 1] }), /rope_freqs\.weight/);
  const unknown = ['tensor.of.another.model', [32], 0];
  await assertRefused(
    makeModel({ ...NANO, extraTensors: [unknown] }),
    /tensor\.of\.another\.model/,
    'UNSUPPORTED',
  );
});

test('keys that change the maths in a way that is not there are refused by name', async () => {
  const [, table] = readFileSync(new URL('../src/model_keys.c', import.meta.url), 'utf8').match(/refused\[\] = \{(.*?)\};/s);
  const rows = [...table.matchAll(/\{"([\w.]+)", (\w+)/g)].map(([, key, harmless]) => [key, harmless === 'true' ? true : Number(harmless)]);
  assert.ok(rows.length > 10);
  const withKey = (key, type, value) => makeModel({ ...NANO, meta: { [`llama.${key}`]: [type, value] } });
  for (const [key, harmless] of rows) {
    const name = new RegExp(`llama\\.${key.replaceAll('.', '\\.')}`);
    const types = harmless === true ? ['bool'] : ['u32', 'f32'];
    for (const type of types) {
      assert.equal(await refusal(withKey(key, type, harmless)), null, `${key} ${type}`);
      const changing = harmless === true ? [false] : [harmless + 1, harmless + 2];
      for (const value of changing) await assertRefused(withKey(key, type, value), name, 'UNSUPPORTED');
    }
  }
});

test('tensors of every architecture: each is bound, or harmless, or refused by name', async () => {
  const [, list] = readFileSync(new URL('../src/model_tensors.c', import.meta.url), 'utf8').match(/harmless\[\] = \{(.*?)\};/s);
  const harmless = [...list.matchAll(/"([\w.]+)"/g)].map(([, name]) => [`blk.0.${name}`, [8], 0]);
  assert.ok(harmless.length > 0);
  for (const arch of ARCHS) {
    const withTensors = (...extraTensors) =>
      makeModel({ ...NANO, arch, meta: { [`${arch}.attention.sliding_window`]: ['u32', 8] }, extraTensors });
    assert.equal(await refusal(withTensors(...harmless)), null, arch);
    for (const name of ['blk.0.attn_sinks.weight', 'blk.1.attn_norm.weight', 'blk.0.ffn_gate_shexp.weight', 'rope_freqs.bias']) {
      await assertRefused(withTensors([name, [32], 0]), new RegExp(`${name.replaceAll('.', '\\.')}.*${arch}`), 'UNSUPPORTED');
    }
  }
});

test('windows: another pattern is refused, a base of their own is used', async () => {
  const gemma3 = (meta) => makeModel({ ...NANO, nLayers: 7, arch: 'gemma3', meta: { 'gemma3.attention.sliding_window': ['u32', 8], ...meta } });
  const pattern = (n) => gemma3({ 'gemma3.attention.sliding_window_pattern': ['u32', n] });
  assert.equal(await refusal(pattern(6)), null);
  await assertRefused(pattern(5), /sliding_window_pattern.*5.*6/, 'UNSUPPORTED');
  await assertRefused(gemma3({ 'gemma3.attention.sliding_window': null }), /gemma3\.attention\.sliding_window/);
  const base = (theta) => gemma3({ 'gemma3.rope.freq_base_swa': ['f32', theta] });
  const logits = (file) => using([build, file, {}], (engine) => allLogits(engine, [1, 2, 3, 4, 5]).at(-1));
  const [plain, same, other] = [await logits(gemma3({})), await logits(base(10000)), await logits(base(500))];
  assert.deepEqual(same, plain);
  assert.notDeepEqual(other, plain);
  await assertRefused(base(0), /rope\.freq_base_swa.*0/);
});

/* ---- many ---- */

/** Loads, and generates eight tokens. */
function useEngine(file, first = () => {}) {
  return using([build, file, {}], (engine) => {
    first(engine);
    const seq = engine.seq();
    engine.setSampler(seq, { temperature: 0 });
    engine.eval({ tokens: [1], seq });
    for (let i = 0; i < 8; i++) engine.eval({ tokens: [engine.sample(seq)], seq });
  });
}

/** As an application does: the engine, then the tokenizer. */
const useWhole = (file) => useEngine(file, (engine) => createTokenizer((key) => engine.meta(key)));

test('random changes of a header: refused or harmless', async () => {
  const file = makeModel({ ...NANO, type: 'Q4_0' });
  const { headerBytes } = readGguf(file);
  const random = randomNumbers(17);
  const below = (n) => Math.floor(random() * n);
  let refused = 0;
  for (let round = 0; round < 300; round++) {
    const changed = file.slice();
    const what = [];
    for (let n = 1 + below(3); n > 0; n--) {
      const at = below(headerBytes);
      changed[at] = [0, 1, 0x7f, 0x80, 0xff, changed[at] ^ (1 << below(8)), below(256)][below(7)];
      what.push(`${at}: ${changed[at]}`);
    }
    const error = await useEngine(changed).catch((e) => e);
    if (error) assert.ok([...CODES, 'LOGITS'].includes(error.code), `bytes ${what}: ${error.stack}`);
    refused += error ? 1 : 0;
  }
  assert.ok(refused > 100 && refused < 300, `${refused} of 300 refused`);
});

test('fixtures: malformed files are refused, sound ones load', { skip: absent() }, async () => {
  const cases = fixtureJson('malformed/CASES.json').filter(({ file }) => file.endsWith('.gguf'));
  assert.ok(cases.length > 100);
  for (const { file, why, expect } of cases) {
    const start = performance.now();
    const error = (await useWhole(fixture(`malformed/${file}`)).catch((e) => e)) ?? null;
    const what = `${file} (${why}): ${error?.stack ?? 'loads'}`;
    if (error) assert.ok([...CODES, 'LOGITS'].includes(error.code), what);
    if (expect === 'reject') assert.ok(CODES.includes(error?.code), what);
    if (expect === 'accept') assert.equal(error, null, what);
    assert.ok(performance.now() - start < 2000, `${file} took ${performance.now() - start} ms`);
  }
});
