/**
 * browser.test.js: the demo, driven in three browsers by keys and clicks through its visible controls, with
 * the real model and with small ones, isolated and not; and equal bits of every variant in browsers and Node.
 */
import assert from 'node:assert/strict';
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { freemem, tmpdir } from 'node:os';
import path from 'node:path';
import test, { after, before } from 'node:test';
import { fileURLToPath } from 'node:url';
import { defaultFolders, startServer } from '../web/demo/serve.js';
import * as engineModule from '../web/engine.js';
import { VARIANTS, WIDE_VARIANTS } from '../web/features.js';
import { bitsOf } from './kit/bits.js';
import { BROWSERS, browserAbsent, startBrowser } from './kit/browsers.js';
import { enterAddress, focused, isMarked, judge, loaded, sees, sticksOut, text, visible, withPage } from './kit/demo-page.js';
import { SMOLLM2, absent } from './kit/fixtures.js';
import { makeModel } from './kit/make-model.js';

const QUESTION = 'What is the capital of France?';
const ANSWER = 'The capital of France is Paris.';
const TEMPLATE = '{% for m in messages %}{{ m.content }} {% endfor %}';
const N_CTX = 96;
const KIT = fileURLToPath(new URL('kit/', import.meta.url));

/** Where the small models are served from, as if it were models/. */
const folder = mkdtempSync(path.join(tmpdir(), 'tabllama-browser-'));
const FILES = {
  chat: makeModel({ type: 'Q4_1', nCtx: N_CTX, vocabulary: 'bpe', chatTemplate: TEMPLATE }),
  base: makeModel({ type: 'Q8_0', nCtx: N_CTX, vocabulary: 'bpe' }),
  bits: makeModel({ type: 'Q4_1', vocabulary: 'bpe' }),
  broken: new TextEncoder().encode('<!doctype html><title>Not a model</title>'),
};
/** @param {string} name */
const file = (name) => path.join(folder, `${name}.gguf`);
/** What the page loads first, there only for a while. */
const served = path.join(folder, path.basename(SMOLLM2.path));

before(() => {
  for (const [name, bytes] of Object.entries(FILES)) writeFileSync(file(name), bytes);
});
after(() => rmSync(folder, { recursive: true }));

/* -- what a reader sees, and does ------------------------------------------------------------------- */

const answers = (page) =>
  page.evaluate(() => [...document.querySelectorAll('.answer-text')].map((answer) => answer.textContent));

/** Until the latest answer has ended, well or not; its text. */
async function answered(page, count) {
  await page.until(
    (n) => document.querySelectorAll('.answer').length === n && !document.querySelector('.answer.writing'),
    [count],
  );
  return (await answers(page)).at(-1);
}

async function ask(page, question, count) {
  await page.click('#prompt');
  await page.type(question);
  await page.press('Enter');
  return answered(page, count);
}

/** Temperature 0, by the slider. */
async function beGreedy(page) {
  await page.click('#panel-toggle');
  await page.click('#temperature');
  await page.press('Home');
  assert.equal(await text(page, '#temperature-value'), '0.0');
  await page.press('Escape');
  assert.equal(await visible(page, '#panel'), false);
}

/* -- the real model --------------------------------------------------------------------------------- */

/** A turn, Stop, New chat and a suggestion, with SmolLM2 as the page loads it. */
async function conversation(page, { isolated, threads }) {
  await loaded(page);
  const facts = await page.evaluate(() => document.querySelector('#facts').textContent);
  assert.match(facts, /Licenceapache-2\.0/i);
  assert.match(facts, /Precisionhigh/);
  assert.match(await text(page, '#status'), /^(simd|relaxed|relaxed-dot)(-mt)? · \d+ threads? · \d+ MB$/);
  if (!isolated) assert.match(facts, /Threads1: .*isolated/);
  if (isolated && !threads) assert.match(facts, /Threads1: .*shared memory/);
  if (isolated && threads) await twoThreads(page);

  await beGreedy(page);
  assert.equal(await ask(page, QUESTION, 1), ANSWER);
  assert.match(await text(page, '#status'), / · [\d.]+ tokens\/s$/);
  assert.equal(await text(page, '#announcer'), ANSWER);

  await page.type('Write a long story about a dragon and a sailor.');
  await page.press('Enter');
  await page.until(() => document.querySelectorAll('.answer-text')[1]?.textContent.length > 10);
  await page.click('#stop');
  const part = await answered(page, 2);
  assert.ok(part.length > 10);
  assert.equal(await text(page, '.answer:last-child .note'), 'Stopped.');

  await page.click('#new-chat');
  await sees(page, '#welcome');
  assert.deepEqual(await answers(page), []);
  await page.click('#suggestions button');
  assert.equal(await answered(page, 1), ANSWER);
  assert.deepEqual(await page.takeProblems(), []);
}

