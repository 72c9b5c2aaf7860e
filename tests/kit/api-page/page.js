/* What tests/api-browsers.test.js reads: the public API as a page uses it, one named outcome each. */
import { createEngine } from '../../dist/engine.js';
import { ModelError, estimate, load, support } from '../../dist/index.js';

const MODEL = '../model/model.gguf';
const greedy = { temperature: 0, maxTokens: 12 };
const endless = { seed: 3, logitBias: { 0: -Infinity, 2: -Infinity } };
const outcomes = {};

/** Runs one check; an error is an outcome too. */
async function tell(name, check) {
  const start = performance.now();
  try {
    outcomes[name] = await check();
  } catch (error) {
    const { name: kind, code, message } = error;
    outcomes[name] = { kind, code, message, ours: error instanceof ModelError, ms: performance.now() - start };
  }
}

async function answerFrom(source, options) {
  const calls = [];
  const model = await load(source, { ...options, onProgress: (progress) => calls.push(progress) });
  const { tokens } = await model.generate('to sit on', greedy).result();
  await model.close();
  const { threads, variant } = model.info;
  return { tokens, threads, variant, first: calls[0].loaded, last: calls.at(-1).loaded };
}

/** A handle as a file picker gives it: a real one where there is a place to make it. */
async function handleOf(file) {
  const folder = await navigator.storage?.getDirectory?.().catch(() => undefined);
  if (!folder) return { [Symbol.toStringTag]: 'FileSystemFileHandle', name: 'x.gguf', getFile: async () => file };
  const handle = await folder.getFileHandle('x.gguf', { create: true });
  const stream = await handle.createWritable();
  await stream.write(file);
  await stream.close();
  return handle;
}

await tell('support', support);
const file = await (await fetch(MODEL)).blob();
const bytes = new Uint8Array(await file.arrayBuffer());
await tell('relative URL', () => answerFrom(MODEL));
await tell('URL', () => answerFrom(new URL(MODEL, location.href)));
await tell('threads', () => answerFrom(MODEL, { threads: 2 }));
await tell('workers', async () => {
  const started = [];
  const ended = [];
  const Original = Worker;
  globalThis.Worker = class extends Original {
    #name;
    constructor(url, options) {
      super(url, options);
      this.#name = new URL(url).pathname.split('/').at(-1);
      started.push(this.#name);
    }
    terminate() {
      ended.push(this.#name);
      super.terminate();
    }
  };
  const model = await load(MODEL, { threads: 2 });
  await model.render([{ role: 'user', content: 'Hi' }]);
  await model.close();
  globalThis.Worker = Original;
  return { started, ended: ended.sort() };
});
await tell('Blob', () => answerFrom(file));
await tell('File', () => answerFrom(new File([file], 'model.gguf')));
await tell('bytes', () => answerFrom(bytes));
await tell('bytes are kept', () => bytes.length);
await tell('stream', () => answerFrom(file.stream()));

await tell('engine', async () => {
  const engine = await createEngine(file, { threads: 2 });
  await engine.close();
  return engine.info.threads;
});
outcomes['engine with threads'] = await createEngine(file, { threads: 2, variant: 'simd-mt' }).catch(({ code, message }) => ({ code, message }));

await tell('split URL', () => answerFrom('../model/model-00001-of-00003.gguf'));
await tell('split Files', async () => {
  const names = [2, 3, 1].map((no) => `model-0000${no}-of-00003.gguf`);
  return answerFrom(await Promise.all(names.map(async (name) => new File([await (await fetch(`../model/${name}`)).blob()], name))));
});
await tell('handle', async () => answerFrom(await handleOf(file)));
await tell('estimate', () => estimate(MODEL, { threads: 1, variant: 'simd' }));
await tell('sha256', () => load(file, { sha256: '0'.repeat(64) }));
await tell('404', () => load('absent.gguf'));
await tell('page', () => load('index.html'));
await tell('text', () => load(new Blob(['Once upon a time'])));
await tell('headers', () => load(file, { headers: {} }));
await tell('no worker', () => load(MODEL, { assets: { worker: 'absent.js' } }));
await tell('no wasm', () => load(MODEL, { assets: { wasm: 'absent' } }));
await tell('assets', () => answerFrom(MODEL, { assets: { worker: '/dist/worker.js', thread: '/dist/thread.js', wasm: '/dist' } }));
await tell('aborted', () => load(MODEL, { signal: AbortSignal.abort(new TypeError('enough')) }));

const hi = [{ role: 'user', content: 'Hi' }];
await tell('no template', async () => (await load(MODEL, { assets: { template: 'absent.js' } })).render(hi));
await tell('render elsewhere', async () => (await load(MODEL, { assets: { template: '/dist/template.js' } })).render(hi));

const model = await load(MODEL);
await tell('abort', async () => {
  const controller = new AbortController();
  let pieces = 0;
  for await (const { tokens } of model.generate('to sit on', { ...endless, signal: controller.signal })) {
    if ((pieces += tokens.length) === 10) controller.abort();
  }
});
await tell('break', async () => {
  const generation = model.generate('to sit on', endless);
  for await (const { text } of generation) if (text) break;
  return (await generation.result()).reason;
});
await tell('chat', async () => {
  const chat = model.chat({ system: 'on' });
  for (const text of ['sit', '<|im_end|>']) await chat.send(text, greedy).text();
  return chat.messages.map(({ role }) => role).join();
});
await model.close();
await tell('closed', () => model.tokenize('a'));

const failing = await load('../model/endless.gguf', { threads: 1 });
await tell('endless template', () => failing.chat().send('Hi').text());
await tell('after the endless template', async () => (await failing.generate('to sit on', greedy).result()).tokens);
await failing.close();

document.querySelector('pre').textContent = JSON.stringify(outcomes);
document.title = 'done';
