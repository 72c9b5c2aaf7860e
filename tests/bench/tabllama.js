/** tabllama.js: our engine in Node, for engines.js. */
import { createEngine } from '../../web/engine.js';
import { Clock } from './clock.js';
import { serve } from './serve.js';
import { greedy, prefill } from './greedy.js';

/** @type {import('../../web/engine.js').Engine} */
let engine;
let seq = 0;

serve({
  async load({ file, threads, precision, context, kvType }) {
    const start = performance.now();
    engine = await createEngine(file, { threads, precision, contextLength: context, kvType });
    const ms = performance.now() - start;
    seq = engine.seq();
    const { variant, bytesToken, gigaOpsToken, nVocab, dModel, fileBytes } = engine.info;
    return { ms, variant, threads: engine.info.threads, bytesToken, gigaOpsToken, nVocab, dModel, fileBytes, memory: engine.memory() };
  },
  run: ({ tokens, n, keep = 0 }) => greedy(engine, seq, tokens, n, keep),
  /** CPU milliseconds of each step of n sequences together, behind so many tokens each. */
  batch({ n, depth, steps }) {
    const seqs = Array.from({ length: n }, () => engine.seq());
    for (const [i, s] of seqs.entries()) prefill(engine, s, Array.from({ length: depth }, (_, t) => 300 + ((i * 31 + t * 7) % 20000)), 'none');
    const clock = new Clock();
    for (let step = 0; step <= steps; step++) {
      engine.eval(seqs.map((s) => [300 + step, s]));
      clock.tick();
    }
    for (const s of seqs) engine.drop(s);
    const { cpuMs } = clock;
    return { times: cpuMs.slice(1).map((t, i) => t - cpuMs[i]) };
  },
  memory: () => engine.memory(),
  close: () => engine.close(),
});
