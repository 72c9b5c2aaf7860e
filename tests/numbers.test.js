/**
 * numbers.test.js: exact numbers that follow from a model's shape: bytes of the cache, how it grows, what
 * a token costs, and the memory as the engine really takes it. Each expected value is worked out from the
 * shape, here.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BUILDS, allLogits, feed, header, using } from './kit/engines.js';
import { GEMMA3 } from './kit/gemma3.js';
import { SMOLLM2, absent, fixture } from './kit/fixtures.js';
import { makeModel } from './kit/make-model.js';
import { headProbe, shown } from './kit/probes.js';

const [build] = BUILDS;
const PAGE = 65536;
/** Values per block, bytes per block, bytes per row beside. */
const KV_BLOCKS = { q16: [1, 2, 4], f16: [1, 2, 0], f32: [1, 4, 0], q8_0: [32, 34, 0], q4_0: [32, 18, 0] };

/**
 * Public shapes: layers, query heads, key/value heads, head size; bytes of f16 cache per token as
 * published.
 */
const PUBLIC = [
  ['Llama-2-7B', 32, 32, 32, 128, 524288],
  ['Llama-2-7B with one KV head', 32, 32, 1, 128, 16384],
  ['Llama-2-70B', 80, 64, 8, 128, 327680],
  ['Llama-2-70B as MHA', 80, 64, 64, 128, 2621440],
  ['Llama-2-70B as MQA', 80, 64, 1, 128, 40960],
  ['Llama-3-8B', 32, 32, 8, 128, 131072],
  ['Llama-3.1-405B', 126, 128, 8, 128, 516096],
  ['Llama-3.2-1B', 16, 32, 8, 64, 32768],
  ['TinyLlama-1.1B', 22, 32, 4, 64, 22528],
  ['SmolLM2-135M', 30, 9, 3, 64, 23040],
  ['SmolLM2-135M as MHA', 30, 9, 9, 64, 69120],
  ['stories260K', 5, 8, 4, 8, 640],
];

/** What lm_bind plans for a header; the header ends there, so nothing says how long the file is. */
async function planned(file, options = {}) {
  const loader = await header(build, [file], options);
  try {
    return loader.bind();
  } finally {
    loader.close();
  }
}

/** A header of these heads on a narrow model: the cache does not depend on the width. */
const headsOnly = (nLayers, nHeads, nKvHeads, headDim) =>
  makeModel({ nLayers, nHeads, nKvHeads, headDim, dModel: 32, dFf: 32, nCtx: 131072, headerOnly: true });

test('bytes of cache per token: 2 x bytes x layers x KV heads x head size', async () => {
  for (const [name, nLayers, nHeads, nKvHeads, headDim, published] of PUBLIC) {
    const file = headsOnly(nLayers, nHeads, nKvHeads, headDim);
    for (const [kvType, [values, bytes, row]] of Object.entries(KV_BLOCKS).filter(([, [values]]) => headDim % values === 0)) {
      const info = await planned(file, { kvType, contextLength: 1024 });
      assert.equal(info.bytesKvToken, 2 * nLayers * nKvHeads * ((headDim * bytes) / values + row), `${name}, ${kvType}`);
      assert.equal(info.bytesChunk, info.chunkTokens * info.bytesKvToken, name);
      if (kvType === 'f16') assert.equal(info.bytesKvToken, published, name);
      assert.deepEqual(
        [info.nLayers, info.nHeads, info.nKvHeads, info.headDim],
        [nLayers, nHeads, nKvHeads, headDim],
      );
    }
  }
});

test('a quantised cache takes whole blocks: 12,240 and 6,480 bytes for SmolLM2, an error for heads of 8', async () => {
  const bytes = async (nKvHeads, kvType) => (await planned(headsOnly(30, 9, nKvHeads, 64), { kvType })).bytesKvToken;
  assert.deepEqual([await bytes(3, 'q8_0'), await bytes(3, 'q4_0')], [12240, 6480]);
  assert.equal((await bytes(9, 'f16')) / (await bytes(3, 'q4_0')), 69120 / 6480);
  for (const kvType of ['q8_0', 'q4_0']) {
    await assert.rejects(planned(headsOnly(5, 8, 4, 8), { kvType }), (error) => {
      assert.equal(error.code, 'UNSUPPORTED');
      assert.match(error.message, new RegExp(`${kvType}.*blocks of 32.*have 8`));
      return true;
    });
  }
});

