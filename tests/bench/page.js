/**
 * page.js: the same two operations inside a page: `self.engines[name].load(...)` and `.run(...)`. Ours runs in a
 * worker, as the package's API runs it; wllama starts its own workers.
 */
import { Clock } from './clock.js';

/** An operation of own-worker.js. */
function call(worker, operation, args) {
  return new Promise((resolve, reject) => {
    worker.onmessage = ({ data: { value, error } }) => (error ? reject(new Error(error)) : resolve(value));
    worker.onerror = (event) => reject(new Error(event.message));
    worker.postMessage({ operation, args });
  });
}

const ours = {
  async load(args) {
    this.worker = new Worker('/tests/bench/own-worker.js', { type: 'module' });
    return call(this.worker, 'load', args);
  },
  run(args) {
    return call(this.worker, 'run', args);
  },
};

const wllama = {
  async load({ url, threads, context }) {
    const { Wllama } = await import('/peers/@wllama/wllama/esm/index.js');
    const silent = () => {};
    this.wllama = new Wllama(
      { default: '/peers/@wllama/wllama/esm/wasm/wllama.wasm' },
      { logger: { debug: silent, log: silent, warn: silent, error: silent } },
    );
    const blob = await (await fetch(url)).blob();
    const start = performance.now();
    await this.wllama.loadModel([blob], { n_threads: threads, n_ctx: context, n_parallel: 1, n_gpu_layers: 0 });
    return { ms: performance.now() - start, threads: this.wllama.getNumThreads() };
  },
  /** Takes text only: n words of one token each, more or less; it tells how many they were, and its own times. */
  async run({ words, n }) {
    const clock = new Clock();
    let timings;
    await this.wllama.createCompletion({
      prompt: words, max_tokens: n, temperature: 0, ignore_eos: true, cache_prompt: false, stream: true,
      onData: (/** @type {any} */ data) => {
        timings = data.timings ?? timings;
        clock.tick();
      },
    });
    return { promptTokens: timings.prompt_n, promptMs: timings.prompt_ms, steps: timings.predicted_n, stepsMs: timings.predicted_ms };
  },
};

/** @type {any} */ (self).engines = { tabllama: ours, wllama };
