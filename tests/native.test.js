/** The engine's C outside wasm: layers, sanitizers, and the fallback compiler. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import test from 'node:test';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../', import.meta.url));

/** @param {string[]} args */
function make(...args) {
  const { status, stdout, stderr } = spawnSync('make', ['-j2', ...args], { cwd: ROOT, encoding: 'utf8' });
  assert.equal(status, 0, `make ${args.join(' ')}\n${stdout}${stderr}`);
}

test('C files include only lower levels', () => make('layers'));
test('native checks under AddressSanitizer and UBSan', () => make('check'));
test('native checks under ThreadSanitizer', () => make('tsan'));
test('what the fuzzers have found stays mended', () => make('regress'));
test('token ids in, logits out: the native program builds', () => make('native'));

const here = (/** @type {string} */ name) => spawnSync(name, ['--version']).status === 0;
const fallback = here('clang-19') && here('wasm-ld-19');
const CI = process.env.CI === 'true';

test(
  'plain clang builds modules of the same interface',
  { skip: !fallback && !CI && 'no clang-19 with wasm-ld-19' },
  () => {
    const folder = mkdtempSync(path.join(os.tmpdir(), 'lm-clang-'));
    try {
      make('WASM_CC=clang-19 --target=wasm32', 'WASM_LD=wasm-ld-19', `DIST=${folder}`, `BUILD=${folder}`);
      const released = readdirSync(path.join(ROOT, 'dist')).filter((name) => name.endsWith('.wasm'));
      /** @param {string} from @param {string} name */
      const bytes = (from, name) => readFileSync(path.resolve(ROOT, from, name));
      // Some need a newer Node than this one: npm test runs this file in the newest.
      const valid = released.filter((name) => WebAssembly.validate(bytes('dist', name)));
      assert.ok(valid.includes('lm-simd.wasm') && valid.includes('lm-simd-mt.wasm'));
      for (const name of valid) {
        const [ours, theirs] = ['dist', folder].map((from) => {
          const module = new WebAssembly.Module(bytes(from, name));
          return {
            imports: WebAssembly.Module.imports(module),
            exports: WebAssembly.Module.exports(module)
              .map((e) => e.name)
              .sort(),
          };
        });
        assert.deepEqual(theirs, ours, name);
      }
    } finally {
      rmSync(folder, { recursive: true });
    }
  },
);