test('no precision is lost above 2^32', async () => {
  const at = async (nKvHeads, contextLength) => {
    const { bytesKvToken } = await planned(headsOnly(80, 64, nKvHeads, 128), { kvType: 'f16', contextLength });
    return bytesKvToken * contextLength;
  };
  assert.equal(await at(64, 32768), 85899345920);
  assert.equal((await at(64, 32768)) - (await at(8, 32768)), 70 * 2 ** 30);
  assert.equal(await at(8, 131072), 40 * 2 ** 30);
  const wide = {
    nLayers: 80,
    dModel: 8192,
    nHeads: 64,
    nKvHeads: 8,
    dFf: 28672,
    nVocab: 32000,
    type: 'Q4_0',
  };
  const weights = makeModel({ ...wide, headerOnly: true });
  const loader = await header(build, [weights]);
  const bytes = loader.tensors().reduce((sum, t) => sum + t.bytes, 0);
  assert.ok(bytes > 2 ** 35);
  assert.equal(loader.info.fileBytes, loader.tensors().at(-1).offset + loader.tensors().at(-1).bytes);
  assert.throws(
    () => loader.bind(),
    (error) => error.code === 'MEMORY' && numbersIn(error.message).some((n) => n >= bytes),
  );
});

const numbersIn = (sentence) => (sentence.match(/\d{6,}/g) ?? []).map(Number);

test('a 13B model: sizes beyond 2^31 and 2^32 are planned exactly', async () => {
  const shape = {
    nLayers: 40,
    dModel: 5120,
    nHeads: 40,
    nKvHeads: 40,
    dFf: 13824,
    nVocab: 32000,
    headerOnly: true,
  };
  for (const [type, perWeight] of [
    ['Q4_0', 18 / 32],
    ['F16', 2],
  ]) {
    const error = await planned(makeModel({ ...shape, type })).catch((e) => e);
    const matrices = 40 * (4 * 5120 * 5120 + 3 * 5120 * 13824) + 2 * 32000 * 5120;
    assert.equal(error.code, 'MEMORY', type);
    assert.ok(
      numbersIn(error.message).some((n) => n >= matrices * perWeight && n < matrices * perWeight * 1.05),
      error.message,
    );
  }
  /* Four of its layers: between 2^31 and 2^32 bytes of F16. */
  const info = await planned(makeModel({ ...shape, nLayers: 4, type: 'F16' }), { contextLength: 256 });
  const exact = 2 * (4 * (4 * 5120 * 5120 + 3 * 5120 * 13824) + 2 * 32000 * 5120);
  assert.ok(exact > 2 ** 31 && exact < 2 ** 32);
  assert.ok(info.bytesWeights >= exact && info.bytesWeights < exact * 1.001, `${info.bytesWeights}`);
});

test('query head h reads KV head floor(h / (heads / KV heads))', async () => {
  for (const build of BUILDS) {
    for (const [nHeads, nKvHeads] of [
      [4, 4],
      [4, 2],
      [4, 1],
      [6, 3],
      [9, 3],
      [8, 1],
      [12, 4],
    ]) {
      await using([build, headProbe(nHeads, nKvHeads), { kvType: 'f32' }], (engine) => {
        const [logits] = allLogits(engine, [0]);
        const heads = shown(logits, 0, nHeads).map((v) => Math.round(v * 1e4) / 1e4 - 1);
        assert.deepEqual(
          heads,
          heads.map((_, h) => Math.floor(h / (nHeads / nKvHeads))),
          `${nHeads} over ${nKvHeads}`,
        );
      });
    }
  }
});

/** Appends 640 tokens, looking at the memory after each 128: three chunks in all. */
function assertGrowth(engine) {
  const { bytesChunk, chunkTokens } = engine.info;
  assert.equal(chunkTokens, 256);
  const first = engine.memory();
  assert.equal(first.kv, bytesChunk, 'one chunk is there from the start');
  const seq = engine.seq();
  for (let n = 128; n <= 640; n += 128) {
    feed(engine, seq, new Array(128).fill(n % 300), 'none');
    const now = engine.memory();
    const chunks = Math.ceil(n / chunkTokens);
    assert.deepEqual([now.kv, now.kvUsed], [chunks * bytesChunk, chunks * bytesChunk]);
    const grown = now.wasm - first.wasm;
    const needed = (chunks - 1) * bytesChunk;
    assert.ok(Math.abs(grown - needed) < PAGE, `${grown} bytes grown for ${needed}`);
    if (bytesChunk % PAGE === 0) assert.equal(grown, needed);
  }
  return seq;
}

/** A vocabulary that makes the model larger than the memory that any instance starts with. */
const nVocab = 10000;

