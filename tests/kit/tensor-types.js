/**
 * tensor-types.js: what the blocks of each tensor type mean, as a table of where the bits of their numbers stand.
 * The oracle reads weights by it, and models are written by it, without any claim to quality. It shares nothing
 * with the engine, and is held to values from outside (golden.test.js).
 *
 *   w = d * scale * code,    and + m or - dmin * min in types that have one
 */

/* ---- f16 ---- */

const word = new DataView(new ArrayBuffer(4));

/** Bits of the nearest IEEE binary16, ties to even. */
export function f16Bits(x) {
  word.setFloat32(0, x);
  const bits = word.getUint32(0);
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;
  if (magnitude >= 0x477ff000) return sign | 0x7c00;
  if (magnitude < 0x38800000) return sign | roundToEven(Math.abs(Math.fround(x)) * 2 ** 24);
  return sign | ((magnitude - 0x38000000 + 0xfff + ((magnitude >>> 13) & 1)) >>> 13);
}

export function f16Value(bits) {
  const exponent = (bits >>> 10) & 31;
  const fraction = bits & 1023;
  const sign = bits & 0x8000 ? -1 : 1;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? (1024 + fraction) * 2 ** (exponent - 25) : fraction * 2 ** -24);
}

export function roundToEven(x) {
  const low = Math.floor(x);
  if (x - low !== 0.5) return Math.round(x);
  return low % 2 === 0 ? low : low + 1;
}

const half = (v, o) => f16Value(v.getUint16(o, true));
const putHalf = (v, o, x) => v.setUint16(o, f16Bits(x), true);

function bf16Value(bits) {
  word.setUint32(0, bits << 16);
  return word.getFloat32(0);
}

