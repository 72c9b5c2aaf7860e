/* The demo's kept models, by keys and clicks in every browser: kept, used without the network, listed, opened,
 * deleted, refused; and the question before a large download. WebKitGTK has no storage, and says so. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test, { after, before } from 'node:test';
import { defaultFolders, startServer } from '../web/demo/serve.js';
import { readHeader } from '../web/engine.js';
import { BROWSERS, browserAbsent, startBrowser } from './kit/browsers.js';
import { enterAddress, focused, judge, loaded, sees, sticksOut, text, visible, withPage } from './kit/demo-page.js';
import { SMOLLM2 } from './kit/fixtures.js';
import { makeModel } from './kit/make-model.js';
import { partName, split } from './kit/split-model.js';

const SERVED = path.basename(SMOLLM2.path);
const NAME = 'SmolLM2 135M Instruct';
const SMALL = makeModel({ type: 'Q4_1', vocabulary: 'bpe', nVocab: 400 });
const megabytes = (bytes) => `${(bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB`;

/** Served as if it were models/. */
const folder = mkdtempSync(path.join(tmpdir(), 'tabllama-'));
const file = (name) => path.join(folder, name);
/** Its header asks for more than the page takes unasked; its weights are a hole in the file. */
const large = { name: 'large.gguf', bytes: 0 };

before(async () => {
  for (const [i, part] of split(makeModel({ type: 'Q8_0', vocabulary: 'bpe', nVocab: 400 }), 2).entries()) writeFileSync(file(partName('two', i, 2)), part);
  writeFileSync(file('other.gguf'), makeModel({ type: 'Q4_0', vocabulary: 'bpe', nVocab: 400 }));
  const header = makeModel({ headerOnly: true, type: 'Q8_0', dModel: 1024, dFf: 4096, nHeads: 16, nLayers: 10, nVocab: 400, vocabulary: 'bpe' });
  large.bytes = (await readHeader(header)).bind().fileBytes;
  assert.ok(large.bytes > 150e6, String(large.bytes));
  writeFileSync(file(large.name), header);
  truncateSync(file(large.name), large.bytes);
});
after(() => rmSync(folder, { recursive: true }));

const fact = (page, name) =>
  page.evaluate((term) => [...document.querySelectorAll('#facts dt')].find((dt) => dt.textContent === term)?.nextSibling.textContent, name);
/** Name and size of what is listed, once there are so many. */
async function listed(page, count) {
  const rows = () => [...document.querySelectorAll('#kept li')].map((li) => [li.children[0].textContent, li.children[1].textContent]);
  await page.until((n) => document.querySelectorAll('#kept li').length === n, [count]);
  return page.evaluate(rows);
}
const name = (page) => text(page, '#model-name');

/** What a first visit keeps, the next one needs no network for; deleted, it is gone. */
async function keeps(page, visit, browserName) {
  await loaded(page);
  assert.equal(await fact(page, 'Kept'), 'in this browser');
  await page.click('#panel-toggle');
  assert.deepEqual(await listed(page, 1), [[NAME, megabytes(SMALL.length)]]);
  rmSync(file(SERVED));
  await visit(async (again) => {
    await loaded(again);
    assert.equal(await name(again), NAME);
    await again.click('#panel-toggle');
    await again.click('#persist');
    // Firefox asks the user, who is not there.
    if (browserName !== 'firefox') await again.until(() => /not clear them by itself|may clear them/.test(document.querySelector('#kept-note').textContent));
    await again.click('#kept li:last-child button:last-child');
    await listed(again, 0);
    assert.match(await text(again, '#kept-note'), /is deleted/);
    assert.equal(await visible(again, '#persist'), false);
    await again.click('#load-default');
    await again.until(() => /404/.test(document.querySelector('#problem-text').textContent));
  });
}