/** Two threads, chosen by key, and the model loaded again with them. */
async function twoThreads(page) {
  await page.click('#panel-toggle');
  await page.click('#max-tokens');
  await page.press('Tab');
  await page.press('Tab');
  assert.equal(await focused(page), 'threads');
  await page.type('2');
  await page.click('#reload');
  await page.until(() => /relaxed(-dot)?-mt · 2 threads/.test(document.querySelector('#status').textContent));
}

/* -- small models ----------------------------------------------------------------------------------- */

/** What is wrong is said, Retry tries again, and the next model loads. */
async function errors(page, name) {
  const later = `later-${name}.gguf`;
  rmSync(served, { force: true });
  await page.click('#panel-toggle');
  if (await page.evaluate(() => document.querySelector('#keep').checked)) await page.click('#keep');
  await page.click('#load-default');
  await sees(page, '#problem');
  assert.match(await text(page, '#problem-text'), /404.*npm run model/);
  copyFileSync(file('chat'), served);
  await page.click('#retry');
  await loaded(page);

  await page.click('#panel-toggle');
  await page.upload('#file', file('broken'));
  await sees(page, '#problem');
  assert.match(await text(page, '#problem-text'), /broken\.gguf.*GGUF/);

  await enterAddress(page, later);
  await page.until(() => /404/.test(document.querySelector('#problem-text').textContent));
  copyFileSync(file('base'), path.join(folder, later));
  await page.click('#retry');
  await loaded(page);
  assert.equal(await visible(page, '#problem'), false);

  await enterAddress(page, 'ftp://example.org/model.gguf');
  assert.equal(await page.evaluate(() => document.querySelector('#url').validity.valid), false);
  await page.press('Escape');
}

/** A file from the picker: a chat until its context is full, then a model without a template. */
async function files(page) {
  await beGreedy(page);
  await page.upload('#file', file('chat'));
  await page.until(() => document.querySelector('#model-name').textContent === 'random Q4_1');
  await loaded(page);
  assert.match(await page.evaluate(() => document.querySelector('#facts').textContent), /LicenceNot stated/);
  assert.ok(await ask(page, 'Hello', 1));
  assert.equal(
    await text(page, '.answer .note'),
    `The context of ${N_CTX} tokens is full. Start a new chat to go on.`,
  );
  await ask(page, 'And more', 2);
  assert.match(
    await text(page, '.answer [role=alert]'),
    /prompt has \d+ tokens, the context holds 96.*new chat/s,
  );

  await page.upload('#file', file('base'));
  await page.until(() => document.querySelector('#prompt').placeholder.startsWith('Begin a text'));
  await loaded(page);
  assert.equal(await visible(page, '#welcome'), true);
  assert.ok(await ask(page, 'Once', 1));
  if (!page.drop) return;
  await page.drop(file('chat'), 200, 200);
  await page.until(() => document.querySelector('#model-name').textContent === 'random Q4_1');
  await loaded(page);
}

