/* The public API in every browser, from dist/ and under the demo's content security policy. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { defaultFolders, startServer } from '../web/demo/serve.js';
import { estimate, load } from '../web/index.js';
import { BROWSERS, browserAbsent, startBrowser } from './kit/browsers.js';
import { sha256 } from './kit/fixtures.js';
import { makeModel } from './kit/make-model.js';
import { partName, split } from './kit/split-model.js';

const CHATML =
  "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}<|im_start|>assistant\n";
const FILE = makeModel({ vocabulary: 'bpe', chatTemplate: CHATML, nVocab: 400, nCtx: 256, type: 'Q8_0' });
/** The same model with a template of which one step, which nothing can stop from within, would never end. */
const ENDLESS = makeModel({
  vocabulary: 'bpe',
  chatTemplate:
    '{% set ns = namespace(s=[1]) %}{% for i in range(40) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s == ns.s }}',
  nVocab: 400,
  nCtx: 256,
  type: 'Q8_0',
});
const folder = mkdtempSync(join(tmpdir(), 'tabllama-'));
let server, expected, estimated;

before(async () => {
  writeFileSync(join(folder, 'model.gguf'), FILE);
  split(FILE, 3).forEach((part, i) => writeFileSync(join(folder, partName('model', i, 3)), part));
  writeFileSync(join(folder, 'endless.gguf'), ENDLESS);
  const page = fileURLToPath(new URL('./kit/api-page/', import.meta.url));
  server = await startServer({ port: 0, folders: { ...defaultFolders(), '/page/': page, '/model/': folder } });
  const model = await load(FILE, { threads: 1 });
  expected = (await model.generate('to sit on', { temperature: 0, maxTokens: 12 }).result()).tokens;
  await model.close();
  estimated = JSON.parse(JSON.stringify(await estimate(FILE, { threads: 1, variant: 'simd' })));
});
after(async () => {
  await server.close();
  rmSync(folder, { recursive: true });
});

async function outcomesIn(name) {
  const browser = await startBrowser(name);
  try {
    const page = await browser.open(`${server.url}page/`);
    await page.until(() => document.title === 'done');
    return JSON.parse(await page.evaluate(() => document.querySelector('pre').textContent));
  } finally {
    await browser.close();
  }
}

for (const name of BROWSERS) {
  test(`the API in ${name}`, { skip: browserAbsent(name) }, async () => {
    const told = await outcomesIn(name);
    for (const source of ['relative URL', 'URL', 'threads', 'Blob', 'File', 'bytes', 'stream', 'assets']) {
      assert.deepEqual(told[source].tokens, expected, `${source}: ${JSON.stringify(told[source])}`);
      assert.deepEqual([told[source].first, told[source].last], [0, FILE.length], source);
    }
    assert.equal(told['bytes are kept'], FILE.length);
    for (const source of ['split URL', 'split Files', 'handle']) assert.deepEqual(told[source].tokens, expected, JSON.stringify(told[source]));
    assert.deepEqual(told.estimate, estimated);
    assert.equal(told.threads.threads, told.support.threads ? 2 : 1);
    assert.equal(told.engine, 1, "a page's main thread may not wait");
    assert.deepEqual(told['engine with threads'], told.support.threads
      ? { code: 'THREADS', message: "variant 'simd-mt' can't have 2 threads here: a page's main thread may not wait for others" }
      : { code: 'UNSUPPORTED', message: "variant 'simd-mt' can't run here: shared memory is missing" });
    /* a worker that starts workers may wait for ever in Firefox */
    const started = ['worker.js', ...(told.support.threads ? ['thread.js'] : []), 'template.js'];
    assert.deepEqual(told.workers, { started, ended: [...started].sort() });
    const errors = [
      ['sha256', 'HASH', new RegExp(sha256(FILE))],
      ['404', 'NETWORK', /absent\.gguf answers 404/],
      ['page', 'NETWORK', /web page/],
      ['text', 'FORMAT', /GGUF/],
      ['no worker', 'WORKER', /absent\.js/],
      ['no wasm', 'NETWORK', /lm-/],
      ['no template', 'WORKER', /absent\.js/],
      ['endless template', 'TEMPLATE', /template failed: .*longer than \d+ ms/],
      ['closed', 'CLOSED', /closed/],
    ];
    for (const [what, code, message] of errors) {
      assert.deepEqual([told[what].ours, told[what].code], [true, code], JSON.stringify(told[what]));
      assert.match(told[what].message, message);
    }
    assert.deepEqual(told['after the endless template'], expected);
    assert.ok(told['endless template'].ms < 5_000, `${told['endless template'].ms} ms`);
    assert.equal(told['render elsewhere'], '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant');
    assert.equal(told.headers.kind, 'TypeError');
    assert.deepEqual([told.aborted.kind, told.aborted.message], ['TypeError', 'enough']);
    assert.equal(told.abort.kind, 'AbortError');
    assert.equal(told.break, 'stopped');
    assert.equal(told.chat, 'system,user,assistant,user,assistant');
  });
}
