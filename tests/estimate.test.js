/* web/estimate.js through estimate() and `info`: what a header says about memory. Shapes and published
 * numbers of known models, of which only the header is written here. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { KV_TYPES } from '../web/estimate.js';
import { ModelError, estimate, load } from '../web/index.js';
import { bad, file, good } from './kit/command-line.js';
import { makeGguf, makeModel } from './kit/make-model.js';
import { startFaultServer } from './kit/server.js';

const GIB = 2 ** 30;
/** Bytes per value, as in numbers of the format: blocks of 32 with an f16 scale. */
const PER_VALUE = { f16: 2, f32: 4, q8_0: 34 / 32, q4_0: 18 / 32 };

/** A header of an architecture that need not be known, with one tensor. */
function headerOf(architecture, { layers, heads, kvHeads, headSize, context = 131072, keys = {} }) {
  const own = {
    context_length: context,
    embedding_length: heads * headSize,
    block_count: layers,
    'attention.head_count': heads,
    ...(kvHeads !== undefined && { 'attention.head_count_kv': kvHeads }),
    ...keys,
  };
  const meta = { 'general.architecture': ['string', architecture] };
  for (const [key, value] of Object.entries(own)) {
    meta[`${architecture}.${key}`] = Array.isArray(value) ? ['array', ['u32', value]] : ['u32', value];
  }
  return makeGguf({ meta, tensors: [{ name: 'token_embd.weight', dims: [32, 100] }], headerOnly: true });
}

/** Model, architecture, layers, query heads, KV heads, head size, published f16 bytes per token. */
const PUBLISHED = [
  ['Llama-2-7B', 'llama', 32, 32, 32, 128, 524288],
  ['Llama-2-7B with one KV head', 'llama', 32, 32, 1, 128, 16384],
  ['Llama-2-70B', 'llama', 80, 64, 8, 128, 327680],
  ['Llama-2-70B as MHA', 'llama', 80, 64, undefined, 128, 2621440],
  ['Llama-2-70B as MQA', 'llama', 80, 64, 1, 128, 40960],
  ['Llama-3-8B', 'llama', 32, 32, 8, 128, 131072],
  ['Llama-3.1-405B', 'llama', 126, 128, 8, 128, 516096],
  ['Falcon-7B', 'falcon', 32, 71, 1, 64, 8192],
  ['PaLM-540B', 'palm', 118, 48, 1, 256, 120832],
  ['GPT-3 175B', 'gpt3', 96, 96, undefined, 128, 4718592],
  ['Gemma 2B', 'gemma', 18, 8, 1, 256, 18432],
  ['Gemma 7B', 'gemma', 28, 16, 16, 256, 458752],
  ['Gemma 2 2B', 'gemma2', 26, 8, 4, 256, 106496],
  ['Gemma 2 9B', 'gemma2', 42, 16, 8, 256, 344064],
  ['Gemma 2 27B', 'gemma2', 46, 32, 16, 128, 376832],
  ['Llama-3.2-1B', 'llama', 16, 32, 8, 64, 32768],
  ['TinyLlama-1.1B', 'llama', 22, 32, 4, 64, 22528],
  ['SmolLM2-135M', 'llama', 30, 9, 3, 64, 23040],
  ['SmolLM2-135M as MHA', 'llama', 30, 9, 9, 64, 69120],
  ['Gemma 3 270M', 'gemma3', 18, 4, 1, 256, 18432],
  ['stories260K', 'llama', 5, 8, 4, 8, 640],
];

let server;
before(async () => (server = await startFaultServer(makeModel({ nVocab: 400, vocabulary: 'bpe' }))));
after(() => server.close());

