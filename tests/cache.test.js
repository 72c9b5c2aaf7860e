/* web/cache.js: copies of downloads, in Node's store through the public API, and in one that runs full. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach, test } from 'node:test';
import { BLOCK_BYTES, listModels } from '../web/cache.js';
import { openThrough } from '../web/copy.js';
import { estimate, load, models, persist } from '../web/index.js';
import { good } from './kit/command-line.js';
import { sha256 } from './kit/fixtures.js';
import { makeModel } from './kit/make-model.js';
import { startFaultServer } from './kit/server.js';
import { smallStore, through } from './kit/small-store.js';
import { partName, split } from './kit/split-model.js';

/** Some blocks long. */
const FILE = makeModel({ vocabulary: 'bpe', nVocab: 400, dModel: 512, nHeads: 8, dFf: 1024, nLayers: 2, type: 'Q8_0' });
const PARTS = split(FILE, 2);
const folder = mkdtempSync(join(tmpdir(), 'tabllama-'));
const stored = join(folder, 'tabllama', 'copies', 'models');
let server, expected;

const answer = async (model) => (await model.generate('to sit on', { temperature: 0, maxTokens: 4 }).result()).tokens;
/** Loads, says what it is like, and closes. */
async function loaded(source, options) {
  const model = await load(source, { threads: 1, cache: true, ...options });
  assert.deepEqual(await answer(model), expected);
  await model.close();
  return model.info;
}
const requests = () => server.seen.splice(0).map(({ headers }) => headers.range);

before(async () => {
  assert.ok(FILE.length > 3.5 * BLOCK_BYTES, String(FILE.length));
  process.env.XDG_CACHE_HOME = folder;
  server = await startFaultServer(FILE, Object.fromEntries(PARTS.map((bytes, i) => [partName('m', i, 2), bytes])));
  const model = await load(FILE, { threads: 1 });
  expected = await answer(model);
  await model.close();
});
beforeEach(async () => {
  rmSync(join(folder, 'tabllama'), { recursive: true, force: true });
  requests();
});
after(async () => {
  await server.close();
  rmSync(folder, { recursive: true });
});

test('a copy is kept and used without the network, listed and deleted', async () => {
  const url = `${server.url}/range`;
  assert.equal((await loaded(url, { cache: false })).cached, false);
  assert.deepEqual(await models(), []);
  requests();
  assert.deepEqual([(await loaded(url)).cached, requests()], [true, [undefined]]);
  const info = await loaded(url, { sha256: sha256(FILE) });
  assert.deepEqual([info.cached, info.warnings, requests()], [true, [], []]);
  assert.equal((await estimate(url, { cache: true })).bytes.file, info.bytes.file);
  assert.deepEqual(requests(), []);
  const [model, ...others] = await models();
  assert.deepEqual([others, model.url, model.bytes, model.complete], [[], url, FILE.length, true]);
  assert.ok(Date.now() - model.used < 60_000);
  assert.deepEqual(await models({ cache: 'other' }), []);
  assert.equal(await model.delete(), true);
  assert.deepEqual([await models(), readdirSync(stored)], [[], []]);
  await loaded(url);
  assert.deepEqual(requests(), [undefined]);
  assert.equal(await persist(), true);
});

test('without a length, compressed, split, and on the command line', async () => {
  for (const way of ['chunked', 'gzip', `range/${partName('m', 0, 2)}`]) {
    assert.equal((await loaded(`${server.url}/${way}`)).cached, true, way);
    requests();
    assert.deepEqual([(await loaded(`${server.url}/${way}`)).cached, requests()], [true, []], way);
  }
  const args = ['run', `${server.url}/range`, '--prompt', 'to sit on', '--max-tokens', '2', '--temperature', '0', '--cache'];
  assert.equal(await good(args), await good(args));
  assert.deepEqual(requests(), [undefined]);
});

test('one that broke off goes on where it ended, if the file is the same', async () => {
  const url = `${server.url}/pauses/3500000`;
  const controller = new AbortController();
  const call = load(url, { threads: 1, cache: true, signal: controller.signal });
  const written = () => readdirSync(folder, { recursive: true }).filter((name) => name.endsWith('.part')).map((name) => statSync(join(folder, name)).size);
  while (written()[0] !== 3 * BLOCK_BYTES) await new Promise((resolve) => setTimeout(resolve, 10));
  controller.abort(new Error('enough'));
  await assert.rejects(call, /enough/);
  const [begun] = await models();
  assert.deepEqual([begun.complete, begun.bytes], [false, 3 * BLOCK_BYTES]);
  requests();
  assert.equal((await loaded(url, { sha256: sha256(FILE) })).cached, true);
  assert.deepEqual(requests(), [`bytes=${3 * BLOCK_BYTES}-`]);
  assert.deepEqual((await models()).map(({ bytes, complete }) => [bytes, complete]), [[FILE.length, true]]);
  await loaded(`${server.url}/changed/3000000`);
  assert.equal((await models()).length, 2);
});

test('a damaged copy, a cut one, a broken note: the network again', async () => {
  const url = `${server.url}/range`;
  const damages = [
    (name) => {
      const bytes = readFileSync(name('gguf'));
      bytes[2_000_000] ^= 1;
      writeFileSync(name('gguf'), bytes);
    },
    (name) => truncateSync(name('gguf'), 1_500_000),
    (name) => rmSync(name('gguf')),
    (name) => writeFileSync(name('json'), '{"url": "http'),
    (name) => writeFileSync(name('json'), readFileSync(name('json'), 'utf8').replace('"hashes":["', '"hashes":["x","')),
    (name) => rmSync(name('json')),
  ];
  for (const damage of damages) {
    await loaded(url);
    const key = readdirSync(stored)[0].split('.')[0];
    damage((end) => join(stored, `${key}.${end}`));
    requests();
    assert.equal((await loaded(url)).cached, true, String(damage));
    assert.deepEqual(requests(), [undefined]);
    assert.equal((await loaded(url)).cached, true);
    assert.deepEqual(requests(), []);
  }
});

