/** browser.js: Chromium with both engines in one page each, for engines.js.
 *
 *   node browser.js NAME FOLDER     NAME: tabllama or wllama; FOLDER: where wllama is installed */
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { startServer } from '../../web/demo/serve.js';
import { startBrowser } from '../kit/browsers.js';
import { serve } from './serve.js';

const [name, peers] = process.argv.slice(2);
const ROOT = fileURLToPath(new URL('../../', import.meta.url));
let server, browser, page;

serve({
  async load({ file, threads, precision, context }) {
    const folder = (part) => path.join(ROOT, part);
    server = await startServer({
      port: 0,
      policy: null, // wllama starts its workers from blobs
      folders: {
        '/dist/': folder('dist'), '/tests/bench/': folder('tests/bench'), '/peers/': path.join(peers, 'node_modules'),
        '/models/': path.dirname(file),
      },
    });
    browser = await startBrowser('chromium');
    page = await browser.open(`${server.url}tests/bench/page.html`);
    await page.until(() => /** @type {any} */ (self).engines !== undefined);
    const url = `${server.url}models/${path.basename(file)}`;
    return page.evaluate((n, args) => /** @type {any} */ (self).engines[n].load(args), name, { url, threads, precision, context });
  },
  run: (args) => page.evaluate((n, a) => /** @type {any} */ (self).engines[n].run(a), name, args),
  async close() {
    await browser?.close();
    await server?.close();
  },
});