test('the cache of known models, to the byte, in every type, also where the model can not run', async () => {
  for (const [name, architecture, layers, heads, kvHeads, headSize, published] of PUBLISHED) {
    const found = await estimate(headerOf(architecture, { layers, heads, kvHeads, headSize }), { contextLength: 32768 });
    assert.equal(found.kv.f16.perToken, published, name);
    for (const [type, bytes] of Object.entries(PER_VALUE)) {
      assert.equal(found.kv[type].perToken, 2 * bytes * layers * (kvHeads ?? heads) * headSize, `${name}, ${type}`);
      assert.equal(found.kv[type].context, 32768 * found.kv[type].perToken, `${name}, ${type}`);
    }
    const rows = 2 * layers * (kvHeads ?? heads);
    assert.equal(found.kv.q16.perToken, rows * (2 * headSize + 4), `${name}, q16`);
    assert.deepEqual([found.runs, found.fits], [false, false], name);
    assert.match(found.reason, /./);
  }
  const palm = await estimate(headerOf('palm', { layers: 118, heads: 48, kvHeads: 1, headSize: 256 }), { kvType: 'f16' });
  assert.match(palm.reason, /palm/);
  assert.equal(palm.bytes.total, 100 * 32 * 4 + 8192 * 120832, 'the weights in the file, and 8192 tokens');
});

test('keys of their own size, heads that differ by layer, and files that do not say', async () => {
  const shape = { layers: 3, heads: 6, headSize: 64 };
  const sizes = headerOf('walrus', { ...shape, kvHeads: 2, keys: { 'attention.key_length': 192, 'attention.value_length': 128 } });
  assert.equal((await estimate(sizes)).kv.f16.perToken, 2 * 3 * 2 * (192 + 128));
  assert.equal((await estimate(headerOf('walrus', { ...shape, kvHeads: [1, 2, 3] }))).kv.f16.perToken, 2 * 2 * 6 * 64);
  const silent = await estimate(makeGguf({ meta: { 'general.architecture': ['string', 'walrus'] } }));
  assert.deepEqual([silent.kv.f16.perToken, silent.sessions, silent.fits], [0, 0, false]);
  assert.match(silent.reason, /no tensors/);
});

test('the types of the cache are those of the engine', () => {
  const rows = readFileSync(new URL('../src/kv.def', import.meta.url), 'utf8').matchAll(/^KV_TYPE\(\w+, *"(\w+)", *(\d+), *(\d+), *(\d+)\)/gm);
  const known = Object.fromEntries([...rows].map(([, name, ...numbers]) => [name, numbers.map(Number)]));
  assert.deepEqual(KV_TYPES, known);
});

test('long contexts of 70 B, and the heads that save', async () => {
  const at = async (kvHeads, contextLength) => {
    const header = headerOf('llama', { layers: 80, heads: 64, kvHeads, headSize: 128 });
    return (await estimate(header, { contextLength })).kv.f16.context;
  };
  assert.deepEqual([await at(8, 32768), await at(64, 32768)], [10 * GIB, 85899345920]);
  assert.deepEqual([await at(8, 131072), await at(64, 131072)], [40 * GIB, 320 * GIB]);
});

test('sessions: what is free over what one takes; eight times as many with an eighth of the heads', async () => {
  const sessions = async (nKvHeads) => {
    const header = makeModel({ nHeads: 64, nKvHeads, headDim: 8, dModel: 64, nLayers: 4, nCtx: 4096, headerOnly: true });
    const { sessions, bytes, fits } = await estimate(header, { contextLength: 2048, memoryLimit: 2 * GIB });
    assert.equal(bytes.kv, 2048 * bytes.kvPerToken);
    assert.equal(sessions, Math.floor((2 * GIB - bytes.weights - bytes.scratch) / (2048 * bytes.kvPerToken)));
    assert.equal(fits, true);
    return sessions;
  };
  const [few, many] = [await sessions(64), await sessions(8)];
  assert.ok(few > 10 && Math.abs(many - 8 * few) <= 8, `${few}, ${many}`);
});

