/** Modules of single sources and the kernels, with the compiler and the flags of the released ones. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** @param {string} command @param {string[]} args @param {string} [input] */
export const run = (command, args, input) =>
  execFileSync(command, args, { cwd: ROOT, input, encoding: 'utf8', maxBuffer: 1 << 24 });
/** @param {string} text */
export const words = (text) => text.trim().split(/\s+/);
/** @param {string} name of a variable of the Makefile */
export const makeVariable = (name) => words(run('make', ['-s', `--eval=show: ; @echo $(${name})`, 'show']));

const cFiles = (folder) =>
  readdirSync(join(ROOT, folder)).filter((name) => name.endsWith('.c')).map((name) => `${folder}/${name}`);
/** All that kernels are made of. */
export const KERNELS = [
  'src/quant.c', 'src/kernels_ref.c', 'wasm/kernels_simd.c', ...cFiles('src/quants'), ...cFiles('wasm/kernels'),
];

/** @param {string[]} sources @param {string[]} flags @returns {Buffer} the module: all sources as one unit */
export function buildWasm(sources, flags) {
  const folder = mkdtempSync(join(tmpdir(), 'wasm-'));
  try {
    const [compiler, linker] = run('sh', ['wasm/toolchain/find.sh']).trim().split('\n');
    const [command, ...args] = words(compiler);
    const object = join(folder, 'm.o'), module = join(folder, 'm.wasm');
    const unit = ['wasm/libc.c', ...sources].map((file) => `#include "${file}"\n`).join('');
    run(command, [...args, ...makeVariable('WASM_CFLAGS'), ...flags, '-I.', '-x', 'c', '-c', '-', '-o', object], unit);
    run(linker, [...makeVariable('WASM_LDFLAGS'), object, '-o', module]);
    return readFileSync(module);
  } finally {
    rmSync(folder, { recursive: true });
  }
}
