/** abi.test.js: what the modules import and export, against src/lm.h and the .def files; and refusing others. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import { createEngine, createLoader, readHeader } from '../web/engine.js';
import { ABI, Instance, PAGE_BYTES, TABLES, WINDOW_BYTES, createMemory, ptr } from '../web/instance.js';
import { VARIANTS } from '../web/features.js';
import { SCALINGS } from '../web/rope.js';
import { fakeModule } from './kit/fake-module.js';
import { VALUE_TYPES, makeGguf, makeModel } from './kit/make-model.js';

const source = (name) =>
  readFileSync(new URL(`../src/${name}`, import.meta.url), 'utf8').replace(/\/\*.*?\*\//gs, '');
const LM_H = source('lm.h');
/** @param {string} module */
const bytesOf = (module) => readFileSync(new URL(`../${module}.wasm`, import.meta.url));
const SIMD = { variant: 'simd', wasm: () => bytesOf('dist/lm-simd') };

/** Rows of a .def file: the arguments of its macro. */
const rows = (name, macro) =>
  [...source(name).matchAll(new RegExp(`^(?:${macro})\\((.*)\\)\\s*$`, 'gm'))].map(([, args]) =>
    args.split(',').map((arg) => arg.trim().replace(/^"(.*)"$/, '$1')),
  );

/** Values of an enum of lm.h, in order. */
const enumRows = (name) =>
  LM_H.match(new RegExp(`enum ${name} \\{([^}]*)\\}`))[1]
    .split(',')
    .map((row) => row.trim());

for (const variant of VARIANTS) {
  const shared = variant.endsWith('-mt');
  const bytes = bytesOf(`dist/lm-${variant}`);
  const module = () => new WebAssembly.Module(bytes);
  const skip = !WebAssembly.validate(bytes) && `${variant}: not valid in this Node`;

  test(`${variant} imports a memory and nothing else`, { skip }, () => {
    assert.deepEqual(WebAssembly.Module.imports(module()), [
      { module: 'env', name: 'memory', kind: 'memory' },
    ]);
  });

  test(`${variant} exports what lm.h lists`, { skip }, () => {
    const declared = [...LM_H.matchAll(/^LM_EXPORT [^(]*?(\w+)\(/gm)].map(([, name]) => ({
      name,
      kind: 'function',
    }));
    assert.ok(declared.length > 20, 'lm.h was read');
    if (shared) declared.push({ name: '__stack_pointer', kind: 'global' });
    const sorted = (list) => list.map(({ kind, name }) => `${kind} ${name}`).sort();
    assert.deepEqual(sorted(WebAssembly.Module.exports(module())), sorted(declared));
  });

  test(`${variant} starts in the memory that JS gives it`, { skip }, () => {
    const memory = createMemory({ bytes: 0, maximum: 2 ** 28, shared });
    const instance = new Instance(module(), memory);
    assert.ok(instance.window + WINDOW_BYTES <= memory.buffer.byteLength);
    assert.equal(instance.window % 64, 0);
  });
}

test('constants of JS are those of lm.h', () => {
  assert.equal(ABI, Number(LM_H.match(/LM_ABI = (\d+)/)[1]));
  assert.equal(`1 << ${Math.log2(WINDOW_BYTES)}`, LM_H.match(/LM_IO_BYTES = ([^}]*?) }/)[1]);
  assert.deepEqual(
    enumRows('lm_table').map((name) => name.replace(/^LM_/, '').toLowerCase()),
    TABLES.map((name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)),
  );
  assert.deepEqual(enumRows('lm_want'), ['LM_NONE', 'LM_LAST', 'LM_ALL']);
});

test('names are those of the .def files', () => {
  const memory = createMemory({ bytes: 0, maximum: 0, shared: false });
  const instance = new Instance(new WebAssembly.Module(SIMD.wasm()), memory);
  const errors = rows('error.def', 'LM_ERROR');
  assert.deepEqual(
    errors.map(([, number]) => Number(number)),
    errors.map((_, i) => i + 1),
  );
  assert.deepEqual(
    instance.names('errors'),
    errors.map(([name]) => name),
  );
  assert.deepEqual(
    instance.names('infos'),
    rows('info.def', 'LM_INFO').map(([, name]) => name),
  );
  assert.deepEqual(
    instance.names('kvTypes'),
    rows('kv.def', 'KV_TYPE').map(([, name]) => name),
  );
  assert.deepEqual(
    instance.names('samplers'),
    rows('sample.def', 'SAMPLER').map(([, name]) => name),
  );
  assert.deepEqual(
    instance.names('quants'),
    rows('quant.def', 'QUANT|QUANT_NAMED').map(([name]) => name),
  );
  assert.deepEqual(
    instance.names('precisions'),
    enumRows('lm_precision').map((name) => name.slice(3).toLowerCase()),
  );
  assert.deepEqual(
    instance.names('overrides'),
    rows('override.def', 'OVERRIDE').map(([, name]) => name),
  );
  const kinds = source('model.h').match(/enum rope_scaling_kind \{\s*([^}]*), N_ROPE_SCALINGS\s*\}/)[1].split(/,\s+/);
  assert.deepEqual(
    instance.names('ropeScalings'),
    kinds.map((kind) => kind.slice('SCALE_'.length).toLowerCase()),
  );
  assert.deepEqual(instance.names('ropeScalings').slice(0, SCALINGS.length), SCALINGS);
  assert.deepEqual(
    instance.names('archs'),
    rows('arch.def', 'ARCH').map(([name]) => name),
  );
});