test('the total is the memory that a loaded model has with its context full', async () => {
  const source = makeModel({ nVocab: 10_000, nCtx: 2048, vocabulary: 'bpe', dModel: 128, headDim: 32 });
  for (const options of [{ contextLength: 700 }, { contextLength: 1024, kvType: 'f32', precision: 'fast' }, { contextLength: 512, kvType: 'q4_0' }]) {
    const { bytes, runs, fits, reason, contextLength } = await estimate(source, { ...options, threads: 1 });
    assert.deepEqual([runs, fits, reason, contextLength], [true, true, undefined, options.contextLength]);
    const model = await load(source, { ...options, threads: 1 });
    assert.equal(bytes.weights, model.info.bytes.weights);
    assert.equal(bytes.kvPerToken, model.info.bytes.kvPerToken);
    const tokens = Array.from({ length: options.contextLength - 1 }, (_, i) => i % 300);
    await model.generate(tokens, { maxTokens: 1 }).result();
    assert.ok(Math.abs(model.info.bytes.memory - bytes.total) < 65536, `${model.info.bytes.memory} for ${bytes.total}`);
    await model.close();
  }
  assert.equal((await estimate(source)).contextLength, 2048, "the file's own");
});

test('what is too large is told with the numbers', async () => {
  const large = makeModel({ nLayers: 80, dModel: 8192, nHeads: 64, nKvHeads: 8, dFf: 28672, type: 'Q8_0', headerOnly: true });
  const all = await estimate(large, { contextLength: 4096 });
  assert.deepEqual([all.runs, all.fits], [false, false]);
  assert.match(all.reason, new RegExp(`${all.bytes.total} bytes.*weights ${all.bytes.weights}.*addresses \\d+`));
  const limited = await estimate(makeModel({ headerOnly: true }), { memoryLimit: 1_000_000 });
  assert.deepEqual([limited.runs, limited.fits, limited.sessions], [true, false, 0]);
  assert.match(limited.reason, new RegExp(`${limited.bytes.total} bytes.*limit is 1000000`));
  const small = await estimate(makeModel({ headerOnly: true }), { kvType: 'q4_0' });
  assert.equal(small.bytes.kvPerToken, small.kv.q4_0.perToken);
  await assert.rejects(estimate(large, { kvType: 'q9' }), { name: 'RangeError', message: /q9.*f16, f32, q8_0, q4_0/ });
  await assert.rejects(estimate(large, { maxTokens: 5 }), TypeError);
  await assert.rejects(estimate(large.subarray(0, 100)), (error) => error instanceof ModelError && error.code === 'FORMAT');
  await assert.rejects(estimate(`${server.url}/404`), { code: 'NETWORK', message: /404/ });
});

test('from a URL the header alone is asked for, and a server without ranges is left', async () => {
  const local = await estimate(makeModel({ nVocab: 400, vocabulary: 'bpe' }));
  for (const way of ['range', 'ok', 'chunked', 'gzip']) {
    server.seen.length = 0;
    assert.deepEqual((await estimate(`${server.url}/${way}`)).bytes, local.bytes, way);
    assert.deepEqual(server.seen.map(({ headers }) => headers.range), ['bytes=0-1048575'], way);
  }
});

test('a header that lacks keys: arithmetic all the same, but info refuses the file', async () => {
  const header = headerOf('llama', { layers: 2, heads: 4, kvHeads: 2, headSize: 32 });
  const { runs, reason } = await estimate(header);
  assert.equal(runs, false);
  assert.match(reason, /llama\.feed_forward_length is missing/);
  await bad(['info', file('lacking.gguf', header)], 1, /llama\.feed_forward_length is missing/);
});

test('info tells the same', async () => {
  const model = makeModel({ nCtx: 4096 });
  const path = file('estimated.gguf', model);
  const facts = JSON.parse(await good(['info', path, '--json', '--context', '512', '--memory', '100000000']));
  const { kv, bytes, sessions, fits } = await estimate(model, { contextLength: 512, memoryLimit: 100e6, threads: 1 });
  assert.deepEqual(facts.kvTypes, kv);
  assert.deepEqual([facts.memory.total, facts.memory.sessions, facts.fits], [bytes.total, sessions, fits]);
  const palm = file('palm.gguf', headerOf('palm', { layers: 118, heads: 48, kvHeads: 1, headSize: 256 }));
  const told = JSON.parse(await good(['info', palm, '--json', '--kv', 'q4_0']));
  assert.deepEqual([told.kv.bytesPerToken, told.fits], [(120832 * 18) / 64, false]);
  assert.match(told.unsupported, /palm/);
});
