/**
 * kernels.test.js: the kernels' vectors, real and emulated. tests/native/check_kernels.c prints a line for
 * each case, with a hash of the bits that came out; here it runs as wasm, in each variant's form, and natively
 * over the emulation. Every check must hold and every line be the same.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import { KERNELS, buildWasm, makeVariable, run } from './kit/build-wasm.js';

const FOLDER = mkdtempSync(join(tmpdir(), 'kernels-'));
after(() => rmSync(FOLDER, { recursive: true }));

const SOURCES = [...KERNELS, 'tests/native/check_kernels.c'];

/** @param {Buffer} bytes @returns {string} the report of check_kernels() */
function runWasm(bytes) {
  const memory = new WebAssembly.Memory({ initial: 64, maximum: 65536 });
  const { exports } = new WebAssembly.Instance(new WebAssembly.Module(bytes), { env: { memory } });
  const address = exports.check_kernels() >>> 0, all = Buffer.from(memory.buffer);
  return all.toString('utf8', address, all.indexOf(0, address));
}

/** @param {string} name @param {string[]} flags @returns {string} the report of the native build */
function runNative(name, flags) {
  const program = join(FOLDER, name);
  run(process.env.CC ?? 'cc', [...makeVariable('NATIVE_CFLAGS'), '-O2', ...flags, ...SOURCES, '-lm', '-o', program]);
  return run(program, ['hashes']);
}

/** @param {string} report @returns {string[]} its lines, all of them good */
function lines(report) {
  const all = report.trim().split('\n');
  assert.deepEqual(all.filter((line) => line.startsWith('FAIL')), []);
  assert.ok(all.length > 500, `${all.length} cases were run`);
  return all;
}

const isFloatProduct = (line) => /^(F32|F16|BF16) /.test(line);
const simd = lines(runWasm(buildWasm(SOURCES, [])));

test("the bench's kernels stand beside the engine's", () => {
  assert.ok(WebAssembly.validate(buildWasm([...KERNELS, 'tests/bench/kernels.c'], [])));
});

test('SIMD128 and its emulation give the same bits', () => {
  assert.deepEqual(simd, lines(runNative('simd', [])));
});

for (const [name, flags] of Object.entries({ relaxed: [], 'relaxed-dot': ['-DVEC_DOT'] })) {
  const module = buildWasm(SOURCES, ['-mrelaxed-simd', ...flags]);
  const skip = !WebAssembly.validate(module) && `Node ${process.version} has no relaxed SIMD`;
  test(`${name} gives the bits of SIMD128, products of float weights apart`, { skip }, () => {
    const relaxed = lines(runWasm(module)), fused = lines(runNative(name, ['-DVEC_RELAXED', ...flags]));
    const quantised = (all) => all.filter((line) => !isFloatProduct(line));
    assert.deepEqual(quantised(relaxed), quantised(simd));
    assert.deepEqual(quantised(fused), quantised(simd));
    for (const [i, line] of relaxed.entries()) // a machine fuses or it does not
      if (isFloatProduct(line)) assert.ok(line === fused[i] || line === simd[i], line);
  });
}
