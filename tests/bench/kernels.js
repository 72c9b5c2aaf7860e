/** kernels.js: the kernels beside what the instructions and the memory of this machine give at most, for engines.js. */
import { readFileSync } from 'node:fs';
import { KERNELS, buildWasm } from '../kit/build-wasm.js';
import { serve } from './serve.js';

const MIB = 1 << 20;
const HEAP = 4 * MIB, COLD = 192 * MIB;
const PEAK_OPS = { peak_f32: 8, peak_i16: 16, peak_i8: 32 }; // of one instruction, a MAC being two
const ACCUMULATORS = 12;
const READ_STREAMS = [1, 2, 4, 8];
const WARM_MS = 20, SLICES = 6, SLICE_MS = 5; // compiled code settles within the first

const names = (file, macro) =>
  [...readFileSync(new URL(`../../src/${file}`, import.meta.url), 'utf8').matchAll(new RegExp(`^(?:${macro})\\((\\w+)`, 'gm'))].map((m) => m[1]);

/** CPU time in milliseconds: what other programs take does not count. */
const cpuMs = () => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
};

/** Best rate of slices of at least 5 ms: units per nanosecond. */
function rate(unitsPerCall, call) {
  for (const end = cpuMs() + WARM_MS; cpuMs() < end;) call();
  let best = 0;
  for (let i = 0; i < SLICES; i++) {
    const start = cpuMs();
    let n = 0, ms;
    do call(), n++;
    while ((ms = cpuMs() - start) < SLICE_MS);
    best = Math.max(best, (n * unitsPerCall) / (ms * 1e6));
  }
  return best;
}

function instance(flags) {
  const bytes = buildWasm([...KERNELS, 'tests/bench/kernels.c'], flags);
  if (!WebAssembly.validate(bytes)) return undefined;
  const memory = new WebAssembly.Memory({ initial: 64, maximum: 65536 });
  const { exports } = new WebAssembly.Instance(new WebAssembly.Module(bytes), { env: { memory } });
  memory.grow((HEAP + COLD + 64 * MIB) / 65536);
  new Uint8Array(memory.buffer, HEAP).fill(0x3c); // ORDINARY of kernels.c; all of it, since untouched pages are one
  return exports;
}

/** One type in one precision: one token hot and cold in GB/s, 128 tokens in GOPS. */
function measureMat(e, quant, precision) {
  const [rows, cols] = [1024, 1024];
  const hotBytes = e.mat_open(HEAP, quant, precision, rows, cols, 1, 1);
  if (!hotBytes) return undefined;
  const hot = rate(hotBytes, () => e.mat_run(0));
  const copies = Math.floor(COLD / hotBytes);
  e.mat_open(HEAP, quant, precision, rows, cols, 1, copies);
  let copy = 0;
  const cold = rate(hotBytes, () => e.mat_run(copy++ % copies));
  e.mat_open(HEAP, quant, precision, rows, cols, 128, 1);
  const gops = rate(2 * rows * cols * 128, () => e.mat_run(0));
  e.mat_open(HEAP, quant, precision, rows, cols, 8, 1);
  const gopsOf8 = rate(2 * rows * cols * 8, () => e.mat_run(0));
  return { hot, cold, gops, gopsOf8 };
}

/** By variant: peaks, products, attention. */
function measure() {
  const quants = names('quant.def', 'QUANT|QUANT_NAMED'), kvTypes = names('kv.def', 'KV_TYPE');
  const result = {};
  for (const [variant, flags] of Object.entries({ simd: [], relaxed: ['-mrelaxed-simd'], 'relaxed-dot': ['-mrelaxed-simd', '-DVEC_DOT'] })) {
    const e = instance(flags);
    if (!e) continue;
    const peaks = { readGbPerSecond: Math.max(...READ_STREAMS.map((n) => rate(COLD, () => e.read_sum(HEAP, COLD, n)))) };
    for (const [name, ops] of Object.entries(PEAK_OPS))
      if (e[name]) peaks[name] = rate(ops * ACCUMULATORS * 100_000, () => e[name](100_000));
    const products = {}, attention = {};
    for (const [i, quant] of quants.entries())
      for (const [j, precision] of ['fast', 'high'].entries()) {
        const m = measureMat(e, i, j);
        if (m) products[`${quant} ${precision}`] = m;
      }
    for (const [i, type] of kvTypes.entries())
      for (const vectors of [1, 3, 9, 63]) {
        const macs = 2 * vectors * 64 * 256;
        attention[`${type} ${vectors}`] = rate(macs, () => e.attention_run(HEAP, vectors, 64, i)); // GMAC/s
      }
    result[variant] = { peaks, products, attention };
  }
  return result;
}

serve({ measure });
