/* web/source.js: every kind of source, every fault of a server, and how many bytes JS holds meanwhile. */
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Worker } from 'node:worker_threads';
import { createLoader, readHeader } from '../web/engine.js';
import { ModelError } from '../web/errors.js';
import { load } from '../web/index.js';
import { CHUNK_BYTES, describe } from '../web/describe.js';
import { openOrigin, progress, withSource } from '../web/source.js';
import { makeModel } from './kit/make-model.js';
import { startFaultServer } from './kit/server.js';
import { partName, split } from './kit/split-model.js';

const FILE = Uint8Array.from({ length: 300_000 }, (_, i) => (i * 2654435761) >>> 11);
const STALL_MS = 250;
const RETRY_MS = 1;
const never = new AbortController().signal;

const folder = mkdtempSync(join(tmpdir(), 'tabllama-'));
const path = join(folder, 'model file%20.gguf');
let server;
before(async () => {
  writeFileSync(path, FILE);
  server = await startFaultServer(FILE);
});
after(async () => {
  await server.close();
  rmSync(folder, { recursive: true });
});

async function open(source, { headers, signal = never, ...options } = {}) {
  const { origin, reader } = describe(source, { headers });
  const posted = structuredClone(origin); // as it crosses to the worker
  return openOrigin(posted, { signal, read: reader.read, stallMs: STALL_MS, retryMs: RETRY_MS, ...options });
}

/** All bytes of a source, begun again where it wants that. */
function readWhole(source, options) {
  const { origin, reader } = describe(source);
  return withSource(origin, { signal: never, read: reader.read, stallMs: STALL_MS, retryMs: RETRY_MS, ...options }, read);
}

