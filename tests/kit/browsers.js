/**
 * browsers.js: three browsers, driven alike. Chromium and Firefox through puppeteer-core (CDP and WebDriver
 * BiDi), WebKitGTK through plain WebDriver over HTTP, on a display of its own. Clicks and keys are real input
 * events; `evaluate` only looks.
 *
 *   const browser = await startBrowser('firefox');
 *   const page = await browser.open(url);
 *   await page.click('#prompt');
 *   await page.type('Hello');
 *   await page.press('Enter');
 *   await page.until(() => document.body.innerText.includes('Hello'));
 *   await browser.close();
 *
 * What `evaluate` and `until` return crosses as JSON: an element is nothing.
 */
import { spawn } from 'node:child_process';
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';
import puppeteer from 'puppeteer-core';

const WHERE = (process.env.PATH ?? '').split(path.delimiter);
const POLL_MS = 40;
const UNTIL_MS = 60_000;
/* The tests start several browsers on few cores. */
const START_MS = 60_000;
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'];

/** What each browser needs, by the names under which distributions have it; the first found is taken. */
const NEEDS = {
  chromium: [['chromium', 'chromium-browser', 'google-chrome-stable', 'google-chrome']],
  firefox: [['firefox-esr', 'firefox']],
  webkit: [['WebKitWebDriver'], ['xvfb-run'], ['MiniBrowser'], ['xauth']],
};

/* Chromium's sandbox refuses root, which containers run as; the rest keeps it off the network. */
const CHROMIUM_FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

export const BROWSERS = Object.keys(NEEDS);

/** WebKitGTK keeps its MiniBrowser off the path, in a folder named after architecture and version. */
function miniBrowserFolders() {
  const libraries = ['/usr/lib', '/usr/libexec', '/usr/lib64'].filter((folder) => existsSync(folder));
  const nested = libraries.flatMap((folder) => readdirSync(folder).map((name) => path.join(folder, name)));
  return [...libraries, ...nested].flatMap((folder) =>
    ['webkit2gtk-4.1', 'webkit2gtk-4.0', 'webkitgtk-6.0'].map((name) => path.join(folder, name)),
  );
}

function findProgram(names) {
  const folders = names.includes('MiniBrowser') ? miniBrowserFolders() : WHERE;
  return names
    .flatMap((name) => folders.map((folder) => path.join(folder, name)))
    .find((file) => existsSync(file));
}

/**
 * Whether tests in a browser must be skipped: false, or the reason. Throws where CI forbids to skip.
 * @param {keyof typeof NEEDS} name
 */
export function browserAbsent(name) {
  const missing = NEEDS[name].find((names) => !findProgram(names));
  if (!missing) return false;
  if (process.env.CI === 'true')
    throw new Error(`${missing[0]} is not installed, and CI=true allows no skipped test`);
  return `skipped: ${missing[0]} is not installed`;
}

/** @param {keyof typeof NEEDS} name */
export async function startBrowser(name) {
  const programs = NEEDS[name].map((names) => findProgram(names));
  return name === 'webkit' ? startWebKit(programs) : startPuppeteer(name, programs[0]);
}

/* -- Chromium and Firefox --------------------------------------------------------------------------- */

async function startPuppeteer(name, executablePath) {
  const browser = await puppeteer.launch({
    browser: name === 'firefox' ? 'firefox' : 'chrome',
    executablePath,
    headless: true,
    timeout: START_MS,
    protocolTimeout: 2 * UNTIL_MS,
    args: name === 'chromium' ? CHROMIUM_FLAGS : [],
  });
  return {
    name,
    version: await browser.version(),
    close: () => browser.close(),
    async open(url, { width = 1024, height = 768 } = {}) {
      const page = await browser.newPage();
      await page.setViewport({ width, height });
      const problems = collectProblems(page);
      await page.evaluateOnNewDocument(() => {
        document.addEventListener('securitypolicyviolation', (event) => {
          console.error(`policy violation: ${event.violatedDirective} ${event.blockedURI}`);
        });
      });
      await page.goto(url);
      return { ...puppeteerPage(page, problems), ...(name === 'chromium' && chromiumOnly(page)) };
    },
  };
}

