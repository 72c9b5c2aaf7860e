/** own-worker.js: our engine in a page's worker, for page.js. */
import { createEngine } from '/dist/engine.js';
import { greedy } from './greedy.js';

let engine, seq;
const operations = {
  async load({ url, threads, precision, context }) {
    const start = performance.now();
    engine = await createEngine(url, { threads, precision, contextLength: context });
    const ms = performance.now() - start;
    seq = engine.seq();
    const { variant, threads: n, threadsReason } = engine.info;
    return { ms, variant, threads: n, threadsReason };
  },
  run: ({ tokens, n }) => greedy(engine, seq, tokens, n, 0),
};

self.onmessage = async ({ data: { operation, args } }) => {
  try {
    self.postMessage({ value: await operations[operation](args) });
  } catch (error) {
    self.postMessage({ error: String(error) });
  }
};