test('a module of another version is refused with both numbers', async () => {
  const wasm = () => fakeModule({ lm_abi: { result: 999 } });
  await assert.rejects(createLoader({ variant: 'simd', wasm }), {
    name: 'ModelError',
    code: 'MISMATCH',
    message: new RegExp(`JS ${ABI}, wasm 999`),
  });
});

test('files that are no engine are refused', async () => {
  const load = (wasm) => createLoader({ variant: 'simd', wasm: () => wasm });
  await assert.rejects(load(fakeModule({})), { code: 'MISMATCH', message: /wasm none/ });
  await assert.rejects(load(new TextEncoder().encode('<!doctype html>')), {
    code: 'MISMATCH',
    message: /not valid/,
  });
  await assert.rejects(load(new URL('lm-absent.wasm', import.meta.url)), {
    name: 'ModelError',
    message: /lm-absent\.wasm/,
  });
});

test('addresses above 2 GiB are unsigned', () => {
  assert.equal(ptr(-1256092352), 3038874944);
  const module = fakeModule({ lm_abi: { result: ABI }, lm_open: {}, lm_io: { result: -1256092352 } });
  assert.equal(
    new Instance(module, createMemory({ bytes: 0, maximum: 0, shared: false })).window,
    3038874944,
  );
});

test('a trap ends an instance: everything after it is CRASHED', () => {
  const module = fakeModule({
    lm_abi: { result: ABI },
    lm_open: {},
    lm_io: { result: 0 },
    lm_stop: { trap: true },
    lm_seq: { result: 0 },
  });
  const instance = new Instance(module, createMemory({ bytes: 0, maximum: 0, shared: false }));
  assert.equal(instance.check('lm_seq'), 0);
  assert.equal(instance.crashed, false);
  for (const name of ['lm_stop', 'lm_seq', 'lm_stop']) {
    assert.throws(
      () => instance.check(name),
      (error) => {
        assert.equal(error.code, 'CRASHED');
        assert.ok(error.cause instanceof WebAssembly.RuntimeError);
        return true;
      },
    );
  }
  assert.equal(instance.crashed, true);
});

test('every metadata type arrives as the JS value it is', async () => {
  const scalars = {
    u8: 200,
    i8: -100,
    u16: 60000,
    i16: -30000,
    u32: 4e9,
    i32: -2e9,
    f32: 0.5,
    bool: true,
    string: 'é\u{1f600}\ufeff',
    u64: 2 ** 53 - 1,
    i64: -(2 ** 53) + 1,
    f64: 1e300,
  };
  const meta = { 'general.architecture': ['string', 'none'] };
  for (const [type, value] of Object.entries(scalars)) {
    meta[`scalar.${type}`] = [type, value];
    meta[`array.${type}`] = ['array', [type, [value, value]]];
    meta[`empty.${type}`] = ['array', [type, []]];
  }
  assert.deepEqual([...Object.keys(scalars), 'array'].sort(), [...VALUE_TYPES].sort(), 'all types are here');
  meta.big = ['u64', 2n ** 64n - 1n];
  meta.bigs = ['array', ['i64', [-(2n ** 63n), 1n]]];
  meta.long = ['string', 'x'.repeat(20000)];
  const file = makeGguf({ meta });
  for (const chunk of [1, 7, file.length]) {
    const pieces = Array.from({ length: Math.ceil(file.length / chunk) }, (_, i) =>
      file.subarray(i * chunk, (i + 1) * chunk),
    );
    const header = await readHeader(pieces, SIMD);
    assert.deepEqual(header.keys(), Object.keys(meta));
    for (const [type, value] of Object.entries(scalars)) {
      assert.equal(header.meta(`scalar.${type}`), value);
      assert.deepEqual(Array.from(header.meta(`array.${type}`)), [value, value]);
      assert.equal(header.meta(`empty.${type}`).length, 0);
    }
    assert.ok(header.meta('array.u16') instanceof Uint16Array);
    assert.ok(header.meta('array.f32') instanceof Float32Array);
    assert.equal(header.meta('big'), 2n ** 64n - 1n);
    assert.deepEqual(header.meta('bigs'), [-(2n ** 63n), 1]);
    assert.equal(header.meta('long').length, 20000);
    assert.equal(header.meta('absent'), undefined);
    assert.equal(header.meta('scalar'), undefined);
    assert.equal(header.meta(''), undefined);
  }
});

