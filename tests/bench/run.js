/**
 * npm run bench [-- --peers] [--models NAME,NAME] [--reps N] [--out FILE]
 *
 * Kernels against this machine's peaks, then whole models; a table on stdout, everything as JSON in --out
 * (build/bench.json). --peers: beside native llama.cpp, and in Chromium beside wllama; both are installed into
 * the user's cache folder. Engines take turns, so that a ratio is of neighbours in time. With one thread the
 * CPU's clock counts, not the wall's: other programs on the machine then cost only what they take of the caches
 * and the memory.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { cacheFolder } from '../../wasm/toolchain/cache.js';
import { nodeOf } from '../kit/nodes.js';
import { Engine } from './engines.js';
import { MODELS, modelFile } from './models.js';
import { median, report } from './report.js';

const PEERS = ['node-llama-cpp@3.22.1', '@wllama/wllama@3.13.0'];
const NEWEST = 24;
const DEPTHS = [1024, 2048], STEPS = 17, FIRST = 20;
/** Bytes of a file above which long prompts and the longest context take minutes. */
const LARGE = 500e6;

const { values: options } = parseArgs({
  options: {
    peers: { type: 'boolean', default: false },
    models: { type: 'string', default: MODELS.join() },
    reps: { type: 'string', default: '3' },
    out: { type: 'string', default: fileURLToPath(new URL('../../build/bench.json', import.meta.url)) },
  },
});
const reps = Number(options.reps);

function installPeers() {
  const folder = path.join(cacheFolder, 'bench-peers');
  if (!existsSync(path.join(folder, 'node_modules'))) {
    mkdirSync(folder, { recursive: true });
    const args = ['install', '--silent', '--ignore-scripts', '--no-audit', '--no-fund', '--prefix', folder, ...PEERS];
    if (spawnSync('npm', args, { stdio: ['ignore', 'inherit', 'inherit'] }).status !== 0) throw new Error(`npm could not install ${PEERS.join(' and ')}`);
  }
  return folder;
}

/** Another prompt for every seed, so that no engine can have it already. */
const prompt = (n, seed) => Array.from({ length: n }, (_, i) => 300 + ((i * 7919 + seed * 104729) % 25000));
/** Milliseconds of the CPU where they are known and one thread is all, else of the wall. */
const times = ({ ms, cpuMs }, threads) => (threads === 1 && cpuMs?.[0] ? cpuMs : ms);
const step = (t) => (t[t.length - 1] - t[0]) / (t.length - 1);

/** Tokens per second of each engine in each job, a list with one per repetition. */
async function measureModel(engines, threads, large) {
  const rates = {};
  const once = async (engine, job, n, count, keep, seed) => {
    const t = times(await engine.ask('run', { tokens: prompt(n, seed), n: count, keep }), threads);
    ((rates[engine.name] ??= {})[job] ??= []).push(count === 1 ? (1000 * n) / t[0] : 1000 / step(t));
  };
  for (let rep = 0; rep < reps; rep++)
    for (const engine of engines) {
      await once(engine, 'p128', 128, 1, 0, rep);
      if (threads === 1 && !large) await once(engine, 'p512', 512, 1, 0, rep);
      await once(engine, 'd8', 8, STEPS, 0, rep);
    }
  for (const depth of threads > 1 ? [] : large ? DEPTHS.slice(0, 1) : DEPTHS) {
    for (const engine of engines) await engine.ask('run', { tokens: prompt(depth, 1), n: 1 });
    for (let rep = 0; rep < reps; rep++)
      for (const engine of engines) await once(engine, `d${depth}`, depth, STEPS, depth - 1, 1);
  }
  return rates;
}

async function open(engine, file, precision, threads) {
  const loaded = await engine.ask('load', { file, precision, threads, context: DEPTHS[1] + 2 * STEPS });
  const { ms } = await engine.ask('run', { tokens: prompt(8, 99), n: FIRST });
  await engine.ask('run', { tokens: prompt(64, 98), n: 8 });
  return { ...loaded, firstTokens: [ms[0], ...ms.slice(1).map((t, i) => t - ms[i])] };
}

