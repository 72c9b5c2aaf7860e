/* One model through calls in random order: generated, aborted, left, chatted with, forked, rewound, closed and
 * loaded again. Nothing may grow: not the engine's memory, not workers or handles, not what JS holds.
 *
 *   SOAK_TOKENS=1000000 SOAK_SEED=7 node --test tests/soak.test.js
 *
 * A seed gives the same calls again; when an abort comes in is the machine's choice. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { createEngine } from '../web/engine.js';
import { load } from '../web/index.js';
import { makeModel, randomNumbers } from './kit/make-model.js';

const TOKENS = Number(process.env.SOAK_TOKENS ?? 20_000);
const SEED = Number(process.env.SOAK_SEED ?? 1);
const TEMPLATE = '{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}';
const N_CTX = 1000;
const FILE = makeModel({ type: 'Q8_0', vocabulary: 'bpe', chatTemplate: TEMPLATE, nCtx: N_CTX });
const MOST_CHATS = 10;
/** What a heap may hold more than before without growing: code that was compiled since, and the like. */
const HEAP_SLACK = 2 ** 20;

setFlagsFromString('--expose-gc');
const gc = runInNewContext('gc');

const random = randomNumbers(SEED);
const below = (n) => Math.floor(random() * n);
const pick = (list) => list[below(list.length)];
const words = (n) => Array.from({ length: n }, () => pick(['to', 'sit', 'on', 'a', 'mat', 'is', 'not'])).join(' ');
const ids = (n) => Array.from({ length: n }, () => 1 + below(250));

/** Everything that the calls are made on, and how far they are. */
const world = { model: undefined, engine: undefined, chats: [], tokens: 0, calls: {}, memory: new Map(), threads: 1 };

const options = () => ({ maxTokens: 1 + below(40), seed: below(1e6), temperature: pick([0, 0.8, 1.5]), repeatPenalty: pick([1, 1.1]), stop: pick([[], ['zz']]) });
/** The bits of every answer to this question are the same, whatever was called before. */
const question = { prompt: ids(20), options: { temperature: 0, maxTokens: 12 } };

function count({ usage }) {
  world.tokens += usage.promptTokens - usage.cachedTokens + usage.completionTokens;
}

const CALLS = {
  async generate() {
    count(await world.model.generate(pick([words(below(100)), ids(1 + below(900))]), options()).result());
  },
  async same() {
    const result = await world.model.generate(question.prompt, question.options).result();
    question.answer ??= result.tokens;
    assert.deepEqual(result.tokens, question.answer);
    count(result);
  },
  async several() {
    const all = Array.from({ length: 3 }, () => world.model.generate(words(10), options()).result());
    (await Promise.all(all)).forEach(count);
  },
  async abort() {
    const controller = new AbortController();
    const generation = world.model.generate(ids(1 + below(900)), { ...options(), signal: controller.signal });
    const after = below(6);
    const aborted = (async () => {
      let pieces = 0;
      if (after === 0) controller.abort();
      for await (const { tokens } of generation) {
        world.tokens += tokens.length;
        if (++pieces === after) controller.abort();
      }
    })();
    await aborted.catch((error) => assert.equal(error.name, 'AbortError')); // or it has ended before
  },
  async leave() {
    const generation = world.model.generate(words(5), options());
    for await (const { tokens } of generation) if (tokens.length > 0 && below(3) === 0) break;
    count(await generation.result());
  },
  async send() {
    if (world.chats.length === 0) world.chats.push(world.model.chat(pick([{}, { system: words(4) }])));
    const chat = pick(world.chats);
    try {
      const result = await chat.send(words(1 + below(80)), options()).result();
      count(result);
      if (result.reason !== 'context') return;
    } catch (error) {
      assert.equal(error.code, 'CONTEXT');
    }
    world.chats.splice(world.chats.indexOf(chat), 1);
    await chat.close();
  },
  /** A chat that goes on from where another one is. */
  async branch() {
    if (world.chats.length === 0 || world.chats.length === MOST_CHATS) return;
    world.chats.push(world.model.chat({ messages: pick(world.chats).messages }));
  },
  async closeChat() {
    await world.chats.splice(below(world.chats.length), 1)[0]?.close();
  },
  async text() {
    const text = words(below(30));
    assert.equal(await world.model.detokenize(await world.model.tokenize(text)), text);
  },
  /** Sequences of the engine itself. */
  async fork() {
    const { engine } = world;
    const seq = engine.seq();
    const prompt = ids(1 + below(900));
    for (let at = 0; at < prompt.length; at += 200) engine.eval({ tokens: prompt.slice(at, at + 200), seq });
    const forks = Array.from({ length: below(4) }, () => engine.fork(seq));
    for (const fork of forks) {
      engine.seed(fork, below(1e6));
      for (let i = below(20); i > 0 && engine.pos(fork) < N_CTX; i--) {
        engine.eval({ tokens: [1 + below(250)], seq: fork });
        engine.sample(fork);
        world.tokens++;
      }
    }
    engine.rewind(seq, below(prompt.length + 1));
    engine.eval({ tokens: ids(8), seq });
    world.tokens += prompt.length + 8;
    for (const one of [seq, ...forks]) engine.drop(one);
    assert.equal(engine.memory().kvUsed ?? 0, 0);
  },
};

