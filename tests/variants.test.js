/**
 * variants.test.js: every build gives the same; choosing a variant and threads; what happens where shared memory
 * is refused, workers do not start, or one traps; and that nothing keeps a process alive.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { freemem } from 'node:os';
import { fileURLToPath } from 'node:url';
import test from 'node:test';
import { createEngine, createLoader, readHeader, runnable, support } from '../web/engine.js';
import { VARIANTS, WIDE_VARIANTS, chooseVariant, runnable as runnableOn } from '../web/features.js';
import { PAGE_BYTES, WINDOW_BYTES, createMemory } from '../web/instance.js';
import { chooseThreads } from '../web/threads.js';
import { BUILDS, open, tellMissing } from './kit/engines.js';
import { makeModel } from './kit/make-model.js';

const MODEL = makeModel({ type: 'Q4_1', nLayers: 3, vocabulary: 'bpe', nCtx: 1024 });
const ENGINE_JS = new URL('../web/engine.js', import.meta.url);
const HERE = support();

/** Greedy ids and the last logits. */
function story(engine, n = 24) {
  const seq = engine.seq();
  engine.setSampler(seq, { temperature: 0 });
  const ids = [3, 14, 15, 92, 65];
  engine.eval({ tokens: ids, seq });
  for (let i = 0; i < n; i++) {
    ids.push(engine.sample(seq));
    engine.eval({ tokens: ids.slice(-1), seq });
  }
  const logits = engine.logits();
  engine.drop(seq);
  return { ids, logits };
}

test('every build and thread count gives the same bits', async (t) => {
  tellMissing(t);
  for (const precision of ['high', 'fast']) {
    let expected;
    for (const build of BUILDS.filter(({ name }) => name !== 'ref')) {
      for (const threads of build.threads) {
        const engine = await open(build, MODEL, { threads, precision });
        assert.equal(engine.info.threads, threads);
        assert.equal(engine.info.nThreads, threads);
        assert.equal(engine.info.threadsReason, null);
        assert.equal(engine.info.precision, precision);
        const got = story(engine);
        expected ??= got;
        assert.deepEqual(got, expected, `${build.name}, ${threads} threads, ${precision}`);
        await engine.close();
      }
    }
  }
});

test('which variants run in which Node: none is left out from 24 on', () => {
  const node = Number(process.versions.node.split('.')[0]);
  if (node >= 24) assert.deepEqual(runnable(), [...VARIANTS, ...WIDE_VARIANTS]);
  else assert.deepEqual(runnable(), node >= 22 ? VARIANTS : ['simd-mt', 'simd']);
});

test('the best variant that runs, or the one asked for', () => {
  const all = { simd: true, relaxed: true, dot: false, threads: true, memory64: false, reasons: [] };
  assert.deepEqual(runnableOn(all), VARIANTS);
  assert.deepEqual(runnableOn({ ...all, memory64: true }), [...VARIANTS, ...WIDE_VARIANTS]);
  assert.equal(chooseVariant(undefined, 4, all), 'relaxed-mt');
  assert.equal(chooseVariant(undefined, 1, all), 'relaxed');
  assert.equal(chooseVariant(undefined, 4, { ...all, dot: true }), 'relaxed-dot-mt');
  assert.equal(chooseVariant(undefined, 1, { ...all, dot: true }), 'relaxed-dot');
  assert.equal(chooseVariant(undefined, 4, { ...all, relaxed: false }), 'simd-mt');
  assert.equal(chooseVariant('simd', 1, all), 'simd');
  assert.throws(() => chooseVariant('relaxed', 1, { ...all, relaxed: false }), {
    code: 'UNSUPPORTED',
    message: /relaxed SIMD/,
  });
  assert.throws(() => chooseVariant('simd-mt', 2, { ...all, threads: false }), {
    code: 'UNSUPPORTED',
    message: /shared memory/,
  });
  assert.throws(() => chooseVariant(undefined, 1, { ...all, simd: false }), {
    code: 'UNSUPPORTED',
    message: /SIMD/,
  });
  assert.throws(
    () => chooseVariant('relax', 1, all),
    (error) => error instanceof RangeError && /did you mean 'relaxed'/.test(error.message),
  );
});

