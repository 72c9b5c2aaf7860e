/* web/split.js, the model hub and handles of files: where a model comes from when it is not one address. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { createEngine, readHeader } from '../web/engine.js';
import { ModelError, estimate, load } from '../web/index.js';
import { describe, filesOf } from '../web/describe.js';
import { bad, good } from './kit/command-line.js';
import { FIXTURES, absent, fixture, sha256 } from './kit/fixtures.js';
import { makeModel } from './kit/make-model.js';
import { readGguf } from './kit/read-gguf.js';
import { startFaultServer } from './kit/server.js';
import { partName, split } from './kit/split-model.js';

const FILE = makeModel({ vocabulary: 'bpe', nVocab: 400, nLayers: 3, type: 'Q8_0', alignment: 64 });
const COUNT = 3;
const name = (i, count = COUNT) => partName('model', i, count);

const parts = split(FILE, COUNT);
const files = parts.map((bytes, i) => new File([bytes], name(i)));
const folder = mkdtempSync(join(tmpdir(), 'tabllama-'));
const first = join(folder, name(0));
let server;
before(async () => {
  parts.forEach((bytes, i) => writeFileSync(join(folder, name(i)), bytes));
  server = await startFaultServer(FILE, Object.fromEntries(parts.map((bytes, i) => [name(i), bytes])));
});
after(async () => {
  await server.close();
  rmSync(folder, { recursive: true });
});

async function logitsOf(source) {
  const engine = await createEngine(source, { threads: 1 });
  engine.eval({ tokens: [1, 2, 300], seq: engine.seq() });
  const logits = engine.logits();
  await engine.close();
  return logits;
}

test('a split model is the model that was split, from wherever its parts come', async () => {
  const expected = await logitsOf(FILE);
  const sources = [
    first,
    `${server.url}/range/${name(0)}`,
    `${server.url}/ok/${name(0)}?signature=a-00001-of-00003.gguf`,
    `${server.url}/chunked/${name(0)}`,
    `${server.url}/flaky/20000/${name(0)}`,
    `${server.url}/changed/20000/${name(0)}`,
    files,
    [...files].reverse(),
  ];
  for (const source of sources) assert.deepEqual(await logitsOf(source), expected, String(source));
  for (const count of [2, 5]) {
    const others = split(FILE, count).map((bytes, i) => new File([bytes], name(i, count)));
    assert.deepEqual(await logitsOf(others), expected, `${count} parts`);
  }
});

test('its header is that of all parts, and only the headers are asked for', async () => {
  const expected = await readHeader(FILE);
  server.seen.length = 0;
  const loader = await readHeader(`${server.url}/range/${name(0)}`);
  assert.deepEqual(loader.tensors().map(({ name, dims, type }) => ({ name, dims, type })), expected.tensors().map(({ name, dims, type }) => ({ name, dims, type })));
  for (const key of expected.keys()) assert.deepEqual(loader.meta(key), expected.meta(key), key);
  assert.deepEqual(server.seen.map(({ headers }) => headers.range), Array(COUNT).fill('bytes=0-1048575'));
});

test('the public API takes it too', async () => {
  const expected = await estimate(FILE, { threads: 1 });
  const calls = [];
  for (const source of [first, files, files.map(handleOf)]) {
    assert.deepEqual((await estimate(source, { threads: 1 })).bytes.total, expected.bytes.total);
    const model = await load(source, { threads: 1, onProgress: (progress) => calls.push(progress) });
    assert.equal((await model.generate('to sit on', { temperature: 0, maxTokens: 3 }).result()).tokens.length, 3);
    await model.close();
  }
  assert.ok(calls.every(({ loaded, total }) => loaded <= total));
  assert.equal(calls.at(-1).loaded, calls.at(-1).total);
});

test('parts that are missing, mixed up or cut short are said by name', async () => {
  const table = [
    [[files[0], files[2]], TypeError, /-00001-of.*part 1 of 3, where part 1 of 2 is needed/],
    [[files[0], files[0], files[2]], TypeError, /-00001-of.*part 1 of 3, where part 2 of 3/],
    [[files[0]], TypeError, /part 1 of 3, where part 1 of 1/],
    [files[0], TypeError, /part 1 of 3: give all/],
    [join(folder, name(1)), TypeError, /part 2 of 3: give the first, model-00001-of-00003/],
    [[files[0], new File([parts[2]], name(1)), files[2]], 'FORMAT', /00002-of.*part 3 of 3, not 2 of 3/],
    [[files[0], new File([parts[1].subarray(0, 100)], name(1)), files[2]], 'FORMAT', /00002-of.*100 bytes/],
    [[files[0], files[1], new File([parts[2].subarray(0, parts[2].length - 70)], name(2))], 'FORMAT', /00003-of.*ends after/],
    [split(FILE, 3, () => ({ 'split.tensors.count': ['i32', 5] })).map((bytes, i) => new File([bytes], name(i))), 'FORMAT', /5 tensors/],
    [`${server.url}/404/${name(0)}`, 'NETWORK', /00001-of-00003.*404/],
  ];
  for (const [source, kind, sentence] of table) {
    await assert.rejects(load(source, { threads: 1 }), (error) => {
      if (typeof kind === 'string') assert.deepEqual([error instanceof ModelError, error.code], [true, kind], error.stack);
      else assert.ok(error instanceof kind, error.stack);
      assert.match(error.message, sentence);
      return true;
    });
  }
  rmSync(join(folder, name(2)));
  await assert.rejects(load(first, { threads: 1 }), { code: 'FILE', message: /00003-of-00003/ });
  writeFileSync(join(folder, name(2)), parts[2]);
});

test('sha256: one for each file, in their order; the one that differs is named', async () => {
  const hashes = parts.map(sha256);
  const wrong = hashes.with(1, '0'.repeat(64));
  for (const source of [first, files, `${server.url}/range/${name(0)}`]) {
    await (await load(source, { threads: 1, sha256: hashes })).close();
    await assert.rejects(load(source, { threads: 1, sha256: wrong }), { code: 'HASH', message: new RegExp(`00002-of-00003.*${hashes[1]}.*not 0{64}`) });
  }
  for (const few of ['0'.repeat(64), hashes.slice(1)]) {
    await assert.rejects(load(first, { threads: 1, sha256: few }), { name: 'TypeError', message: /one for each file.*comes in 3/ });
  }
  await assert.rejects(load(FILE, { threads: 1, sha256: hashes }), { name: 'TypeError', message: /there are 3.*comes in 1/ });
  await assert.rejects(load(first, { sha256: [hashes[0], 'abc', hashes[2]] }), { name: 'RangeError', message: /sha256\[1\].*64/ });
  const say = (all) => ['run', first, '--prompt', 'to sit on', '--max-tokens', '2', '--sha256', all.join()];
  assert.ok(await good(say(hashes)));
  await bad(say(wrong), 1, /00002-of-00003/);
});

test('the fixture in three parts', { skip: absent() }, async () => {
  const whole = await logitsOf(fixture('tiny/llama-gqa.gguf'));
  assert.deepEqual(await logitsOf(join(FIXTURES, 'models/split/llama-gqa-00001-of-00003.gguf')), whole);
});

/** What a file picker gives. */
const handleOf = (file) => ({ [Symbol.toStringTag]: 'FileSystemFileHandle', name: file.name, getFile: async () => file });

