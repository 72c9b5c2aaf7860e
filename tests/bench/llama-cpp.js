/** llama-cpp.js: llama.cpp on the CPU, by node-llama-cpp's build for this machine, for engines.js.
 *
 *   node llama-cpp.js FOLDER        FOLDER: where it is installed */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { Clock } from './clock.js';
import { serve } from './serve.js';

const folder = path.join(process.argv[2], 'node_modules/node-llama-cpp');
const { getLlama, LlamaLogLevel } = await import(pathToFileURL(path.join(folder, 'dist/index.js')).href);
let context, sequence;

serve({
  async load({ file, threads, context: contextSize }) {
    const llama = await getLlama({ gpu: false, build: 'never', logLevel: LlamaLogLevel.disabled, maxThreads: threads, progressLogs: false });
    const start = performance.now();
    const model = await llama.loadModel({ modelPath: file, gpuLayers: 0 });
    context = await model.createContext({ contextSize, batchSize: 512, threads, flashAttention: true, sequences: 1 });
    sequence = context.getSequence();
    const ms = performance.now() - start;
    const library = readFileSync('/proc/self/maps', 'utf8').match(/libggml-cpu-[a-z0-9_]+/)?.[0];
    return { ms, library, features: llama.systemInfo.trim() };
  },
  async run({ tokens, n, keep = 0 }) {
    if (sequence.nextTokenIndex > keep) await sequence.eraseContextTokenRanges([{ start: keep, end: sequence.nextTokenIndex }]);
    if (sequence.nextTokenIndex !== keep) throw new Error(`${sequence.nextTokenIndex} tokens in the context, not ${keep}`);
    const clock = new Clock();
    for await (const _ of sequence.evaluate(tokens.slice(keep), { temperature: 0, yieldEogToken: true }))
      if (clock.tick() >= n) break;
    return clock.times();
  },
  close() {},
});