test("the tensor list is the file's", async () => {
  const tensors = [
    { name: 'a', dims: [3], type: 'F32' },
    { name: 'b.ü', dims: [32, 2, 5], type: 'Q4_1' },
    { name: 'c', dims: [2, 1, 1, 7], type: 'F16' },
  ];
  const file = makeGguf({ meta: { 'general.architecture': ['string', 'none'] }, tensors, alignment: 64 });
  const header = await readHeader(file, SIMD);
  const listed = header.tensors();
  assert.deepEqual(
    listed.map(({ name, dims, type }) => ({ name, dims, type })),
    tensors,
  );
  assert.deepEqual(
    listed.map(({ bytes }) => bytes),
    [12, 200, 28],
  );
  assert.deepEqual(
    listed.map(({ offset }) => offset - listed[0].offset),
    [0, 64, 320],
  );
  assert.equal(listed[2].offset + 28, file.length);
});

test('an error has its code and a sentence that names what is wrong', async () => {
  const engine = await createEngine(makeModel(), { ...SIMD, contextLength: 256 });
  const seq = engine.seq();
  const { nVocab, maxBatch } = engine.info;
  const code = (expected, message) => ({ name: 'ModelError', code: expected, message });
  assert.throws(() => engine.eval({ tokens: [nVocab], seq }), code('TOKEN', new RegExp(`${nVocab}`)));
  assert.throws(() => engine.eval({ tokens: [-1], seq }), code('TOKEN', /-1/));
  assert.throws(() => engine.eval({ tokens: [2 ** 32], seq }), RangeError);
  assert.throws(() => engine.eval({ tokens: [0.5], seq }), RangeError);
  assert.throws(() => engine.eval({ tokens: [1], seq: 9 }), code('SEQ', /9/));
  assert.throws(() => engine.eval([]), code('ARGUMENT', /./));
  assert.throws(
    () => engine.eval({ tokens: Array(maxBatch + 1).fill(1), seq }),
    code('ARGUMENT', new RegExp(`${maxBatch}`)),
  );
  for (let i = 0; i < 256; i += 64) engine.eval({ tokens: Array(64).fill(1), seq });
  assert.throws(() => engine.eval({ tokens: [1], seq }), code('CONTEXT', /256/));
  assert.equal(engine.pos(seq), 256, 'nothing has changed');
  assert.throws(() => engine.setSampler(seq, { topP: 2 }), code('ARGUMENT', /top_p.*2/));
  assert.throws(
    () => engine.setSampler(seq, { topp: 1 }),
    (error) => error instanceof TypeError && /did you mean 'topP'/.test(error.message),
  );
  assert.throws(() => engine.eval({ tokens: [1], seq }, 'some'), RangeError);
  assert.throws(() => engine.logits(5), RangeError);
  assert.throws(() => engine.seed(seq, 1.5), RangeError);
  assert.throws(() => engine.seed(seq, -1), RangeError);
  engine.seed(seq, 2n ** 64n - 1n);
  engine.drop(seq);
  assert.throws(() => engine.pos(seq), code('SEQ', /./));
  assert.throws(() => engine.drop(seq), code('SEQ', /./));
  await engine.close();
});

test('views follow the memory as it grows', async () => {
  const engine = await createEngine(makeModel(), { variant: 'simd', wasm: () => bytesOf('build/lm-grow') });
  const tokens = Array.from({ length: 300 }, (_, i) => (i * 37) % 320);
  const [one, other] = [engine.seq(), engine.seq()];
  const before = engine.memory().wasm;
  for (const token of tokens) {
    engine.eval({ tokens: [token], seq: one });
    assert.equal(engine.logitsView().length, 320);
  }
  const last = engine.logits();
  assert.ok(engine.memory().wasm > before, 'it has grown');
  assert.equal(engine.memory().wasm % PAGE_BYTES, 0);
  for (let i = 0; i < tokens.length; i += 100) engine.eval({ tokens: tokens.slice(i, i + 100), seq: other });
  assert.deepEqual(engine.logits(), last);
  await engine.close();
});

test('engines do not share anything', async () => {
  const [a, b] = await Promise.all([
    createEngine(makeModel({ seed: 1 }), { variant: 'simd' }),
    createEngine(makeModel({ seed: 2 }), { variant: 'simd' }),
  ]);
  const run = (engine) => {
    const seq = engine.seq();
    engine.eval({ tokens: [5, 6, 7], seq });
    return engine.logits();
  };
  const first = run(a);
  assert.notDeepEqual(run(b), first);
  assert.deepEqual(run(a), first);
  await Promise.all([a.close(), b.close()]);
});