function collectProblems(page) {
  const problems = [];
  page.on('console', (message) => {
    if (['error', 'warn', 'warning'].includes(message.type())) problems.push(message.text());
  });
  page.on('pageerror', (error) => problems.push(String(error)));
  return problems;
}

function puppeteerPage(page, problems) {
  const evaluate = (look, ...values) => page.evaluate(look, ...values);
  return {
    evaluate,
    until: poll(evaluate),
    takeProblems: () => problems.splice(0),
    click: (selector) => page.locator(selector).setTimeout(UNTIL_MS).click(),
    type: (text) => page.keyboard.type(text),
    async press(keys) {
      const held = keys.split('+');
      const last = held.pop();
      for (const key of held) await page.keyboard.down(key);
      await page.keyboard.press(last);
      for (const key of held) await page.keyboard.up(key);
    },
    async upload(selector, file) {
      const input = await page.$(selector);
      await input.uploadFile(file);
    },
    resize: (width, height) => page.setViewport({ width, height }),
    screenshot: (file) => page.screenshot({ path: file }),
    close: () => page.close(),
  };
}

/* What CDP alone can do: drop a file as a user does, ask for light or dark, have little storage. */
function chromiumOnly(page) {
  return {
    async drop(file, x, y) {
      const session = await page.createCDPSession();
      const data = { items: [], files: [file], dragOperationsMask: 1 };
      for (const type of ['dragEnter', 'dragOver', 'drop']) {
        await session.send('Input.dispatchDragEvent', { type, x, y, data });
      }
      await session.detach();
    },
    async storageOf(quotaSize) {
      const session = await page.createCDPSession();
      await session.send('Storage.overrideQuotaForOrigin', { origin: new URL(page.url()).origin, quotaSize });
    },
    prefer: (scheme) => page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]),
  };
}

/* -- WebKitGTK -------------------------------------------------------------------------------------- */

/* The key codes of WebDriver, section 17.4.2. */
const KEYS = {
  Shift: '\uE008',
  Control: '\uE009',
  Enter: '\uE007',
  Tab: '\uE004',
  Escape: '\uE00C',
  Home: '\uE011',
  End: '\uE010',
  ArrowLeft: '\uE012',
  ArrowRight: '\uE014',
};
const ELEMENT = 'element-6066-11e4-a52e-4f735466cecf';

async function startWebKit([driver, xvfb, miniBrowser]) {
  const port = await freePort();
  /* a group of its own, so that the display ends with the driver */
  const child = spawn(xvfb, ['-a', '-s', '-screen 0 1280x1024x24', driver, `--port=${port}`], {
    env: { ...process.env, WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS: '1', GTK_A11Y: 'none' },
    stdio: 'ignore',
    detached: true,
  });
  const end = () => {
    if (child.exitCode === null) process.kill(-child.pid, 'SIGTERM');
  };
  const endToo = (signal) => {
    end();
    process.kill(process.pid, signal);
  };
  process.once('exit', end);
  for (const signal of SIGNALS) process.once(signal, endToo);
  const driverUrl = `http://127.0.0.1:${port}`;
  await answering(`${driverUrl}/status`);
  let version = '';
  return {
    name: 'webkit',
    get version() {
      return version;
    },
    async close() {
      process.off('exit', end);
      for (const signal of SIGNALS) process.off(signal, endToo);
      const ended = new Promise((resolve) => child.once('exit', resolve));
      end();
      await ended;
    },
    async open(url) {
      const browserOptions = { binary: miniBrowser, args: ['--automation'] };
      const { sessionId, capabilities } = await command(driverUrl, 'POST', '/session', {
        capabilities: { alwaysMatch: { 'webkitgtk:browserOptions': browserOptions } },
      });
      version = `WebKitGTK ${capabilities.browserVersion}`;
      const session = `${driverUrl}/session/${sessionId}`;
      await command(session, 'POST', '/timeouts', { script: 2 * UNTIL_MS, pageLoad: UNTIL_MS });
      await command(session, 'POST', '/url', { url });
      const page = webKitPage(session);
      await page.evaluate(watchProblems);
      return page;
    },
  };
}