test('the cache grows by one chunk per 256 positions, measured on the memory', async () => {
  const shape = { nLayers: 5, dModel: 64, nHeads: 8, nKvHeads: 4, headDim: 32, dFf: 160, nVocab };
  const file = makeModel(shape);
  for (const build of BUILDS.filter((b) => b.name !== 'ref' && b.name !== 'grow')) {
    for (const kvType of Object.keys(KV_BLOCKS))
      await using([build, file, { kvType, contextLength: 1024 }], assertGrowth);
  }
  /* The heads of SmolLM2: a chunk of 5,898,240 bytes, which is 90 pages. */
  const smollm = makeModel({ nLayers: 30, dModel: 64, nHeads: 9, nKvHeads: 3, headDim: 64, dFf: 32, nVocab });
  await using([build, smollm, { contextLength: 1024, kvType: 'f16' }], (engine) => {
    assert.equal(engine.info.bytesChunk, 5898240);
    assertGrowth(engine);
  });
});

test('chunks that were dropped are used again, and forks share them', () =>
  using([build, makeModel({ nCtx: 2048, nVocab }), {}], (engine) => {
    const seq = assertGrowth(engine);
    const full = engine.memory();
    engine.drop(seq);
    assert.equal(engine.memory().kvUsed, 0);
    const again = engine.seq();
    feed(engine, again, new Array(640).fill(7), 'none');
    assert.deepEqual(engine.memory(), full, 'nothing grows the second time');
    const fork = engine.fork(again);
    assert.equal(engine.memory().kvUsed, full.kvUsed, 'a fork costs nothing');
    engine.eval({ tokens: [1], seq: fork });
    assert.equal(engine.memory().kvUsed, full.kvUsed + engine.info.bytesChunk, 'until it writes');
    engine.rewind(again, 256);
    assert.equal(engine.memory().kvUsed, full.kvUsed, 'chunks that the fork holds stay');
    engine.drop(fork);
    assert.equal(engine.memory().kvUsed, engine.info.bytesChunk, 'and go with it');
  }));

test('memory apart from the cache does not depend on the context', async () => {
  const file = makeModel({ nCtx: 131072, headerOnly: true });
  const plans = await Promise.all([256, 2048, 8192].map((contextLength) => planned(file, { contextLength })));
  for (const plan of plans) {
    assert.equal(plan.bytesWeights, plans[0].bytesWeights);
    assert.ok(
      plan.bytesScratch - plans[0].bytesScratch <= (plan.nCtx / plan.chunkTokens) * plan.maxSeqs * 32,
      'tables of chunks alone',
    );
  }
  assert.equal((await planned(file)).nCtx, 8192, "the default is the model's own, at most 8192");
  assert.equal((await planned(makeModel({ nCtx: 512, headerOnly: true }))).nCtx, 512);
});

/** Sizes of a model's matrices by name, from the header. */
function products(loader) {
  const matrices = loader.tensors().filter((t) => t.dims.length === 2);
  const tied = !matrices.some((t) => t.name === 'output.weight');
  return matrices
    .filter((t) => tied || t.name !== 'token_embd.weight')
    .reduce((sum, t) => sum + t.dims[0] * t.dims[1], 0);
}

test('a token costs one multiply-add per weight of its products', async () => {
  for (const options of [{}, { tied: true }, { bias: true, nHeads: 8, nKvHeads: 2 }]) {
    const loader = await header(build, [makeModel({ ...options, headerOnly: true })]);
    const { gigaOpsToken, nParams } = loader.bind();
    assert.ok(Math.abs(gigaOpsToken - 2e-9 * products(loader)) < 1e-15);
    assert.equal(
      nParams,
      loader.tensors().reduce((sum, t) => sum + t.dims.reduce((a, b) => a * b), 0),
    );
  }
});

/** What memory a loaded model may take: weights as in the file and the cache, 5 % and 8 MiB. */
function assertLean(engine, name) {
  const { wasm, weights, kv } = engine.memory();
  const inFile = engine.tensors().reduce((sum, t) => sum + t.bytes, 0);
  assert.ok(
    weights <= inFile * 1.05 + 2 ** 20,
    `${name}: ${weights} bytes of weights for ${inFile} in the file`,
  );
  assert.ok(
    wasm <= (inFile + kv) * 1.05 + 8 * 2 ** 20,
    `${name}: ${wasm} bytes of memory for ${inFile} + ${kv}`,
  );
}

test('stories260K: its numbers', { skip: absent() }, () =>
  using([build, fixture('models/stories260K.gguf'), { kvType: 'f16' }], (engine) => {
    const { nLayers, nHeads, nKvHeads, headDim, dFf, dModel, nVocab, nCtx, bytesKvToken, tied } = engine.info;
    assert.deepEqual(
      [nLayers, nHeads, nKvHeads, headDim, dFf, dModel, nVocab, nCtx],
      [5, 8, 4, 8, 172, 64, 512, 2048],
    );
    assert.equal(bytesKvToken, 640);
    assert.equal(tied, engine.tensors().some((t) => t.name === 'output.weight') ? 0 : 1);
    assertLean(engine, 'stories260K');
  }),
);

