/**
 * peaks.js: what one thread of this machine can do at most, for `bench` to compare with: loops over memory and over
 * registers, assembled here.
 */
const MEMORY_BYTES = 192 * 2 ** 20; // more than most caches hold
const SLICES = 5;
const STEPS = 200_000; // a few milliseconds
const STREAMS = 8, ACCUMULATORS = 12; // one instruction's latency hides behind the others

const [LOOP, END, BR_IF] = [[3, 64], [11], [13]];
const get = (/** @type {number} */ i) => [32, i];
const set = (/** @type {number} */ i) => [33, i];
const i32 = (/** @type {number} */ n) => [65, (n & 127) | 128, (n >> 7) & 127];
const [I32_ADD, I32_LT_U] = [[106], [73]];
const SPLAT = [253, 17], LANE_0 = [253, 27, 0], XOR = [253, 81];
const [F32X4_ADD, F32X4_MUL, I32X4_ADD, I16X8_ADD] = [[253, 228, 1], [253, 230, 1], [253, 174, 1], [253, 142, 1]];
const [DOT_I16, RELAXED_DOT, RELAXED_DOT_ADD] = [[253, 186, 1], [253, 146, 2], [253, 147, 2]];

/** Operations of one step (a product and its sum are two), and what becomes of a register `a` in it. */
const INSTRUCTIONS = {
  f32: { operations: 8, step: (/** @type {number[]} */ a, /** @type {number[]} */ x) => [...a, ...a, ...x, ...F32X4_MUL, ...F32X4_ADD] },
  int16: { operations: 16, step: (/** @type {number[]} */ a, /** @type {number[]} */ x) => [...a, ...a, ...x, ...DOT_I16, ...I32X4_ADD] },
  int8: { operations: 32, step: (/** @type {number[]} */ a, /** @type {number[]} */ x) => [...a, ...a, ...x, ...RELAXED_DOT, ...I16X8_ADD] },
  dot: { operations: 32, step: (/** @type {number[]} */ a, /** @type {number[]} */ x) => [...a, ...x, ...a, ...RELAXED_DOT_ADD] },
};

/** @param {number[]} bytes */
const sized = (bytes) => {
  const n = bytes.length;
  return [(n & 127) | 128, n >> 7, ...bytes];
};

/**
 * A function of (from, to) that counts from up to `to`, `by` at a time, with n registers: local 2 is x, then they.
 * @param {number} n
 * @param {number} by
 * @param {(register: number[], i: number, x: number[]) => number[]} step what becomes of a register
 */
function makeLoop(n, by, step) {
  const registers = Array.from({ length: n }, (_, i) => i + 3);
  const body = [
    ...[1, n + 1, 123],
    ...[...i32(1), ...SPLAT, ...set(2)],
    ...LOOP,
    ...registers.flatMap((r, i) => [...step(get(r), i, get(2)), ...set(r)]),
    ...[...get(0), ...i32(by), ...I32_ADD, 34, 0, ...get(1), ...I32_LT_U, ...BR_IF, 0],
    ...END,
    ...registers.flatMap((r, i) => [...get(r), ...(i ? XOR : [])]),
    ...LANE_0,
    ...END,
  ];
  const module = new WebAssembly.Module(
    new Uint8Array([
      ...[0, 97, 115, 109, 1, 0, 0, 0],
      ...[1, 7, 1, 96, 2, 127, 127, 1, 127],
      ...[2, 8, 1, 1, 109, 1, 109, 2, 0, 1],
      ...[3, 2, 1, 0],
      ...[7, 5, 1, 1, 102, 0, 0],
      ...[10, ...sized([1, ...sized(body)])],
    ]),
  );
  return (/** @type {WebAssembly.Memory} */ m) =>
    /** @type {(from: number, to: number) => number} */ (new WebAssembly.Instance(module, { m: { m } }).exports.f);
}

/**
 * Best of several slices, after one that compiles.
 * @param {number} units
 * @param {() => void} run
 * @returns {number} units per nanosecond
 */
function rate(units, run) {
  let best = 0;
  for (let i = 0; i <= SLICES; i++) {
    const start = performance.now();
    run();
    best = Math.max(best, units / (performance.now() - start) / 1e6);
  }
  return best;
}

/** GB/s of a sum over memory. */
export function readPeak() {
  const memory = new WebAssembly.Memory({ initial: MEMORY_BYTES / 65536 });
  new Uint8Array(memory.buffer).fill(1);
  const read = makeLoop(STREAMS, 16 * STREAMS, (r, i) => [...r, ...get(0), 253, 0, 4, ...i32(16 * i).slice(1), ...I32X4_ADD]);
  const sum = read(memory);
  return rate(MEMORY_BYTES, () => sum(0, MEMORY_BYTES));
}

/**
 * The instruction that a model's products are made of, and how many of it one takes.
 * @param {{ variant: string, precision: string, quantisation: string }} info
 * @returns {[keyof typeof INSTRUCTIONS, number]}
 */
function instructionOf({ variant, precision, quantisation }) {
  if (/^B?F/.test(quantisation)) return ['f32', 1];
  const dot = variant.includes('-dot'), fast = precision === 'fast';
  if (!variant.startsWith('relaxed') || quantisation.startsWith('IQ4')) return ['int16', 1];
  if (quantisation === 'Q8_0') return dot && fast ? ['dot', 2] : ['int16', 1];
  if (!/^Q4_[01]$/.test(quantisation)) return [fast ? 'int8' : 'int16', 1];
  if (dot) return ['dot', fast ? 1 : 2];
  return [fast ? 'int8' : 'int16', 1];
}

/**
 * Giga operations per second that a model's products reach when nothing but they is to do.
 * @param {Parameters<typeof instructionOf>[0]} info
 */
export function computePeak(info) {
  const [name, times] = instructionOf(info);
  const { operations, step } = INSTRUCTIONS[name];
  const run = makeLoop(ACCUMULATORS, 1, (r, _, x) => step(r, x))(new WebAssembly.Memory({ initial: 1 }));
  return rate((STEPS * ACCUMULATORS * operations) / times, () => run(0, STEPS));
}
