/* Copies of models in the storage of every browser, also when tabs and workers end in the middle of a write.
 * WebKitGTK has no storage, and runs from memory. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { defaultFolders, startServer } from '../web/demo/serve.js';
import { load } from '../web/index.js';
import { BROWSERS, browserAbsent, startBrowser } from './kit/browsers.js';
import { startFront } from './kit/front.js';
import { makeModel } from './kit/make-model.js';
import { startFaultServer } from './kit/server.js';

const FILE = makeModel({ vocabulary: 'bpe', nVocab: 400, nCtx: 256, dModel: 256, dFf: 512, nLayers: 3, type: 'Q8_0' });
const folder = mkdtempSync(join(tmpdir(), 'tabllama-'));
const path = join(folder, 'model.gguf');
/** Some blocks long: there is time to die. */
const LONG = makeModel({ vocabulary: 'bpe', nVocab: 400, nCtx: 256, dModel: 512, nHeads: 8, dFf: 1024, nLayers: 2, type: 'Q8_0' });
let server, plain, faults, front, expected, expectedOfLong;

before(async () => {
  assert.ok(FILE.length > 2 ** 20, 'more than a block');
  const page = fileURLToPath(new URL('./kit/cache-page/', import.meta.url));
  server = await startServer({ port: 0, folders: { ...defaultFolders(), '/page/': page, '/model/': folder } });
  plain = await startServer({ port: 0, folders: { ...defaultFolders(), '/page/': page }, policy: null });
  faults = await startFaultServer(LONG);
  front = await startFront(plain.url, faults.url);
  [expected, expectedOfLong] = await Promise.all([FILE, LONG].map(answer));
});
after(async () => {
  for (const one of [server, front, faults, plain]) await one.close();
  rmSync(folder, { recursive: true });
});

async function answer(file) {
  const model = await load(file, { threads: 1 });
  const { tokens } = await model.generate('to sit on', { temperature: 0, maxTokens: 6 }).result();
  await model.close();
  return tokens;
}

/** What a page tells when it is done; `prepare` comes before its load. */
async function visit(browser, url, prepare) {
  const page = await browser.open(url);
  if (prepare) await prepare(page);
  await page.until(() => document.title === 'done');
  const told = JSON.parse(await page.evaluate(() => document.querySelector('pre').textContent));
  await page.close();
  return told;
}

/** Both visits of one browser. */
async function visits(name) {
  const browser = await startBrowser(name);
  try {
    writeFileSync(path, FILE);
    const first = await visit(browser, `${server.url}page/`);
    rmSync(path);
    return [first, name === 'webkit' ? {} : await visit(browser, `${server.url}page/?visit=second`)];
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

for (const name of BROWSERS) {
  test(`faults of storage in ${name}`, { skip: browserAbsent(name) }, async (t) => {
    const browser = await startBrowser(name);
    t.after(() => browser.close());
    const page = (visit, model) => `${front.url}page/?visit=${visit}&model=${encodeURIComponent(model)}`;
    const [cut, killed, damaged] = ['cut', 'killed', 'damaged'].map((what) => `/fault/halts/3500000/${what}-${name}.gguf`);

    const { other } = await visit(browser, page('other', `${faults.url}/range`));
    assert.deepEqual([other.code, other.ours], ['NETWORK', true], 'another origin that does not let us');
    if (name === 'webkit') return;

    await visit(browser, page('cut', cut));
    const outcomes = { cut: await visit(browser, page('after', cut)) };
    for (const [what, model] of Object.entries({ killed, damaged })) {
      outcomes[what] = await visit(browser, page(what, model));
    }
    for (const [what, told] of Object.entries(outcomes)) {
      const all = `${what}: ${JSON.stringify(told)}`;
      const url = `${front.url.slice(0, -1)}${{ cut, killed, damaged }[what]}`;
      assert.deepEqual(told.begun.find((one) => one.url === url)?.complete, false, all);
      for (const { tokens } of told['once more']) assert.deepEqual(tokens, expectedOfLong, all);
      assert.deepEqual(told['once more'].at(-1).cached, true, all);
      assert.deepEqual(told.listed.find((one) => one.url === url), { url, bytes: LONG.length, complete: true }, all);
    }
    if (name !== 'chromium') return;
    const full = await visit(browser, page('other', `/fault/range/full.gguf`), (page) => page.storageOf(2e6));
    assert.deepEqual([full.other.tokens, full.other.cached], [expectedOfLong, false]);
    assert.match(full.other.warnings.join(), /not stored.*quota/);
  });
}