test('SmolLM2: its numbers', { skip: absent(SMOLLM2.path) }, async () => {
  const loader = await header(build, SMOLLM2.path);
  const { gigaOpsToken } = loader.bind();
  assert.ok(Math.abs(gigaOpsToken - 2e-9 * products(loader)) < 1e-12);
  loader.close();
  assert.equal((await header(build, SMOLLM2.path, { kvType: 'f32' })).bind().bytesKvToken, 46080);
  await using([build, SMOLLM2.path, { contextLength: 1024, precision: 'fast', kvType: 'f16' }], (engine) => {
    const { nLayers, nHeads, nKvHeads, headDim, dFf, dModel, nVocab, bytesKvToken, bytesChunk, tied } =
      engine.info;
    assert.deepEqual(
      [nLayers, nHeads, nKvHeads, headDim, dFf, dModel, nVocab],
      [30, 9, 3, 64, 1536, 576, 49152],
    );
    assert.deepEqual([tied, bytesKvToken, bytesChunk], [1, 23040, 5898240]);
    assertLean(engine, 'SmolLM2');
    const before = engine.memory().wasm;
    feed(engine, engine.seq(), new Array(257).fill(1), 'none');
    assert.equal(engine.memory().wasm - before, 5898240);
  });
});

test('Gemma 3 270M: a vocabulary of 262,144 fits the rule too', { skip: absent(GEMMA3.path) }, () =>
  using([build, GEMMA3.path, { contextLength: 1024, precision: 'fast' }], (engine) => {
    assertLean(engine, 'Gemma 3');
    const seqs = [engine.seq(), engine.seq()];
    for (const seq of seqs) feed(engine, seq, [2, 3], 'last');
    assertLean(engine, 'Gemma 3, one row of logits');
    const before = engine.memory().wasm;
    assert.equal(engine.eval(seqs.map((seq) => [5, seq]), 'last'), 2);
    const { maxAll, nVocab } = engine.info;
    const grown = engine.memory().wasm - before;
    assert.ok(grown >= maxAll * nVocab * 4 - PAGE && grown <= maxAll * nVocab * 4 + PAGE, `${grown} more bytes`);
    assert.equal(engine.logits(1).length, nVocab);
  }),
);

/** A model of this shape whose weights are zeros, in pieces: nobody has to make or hold it. */
async function* zeros(shape) {
  const file = makeModel({ ...shape, headerOnly: true });
  const loader = await header(build, [file]);
  const { fileBytes } = loader.bind();
  loader.close();
  yield file;
  const piece = new Uint8Array(2 ** 20);
  for (let at = file.length; at < fileBytes; at += piece.length) yield piece.subarray(0, fileBytes - at);
}

test('memory of other shapes: weights as in the file and the cache, 5 % and 8 MiB, also when the cache has grown', async () => {
  const shapes = [
    ['tiny', { nLayers: 1, dModel: 32, nHeads: 2, nKvHeads: 1, dFf: 32, nVocab: 40, vocabulary: null }],
    ['deep', { nLayers: 40, dModel: 128, nHeads: 8, nKvHeads: 8, dFf: 256, nVocab: 1000 }],
    ['wide', { nLayers: 1, dModel: 4096, nHeads: 32, nKvHeads: 8, dFf: 14336, nVocab: 64, tied: true, vocabulary: null }],
    ['rows that are no whole strips', { nLayers: 3, dModel: 96, nHeads: 3, nKvHeads: 1, dFf: 224, nVocab: 33, vocabulary: null }],
    ['two layers under a real vocabulary', { nLayers: 2, dModel: 576, nHeads: 9, nKvHeads: 3, dFf: 1536, nVocab: 49152, tied: true }],
    ['much vocabulary', { nLayers: 2, dModel: 128, nHeads: 4, nKvHeads: 2, dFf: 256, nVocab: 32000 }],
    ['long context', { nLayers: 8, dModel: 64, nHeads: 4, nKvHeads: 4, dFf: 128, nVocab: 300, nCtx: 131072 }],
  ];
  for (const [name, shape] of shapes) {
    for (const type of ['F32', 'F16', 'Q8_0', 'Q4_1']) {
      for (const kvType of ['q16', 'f32']) {
        await using([build, zeros({ ...shape, type }), { kvType }], (engine) => {
          const what = `${name}, ${type}, ${kvType}`;
          assertLean(engine, what);
          const seq = engine.seq();
          if (name !== 'wide') feed(engine, seq, new Array(Math.min(600, engine.info.nCtx)).fill(1), 'none');
          assertLean(engine, `${what}, grown`);
        });
      }
    }
  }
});