/** A split model and another one: each opened and deleted from the list by keys alone. */
async function list(page) {
  await loaded(page);
  await enterAddress(page, partName('two', 0, 2));
  await page.until(() => /random Q8_0/.test(document.querySelector('#model-name').textContent));
  await enterAddress(page, 'other.gguf');
  await page.until(() => /random Q4_0/.test(document.querySelector('#model-name').textContent));
  await page.click('#panel-toggle');
  const rows = await listed(page, 3);
  assert.deepEqual(rows.map(([name]) => name), ['other.gguf', partName('two', 0, 2), NAME], 'the last used first');
  assert.equal(await page.evaluate(sticksOut), false);
  await page.resize(320, 640);
  assert.equal(await page.evaluate(sticksOut), false);
  const inside = () => document.querySelector('.panel-inner').scrollWidth <= document.querySelector('.panel-inner').clientWidth;
  assert.equal(await page.evaluate(inside), true, 'also within the panel');

  await page.click('#keep');
  await page.press('Tab');
  await page.press('Tab');
  assert.equal(await focused(page), 'Delete');
  await page.press('Enter');
  await listed(page, 2);
  assert.equal(await focused(page), 'Delete', 'of the next one');
  await page.press('Shift+Tab');
  await page.press('Enter');
  await page.until(() => /random Q8_0/.test(document.querySelector('#model-name').textContent));
  await loaded(page);
  assert.equal(await fact(page, 'Kept'), 'in this browser', 'one that is kept is used, though no more are');
}

/** Nothing is kept where the box is not ticked, nor at the next visit. */
async function unticked(page, visit) {
  await loaded(page);
  await page.click('#panel-toggle');
  for (let left = (await page.evaluate(() => document.querySelectorAll('#kept li').length)) - 1; left >= 0; left--) {
    await page.click('#kept li:last-child button:last-child');
    await listed(page, left);
  }
  if (await page.evaluate(() => document.querySelector('#keep').checked)) await page.click('#keep');
  await page.press('Escape');
  await visit(async (again) => {
    await loaded(again);
    assert.equal(await fact(again, 'Kept'), 'no');
    await again.click('#panel-toggle');
    assert.deepEqual(await listed(again, 0), []);
    assert.equal(await again.evaluate(() => document.querySelector('#keep').checked), false);
    await again.click('#keep');
  });
}

/** A large model is asked about, with what it needs; the one that is there stays until the answer. */
async function asks(page) {
  await loaded(page);
  const before = await name(page);
  await enterAddress(page, large.name);
  await sees(page, '#question');
  const sentence = await text(page, '#question-text');
  assert.ok(sentence.startsWith(`large.gguf is ${megabytes(large.bytes)}. It needs `), sentence);
  const [, needed] = /needs (\d+) MB of memory/.exec(sentence);
  assert.ok(Number(needed) * 1e6 > large.bytes, sentence);
  assert.equal(await page.evaluate(sticksOut), false);
  await page.click('#decline');
  await page.until(() => document.querySelector('#question').hidden);
  assert.deepEqual([await name(page), await visible(page, '#problem')], [before, false]);
  await enterAddress(page, large.name);
  await sees(page, '#question');
  await page.click('#download');
  await page.until(() => /random Q8_0/.test(document.querySelector('#model-name').textContent));
  await loaded(page);
}

/** No finding of axe with a list and with a question. */
async function accessibility(page) {
  const inspect = await judge(page);
  await loaded(page);
  await page.click('#panel-toggle');
  await listed(page, 1);
  await inspect('list');
  await page.press('Escape');
  await enterAddress(page, large.name);
  await sees(page, '#question');
  await inspect('question');
}

/** Where nothing can be kept the page says so, and the model runs. */
async function impossible(page) {
  await loaded(page);
  await page.click('#panel-toggle');
  assert.equal(await page.evaluate(() => document.querySelector('#keep').disabled && !document.querySelector('#keep').checked), true);
  assert.match(await text(page, '#keep-hint'), /Impossible here: .*no file storage/);
  assert.equal(await fact(page, 'Kept'), 'no');
}

for (const browserName of BROWSERS) {
  test(browserName, { skip: browserAbsent(browserName) }, async (t) => {
    const browser = await startBrowser(browserName);
    t.after(() => browser.close());
    const uses = { chromium: [keeps, list, unticked, asks, accessibility], firefox: [keeps, list, unticked, asks], webkit: [impossible, asks] };
    for (const use of uses[browserName]) {
      await t.test(`${browserName}: ${use.name}`, async (t) => {
        writeFileSync(file(SERVED), SMALL);
        /* an origin of its own, and so a storage */
        const server = await startServer({ port: 0, folders: { ...defaultFolders(), '/models/': folder } });
        const visit = (what) => withPage(t, browser, server.url, what);
        try {
          await visit(async (page) => {
            await use(page, visit, browserName);
            const problems = (await page.takeProblems()).filter((problem) => !/status of 404/.test(problem));
            assert.deepEqual(problems, []);
          });
        } finally {
          await server.close();
        }
      });
    }
  });
}