/** Every control by Tab, seen to have the focus; a turn, Copy and New chat without a pointer. */
async function keyboard(page, name) {
  await page.upload('#file', file('chat'));
  await loaded(page);
  const walk = async (key, expected) => {
    for (const id of expected) {
      await page.press(key);
      assert.equal(await focused(page), id);
      assert.ok(await page.evaluate(isMarked), `${id} shows that it has the focus`);
    }
  };
  await page.until(() => document.activeElement.id === 'prompt');
  const chips = await page.evaluate(() =>
    [...document.querySelectorAll('#suggestions button')].map((b) => b.textContent),
  );
  await walk('Shift+Tab', [...chips.reverse(), 'panel-toggle']);
  await page.press('Enter');
  await sees(page, '#panel');
  const keep = name === 'webkit' ? [] : ['keep'];
  const fields = ['load-default', 'file', 'url', 'Load', ...keep, 'temperature', 'max-tokens', 'precision', 'threads'];
  await walk('Tab', fields);
  await page.press('Escape');
  assert.equal(await focused(page), 'panel-toggle');
  await walk('Tab', [...chips.reverse(), 'prompt']);
  await page.type('one');
  await page.press('Shift+Enter');
  await page.type('two');
  await walk('Tab', ['send']);
  await page.press(' ');
  await answered(page, 1);
  assert.equal(await page.evaluate(() => document.querySelector('.question').lastChild.data), 'one\ntwo');
  assert.equal(await focused(page), 'prompt');
  await walk('Shift+Tab', ['Copy']);
  await page.press('Enter');
  await page.until(() => /Copied/.test(document.querySelector('.answer-foot').textContent));
  await walk('Shift+Tab', ['new-chat']);
  await page.press('Enter');
  await sees(page, '#welcome');
  assert.equal(await focused(page), 'prompt');
}

/** Nothing sticks out sideways, whatever is open. */
async function narrow(page) {
  await page.resize(320, 640);
  await page.upload('#file', file('base'));
  await loaded(page);
  assert.equal(await page.evaluate(sticksOut), false);
  await page.click('#panel-toggle');
  await sees(page, '#panel');
  assert.equal(await page.evaluate(sticksOut), false);
  await page.press('Escape');
  await ask(page, 'a'.repeat(60), 1);
  assert.equal(await page.evaluate(sticksOut), false);
}

/** No finding of axe, light and dark: an empty page, the panel, a full context, two kinds of error. */
async function accessibility(page) {
  const inspect = await judge(page);
  await page.upload('#file', file('chat'));
  await loaded(page);
  await inspect('empty');
  await page.click('#panel-toggle');
  await inspect('panel');
  await page.press('Escape');
  await ask(page, 'Hello', 1);
  await ask(page, 'And more', 2);
  await inspect('answers');
  await page.upload('#file', file('broken'));
  await sees(page, '#problem');
  await inspect('problem');
}

/* Markdown as a model streams it, and markup that must stay text. */
const STREAMED =
  '### Title\n1. **Strong**, *soft*, `a*b*c`, 2*3*4, __init__\n- <img src=x onerror=alert(1)>\n```js\n**x**\n```\nEnd **';
const SET =
  '<strong>Title</strong>\n1. <strong>Strong</strong>, <em>soft</em>, <code>a*b*c</code>, 2*3*4, __init__\n' +
  '• &lt;img src=x onerror=alert(1)&gt;\n<pre>**x**\n</pre>End **';
const SPOKEN = ['First sentence. ', 'Is it 3.5? ', 'Then', ' the end', '.', ' Left over'];

/** However it is cut into pieces, text is set alike, and said sentence by sentence. */
async function formatting(page) {
  for (const size of [1, 3, 1000]) {
    const [html, raw] = await page.evaluate(
      async (text, size) => {
        const { createFormatter } = await import('/web/demo/format.js');
        const body = document.createElement('div');
        const formatter = createFormatter(body);
        for (let i = 0; i < text.length; i += size) formatter.add(text.slice(i, i + size));
        formatter.end();
        return [body.innerHTML, formatter.raw()];
      },
      STREAMED,
      size,
    );
    assert.equal(html, SET);
    assert.equal(raw, STREAMED);
  }
  const said = await page.evaluate(async (pieces) => {
    const { createAnnouncer } = await import('/web/demo/announce.js');
    const region = document.createElement('output');
    const announcer = createAnnouncer(region);
    const counts = pieces.map((piece) => (announcer.add(piece), region.childElementCount));
    announcer.end('Stopped.');
    return { counts, lines: [...region.children].map((line) => line.textContent.trim()) };
  }, SPOKEN);
  assert.deepEqual(said.lines, ['First sentence.', 'Is it 3.5?', 'Then the end.', 'Left over', 'Stopped.']);
  assert.deepEqual(said.counts, [0, 1, 2, 2, 2, 3]);
}