function webKitPage(session) {
  const evaluate = async (look, ...values) => {
    /* the driver passes the values and a callback; an error comes back as text */
    const script = `const done = arguments[arguments.length - 1];
      const values = Array.prototype.slice.call(arguments, 0, -1);
      Promise.resolve().then(() => (${look})(...values)).then((value) => done({ value }), (e) => done({ error: String(e) }));`;
    const { value, error } = await command(session, 'POST', '/execute/async', { script, args: values });
    if (error) throw new Error(error);
    return value ?? undefined;
  };
  const find = async (selector) => {
    const found = await command(session, 'POST', '/element', { using: 'css selector', value: selector });
    return `/element/${found[ELEMENT]}`;
  };
  const keys = (actions) =>
    command(session, 'POST', '/actions', { actions: [{ type: 'key', id: 'keys', actions }] });
  const down = (value) => ({ type: 'keyDown', value });
  const up = (value) => ({ type: 'keyUp', value });
  return {
    evaluate,
    until: poll(evaluate),
    takeProblems: () => evaluate(() => window.problems.splice(0)),
    click: async (selector) => command(session, 'POST', `${await find(selector)}/click`, {}),
    type: (text) => keys([...text].flatMap((key) => [down(key), up(key)])),
    press(names) {
      const pressed = names.split('+').map((name) => KEYS[name] ?? name);
      return keys([...pressed.map(down), ...pressed.reverse().map(up)]);
    },
    upload: async (selector, file) =>
      command(session, 'POST', `${await find(selector)}/value`, { text: file }),
    resize: (width, height) => command(session, 'POST', '/window/rect', { width, height }),
    async screenshot(file) {
      writeFileSync(file, Buffer.from(await command(session, 'GET', '/screenshot'), 'base64'));
    },
    close: () => command(session, 'DELETE', ''),
  };
}

/** Plain WebDriver has no console events; this runs in the page, after it has loaded. */
function watchProblems() {
  window.problems = [];
  const add = (problem) => window.problems.push(String(problem));
  window.addEventListener('error', (event) => add(event.message));
  window.addEventListener('unhandledrejection', (event) => add(event.reason));
  document.addEventListener('securitypolicyviolation', (event) =>
    add(`policy violation: ${event.violatedDirective}`),
  );
  for (const level of ['error', 'warn']) {
    const original = console[level];
    console[level] = (...values) => {
      add(values.join(' '));
      original.apply(console, values);
    };
  }
}

async function command(base, method, route, body) {
  const signal = AbortSignal.timeout(3 * UNTIL_MS); // a driver that has fallen silent
  const response = await fetch(base + route, { method, body: body && JSON.stringify(body), signal });
  const { value } = await response.json();
  if (!response.ok) throw new Error(`WebDriver: ${value.error}: ${value.message}`);
  return value;
}

async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

async function answering(url) {
  const deadline = Date.now() + START_MS;
  for (;;) {
    try {
      await fetch(url);
      return;
    } catch (error) {
      if (Date.now() > deadline) throw error;
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  }
}

/**
 * Looks until the function gives something truthy, which is returned. A machine that stands still, or a look
 * that takes long, uses up no more than a second of the time, so that whoever is waited for has it as well.
 */
function poll(evaluate) {
  return async (look, values = [], timeoutMs = UNTIL_MS) => {
    const start = Date.now();
    let looks = 0;
    for (let last = start, waited = 0; waited < timeoutMs; looks++) {
      const seen = await evaluate(look, ...values);
      if (seen) return seen;
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      const now = Date.now();
      waited += Math.min(now - last, 1000);
      last = now;
    }
    throw new Error(`not within ${timeoutMs} ms (${looks} looks in ${Date.now() - start} ms): ${look}`);
  };
}