test('what is no model, or not the one that was meant, is never kept', async () => {
  for (const [way, options, code] of [['ends/3000000', {}, 'FORMAT'], ['garbage', {}, 'FORMAT'], ['html', {}, 'NETWORK'],
    ['404', {}, 'NETWORK'], ['cut/3000000', {}, 'NETWORK'], ['ok', { sha256: '0'.repeat(64) }, 'HASH']]) {
    await assert.rejects(load(`${server.url}/${way}`, { threads: 1, cache: true, ...options }), { code }, way);
    assert.deepEqual(await models(), [], way);
  }
  await assert.rejects(load(`${server.url}/range`, { threads: 1, cache: true, sha256: '0'.repeat(64) }), { code: 'HASH' });
  assert.equal((await loaded(`${server.url}/range`)).cached, true, 'and the next load is well');
});

test('two at once: both run, one of them keeps it', async () => {
  const both = await Promise.all([loaded(`${server.url}/range`), loaded(`${server.url}/range`)]);
  assert.ok(both.some(({ cached }) => cached));
  for (const { cached, warnings } of both) if (!cached) assert.match(warnings.join(), /being stored elsewhere/);
  requests();
  assert.deepEqual([(await loaded(`${server.url}/range`)).cached, requests()], [true, []]);
});

test('the lock of a process that is gone does not count, that of another does', async () => {
  await loaded(`${server.url}/range`);
  const key = readdirSync(stored)[0].split('.')[0];
  const [model] = await models();
  await model.delete();
  writeFileSync(join(stored, `${key}.lock`), String(process.ppid));
  const info = await loaded(`${server.url}/range`);
  assert.deepEqual([info.cached, /being stored elsewhere/.test(info.warnings.join())], [false, true]);
  const gone = execFileSync(process.execPath, ['-e', 'process.stdout.write(String(process.pid))'], { encoding: 'utf8' });
  writeFileSync(join(stored, `${key}.lock`), gone);
  assert.equal((await loaded(`${server.url}/range`)).cached, true);
});

test('where there is no place for a copy the model runs all the same, and says so', async () => {
  const file = join(folder, 'a-file');
  writeFileSync(file, '');
  process.env.XDG_CACHE_HOME = file;
  try {
    const { cached, warnings } = await loaded(`${server.url}/ok`);
    assert.equal(cached, false);
    assert.match(warnings.join(), /not stored/);
  } finally {
    process.env.XDG_CACHE_HOME = folder;
  }
  assert.equal((await loaded(FILE)).cached, false, 'bytes need no copy');
});

/* ---- a store that runs full ---- */

test('where storage runs out the longest unused copies make room; what does not fit is not stored', async () => {
  const bytes = new Uint8Array(2.5 * BLOCK_BYTES).map((_, i) => i * 7);
  const store = smallStore(2.2 * bytes.length);
  const urls = async () => (await listModels(store)).map(({ url }) => url);
  for (const url of ['a', 'b']) assert.equal((await through(store, url, bytes)).kept, 1);
  await new Promise((resolve) => setTimeout(resolve, 5));
  assert.equal((await through(store, 'a', bytes)).kept, 1, 'used once more');
  assert.equal((await through(store, 'c', bytes)).kept, 1);
  assert.deepEqual(await urls(), ['a', 'c']);
  const large = await through(store, 'd', new Uint8Array(3 * bytes.length));
  assert.equal(large.kept, 0);
  assert.match(large.warnings.join(), /not stored.*bytes are used/);
  const lying = smallStore(1.5 * bytes.length, 1e12);
  assert.equal((await through(lying, 'a', bytes)).kept, 1);
  const refused = await through(lying, 'b', bytes);
  assert.equal(refused.kept, 0);
  assert.match(refused.warnings.join(), /quota is exceeded/);
  assert.deepEqual([...lying.files.keys()].filter((name) => /part|new/.test(name)), [], 'nothing half is left');
  assert.equal((await through(lying, 'a', bytes)).kept, 1, 'the copy that was there is still there');
});

test('only damage drops a copy: not a file that could not be opened, nor one that could not be closed', async () => {
  const bytes = new Uint8Array(2.5 * BLOCK_BYTES).map((_, i) => i * 7);
  const store = smallStore(1e9);
  await through(store, 'a', bytes);
  const kept = [...store.files.keys()];
  const ofTheCopy = (open) => ({ ...store, open: (name) => (name.endsWith('.gguf') ? open(name) : store.open(name)) });
  const busy = ofTheCopy(() => Promise.reject(new Error('EMFILE')));
  await assert.rejects(through(busy, 'a', bytes), /EMFILE/);
  const stuck = ofTheCopy(async (name) => {
    const chunks = await store.open(name);
    return (async function* () {
      try {
        yield* chunks;
      } finally {
        throw new Error('EIO');
      }
    })();
  });
  const source = await openThrough(stuck, 'a', { header: true, report: { files: 0, kept: 0, warnings: [] }, verify: (s) => s });
  await assert.rejects(async () => {
    for await (const chunk of source.chunks) if (chunk.length) break;
  }, /EIO/);
  assert.deepEqual([...store.files.keys()], kept);
  assert.equal((await through(store, 'a', bytes)).kept, 1);
});
