/* Copies of models in the storage of every browser: WebKitGTK has none, and runs from memory. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { defaultFolders, startServer } from '../web/demo/serve.js';
import { load } from '../web/index.js';
import { BROWSERS, browserAbsent, startBrowser } from './kit/browsers.js';
import { makeModel } from './kit/make-model.js';

const FILE = makeModel({ vocabulary: 'bpe', nVocab: 400, nCtx: 256, dModel: 256, dFf: 512, nLayers: 3, type: 'Q8_0' });
const folder = mkdtempSync(join(tmpdir(), 'tabllama-'));
const path = join(folder, 'model.gguf');
let server, expected;

before(async () => {
  assert.ok(FILE.length > 2 ** 20, 'more than a block');
  const page = fileURLToPath(new URL('./kit/cache-page/', import.meta.url));
  server = await startServer({ port: 0, folders: { ...defaultFolders(), '/page/': page, '/model/': folder } });
  const model = await load(FILE, { threads: 1 });
  expected = (await model.generate('to sit on', { temperature: 0, maxTokens: 6 }).result()).tokens;
  await model.close();
});
after(async () => {
  await server.close();
  rmSync(folder, { recursive: true });
});

/** Both visits of one browser. */
async function visits(name) {
  const browser = await startBrowser(name);
  const visit = async (query) => {
    const page = await browser.open(`${server.url}page/${query}`);
    await page.until(() => document.title === 'done');
    const told = JSON.parse(await page.evaluate(() => document.querySelector('pre').textContent));
    await page.close();
    return told;
  };
  try {
    writeFileSync(path, FILE);
    const first = await visit('');
    rmSync(path);
    return [first, name === 'webkit' ? {} : await visit('?visit=second')];
  } finally {
    await browser.close();
  }
}

for (const name of BROWSERS) {
  test(`copies of models in ${name}`, { skip: browserAbsent(name) }, async () => {
    const [first, second] = await visits(name);
    const copy = { url: `${server.url}model/model.gguf`, bytes: FILE.length, complete: true };
    for (const { tokens } of [...first['two at once'], first['once more']]) assert.deepEqual(tokens, expected, JSON.stringify(first));
    assert.match(first.persist, name === 'firefox' ? /^(boolean|asks)$/ : /^boolean$/);
    if (name === 'webkit') {
      assert.deepEqual([first['once more'].cached, first.listed.code], [false, 'STORAGE']);
      assert.match(first['once more'].warnings.join(), /not stored/);
      return;
    }
    assert.ok(first['two at once'].some(({ cached }) => cached));
    for (const { cached, warnings } of first['two at once']) if (!cached) assert.match(warnings.join(), /stored elsewhere/);
    assert.deepEqual([first.listed, first.deleted, first.nothing], [[copy], [true], []]);
    assert.deepEqual([first['once more'].cached, first['once more'].warnings], [true, []]);
    assert.ok(Array.isArray(second['two readers']), JSON.stringify(second));
    for (const told of [second['without the server'], ...second['two readers']]) {
      assert.deepEqual(told, { tokens: expected, cached: true, warnings: [] });
    }
    assert.deepEqual(second.listed, [copy]);
    assert.deepEqual([second.damaged.code, /404/.test(second.damaged.message)], ['NETWORK', true], 'not the damaged copy');
    assert.deepEqual(second['after it'], []);
  });
}
