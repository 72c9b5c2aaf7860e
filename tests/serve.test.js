/** serve.test.js: what the demo's server sends, refuses and does when its port is taken. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test, { after, before } from 'node:test';
import { fileURLToPath } from 'node:url';
import { startServer } from '../web/demo/serve.js';

/* Spelled out: the one policy that the page promises to work under. */
const POLICY =
  "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; style-src 'self'; " +
  "img-src 'self' data:; connect-src 'self' https:; base-uri 'none'; form-action 'none'";
const ISOLATION = {
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-embedder-policy': 'require-corp',
  'cross-origin-resource-policy': 'same-origin',
};
const SERVE_JS = fileURLToPath(new URL('../web/demo/serve.js', import.meta.url));
const SECRET = 'nothing for others';
const BYTES = Uint8Array.from({ length: 1000 }, (_, i) => i % 251);

const outside = mkdtempSync(path.join(tmpdir(), 'tabllama-serve-'));
const folder = path.join(outside, 'in');
let server;

before(async () => {
  writeFileSync(path.join(outside, 'secret.txt'), SECRET);
  mkdirSync(folder);
  for (const name of ['model.gguf', 'a.wasm', 'a.js', 'a.css', 'a.svg', 'a.json', 'index.html']) {
    writeFileSync(path.join(folder, name), BYTES);
  }
  writeFileSync(path.join(folder, 'empty'), '');
  server = await startServer({ port: 0, folders: { '/in/': folder } });
});
after(async () => {
  await server.close();
  rmSync(outside, { recursive: true });
});

/** A request as it is written: fetch and URL would tidy the path. */
function get(target, { method = 'GET', headers = {}, port = server.port } = {}) {
  return new Promise((resolve, reject) => {
    const request = http.request(
      { host: 'localhost', port, path: target, method, headers },
      async (response) => {
        const parts = [];
        for await (const part of response) parts.push(part);
        resolve({ status: response.statusCode, headers: response.headers, body: Buffer.concat(parts) });
      },
    );
    request.on('error', reject).end();
  });
}

test('every response carries the policy and isolation; without isolation, the policy alone', async () => {
  const plain = await startServer({ port: 0, isolation: false, folders: { '/in/': folder } });
  try {
    for (const target of ['/', '/in/a.js', '/in/model.gguf', '/in/none', '/%', '/in/']) {
      const { headers } = await get(target);
      assert.equal(headers['content-security-policy'], POLICY);
      for (const [name, value] of Object.entries(ISOLATION))
        assert.equal(headers[name], value, `${target}: ${name}`);
      const open = await get(target, { port: plain.port });
      assert.equal(open.headers['content-security-policy'], POLICY);
      for (const name of Object.keys(ISOLATION))
        assert.equal(open.headers[name], undefined, `${target}: ${name}`);
    }
  } finally {
    await plain.close();
  }
});

test('types', async () => {
  const types = {
    'a.wasm': 'application/wasm',
    'a.js': 'text/javascript; charset=utf-8',
    'a.css': 'text/css; charset=utf-8',
    'a.svg': 'image/svg+xml',
    'a.json': 'application/json; charset=utf-8',
    'model.gguf': 'application/octet-stream',
    '': 'text/html; charset=utf-8',
  };
  for (const [name, type] of Object.entries(types)) {
    const { headers, status } = await get(`/in/${name}`);
    assert.equal(status, 200);
    assert.equal(headers['content-type'], type);
    assert.equal(headers['x-content-type-options'], 'nosniff');
  }
});

test('ranges', async () => {
  const cases = [
    ['bytes=0-9', 206, 0, 9],
    ['bytes=990-', 206, 990, 999],
    ['bytes=-5', 206, 995, 999],
    ['bytes=-5000', 206, 0, 999],
    ['bytes=0-5000', 206, 0, 999],
    ['bytes=5-4', 200, 0, 999],
    ['bytes=0-1,3-4', 200, 0, 999],
    ['items=0-1', 200, 0, 999],
    ['bytes=-', 200, 0, 999],
  ];
  for (const [range, status, start, end] of cases) {
    const response = await get('/in/model.gguf', { headers: { range } });
    assert.equal(response.status, status, range);
    assert.deepEqual(new Uint8Array(response.body), BYTES.subarray(start, end + 1), range);
    if (status === 206) assert.equal(response.headers['content-range'], `bytes ${start}-${end}/1000`);
  }
  for (const range of ['bytes=1000-', 'bytes=-0']) {
    const response = await get('/in/model.gguf', { headers: { range } });
    assert.equal(response.status, 416, range);
    assert.equal(response.headers['content-range'], 'bytes */1000');
  }
  const { headers } = await get('/in/model.gguf');
  const range = 'bytes=0-9';
  const same = await get('/in/model.gguf', { headers: { range, 'if-range': headers.etag } });
  assert.equal(same.status, 206);
  const other = await get('/in/model.gguf', { headers: { range, 'if-range': '"other"' } });
  assert.equal(other.status, 200);
  assert.equal((await get('/in/model.gguf', { headers: { 'if-none-match': headers.etag } })).status, 304);
  assert.equal((await get('/in/empty')).body.length, 0);
});

test('HEAD has no body, other methods are refused, / leads to the page', async () => {
  const head = await get('/in/model.gguf', { method: 'HEAD' });
  assert.equal(head.headers['content-length'], '1000');
  assert.equal(head.body.length, 0);
  assert.equal((await get('/in/model.gguf', { method: 'POST' })).status, 405);
  const root = await get('/');
  assert.equal(root.status, 302);
  assert.equal(root.headers.location, '/web/demo/');
});

test('nothing outside of the folders is served', async () => {
  const ways = [
    '/in/../secret.txt',
    '/in/..%2fsecret.txt',
    '/in/%2e%2e/secret.txt',
    '/in/%2e%2e%2fsecret.txt',
  ];
  ways.push(
    '/in//../secret.txt',
    '/in/..%5csecret.txt',
    `/in/%2f${outside}/secret.txt`,
    `/in/${outside}/secret.txt`,
  );
  ways.push('/secret.txt', '/inner', '//in/a.js', '/in/a.js%00.txt', '/in/%zz', '/in/a.js/', '/in/none/a.js');
  for (const target of ways) {
    const { status, body } = await get(target);
    assert.ok(status === 404 || status === 400, `${target}: ${status}`);
    assert.ok(!body.includes(SECRET), target);
  }
});

test('a taken port gives the next one', async () => {
  const next = await startServer({ port: server.port, folders: {} });
  await next.close();
  assert.ok(next.port > server.port);
  assert.equal(next.url, `http://localhost:${next.port}/`);
});

test('wrong use ends with 2 and a sentence', async () => {
  for (const args of [['--port', '70000'], ['--port', 'x'], ['--no-isolatoin'], ['more']]) {
    const [status, said] = await new Promise((resolve) => {
      execFile(process.execPath, [SERVE_JS, ...args], { timeout: 10e3 }, (error, _, stderr) =>
        resolve([error?.code, stderr]),
      );
    });
    assert.equal(status, 2, args.join(' '));
    assert.match(said, /^serve: .+\n$/);
  }
});
