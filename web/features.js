/**
 * features.js: what this browser or Node can run, and which variant to take.
 *
 * Each probe is the smallest module that uses the feature, given to WebAssembly.validate: synchronous,
 * nothing is compiled. Relaxed SIMD is run as well, since V8 11.3 (Node 20 with its flag) validates the
 * relaxed dot product and returns twice the right answer.
 */
import { ModelError } from './errors.js';
import { suggest } from './suggest.js';

/** @typedef {{ simd: boolean, relaxed: boolean, dot: boolean, threads: boolean, memory64: boolean, reasons: string[] }} Support */

/** Every variant for models up to 4 GiB: rows of the Makefile's table. -dot is the best where `dot` is true; elsewhere it
 * runs as well, slower than without. */
export const VARIANTS = ['relaxed-dot-mt', 'relaxed-mt', 'simd-mt', 'relaxed-dot', 'relaxed', 'simd'];
/** Of 64-bit addresses, which cost up to a third of the speed: only for models that need them. Who has
 * these addresses has relaxed SIMD too. */
export const WIDE_VARIANTS = ['relaxed-m64-mt', 'relaxed-m64'];

const MAGIC = [0, 97, 115, 109, 1, 0, 0, 0];
const V128_FUNCTION = [1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0];

/** (i8x16.popcnt (i8x16.splat (i32.const 0))) */
const SIMD = [...V128_FUNCTION, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98, 11];

/** (i16x8.relaxed_dot_i8x16_i7x16_s (i8x16.splat 1) (i8x16.splat 2)) */
const RELAXED = [...V128_FUNCTION, 10, 15, 1, 13, 0, 65, 1, 253, 15, 65, 2, 253, 15, 253, 146, 2, 11];

/** (memory 1 1 shared) (drop (i32.atomic.load (i32.const 0))) */
const ATOMICS = [
  1, 4, 1, 96, 0, 0, 3, 2, 1, 0, 5, 4, 1, 3, 1, 1, 10, 11, 1, 9, 0, 65, 0, 254, 16, 2, 0, 26, 11,
];

/** (table i64 0 funcref) (memory i64 1): the table too, since LLVM makes such and Node 22 does not know them. */
const MEMORY64 = [4, 4, 1, 112, 4, 0, 5, 3, 1, 4, 1];

/** @param {number[]} sections */
const bytes = (sections) => new Uint8Array([...MAGIC, ...sections]);

/** @param {number[]} sections */
const validates = (sections) => typeof WebAssembly === 'object' && WebAssembly.validate(bytes(sections));

/** A constant as two bytes of LEB128.
 * @param {number} n  -8192 .. 8191 */
const i32Const = (n) => [65, (n & 127) | 128, (n >> 7) & 127];

/** (export "f") (i32x4.extract_lane 0 (i32x4.relaxed_dot_i8x16_i7x16_add_s
 *   (i8x16.splat a) (i8x16.splat b) (i32x4.splat c)))
 * @param {number} a
 * @param {number} b
 * @param {number} c */
const dotFunction = (a, b, c) => [
  1, 5, 1, 96, 0, 1, 127, 3, 2, 1, 0, 7, 5, 1, 1, 102, 0, 0, 10, 25, 1, 23, 0, ...i32Const(a), 253, 15,
  ...i32Const(b), 253, 15, ...i32Const(c), 253, 17, 253, 147, 2, 253, 27, 0, 11,
];

/** NaN where a content security policy forbids compiling: then no variant loads, and load() says so.
 * @param {number} a
 * @param {number} b
 * @param {number} c */
function relaxedDot(a, b, c) {
  try {
    const instance = new WebAssembly.Instance(new WebAssembly.Module(bytes(dotFunction(a, b, c))));
    return /** @type {() => number} */ (instance.exports.f)();
  } catch {
    return NaN;
  }
}

/** Four products of 127 and a byte beyond the operand's range come out as they may: 255 or -1 where one
 * instruction makes them, and sums of pairs cut to int16 where x86 has to take five. */
const dotIsOneInstruction = () => [4 * 127 * 255, 4 * 127 * -1].includes(relaxedDot(127, -1, 0));

/** @returns {Support} */
function probe() {
  const reasons = [];
  const simd = validates(SIMD);
  if (!simd) reasons.push('WebAssembly SIMD is missing: nothing runs here');

  const relaxedValid = simd && validates(RELAXED);
  const relaxed = relaxedValid && relaxedDot(1, 2, 3) === 4 * 2 + 3;
  if (!relaxedValid) reasons.push('relaxed SIMD is missing');
  else if (!relaxed) reasons.push('the relaxed dot product gives wrong results here');

  const dot = relaxed && dotIsOneInstruction();

  const isolated = globalThis.crossOriginIsolated !== false;
  const shared = typeof SharedArrayBuffer === 'function';
  const threads = simd && validates(ATOMICS) && shared && isolated;
  if (!isolated) reasons.push('the page is not cross-origin isolated (COOP and COEP headers): one thread');
  else if (!threads) reasons.push('shared memory is missing: one thread');
  const memory64 = relaxed && validates(MEMORY64);
  if (!memory64) reasons.push('64-bit memory is missing: models up to 4 GiB');
  return { simd, relaxed, dot, threads, memory64, reasons };
}

/** @type {Support | undefined} */
let known;

/**
 * What runs here, and why not more. Probed once.
 * @returns {Support}
 */
export function support() {
  known ??= probe();
  return { ...known, reasons: [...known.reasons] };
}

/**
 * Why a variant can't run, or null.
 * @param {string} variant
 * @param {Support} features
 */
function obstacle(variant, features) {
  if (!features.simd) return 'WebAssembly SIMD';
  if (variant.startsWith('relaxed') && !features.relaxed) return 'relaxed SIMD';
  if (variant.endsWith('-mt') && !features.threads) return 'shared memory';
  if (variant.includes('-m64') && !features.memory64) return '64-bit memory';
  return null;
}

/**
 * The variants that run here.
 * @param {Support} [features]
 */
export const runnable = (features = support()) => [...VARIANTS, ...WIDE_VARIANTS].filter((name) => !obstacle(name, features));

/**
 * The variant of 64-bit addresses in place of one; undefined where none runs.
 * @param {string} variant
 * @param {Support} [features]
 */
export function wideVariant(variant, features = support()) {
  const threaded = variant.endsWith('-mt');
  return WIDE_VARIANTS.find((name) => name.endsWith('-mt') === threaded && !obstacle(name, features));
}

/**
 * The variant to load: the one asked for, or the best for so many threads.
 * @param {string | undefined} asked
 * @param {number} threads
 * @param {Support} [features]
 * @returns {string}
 */
export function chooseVariant(asked, threads, features = support()) {
  const kernels = features.dot ? 'relaxed-dot' : features.relaxed ? 'relaxed' : 'simd';
  const variant = asked ?? kernels + (threads > 1 ? '-mt' : '');
  const all = [...VARIANTS, ...WIDE_VARIANTS];
  if (!all.includes(variant)) {
    throw new RangeError(`unknown variant '${variant}'${suggest(variant, all)}; there are ${all.join(', ')}`);
  }
  const lacking = obstacle(variant, features);
  if (lacking)
    throw new ModelError('UNSUPPORTED', `variant '${variant}' can't run here: ${lacking} is missing`);
  return variant;
}