/** Eight sequences in one batch against one, tokens per second. */
async function batchGain(engine) {
  const of = async (n) => median((await engine.ask('batch', { n, depth: 16, steps: 8 })).times);
  const [one, eight] = [await of(1), await of(8)];
  return (8 * one) / eight;
}

async function inNode(name, peers) {
  const file = modelFile(name), node = nodeOf(NEWEST);
  const make = (label) => new Engine(label, 'tabllama.js', [], node);
  const result = { file: path.basename(file), runs: {} };
  for (const threads of [1, 2]) {
    const engines = [make('fast'), ...(threads === 1 ? [make('high')] : [])];
    if (peers) engines.push(new Engine('llama.cpp', 'llama-cpp.js', [peers], node));
    const loaded = {};
    for (const engine of engines) loaded[engine.name] = await open(engine, file, engine.name, threads);
    const rates = await measureModel(engines, threads, loaded.fast.fileBytes > LARGE);
    const batch = threads === 1 ? await batchGain(engines[0]) : undefined;
    result.runs[threads] = { loaded, rates, batch };
    for (const engine of engines) await engine.close();
  }
  return result;
}

/** In Chromium, ours and wllama's times of the wall: a prompt, and steps after it. */
async function inChromium(name, peers) {
  const file = modelFile(name);
  const engines = ['tabllama', 'wllama'].map((n) => new Engine(n, 'browser.js', [n, peers], process.execPath));
  const rates = { tabllama: { prefill: [], decode: [] }, wllama: { prefill: [], decode: [] } };
  const loaded = {};
  for (const engine of engines) loaded[engine.name] = await engine.ask('load', { file, threads: 1, precision: 'fast', context: 512 });
  const [n, steps] = loaded.tabllama.fileBytes > LARGE || file.includes('tinyllama') ? [24, 8] : [64, 17];
  await engines[0].ask('run', { tokens: prompt(32, 50), n: 8 });
  for (let rep = 0; rep < Math.min(reps, 2); rep++) {
    const own = await engines[0].ask('run', { tokens: prompt(n, rep), n: steps });
    rates.tabllama.prefill.push((1000 * n) / own.ms[0]);
    rates.tabllama.decode.push(1000 / step(own.ms));
    const words = Array.from({ length: n }, (_, i) => ['at', 'is', 'no', 'ten', 'red', 'so'][(i * 5 + rep) % 6]).join(' ');
    const other = await engines[1].ask('run', { words, n: steps });
    rates.wllama.prefill.push((1000 * other.promptTokens) / other.promptMs);
    rates.wllama.decode.push((1000 * other.steps) / other.stepsMs);
  }
  for (const engine of engines) await engine.close();
  return { loaded, rates };
}

/** What a program of its own has to say. */
async function inNewestNode(program, operation) {
  const child = new Engine(program, program, [], nodeOf(NEWEST));
  const answer = await child.ask(operation);
  child.child.kill();
  return answer;
}

const peers = options.peers ? installPeers() : undefined;
const result = {
  date: new Date().toISOString(),
  machine: { cpu: os.cpus()[0].model, cores: os.cpus().length, loadBefore: os.loadavg()[0], node: NEWEST, platform: `${os.type()} ${os.release()}` },
  kernels: await inNewestNode('kernels.js', 'measure'),
  models: {},
};
for (const name of options.models.split(',')) {
  console.error(`${new Date().toISOString().slice(11, 19)} ${name}`);
  const model = await inNode(name, peers);
  if (peers) model.chromium = await inChromium(name, peers).catch((error) => ({ error: error.message }));
  result.models[name] = model;
  mkdirSync(path.dirname(options.out), { recursive: true });
  writeFileSync(options.out, JSON.stringify(result, null, 1));
}
result.machine.loadAfter = os.loadavg()[0];
writeFileSync(options.out, JSON.stringify(result, null, 1));
console.log(report(result));