test('a handle stands for its file, and says when it can not be opened', async () => {
  const handle = handleOf(new File([FILE], 'one.gguf'));
  assert.deepEqual(await logitsOf(handle), await logitsOf(FILE));
  const refused = { ...handle, getFile: async () => Promise.reject(new DOMException('no', 'NotAllowedError')) };
  await assert.rejects(filesOf(refused), { code: 'FILE', message: /one\.gguf/ });
});

/** The hub redirects to another origin, which has the file. */
async function startHub(files) {
  const seen = [];
  const start = async (answer) => {
    const one = createServer(answer);
    await new Promise((resolve) => one.listen(0, '127.0.0.1', resolve));
    return { one, url: `http://127.0.0.1:${one.address().port}` };
  };
  const store = await start(({ headers }, response) => {
    seen.push(headers);
    response.end(files);
  });
  const hub = await start(({ url, headers }, response) => {
    seen.push({ url, ...headers });
    if (headers.authorization !== 'Bearer hf_secret') return response.writeHead(401).end();
    return response.writeHead(302, { location: `${store.url}/x` }).end();
  });
  return { url: hub.url, seen, close: () => [hub, store].forEach(({ one }) => (one.close(), one.closeAllConnections())) };
}

test('hf: names a file on the hub; the token goes there and no further', async () => {
  const hub = await startHub(FILE);
  try {
    const model = await load('hf:some/repo/sub folder/model.gguf', { token: 'hf_secret', hub: `${hub.url}/`, threads: 1 });
    await model.close();
    const [asked, fetched] = hub.seen;
    assert.deepEqual([asked.url, asked.authorization], ['/some/repo/resolve/main/sub%20folder/model.gguf', 'Bearer hf_secret']);
    assert.equal(fetched.authorization, undefined);
    await assert.rejects(load('hf:some/repo/model.gguf', { hub: hub.url }), { code: 'NETWORK', message: /401/ });
    Object.assign(process.env, { HF_TOKEN: 'hf_secret', HF_ENDPOINT: hub.url });
    assert.match(await good(['info', 'hf:some/repo@v1/model.gguf']), /^architecture +llama$/m);
    assert.equal(hub.seen.at(-2).url, '/some/repo/resolve/v1/model.gguf');
  } finally {
    hub.close();
  }
  const nameOf = (source) => describe(source).origin.name;
  assert.equal(nameOf('hf:a/b/c.gguf'), 'https://huggingface.co/a/b/resolve/main/c.gguf');
  assert.equal(nameOf('hf:a/b@v1.0/c/d.gguf'), 'https://huggingface.co/a/b/resolve/v1.0/c/d.gguf');
  assert.equal(nameOf('hf:a/b/100%.gguf'), 'https://huggingface.co/a/b/resolve/main/100%25.gguf');
  assert.equal(nameOf('hf:a/b@refs%2Fpr%2F1/c.gguf'), 'https://huggingface.co/a/b/resolve/refs%2Fpr%2F1/c.gguf');
  assert.deepEqual(describe('hf:a/b/m-00001-of-00002.gguf').origin.parts.map(({ name }) => name.split('/').pop()), ['m-00001-of-00002.gguf', 'm-00002-of-00002.gguf']);
  for (const wrong of ['hf:a', 'hf:a/b', 'hf:a/b/', 'hf:/b/c', 'hf:a/b@/c']) assert.throws(() => describe(wrong), TypeError, wrong);
  assert.throws(() => describe(FILE, { token: 'x' }), TypeError);
  assert.throws(() => describe('https://example.com/a.gguf', { hub: 'https://example.com' }), TypeError);
  assert.deepEqual(describe('https://example.com/a.gguf', { token: 'x' }).origin.headers, [['authorization', 'Bearer x']]);
});

test('the parts that tests make are as the reader expects', () => {
  for (const [i, bytes] of parts.entries()) assert.equal(readGguf(bytes).meta.get('split.no'), i);
  assert.equal(readFileSync(first).length, parts[0].length);
});