test('threads: half of the cores, bounded, never silently less than asked', () => {
  const choose = (asked, cores) => chooseThreads({ asked, cores, supported: true });
  assert.deepEqual(
    [1, 2, 3, 8, 16, 32].map((cores) => choose(undefined, cores).threads),
    [1, 1, 1, 4, 8, 8],
  );
  assert.match(choose(undefined, 2).reason, /half of 2/);
  assert.equal(choose(undefined, 8).reason, null);
  for (const cores of [1, 2, 32]) {
    for (const asked of [0, 1, 2, 64, 1000]) {
      const { threads, reason } = choose(asked, cores);
      assert.ok(threads >= 1 && threads <= Math.min(64, 2 * cores), `${asked} of ${cores}`);
      assert.equal(reason === null, threads === asked);
      if (reason) assert.match(reason, new RegExp(`\\b${asked}\\b`));
    }
  }
  assert.deepEqual(chooseThreads({ asked: 4, supported: false, unsupported: 'no isolation' }), {
    threads: 1,
    reason: 'no isolation',
  });
  assert.deepEqual(chooseThreads({ asked: 1, supported: false }), { threads: 1, reason: null });
  assert.ok(chooseThreads({ supported: true }).threads >= 1, 'this machine');
  for (const asked of [-1, 1.5, NaN, '2']) assert.throws(() => choose(asked, 4), RangeError);
});

test('64 threads are clamped, and it is said', async () => {
  const engine = await createEngine(MODEL, { threads: 64 });
  assert.ok(engine.info.threads < 64 || engine.info.threadsReason === null);
  assert.equal(engine.info.threads, engine.info.nThreads);
  assert.deepEqual(story(engine), await createEngine(MODEL, { threads: 1 }).then(story));
  await engine.close();
});

test('a variant that cannot do what is asked is an error', async () => {
  await assert.rejects(createLoader({ variant: 'simd', threads: 2 }), RangeError);
  if (!HERE.relaxed) await assert.rejects(createLoader({ variant: 'relaxed' }), { code: 'UNSUPPORTED' });
  const engine = await createEngine(MODEL, { variant: 'simd-mt', threads: 1 });
  assert.equal(engine.info.variant, 'simd-mt');
  await engine.close();
});

test('wrong options are told before anything is read', async () => {
  for (const contextLength of [0, -1, 1.5, 2 ** 31, NaN])
    await assert.rejects(createLoader({ contextLength }), RangeError);
  await assert.rejects(createEngine(MODEL, { kvType: 'f8' }), {
    name: 'RangeError',
    message: /kvType.*f8.*f16/,
  });
  await assert.rejects(createEngine(MODEL, { precision: 'low' }), {
    name: 'RangeError',
    message: /precision.*low.*fast.*high/,
  });
});

/** Runs with a WebAssembly.Memory that refuses some. */
async function refusing(refuse, work) {
  const Memory = WebAssembly.Memory;
  const asked = [];
  WebAssembly.Memory = class extends Memory {
    constructor(descriptor) {
      asked.push(descriptor);
      if (refuse(descriptor)) throw new RangeError('could not allocate memory');
      super(descriptor);
    }
  };
  try {
    return { result: await work(), asked };
  } finally {
    WebAssembly.Memory = Memory;
  }
}

test('a maximum that the device refuses is halved', async () => {
  const small = 2 ** 28 / PAGE_BYTES;
  const { result, asked } = await refusing(
    ({ maximum }) => maximum > small,
    () => createMemory({ bytes: 2 ** 24, maximum: 2 ** 32, shared: true }),
  );
  assert.equal(result.buffer.byteLength, 2 ** 24);
  assert.deepEqual(
    asked.map(({ maximum }) => maximum),
    [65536, 32768, 16384, 8192, 4096],
  );
  const tight = await refusing(
    ({ maximum }) => maximum > 300,
    () => createMemory({ bytes: 300 * PAGE_BYTES, maximum: 2 ** 32, shared: false }),
  );
  assert.equal(tight.asked.at(-1).maximum, 300, 'the last try is what is needed at once');
  await assert.rejects(
    refusing(
      () => true,
      () => createMemory({ bytes: 2 ** 26, maximum: 2 ** 32, shared: false }),
    ),
    { code: 'MEMORY', message: /64 MiB/ },
  );
});

