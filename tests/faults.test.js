/* Faults of networks, storage and processes while a model is stored: each ends in a model or in an error with a
 * code, and the next load is well. tests/source.test.js has the stalls, tests/cache-browsers.test.js the tabs. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { BLOCK_BYTES, listModels } from '../web/cache.js';
import { ModelError, load, models } from '../web/index.js';
import { sha256 } from './kit/fixtures.js';
import { makeModel } from './kit/make-model.js';
import { startFaultServer } from './kit/server.js';
import { smallStore, through } from './kit/small-store.js';

/** Some blocks long. */
const FILE = makeModel({ vocabulary: 'bpe', nVocab: 400, dModel: 512, nHeads: 8, dFf: 1024, nLayers: 2, type: 'Q8_0' });
const HALF = FILE.length >> 1;
const folder = mkdtempSync(join(tmpdir(), 'tabllama-'));
const copies = join(folder, 'tabllama', 'copies');
let server, expected;

const answer = async (model) => (await model.generate('to sit on', { temperature: 0, maxTokens: 4 }).result()).tokens;
async function loaded(source, options) {
  const model = await load(source, { threads: 1, cache: true, ...options });
  const [tokens, { info }] = [await answer(model), model];
  await model.close();
  return { tokens, info };
}
const files = (cache, end) => readdirSync(join(copies, cache)).filter((name) => name.endsWith(end));
const sizes = () => readdirSync(folder, { recursive: true }).filter((name) => name.endsWith('.part')).map((name) => statSync(join(folder, name)).size);

before(async () => {
  process.env.XDG_CACHE_HOME = folder;
  server = await startFaultServer(FILE);
  expected = (await loaded(FILE)).tokens;
});
beforeEach(() => rmSync(join(folder, 'tabllama'), { recursive: true, force: true }));
after(async () => {
  await server.close();
  rmSync(folder, { recursive: true });
});

/** What is there after a fault is well: the next load of the same address gives the model and keeps it. */
async function assertWell(url, cache = 'models') {
  server.heal(url);
  const { tokens, info } = await loaded(url, { cache });
  assert.deepEqual([tokens, info.cached, info.warnings], [expected, true, []], url);
  await assertKept(url, cache);
}

/** A whole copy, used without the network, and deleted without a trace. */
async function assertKept(url, cache) {
  const asked = () => server.seen.filter(({ path }) => url.endsWith(path)).length;
  const before = asked();
  assert.deepEqual((await loaded(url, { cache })).tokens, expected, url);
  assert.equal(asked(), before, `${url}: from the copy`);
  const [model, ...others] = await models({ cache });
  assert.deepEqual([others, model.url, model.bytes, model.complete], [[], url, model.bytes, true], url);
  assert.equal(await model.delete(), true, url);
  assert.deepEqual(files(cache, ''), [], url);
}

test('every fault of a server: a model or a code, and nothing that harms the next load', async () => {
  const hash = { sha256: sha256(FILE) };
  const good = ['redirect', 'busy/2', 'limited/2', `flaky/${HALF}`, 'pieces/99999',
    `no-range/${HALF}`, `changed/${HALF}`, `changed-length/${HALF}`, `shifted/${HALF}`, `gone/${HALF}`, 'weak/9999', 'bare/9999', 'longer/5', 'longer-chunked/5'];
  const bad = [['404', 'NETWORK'], ['503', 'NETWORK'], ['html', 'NETWORK'], ['loop', 'NETWORK'], ['drop', 'NETWORK'], ['partial', 'NETWORK'],
    ['secret', 'NETWORK'], ['limited/9', 'NETWORK'], ['cut/0', 'NETWORK'], ['cut/1', 'NETWORK'], [`cut/${HALF}`, 'NETWORK'],
    [`cut/${Math.floor(0.999 * FILE.length)}`, 'NETWORK'], [`short/${HALF}`, 'FORMAT'], [`ends/${HALF}`, 'FORMAT'], ['ends/0', 'FORMAT'], ['garbage', 'FORMAT'],
    [`zeros/${HALF}`, 'HASH', hash], [`flipped/${HALF}`, 'HASH', hash]]; // prettier-ignore
  const check = async ([way, code, options]) => {
    const [url, cache] = [`${server.url}/${way}`, way.replace('/', '-')]; // caches of their own: several at once
    const call = loaded(url, { cache, ...options });
    if (!code) {
      assert.deepEqual((await call).tokens, expected, way);
      return assertKept(url, cache);
    }
    await assert.rejects(call, (error) => (assert.deepEqual([error instanceof ModelError, error.code], [true, code], `${way}: ${error.stack}`), true));
    await assertWell(url, cache);
  };
  const all = [...good.map((way) => [way]), ...bad].values();
  await Promise.all(Array.from({ length: 6 }, async () => {
    for (const one of all) await check(one);
  })); // prettier-ignore
});