/** How often each call is made, in proportion. */
const WEIGHTS = { generate: 6, same: 2, several: 1, abort: 4, leave: 3, send: 8, branch: 2, closeChat: 2, text: 1, fork: 4 };
const LOTTERY = Object.entries(WEIGHTS).flatMap(([name, n]) => Array(n).fill(name));

async function open() {
  world.threads = 3 - world.threads;
  world.model = await load(FILE, { threads: world.threads });
  world.engine = await createEngine(FILE, { threads: 1, contextLength: N_CTX });
}

async function close() {
  await world.model.close();
  await world.engine.close();
  world.chats = [];
  world.model = world.engine = undefined;
}

/** No instance takes more memory than its sequences may have in all. */
function checkMemory() {
  const { bytes, nLayers, nKvHeads, headDim } = world.model.info;
  const { maxSeqs, chunkTokens, bytesChunk, bytesNow } = world.engine.info;
  assert.equal(bytesChunk, chunkTokens * nLayers * nKvHeads * 2 * (headDim * 2 + 4));
  const most = (maxSeqs * Math.ceil(N_CTX / chunkTokens) + 1) * bytesChunk;
  world.memory.set(world.threads, Math.max(world.memory.get(world.threads) ?? 0, bytes.memory));
  const threads = world.threads * 2 ** 20; // stacks
  assert.ok(bytes.memory <= bytesNow + most + threads, `${bytes.memory} bytes of memory`);
  assert.ok(world.engine.memory().wasm <= bytesNow + most);
}

/** What is left when all is closed. */
async function left() {
  await new Promise((resolve) => setTimeout(resolve, 20)); // ports and timers that are being closed
  gc();
  gc();
  const { heapUsed, arrayBuffers, rss } = process.memoryUsage();
  return { resources: process.getActiveResourcesInfo().sort(), heap: heapUsed + arrayBuffers, rss };
}

test(`${TOKENS} tokens in random calls, seed ${SEED}: nothing grows`, async (t) => {
  const started = performance.now();
  const untilReload = Math.max(5000, TOKENS / 40);
  let first, reloads = 0;
  await open();
  while (world.tokens < TOKENS) {
    const target = world.tokens + untilReload;
    while (world.tokens < target) {
      const name = pick(LOTTERY);
      await CALLS[name]();
      world.calls[name] = (world.calls[name] ?? 0) + 1;
      checkMemory();
    }
    await close();
    const now = await left();
    if (++reloads === 2) first = now; // what is compiled and kept once has been
    if (reloads > 2) {
      assert.deepEqual(now.resources, first.resources, `seed ${SEED}, after ${world.tokens} tokens`);
      assert.ok(now.heap <= first.heap + HEAP_SLACK, `seed ${SEED}: ${now.heap - first.heap} bytes more after ${world.tokens} tokens`);
    }
    t.diagnostic(`${world.tokens} tokens: heap ${now.heap}, rss ${now.rss}, ${now.resources.length} handles`);
    await open();
  }
  await close();
  assert.ok(reloads > 2);
  t.diagnostic(`${reloads} loads, ${((performance.now() - started) / 1000).toFixed(0)} s, memory ${[...world.memory]}, calls ${JSON.stringify(world.calls)}`);
});
