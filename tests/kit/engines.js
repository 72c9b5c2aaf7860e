/**
 * engines.js: every build of the engine that tests compare: the released variants in dist/, and from
 * build/ the reference kernels (ref) and the one whose memory moves at every chance (grow), each with the
 * thread counts that make sense for it. What this Node cannot run is told, not hidden.
 */
import { readFileSync } from 'node:fs';
import { createEngine, createLoader, readHeader, runnable, support } from '../../web/engine.js';
import { VARIANTS } from '../../web/features.js';

/** From here on nothing may be missing. */
const NODE_WITH_ALL = 22;

/**
 * @typedef {{ name: string, variant: string, path: URL, threads: number[], fuses: boolean }} Build
 *   variant: what it runs as; fuses: floats are multiplied and added in one rounding, with bits of their own
 */

/** @param {string} path @param {string} variant @param {number[]} threads @returns {Build} */
function describe(path, variant, threads) {
  const name = path.slice(path.indexOf('-') + 1, path.indexOf('.'));
  return {
    name,
    variant,
    path: new URL(`../../${path}`, import.meta.url),
    threads,
    fuses: variant.startsWith('relaxed'),
  };
}

const ALL = [
  ...VARIANTS.toReversed().map((name) =>
    describe(`dist/lm-${name}.wasm`, name, name.endsWith('-mt') ? [1, 2, 4] : [1]),
  ),
  describe('build/lm-ref.wasm', 'simd', [1]),
  describe('build/lm-grow.wasm', 'simd', [1]),
];

/** What runs on this Node.
 * @type {Build[]} */
export const BUILDS = ALL.filter(({ variant }) => runnable().includes(variant));

/** With a wrong column in each row of arch.def: not to be trusted. */
export const FLIPPED = describe('build/lm-flipped.wasm', 'simd', [1]);

/** Says what does not run here.
 * @param {import('node:test').TestContext} t */
export function tellMissing(t) {
  for (const { name, variant } of ALL) {
    if (runnable().includes(variant)) continue;
    const sentence = `${name}: not run in Node ${process.version}: ${support().reasons.join('; ')}`;
    if (Number(process.versions.node.split('.')[0]) >= NODE_WITH_ALL) throw new Error(sentence);
    t.diagnostic(sentence);
  }
}

/** @type {Map<string, WebAssembly.Module>} */
const modules = new Map();

function moduleOf({ name, path }) {
  let module = modules.get(name);
  if (!module) modules.set(name, (module = new WebAssembly.Module(readFileSync(path))));
  return module;
}

const optionsOf = (build, options) => ({
  threads: 1,
  ...options,
  variant: build.variant,
  wasm: () => moduleOf(build),
});

/**
 * A model in one of the builds.
 * @param {Build} build
 * @param {Uint8Array | string | Iterable<Uint8Array>} file bytes, or a path
 * @param {import('../../web/engine.js').EngineOptions} [options]
 */
export function open(build, file, options = {}) {
  return createEngine(file, optionsOf(build, options));
}

/** A loader that wants its first byte, for tests of loading itself. */
export const loader = (build, options = {}) => createLoader(optionsOf(build, options));

/** A loader that has the header of `file`, which may end there. */
export const header = (build, file, options = {}) => readHeader(file, optionsOf(build, options));

/**
 * Opens, hands over, closes.
 * @template T
 * @param {Parameters<typeof open>} args
 * @param {(engine: import('../../web/engine.js').Engine) => T} use
 * @returns {Promise<Awaited<T>>}
 */
export async function using(args, use) {
  const engine = await open(...args);
  try {
    return await use(engine);
  } finally {
    await engine.close();
  }
}

/** Appends tokens in batches, the last one with `want`; returns rows kept. */
export function feed(engine, seq, tokens, want = 'last') {
  const { maxBatch } = engine.info;
  const last = Math.floor((tokens.length - 1) / maxBatch) * maxBatch;
  for (let i = 0; i < last; i += maxBatch)
    engine.eval({ tokens: tokens.slice(i, i + maxBatch), seq }, 'none');
  return engine.eval({ tokens: tokens.slice(last), seq }, want);
}

/** Logits after each of `tokens`, from an empty context, in pieces of at most `step`. */
export function allLogits(engine, tokens, step = engine.info.maxAll) {
  const seq = engine.seq();
  const out = [];
  for (let i = 0; i < tokens.length; i += step) {
    const kept = engine.eval({ tokens: tokens.slice(i, i + step), seq }, 'all');
    for (let j = 0; j < kept; j++) out.push(engine.logits(j));
  }
  engine.drop(seq);
  return out;
}
