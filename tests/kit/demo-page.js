/* demo-page.js: what a reader of the demo sees and does, in any browser of browsers.js. */
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const SHOTS = fileURLToPath(new URL('../../build/', import.meta.url));
const AXE = createRequire(import.meta.url).resolve('axe-core/axe.min.js');

export const text = (page, selector) =>
  page.evaluate((s) => document.querySelector(s)?.innerText.trim() ?? '', selector);
export const visible = (page, selector) =>
  page.evaluate((s) => !!document.querySelector(s)?.getClientRects().length, selector);
export const sees = (page, selector) =>
  page.until((s) => !!document.querySelector(s)?.getClientRects().length, [selector]);
export const focused = (page) =>
  page.evaluate(() => document.activeElement.id || document.activeElement.textContent.trim());

/** Until a model is there. */
export const loaded = (page) => page.until(() => /MB/.test(document.querySelector('#status').textContent));

/** Over what stood in the field before. */
export async function enterAddress(page, name) {
  await page.click('#panel-toggle');
  await page.click('#url');
  await page.press('Control+a');
  await page.type(name.includes(':') ? name : `../../models/${name}`);
  await page.press('Enter');
}

/** @param {import('node:test').TestContext} t */
export async function withPage(t, browser, url, use) {
  try {
    await onPage(t, browser, url, use);
  } catch (error) {
    /* On a busy machine a browser or its driver falls silent now and then, whatever the page does; one
     * that does so twice fails. */
    if (!/^not within|TimeoutError/.test(`${error.message} ${error.name}`)) throw error;
    t.diagnostic(`asked again: ${error.message}`);
    await onPage(t, browser, url, use);
  }
}

async function onPage(t, browser, url, use) {
  const page = await browser.open(url);
  try {
    await use(page);
  } catch (error) {
    mkdirSync(SHOTS, { recursive: true });
    const shot = path.join(SHOTS, `${t.name.replace(/\W+/g, '-')}.png`);
    await page.screenshot(shot);
    t.diagnostic(`the page as it was: ${shot}`);
    throw error;
  } finally {
    await page.close();
  }
}

/* Runs in the page: the focused element, or the box around it, has an outline. */
export function isMarked() {
  const { activeElement } = document;
  const marked = [activeElement, activeElement.closest('form'), activeElement.nextElementSibling];
  return marked.some((element) => element && getComputedStyle(element).outlineStyle !== 'none');
}

/* Runs in the page: something is wider than the window. */
export const sticksOut = () => document.documentElement.scrollWidth > window.innerWidth;

/** axe, for Chromium; the function that it gives fails on any finding, light or dark. */
export async function judge(page) {
  await page.evaluate(`${readFileSync(AXE, 'utf8')};0`);
  return async (state) => {
    for (const scheme of ['light', 'dark']) {
      await page.prefer(scheme);
      const findings = await page.evaluate(async () => {
        const { passes, violations } = await window.axe.run();
        return passes.length
          ? violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)])
          : 'nothing ran';
      });
      assert.deepEqual(findings, [], `${state}, ${scheme}`);
    }
  };
}