async function read({ chunks }) {
  const parts = [];
  for await (const chunk of chunks) {
    assert.ok(chunk.length > 0 && chunk.length <= CHUNK_BYTES);
    parts.push(chunk.slice());
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

/** A stream of pieces of the given length. */
function streamOf(bytes, length, { type } = {}) {
  let at = 0;
  return new ReadableStream({
    type,
    pull(controller) {
      if (at < bytes.length) controller.enqueue(bytes.slice(at, (at += length)));
      else controller.close();
    },
  });
}

test('every kind of source gives the file, its length where it is known, and a name', async () => {
  const shared = new Uint8Array(new SharedArrayBuffer(FILE.length + 8), 8);
  shared.set(FILE);
  const table = [
    ['path', path, true],
    ['relative path', relative(process.cwd(), path), true],
    ['file URL', pathToFileURL(path), true],
    ['file URL as text', pathToFileURL(path).href, true],
    ['URL', new URL(`${server.url}/ok`), true],
    ['URL as text', `${server.url}/ok`, true],
    ['identity encoding', `${server.url}/identity`, true],
    ['redirect', `${server.url}/redirect`, true],
    ['compressed', `${server.url}/gzip`, false],
    ['no length', `${server.url}/chunked`, false],
    ['data URL', `data:application/octet-stream;base64,${Buffer.from(FILE).toString('base64')}`, undefined],
    ['Blob', new Blob([FILE]), true],
    ['File', new File([FILE], 'a.gguf'), true],
    ['ArrayBuffer', FILE.buffer, true],
    ['view', new DataView(FILE.buffer), true],
    ['shared bytes', shared, true],
    ['stream', streamOf(FILE, 10_000), false],
    ['stream of one large piece', streamOf(FILE, FILE.length), false],
    ['byte stream', streamOf(FILE, 999, { type: 'bytes' }), false],
  ];
  for (const [name, source, known] of table) {
    const opened = await open(source);
    if (known !== undefined) assert.equal(opened.total, known ? FILE.length : undefined, name);
    assert.ok(opened.name.length > 0, name);
    assert.deepEqual(await read(opened), FILE, name);
  }
  assert.equal(FILE.length, 300_000, 'bytes that were given are still there');
});

test('pieces larger than a chunk are cut', async () => {
  const large = new Uint8Array(2.5 * CHUNK_BYTES).fill(7);
  for (const source of [large, new Blob([large]), streamOf(large, large.length)]) {
    const lengths = [];
    for await (const chunk of (await open(source)).chunks) lengths.push(chunk.length);
    assert.deepEqual(lengths, [CHUNK_BYTES, CHUNK_BYTES, CHUNK_BYTES / 2]);
  }
});

test('what is no source is a TypeError at once', () => {
  for (const source of [undefined, null, 5, {}, [], '', Promise.resolve(), new Response('x')]) {
    assert.throws(() => describe(source), TypeError, String(source));
  }
  for (const source of ['http://', 'http://[1', 'hf:a/b/c.gguf']) {
    assert.throws(() => describe(source, source.startsWith('hf') ? { hub: 'nowhere' } : {}), { name: 'TypeError', message: /is not a URL/ });
  }
  const locked = streamOf(FILE, 10);
  locked.getReader();
  assert.throws(() => describe(locked), TypeError);
  assert.throws(() => describe(path, { headers: { 'x-key': 'open' } }), TypeError);
  assert.throws(() => describe(FILE, { headers: {} }), TypeError);
});

test('a drive letter is no scheme', () => {
  assert.equal(describe('C:\\models\\a.gguf').origin.kind, 'path');
  assert.equal(describe('c:/models/a.gguf').origin.kind, 'path');
  assert.equal(describe('https://example.com/a.gguf').origin.kind, 'url');
});

test('headers are sent, and only those', async () => {
  await assert.rejects(open(`${server.url}/secret`), { code: 'NETWORK', message: /403/ });
  assert.deepEqual(await read(await open(`${server.url}/secret`, { headers: { 'X-Key': 'open' } })), FILE);
  assert.deepEqual(await read(await open(`${server.url}/secret`, { headers: new Headers([['x-key', 'open']]) })), FILE);
});

test('every fault is an error of its own kind that names the address and the numbers', async () => {
  const unused = createServer();
  await new Promise((resolve) => unused.listen(0, '127.0.0.1', resolve));
  const { port } = unused.address();
  await new Promise((resolve) => unused.close(resolve));
  const n = FILE.length;
  const table = [
    ['/404', /answers 404/],
    ['/503', /answers 503/],
    ['/html', /web page/],
    ['/partial', /206/],
    ['/drop', /cannot be reached/],
    ['/loop', /cannot be reached.*redirect/],
    ['/silent', /does not answer \(waited 0\.25 seconds\)/],
    ['/cut/0', new RegExp(`broke after 0 of ${n} bytes|cannot be reached`)],
    ['/cut/1', new RegExp(`broke after [01] of ${n} bytes`)],
    ['/cut/150000', new RegExp(`broke after \\d+ of ${n} bytes`)],
    ['/cut/299999', new RegExp(`broke after \\d+ of ${n} bytes`)],
    ['/stall/0', /(nothing more after 0 of|does not answer)/],
    ['/stall/150000', new RegExp(`nothing more after 150000 of ${n} bytes \\(waited 0\\.25 seconds\\)`)],
    [`/longer/5`, undefined],
  ];
  for (const [fault, sentence] of table) {
    const url = server.url + fault;
    if (!sentence) {
      assert.equal((await read(await open(url))).length, n + 5);
      continue;
    }
    await assert.rejects(readWhole(url), (error) => {
      assert.ok(error instanceof ModelError, `${fault}: ${error.stack}`);
      assert.equal(error.code, 'NETWORK', fault);
      assert.ok(error.message.includes(url), error.message);
      assert.match(error.message, sentence);
      return true;
    });
  }
  const refused = `http://127.0.0.1:${port}/`;
  await assert.rejects(open(refused), { code: 'NETWORK', message: /cannot be reached/ });
  await assert.rejects(open('nonsense://x/y'), { code: 'NETWORK' });
  await assert.rejects(open(join(folder, 'absent.gguf')), { code: 'FILE', message: /absent\.gguf: there is no such file/ });
  await assert.rejects(open(folder), { code: 'FILE', message: /folder/ });
  const failing = new ReadableStream({ pull: (controller) => controller.error(new Error('pulled out')) });
  await assert.rejects(async () => read(await open(failing)), { code: 'FILE', message: /broke off: pulled out/ });
  await assert.rejects(async () => read(await open(streamOf('text', 2))), TypeError);
});

test('what breaks off goes on where it ended, or begins again, and comes out whole', async () => {
  const half = FILE.length / 2;
  const table = [
    ['range', 1],
    ['busy/2', 3],
    ['flaky/70000', 5],
    ['pauses/150000', 2],
    [`no-range/${half}`, 2],
    ['weak/1000', 2],
    ['bare/1000', 2],
    [`changed/${half}`, 3],
    [`changed-length/${half}`, 3],
    [`shifted/${half}`, 3],
    [`gone/${half}`, 3],
  ];
  for (const [fault, requests] of table) {
    server.seen.length = 0;
    assert.deepEqual(await readWhole(`${server.url}/${fault}`), FILE, fault);
    assert.equal(server.seen.length, requests, fault);
  }
  server.seen.length = 0;
  await readWhole(`${server.url}/flaky/100000`);
  assert.deepEqual(server.seen.map(({ headers }) => [headers.range, headers['if-range']]), [
    [undefined, undefined],
    ['bytes=100000-', '"one"'],
    ['bytes=200000-', '"one"'],
  ]);
});

test('a server that never gets further is given up, with the number of attempts', async () => {
  await assert.rejects(readWhole(`${server.url}/busy/9`), { code: 'NETWORK', message: /busy\/9 answers 503.*\(tried 4 times\)/ });
  await assert.rejects(readWhole(`${server.url}/flaky/1000`), { code: 'NETWORK', message: /after 7000 of 300000 bytes.*\(tried 7 times\)/ });
  await assert.rejects(readWhole(`${server.url}/cut/1000`), { code: 'NETWORK', message: /ETag.*\(begun 4 times\)/ });
});

test('attempts are further and further apart, and an abort ends the waiting', async () => {
  server.seen.length = 0;
  const started = performance.now();
  await assert.rejects(readWhole(`${server.url}/503`, { retryMs: 40 }), { code: 'NETWORK' });
  assert.ok(performance.now() - started >= 0.5 * 40 * (1 + 2 + 4), 'half of each pause at least');
  assert.equal(server.seen.length, 4);
  const controller = new AbortController();
  const reason = new Error('enough');
  setTimeout(() => controller.abort(reason), 50);
  const waiting = readWhole(`${server.url}/503`, { retryMs: 60_000, signal: controller.signal });
  await assert.rejects(waiting, (error) => error === reason);
});

test('a header is asked for in parts, and what follows it is not', async () => {
  const large = new Uint8Array(3.5 * CHUNK_BYTES).fill(9);
  const other = await startFaultServer(large);
  try {
    const opened = await open(`${other.url}/range`, { header: true });
    assert.deepEqual([opened.total, opened.exact], [large.length, true]);
    for await (const chunk of opened.chunks) {
      assert.ok(chunk.length > 0);
      if (other.seen.length === 2) break;
    }
    assert.deepEqual(other.seen.map(({ headers }) => headers.range), ['bytes=0-1048575', 'bytes=1048576-2097151']);
    for (const way of ['range', 'pieces/500000', 'ok', 'hidden']) {
      assert.equal((await read(await open(`${other.url}/${way}`, { header: true }))).length, large.length, way);
    }
  } finally {
    await other.close();
  }
});

test('sha256: the file it belongs to, or an error with both; a begun file is hashed from its start', async () => {
  const sha256 = createHash('sha256').update(FILE).digest('hex');
  for (const source of [path, FILE, new Blob([FILE]), streamOf(FILE, 999), `${server.url}/ok`, `${server.url}/flaky/80000`,
    `${server.url}/changed/1000`]) {
    assert.deepEqual(await readWhole(source, { sha256: sha256.toUpperCase() }), FILE);
  }
  const wrong = sha256.replace(/^./, (digit) => (digit === '0' ? '1' : '0'));
  for (const source of [path, FILE, `${server.url}/ok`]) {
    await assert.rejects(readWhole(source, { sha256: wrong }), { code: 'HASH', message: new RegExp(`${sha256}.*300000 bytes.*${wrong}`) });
  }
});

test('an abort at any time rejects with its reason and closes the connection', async () => {
  const reason = new Error('enough');
  for (const fault of ['/silent', '/stall/0', '/stall/1000', '/ok']) {
    const controller = new AbortController();
    const call = (async () => {
      const opened = await open(server.url + fault, { signal: controller.signal });
      if (fault === '/ok') controller.abort(reason);
      return read(opened);
    })();
    setTimeout(() => controller.abort(reason), 50);
    await assert.rejects(call, (error) => error === reason, fault);
  }
  for (const source of [path, FILE, streamOf(FILE, 1000), `${server.url}/ok`]) {
    await assert.rejects(open(source, { signal: AbortSignal.abort(reason) }), (error) => error === reason);
    const controller = new AbortController();
    const opened = await open(source instanceof ReadableStream ? streamOf(FILE, 1000) : source, { signal: controller.signal });
    controller.abort(reason);
    await assert.rejects(read(opened), (error) => error === reason);
  }
});

test('leaving the loop closes the source, and so does never beginning it', async () => {
  const leave = async ({ chunks }) => {
    for await (const chunk of chunks) return assert.ok(chunk.length > 0);
  };
  for (const end of [leave, ({ chunks }) => chunks.return()]) {
    const opened = await open(`${server.url}/stall/100000`);
    assert.equal(server.open(), 1);
    await end(opened);
    const deadline = performance.now() + 2000;
    while (server.open() > 0 && performance.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 10));
    assert.equal(server.open(), 0);
  }
});

test('a pipe is read to its end, and left without waiting for its writer', { timeout: 10_000 }, async (t) => {
  if (process.platform === 'win32') return t.skip('skipped: Windows has no named pipes in folders');
  const fifo = join(folder, 'fifo');
  execFileSync('mkfifo', [fifo]);
  const write = (then) => spawn('sh', ['-c', `exec 3>"$1"; cat "$2" >&3; ${then}`, 'sh', fifo, path], { stdio: 'ignore' });
  const writer = write('exit');
  assert.deepEqual(await read(await open(fifo)), FILE);
  assert.equal(writer.exitCode ?? (await once(writer, 'exit'))[0], 0);
  const waiting = write('exec sleep 60');
  try {
    for await (const chunk of (await open(fifo)).chunks) if (chunk.length > 0) break;
    assert.equal(waiting.exitCode, null);
  } finally {
    waiting.kill();
  }
});

test('progress: a first and a last call, ten a second at most, never beyond the total', () => {
  let time = 0;
  const run = (total, pieces, msEach) => {
    const calls = [];
    const meter = progress((p) => calls.push({ ...p, time }), total, () => time);
    for (const bytes of pieces) {
      time += msEach;
      meter.add(bytes);
    }
    meter.end();
    return calls;
  };
  const calls = run(1000, Array(100).fill(10), 7);
  assert.deepEqual([calls[0].loaded, calls.at(-1).loaded], [0, 1000]);
  assert.ok(calls.length <= 2 + 7 && calls.length >= 7, String(calls.length));
  calls.slice(1, -1).forEach((call, i) => assert.ok(call.time - calls[i].time >= 100 && call.loaded >= calls[i].loaded));
  assert.deepEqual(run(undefined, [5, 5], 200).map(({ loaded }) => loaded), [0, 5, 10, 10]);
  assert.ok(run(undefined, [5], 1).every((call) => !('total' in call)));
  for (const { loaded, total } of run(8, [5, 5, 5], 200)) assert.ok(total === undefined || loaded <= total);
  assert.deepEqual(run(100, [90], 1).map(({ loaded }) => loaded), [0, 100], 'what need not be read counts as loaded');
});

/* ---- memory ---- */

const MIB = 2 ** 20;

/** A server of the folder's files in a thread of its own, so that its buffers are not ours. */
async function startFileServer() {
  const code = `
    const { createReadStream, statSync } = require('node:fs');
    const { parentPort, workerData } = require('node:worker_threads');
    const server = require('node:http').createServer((request, response) => {
      response.writeHead(200, { 'content-length': statSync(workerData + request.url).size });
      createReadStream(workerData + request.url).pipe(response);
    });
    server.listen(0, '127.0.0.1', () => parentPort.postMessage(server.address().port));`;
  const worker = new Worker(code, { eval: true, workerData: folder });
  const port = await new Promise((resolve) => worker.once('message', resolve));
  return { url: `http://127.0.0.1:${port}/`, close: () => worker.terminate() };
}

setFlagsFromString('--expose-gc');
const gc = runInNewContext('gc');
/** The second collection waits for the buffers that the first one frees; wasm's memory is not counted. */
const held = () => (gc(), gc(), process.memoryUsage().arrayBuffers);

/** A model of some 20 MiB, most of it zeros: whole and in parts, on the disk. */
async function writeLarge() {
  const header = makeModel({ headerOnly: true, dModel: 512, dFf: 2048, nHeads: 8, nLayers: 2, nVocab: 400, vocabulary: 'bpe' });
  const { fileBytes } = (await readHeader(header)).bind();
  assert.ok(fileBytes > 16 * MIB);
  const [whole, count] = ['large.gguf', 6];
  writeFileSync(join(folder, whole), header);
  truncateSync(join(folder, whole), fileBytes);
  const bytes = new Uint8Array(readFileSync(join(folder, whole)));
  split(bytes, count).forEach((part, i) => writeFileSync(join(folder, partName('large', i, count)), part));
  return { whole, part: partName('large', 0, count), bytes };
}

/** Most bytes that JS holds while a source becomes an engine. */
async function mostHeld(source, options) {
  const base = held();
  const opened = [];
  const { chunks, total } = await open(source, { ...options, opened });
  let [most, at] = [0, 0];
  const loader = await createLoader({ threads: 1 });
  for await (const chunk of chunks) {
    if (Math.floor(at / (3 * MIB)) !== Math.floor((at += chunk.length) / (3 * MIB))) most = Math.max(most, held() - base);
    const taken = loader.push(chunk);
    if (loader.state !== 'ready') continue;
    await loader.allocate();
    loader.push(chunk.subarray(taken));
  }
  await loader.finish().close();
  for (const one of opened) await one.keep?.();
  for (const one of opened) await one.release?.();
  assert.ok(at > 16 * MIB && (total === undefined || at === total), `${at} of ${total}`);
  return most;
}

test('JS holds less than 4 MiB of a model on its way into the engine, whole or split, also into a copy and from it', async (t) => {
  const { whole, part, bytes } = await writeLarge();
  const fileServer = await startFileServer();
  t.after(() => fileServer.close());
  process.env.XDG_CACHE_HOME = folder;
  const newLoader = () => createLoader({ threads: 1 });
  const cached = { cache: 'meter', report: { files: 0, kept: 0, warnings: [] }, newLoader };
  const [url, splitUrl] = [whole, part].map((name) => fileServer.url + name);
  const ways = {
    path: [join(folder, whole)],
    URL: [url],
    Blob: [new Blob([bytes])],
    bytes: [bytes],
    stream: [streamOf(bytes, 65536)],
    'split path': [join(folder, part), { newLoader }],
    'split URL': [splitUrl, { newLoader }],
    stored: [url, cached],
    copy: [url, cached],
    'split, stored': [splitUrl, cached],
    'split copy': [splitUrl, cached],
  };
  for (const [name, [source, options]] of Object.entries(ways)) {
    const most = await mostHeld(source, options);
    assert.ok(most <= 4 * MIB, `${name}: ${(most / MIB).toFixed(1)} MiB`);
    t.diagnostic(`${name}: ${(most / MIB).toFixed(1)} MiB`);
  }
  assert.deepEqual(cached.report, { files: 14, kept: 14, warnings: [] });
});

test('the page holds less than 4 MiB of what it reads for the worker', async () => {
  const { bytes } = await writeLarge();
  for (const source of [new Blob([bytes]), bytes, streamOf(bytes, 65536)]) {
    const base = held();
    let most = 0;
    const onProgress = () => (most = Math.max(most, held() - base));
    const timer = setInterval(onProgress, 10);
    const model = await load(source, { threads: 1, onProgress });
    clearInterval(timer);
    await model.close();
    assert.ok(most <= 4 * MIB, `page: ${(most / MIB).toFixed(1)} MiB`);
  }
});