/* -- what runs where -------------------------------------------------------------------------------- */

/** Shared memory is there in the first two when isolated, never in WebKitGTK. */
const THREADS = { chromium: true, firefox: true, webkit: false };

const inNode = bitsOf(engineModule, new Blob([FILES.bits]));

for (const name of BROWSERS) {
  test(name, { skip: browserAbsent(name) }, async (t) => {
    const browser = await startBrowser(name);
    t.after(() => browser.close());
    rmSync(served, { force: true });
    const folders = { ...defaultFolders(), '/kit/': KIT };
    const real = await startServer({ port: 0, folders });
    const plain = await startServer({ port: 0, folders, isolation: false });
    const small = await startServer({ port: 0, folders: { ...folders, '/models/': folder } });
    t.after(() => Promise.all([real.close(), plain.close(), small.close()]));

    for (const [kind, server, isolated] of [
      ['isolated', real, true],
      ['not isolated', plain, false],
    ]) {
      const subtest = `${name}: SmolLM2 answers, ${kind}`;
      await t.test(subtest, { skip: absent(SMOLLM2.path) }, (t) =>
        withPage(t, browser, server.url, async (page) => {
          assert.equal(await page.evaluate(() => crossOriginIsolated), isolated);
          await conversation(page, { isolated, threads: THREADS[name] });
        }),
      );
    }
    /* one engine's judgement suffices for axe */
    const judged = name === 'chromium' ? [accessibility] : [];
    for (const use of [files, keyboard, narrow, formatting, errors, ...judged]) {
      await t.test(`${name}: ${use.name}`, (t) =>
        withPage(t, browser, small.url, async (page) => {
          await use(page, name);
          /* browsers say a 404 themselves */
          const problems = (await page.takeProblems()).filter((problem) => !/status of 404/.test(problem));
          assert.deepEqual(problems, []);
        }),
      );
    }
    await t.test(`${name}: every variant has Node's bits`, (t) =>
      withPage(t, browser, `${small.url}kit/bits-worker.js`, async (page) => {
        const { rows, error } = await bitsIn(page, t);
        assert.equal(error, undefined);
        const seen = new Set(rows.map(({ variant }) => variant));
        assert.deepEqual([...seen], THREADS[name] ? [...VARIANTS, ...WIDE_VARIANTS] : ['simd']);
        const expected = new Map((await inNode).map((row) => [row.precision, row.hash]));
        for (const { hash, precision, ...where } of rows) {
          assert.equal(hash, expected.get(precision), `${precision}: ${JSON.stringify(where)}`);
        }
      }),
    );
    if (name !== 'chromium') return;
    const skip = freemem() < 8e9 && 'skipped: 8 GB of free memory are needed';
    await t.test(`${name}: a model beyond 4 GiB`, { skip }, (t) =>
      withPage(t, browser, `${small.url}kit/wide-worker.js`, async (page) => {
        const { error, variant, bytes, wrong, largest } = await page.evaluate(runWorker, '/kit/wide-worker.js', { threads: 2 }, 120_000);
        assert.equal(error, undefined);
        assert.equal(variant, 'relaxed-m64-mt');
        assert.ok(bytes > 2 ** 32 && largest > 1e-3);
        assert.equal(wrong, 0, 'logits that differ across 4 GiB');
      }),
    );
  });
}

/* Firefox's fault that web/workers.js tells of: an engine in a worker of one's own has no page to ask, and
 * starts eight workers here. */
async function bitsIn(page, t) {
  for (let left = 3; ; left--) {
    const said = await page.evaluate(runWorker, '/kit/bits-worker.js', '/models/bits.gguf', 20_000);
    if (said.error !== 'it does not answer' || left === 1) return said;
    t.diagnostic('asked again: the worker of the bits stands still');
  }
}

/* Runs in the page. */
function runWorker(script, input, ms) {
  return new Promise((resolve) => {
    const worker = new Worker(script, { type: 'module' });
    worker.onmessage = ({ data }) => resolve(data);
    worker.onerror = ({ message }) => resolve({ error: message });
    setTimeout(() => resolve({ error: 'it does not answer' }), ms);
    worker.postMessage(input);
  });
}