test('refused shared memory means one thread, and why', { skip: !HERE.threads }, async () => {
  const { result: engine } = await refusing(
    ({ shared }) => shared,
    () => createEngine(MODEL, { threads: 2 }),
  );
  assert.equal(engine.info.threads, 1);
  assert.equal(engine.info.variant.endsWith('-mt'), false);
  assert.match(engine.info.threadsReason, /refuses.*shared memory/);
  assert.equal(story(engine).ids.length, 29);
  await assert.rejects(
    refusing(
      ({ shared }) => shared,
      () => createEngine(MODEL, { variant: 'simd-mt', threads: 2 }),
    ),
    { code: 'MEMORY' },
  );
});

test('too little memory for the model is an error with the number', async () => {
  const { result: bytes } = await refusing(
    () => false,
    () => createEngine(MODEL, { threads: 1 }).then((engine) => engine.info.bytesNow),
  );
  const pages = Math.ceil(bytes / PAGE_BYTES);
  await assert.rejects(
    refusing(
      ({ initial }) => initial >= pages,
      () => createEngine(MODEL, { threads: 1 }),
    ),
    { code: 'MEMORY', message: /MiB/ },
  );
  assert.equal((await createEngine(MODEL, { threads: 1 })).info.threads, 1, 'the next call works');
});

const script = (text) => new URL(`data:text/javascript,${encodeURIComponent(text)}`);

test('workers that fail or never answer mean one thread, and why', { skip: !HERE.threads }, async () => {
  const expected = await createEngine(MODEL, { threads: 1 }).then(story);
  for (const [thread, reason] of [
    [new URL('absent.js', import.meta.url), /did not start/],
    [script('throw new Error("broken on purpose")'), /broken on purpose/],
    [script('setInterval(() => {}, 1000)'), /not ready after/],
  ]) {
    const engine = await createEngine(MODEL, { threads: 2, thread });
    assert.equal(engine.info.threads, 1);
    assert.match(engine.info.threadsReason, reason);
    assert.deepEqual(story(engine), expected);
    await engine.close();
  }
});

test(
  'a worker that traps ends the engine instead of hanging it',
  { skip: !HERE.threads, timeout: 20000 },
  async () => {
    const thread = script(`
    import { parentPort } from 'node:worker_threads';
    parentPort.once('message', ({ module, memory }) => {
      const { exports } = new WebAssembly.Instance(module, { env: { memory } });
      parentPort.postMessage('ready');
      exports.lm_fail();
    });`);
    const engine = await createEngine(MODEL, { threads: 2, thread });
    const seq = engine.seq();
    assert.throws(() => engine.eval({ tokens: [1], seq }), { code: 'CRASHED' });
    assert.throws(() => engine.seq(), { code: 'CRASHED' });
    await engine.close();
  },
);

/* The embedding alone passes 2 GiB: all else lies above. Its first row is 1, the others 0; the layer is 0, so
 * that the residual stays 1; the last norm is 1. The logit of the first token is then the width. */
test('memory above 2 GiB', { skip: freemem() < 4e9 && 'less than 4 GB of memory are free' }, async () => {
  const [dModel, nVocab] = [4096, 2 ** 17 + 64];
  const shape = { nLayers: 1, dModel, nHeads: 32, nKvHeads: 1, dFf: 32, nVocab, tied: true };
  const loader = await createLoader({ variant: 'simd', contextLength: 256 });
  loader.push(makeModel({ ...shape, headerOnly: true }));
  const { fileBytes } = loader.bind();
  const tensors = loader.tensors();
  const ones = [
    tensors[0].offset,
    /** @type {any} */ (tensors.find(({ name }) => name === 'output_norm.weight')).offset,
  ];
  await loader.allocate();
  const chunk = new Float32Array(WINDOW_BYTES / 4);
  const row = chunk.subarray(0, dModel).byteLength;
  for (let at = loader.info.headerBytes; at < fileBytes;) {
    const isOne = ones.includes(at);
    chunk.fill(isOne ? 1 : 0, 0, dModel);
    const next = isOne ? at + row : Math.min(at + WINDOW_BYTES, fileBytes, ...ones.filter((one) => one > at));
    loader.push(new Uint8Array(chunk.buffer, 0, next - at));
    at = next;
  }
  const engine = loader.finish();
  const seq = engine.seq();
  engine.eval({ tokens: [0], seq });
  const logits = engine.logitsView();
  assert.ok(logits.byteOffset > 2 ** 31, `${logits.byteOffset}`);
  assert.ok(Math.abs(logits[0] - dModel) < 0.1, `${logits[0]}`);
  assert.ok(logits.subarray(1).every((logit) => logit === 0));
  engine.setSampler(seq, { temperature: 0 });
  assert.equal(engine.sample(seq), 0);
});