function encodeBf16(out, o, x) {
  word.setFloat32(0, x[0]);
  const bits = word.getUint32(0);
  out.setUint16(o, (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16, true);
}

/* ---- Numbers in the bits of a block: their parts from the low bits on, each [byte, shift, bits] ---- */

const get = (v, o, parts) => {
  let [value, at] = [0, 0];
  for (const [byte, shift, bits] of parts) {
    value |= ((v.getUint8(o + byte) >> shift) & ((1 << bits) - 1)) << at;
    at += bits;
  }
  return value;
};

/** Into bits that are zero. */
function put(v, o, parts, value) {
  for (const [byte, shift, bits] of parts) {
    v.setUint8(o + byte, v.getUint8(o + byte) | ((value & ((1 << bits) - 1)) << shift));
    value >>= bits;
  }
}

const bytes = (at) => (i) => [[at + i, 0, 8]];
/** 32 in 16 bytes: the second half in the high nibbles. */
const nibbles = (at) => (i) => [[at + (i % 16), i < 16 ? 0 : 4, 4]];
/** The same for each 32 of 256. */
const nibblesOf32 = (at) => (i) => nibbles(at + 16 * (i >> 5))(i % 32);
/** 64 in 32 bytes; 128 in 64; 128 of two bits in 32. */
const nibbles64 = (at) => (i) => [[at + 32 * (i >> 6) + (i % 32), 4 * ((i >> 5) % 2), 4]];
const nibbles128 = (at) => (i) => [[at + 64 * (i >> 7) + (i % 64), 4 * ((i >> 6) % 2), 4]];
const pairs128 = (at) => (i) => [[at + 32 * (i >> 7) + (i % 32), 2 * ((i >> 5) % 4), 2]];
/** Bit i / 32 of byte i % 32; bit i % 8 of byte i / 8. */
const bit256 = (at) => (i) => [[at + (i % 32), i >> 5, 1]];
const bit32 = (at) => (i) => [[at + (i >> 3), i % 8, 1]];
const both = (low, high) => (i) => [...low(i), ...high(i)];

/** Scales and minima of Q4_K and Q5_K, in 12 bytes. */
const SIXES = {
  scale: (j) => (j < 4 ? [[4 + j, 0, 6]] : [[8 + j, 0, 4], [j, 6, 2]]),
  min: (j) => (j < 4 ? [[8 + j, 0, 6]] : [[8 + j, 4, 4], [4 + j, 6, 2]]),
};
const IQ4 = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
const range = (low, high) => Array.from({ length: high - low + 1 }, (_, i) => low + i);
const SIGNED = [...range(0, 127), ...range(-128, -1)];

/**
 * The quantised types. d and m: where these f16 stand. code, and per so many weights scale and min: their bits;
 * values and scales: what the bits of a code and of a scale mean.
 */
const ROWS = {
  Q4_0: { id: 2, items: 32, bytes: 18, d: 0, code: nibbles(2), values: range(-8, 7) },
  Q4_1: { id: 3, items: 32, bytes: 20, d: 0, m: 2, code: nibbles(4), values: range(0, 15) },
  Q5_0: { id: 6, items: 32, bytes: 22, d: 0, code: both(nibbles(6), bit32(2)), values: range(-16, 15) },
  Q5_1: { id: 7, items: 32, bytes: 24, d: 0, m: 2, code: both(nibbles(8), bit32(4)), values: range(0, 31) },
  Q8_0: { id: 8, items: 32, bytes: 34, d: 0, code: bytes(2), values: SIGNED },
  Q2_K: {
    id: 10, items: 256, bytes: 84, d: 80, m: 82, code: pairs128(16), values: range(0, 3),
    per: 16, scale: (j) => [[j, 0, 4]], min: (j) => [[j, 4, 4]], scales: range(0, 15),
  },
  Q3_K: {
    id: 11, items: 256, bytes: 110, d: 108, code: both(pairs128(32), bit256(0)), values: range(-4, 3),
    per: 16, scale: (j) => [[96 + (j % 8), 4 * (j >> 3), 4], [104 + (j % 4), 2 * (j >> 2), 2]], scales: range(-32, 31),
  },
  Q4_K: {
    id: 12, items: 256, bytes: 144, d: 0, m: 2, code: nibbles64(16), values: range(0, 15),
    per: 32, ...SIXES, scales: range(0, 63),
  },
  Q5_K: {
    id: 13, items: 256, bytes: 176, d: 0, m: 2, code: both(nibbles64(48), bit256(16)), values: range(0, 31),
    per: 32, ...SIXES, scales: range(0, 63),
  },
  Q6_K: {
    id: 14, items: 256, bytes: 210, d: 208, code: both(nibbles128(0), pairs128(128)), values: range(-32, 31),
    per: 16, scale: bytes(192), scales: SIGNED,
  },
  IQ4_NL: { id: 20, items: 32, bytes: 18, d: 0, code: nibbles(2), values: IQ4 },
  IQ4_XS: {
    id: 23, items: 256, bytes: 136, d: 0, code: nibblesOf32(8), values: IQ4,
    per: 32, scale: (j) => [[4 + (j >> 1), 4 * (j % 2), 4], [2 + (j >> 2), 2 * (j % 4), 2]], scales: range(-32, 31),
  },
};

/** The value of weight i of the block at byte o. */
function weight({ items, per = items, d, m, code, values, scale, min, scales }, v, o, i) {
  const j = Math.floor(i / per);
  const step = half(v, o + d) * (scale ? scales[get(v, o, scale(j))] : 1);
  const product = step * values[get(v, o, code(i))];
  if (m === undefined) return product;
  return min ? product - half(v, o + m) * get(v, o, min(j)) : product + half(v, o + m);
}

/** Index of the value nearest to x. */
const nearest = (list, x) =>
  list.reduce((best, one, i) => (Math.abs(one - x) < Math.abs(list[best] - x) ? i : best), 0);

/** Step and minimum for some weights: the largest of them falls on the lowest code, or they span all codes. */
function fit({ m, scale, values }, x) {
  if (m === undefined) {
    const largest = x.reduce((a, b) => (Math.abs(b) > Math.abs(a) ? b : a));
    return { step: largest / Math.min(...values), low: 0 };
  }
  const low = scale ? Math.min(0, ...x) : Math.min(...x);
  return { step: (Math.max(...x) - low) / Math.max(...values), low };
}

/** One block of weights x to byte o of zeros. */
function encodeBlock(row, out, o, x) {
  const { items, per = items, d, m, code, values, scale, min, scales } = row;
  const fits = Array.from({ length: items / per }, (_, j) => fit(row, x.slice(j * per, (j + 1) * per)));
  const [steps, lows] = [fits.map(({ step }) => step), fits.map(({ low }) => low)];
  const top = scale ? Math.max(...scales) : 1;
  putHalf(out, o + d, scale ? Math.max(...steps.map(Math.abs)) / top : steps[0]);
  if (m !== undefined) putHalf(out, o + m, min ? -Math.min(...lows) / top : lows[0]);
  const unit = half(out, o + d);
  for (let j = 0; j < items / per; j++) {
    const bits = scale && unit ? nearest(scales, steps[j] / unit) : 0;
    if (scale) put(out, o, scale(j), bits);
    const minUnit = min ? half(out, o + m) : 0;
    const minimum = minUnit ? Math.min(Math.round(-lows[j] / minUnit), top) : 0;
    if (min) put(out, o, min(j), minimum);
    const step = unit * (scale ? scales[bits] : 1);
    const low = min ? -minUnit * minimum : m === undefined ? 0 : half(out, o + m);
    for (let i = j * per; i < (j + 1) * per; i++) put(out, o, code(i), nearest(values, step ? (x[i] - low) / step : 0));
  }
}

/** By name: GGUF id, weights and bytes per block, the value of a weight, the encoder of a block. */
export const TYPES = {
  F32: {
    id: 0, items: 1, bytes: 4,
    value: (v, o) => v.getFloat32(o, true), encode: (out, o, x) => out.setFloat32(o, x[0], true),
  },
  F16: { id: 1, items: 1, bytes: 2, value: half, encode: (out, o, x) => putHalf(out, o, x[0]) },
  BF16: { id: 30, items: 1, bytes: 2, value: (v, o) => bf16Value(v.getUint16(o, true)), encode: encodeBf16 },
  ...Object.fromEntries(
    Object.entries(ROWS).map(([name, row]) => [
      name,
      { ...row, value: (...args) => weight(row, ...args), encode: (...args) => encodeBlock(row, ...args) },
    ]),
  ),
};

/** Values as the bytes of a tensor of `type`; rows must be whole blocks. */
export function encode(type, values) {
  if (type === 'F32') return new Uint8Array(Float32Array.from(values).buffer);
  const { items, bytes, encode: one } = TYPES[type];
  const out = new Uint8Array((values.length / items) * bytes);
  const view = new DataView(out.buffer);
  for (let i = 0, o = 0; i < values.length; i += items, o += bytes)
    one(view, o, Array.from(values.slice(i, i + items)));
  return out;
}

/** What a shape must be, so that rows are whole blocks of a type of 256 weights. */
export const wholeBlocks = (type) =>
  TYPES[type].items === 256 ? { nLayers: 1, dModel: 256, nHeads: 4, nKvHeads: 2, headDim: 64, dFf: 256 } : {};
