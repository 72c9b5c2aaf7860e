/**
 * kernels.test.js: the kernels' vectors, real and emulated. tests/native/check_kernels.c prints a line for
 * each case, with a hash of the bits that came out; here it runs as wasm, simd and relaxed, and natively
 * over the emulation. Every check must hold and every line be the same.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../', import.meta.url));
const FOLDER = mkdtempSync(join(tmpdir(), 'kernels-'));
after(() => rmSync(FOLDER, { recursive: true }));

const run = (command, args, input) =>
  execFileSync(command, args, { cwd: ROOT, input, encoding: 'utf8', maxBuffer: 1 << 24 });
const words = (text) => text.trim().split(/\s+/);
const makeVariable = (name) => words(run('make', ['-s', `--eval=show: ; @echo $(${name})`, 'show']));
const cFiles = (folder) =>
  readdirSync(join(ROOT, folder)).filter((name) => name.endsWith('.c')).map((name) => `${folder}/${name}`);
const SOURCES = [
  'src/quant.c', 'src/kernels_ref.c', 'wasm/kernels_simd.c', 'tests/native/check_kernels.c',
  ...cFiles('src/quants'), ...cFiles('wasm/kernels'),
];

/** @param {string} name @param {string[]} flags @returns {Buffer} the module: all sources as one unit */
function buildWasm(name, flags) {
  const [compiler, linker] = run('sh', ['wasm/toolchain/find.sh']).trim().split('\n');
  const [command, ...args] = words(compiler);
  const object = join(FOLDER, `${name}.o`), module = join(FOLDER, `${name}.wasm`);
  const unit = ['wasm/libc.c', ...SOURCES].map((file) => `#include "${file}"\n`).join('');
  run(command, [...args, ...makeVariable('WASM_CFLAGS'), ...flags, '-I.', '-x', 'c', '-c', '-', '-o', object], unit);
  run(linker, [...makeVariable('WASM_LDFLAGS'), object, '-o', module]);
  return readFileSync(module);
}

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
const simd = lines(runWasm(buildWasm('simd', [])));
const relaxedModule = buildWasm('relaxed', ['-mrelaxed-simd']);
const skipRelaxed = !WebAssembly.validate(relaxedModule) && `Node ${process.version} has no relaxed SIMD`;

test('SIMD128 and its emulation give the same bits', () => {
  assert.deepEqual(simd, lines(runNative('simd', [])));
});

test('relaxed SIMD gives the bits of SIMD128, products of float weights apart', { skip: skipRelaxed }, () => {
  const relaxed = lines(runWasm(relaxedModule)), fused = lines(runNative('relaxed', ['-DVEC_RELAXED']));
  const quantised = (all) => all.filter((line) => !isFloatProduct(line));
  assert.deepEqual(quantised(relaxed), quantised(simd));
  assert.deepEqual(quantised(fused), quantised(simd));
  for (const [i, line] of relaxed.entries()) // a machine fuses or it does not
    if (isFloatProduct(line)) assert.ok(line === fused[i] || line === simd[i], line);
});