test('close ends the workers, twice is as good as once', { skip: !HERE.threads }, async () => {
  const engine = await createEngine(MODEL, { threads: 2 });
  story(engine, 2);
  const start = performance.now();
  await engine.close();
  assert.ok(performance.now() - start < 900, 'without being terminated');
  await engine.close();
});

test('a closed engine says so, and never waits for the workers that it had', { skip: !HERE.threads }, async () => {
  for (const threads of [1, 2]) {
    const engine = await createEngine(MODEL, { threads });
    const seq = engine.seq();
    await engine.close();
    for (const call of [() => engine.eval({ tokens: [1], seq }), () => engine.logits(), () => engine.meta('general.name')]) {
      assert.throws(call, { name: 'ModelError', code: 'CLOSED' });
    }
    assert.equal(engine.info.threads, threads);
  }
});

test('options of the engine are known by name', async () => {
  await assert.rejects(createEngine(MODEL, { thrads: 2 }), { name: 'TypeError', message: /did you mean 'threads'/ });
  await assert.rejects(createLoader({ kvtype: 'f32' }), { name: 'TypeError', message: /did you mean 'kvType'/ });
  await assert.rejects(createLoader({ sha256: '0'.repeat(64) }), { name: 'TypeError', message: /'sha256'/ });
  await assert.rejects(readHeader(MODEL, { threads: '2' }), { name: 'TypeError', message: /threads is '2'/ });
});

/** Runs a module in a Node of its own, which is killed if it does not end. */
function node(text) {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, ['--input-type=module', '-e', text], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let output = '';
    child.stdout.on('data', (chunk) => (output += chunk));
    child.stderr.on('data', (chunk) => (output += chunk));
    const timer = setTimeout(() => child.kill('SIGKILL'), 20000);
    child.on('error', reject);
    child.on('exit', (code, signal) => {
      clearTimeout(timer);
      resolve({ code, signal, output });
    });
  });
}

for (const [how, end] of [
  ['closed', 'await engine.close();'],
  ['left open', ''],
  ['dropped while loading', 'loader.close();'],
]) {
  test(`a process ends by itself, engine ${how}`, { skip: !HERE.threads }, async () => {
    const text =
      how === 'dropped while loading'
        ? `const loader = await createLoader({ threads: 2 });
         const taken = loader.push(model);
         await loader.allocate();
         loader.push(model.subarray(taken, taken + 100));`
        : `const engine = await createEngine(model, { threads: 2 });
         const seq = engine.seq();
         engine.eval({ tokens: [1, 2, 3], seq });`;
    const { code, signal, output } = await node(`
      import { createEngine, createLoader } from ${JSON.stringify(ENGINE_JS.href)};
      import { makeModel } from ${JSON.stringify(new URL('./kit/make-model.js', import.meta.url).href)};
      const model = makeModel();
      ${text}
      ${end}
      console.log('done');`);
    assert.deepEqual({ code, signal, output }, { code: 0, signal: null, output: 'done\n' });
  });
}

test('importing the engine does nothing', async () => {
  const files = [ENGINE_JS, new URL('../web/index.js', import.meta.url)].map((url) => fileURLToPath(url));
  const { code, output } = await node(`
    const before = Object.keys(globalThis);
    for (const file of ${JSON.stringify(files)}) await import(file);
    console.log(String(before) === String(Object.keys(globalThis)));`);
  assert.deepEqual({ code, output }, { code: 0, output: 'true\n' });
});