test('a worker that ends in the middle of a write: said at once, and its lock is gone', async () => {
  const url = `${server.url}/halts/${3 * BLOCK_BYTES + 1000}`;
  process.env.DIE_AT = String(2 * BLOCK_BYTES);
  const worker = fileURLToPath(new URL('kit/dying-worker.js', import.meta.url));
  await assert.rejects(loaded(url, { assets: { worker } }), { code: 'CRASHED', message: /code 7/ });
  const [begun, ...others] = await models();
  assert.deepEqual([others, begun.url, begun.complete, files('models', '.lock')], [[], url, false, []]);
  await assertWell(url);
});

test('a process that is killed in the middle of a write: what it left is known, and its lock counts for nothing', async () => {
  const url = `${server.url}/halts/${3 * BLOCK_BYTES}`;
  const code = `import { load } from ${JSON.stringify(new URL('../web/index.js', import.meta.url).href)};
    await load(${JSON.stringify(url)}, { threads: 1, cache: true });`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', code], { stdio: 'inherit' });
  const ended = new Promise((resolve) => child.once('exit', (_, signal) => resolve(signal)));
  while (!(sizes()[0] >= 2 * BLOCK_BYTES)) await new Promise((resolve) => setTimeout(resolve, 5));
  child.kill('SIGKILL');
  assert.equal(await ended, 'SIGKILL');
  assert.equal(files('models', '.lock').length, 1);
  const [begun, ...others] = await models();
  assert.deepEqual([others, begun.url, begun.complete], [[], url, false]);
  await assertWell(url);
});

test('one that broke off and was damaged since begins again', async () => {
  const url = `${server.url}/flaky/${3 * BLOCK_BYTES}`;
  const controller = new AbortController();
  const stop = ({ loaded }) => loaded >= 3 * BLOCK_BYTES && controller.abort();
  await assert.rejects(loaded(url, { signal: controller.signal, onProgress: stop }), { name: 'AbortError' });
  const [name] = files('models', '.part');
  const bytes = readFileSync(join(copies, 'models', name));
  bytes[BLOCK_BYTES + 5] ^= 1;
  writeFileSync(join(copies, 'models', name), bytes);
  await assertWell(url);
  const deadline = performance.now() + 5000;
  while (server.open() > 0 && performance.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 10));
  assert.equal(server.open(), 0, 'no connection is left');
});

test('killed at any step of storing: the next load gives the same bytes, and keeps them', async () => {
  const bytes = new Uint8Array(17.5 * BLOCK_BYTES).map((_, i) => i * 7);
  for (let step = 0, died = true; died; step++) {
    const store = smallStore(1e12);
    died = await Promise.race([
      through(store.dyingAfter(step), 'a', bytes).then(() => false),
      store.death.then(() => true),
    ]);
    const notes = await listModels(store);
    const left = [...store.files.keys()];
    assert.ok(notes.length === 1 || !left.some((name) => /part$|gguf$/.test(name)), `${step}: ${left} are listed`);
    const report = await through(store, 'a', bytes);
    assert.deepEqual([report.kept, report.warnings], [1, []], `${step}: ${left}`);
    const ends = [...store.files.keys()].map((name) => name.slice(name.indexOf('.') + 1));
    assert.deepEqual(ends.filter((end) => end !== 'used').sort(), ['gguf', 'json'], `${step}: ${left}`);
  }
});
