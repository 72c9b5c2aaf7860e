/** The engine's C outside wasm: layers, sanitizers, and the fallback compiler. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import test from 'node:test';
import { fileURLToPath } from 'node:url';
import { FIXTURES, absent, fixtureJson } from './kit/fixtures.js';

const ROOT = fileURLToPath(new URL('../', import.meta.url));

/** @param {string[]} args */
function make(...args) {
  const { status, stdout, stderr } = spawnSync('make', ['-j2', ...args], { cwd: ROOT, encoding: 'utf8' });
  assert.equal(status, 0, `make ${args.join(' ')}\n${stdout}${stderr}`);
}

test('C files include only lower levels', () => make('layers'));
test('native checks under AddressSanitizer and UBSan', () => make('check'));

/** Refused for their vocabulary alone, which C does not look at. */
const OF_THE_VOCABULARY = ['pub-types-u8.gguf', 'vo-bpe-no-merges.gguf', 'vo-no-tokens.gguf', 'vo-scores-short.gguf'];
const CI = process.env.CI === 'true';

for (const row of ['clang', 'clang-32', 'gcc']) {
  const missing = spawnSync('make', [`links-${row}`], { cwd: ROOT }).status !== 0 && !CI && `no compiler or sanitizer library for ${row}`;
  test(`malformed files under sanitizers: ${row}`, { skip: absent() || missing }, () => {
    make(`build/${row}/load`);
    const cases = fixtureJson('malformed/CASES.json').filter(({ file }) => file.endsWith('.gguf'));
    const files = cases.map(({ file }) => path.join(FIXTURES, 'malformed', file));
    const { status, stdout, stderr } = spawnSync(path.join(ROOT, `build/${row}/load`), files, { encoding: 'utf8', timeout: 60_000 });
    assert.equal(status, 0, stderr);
    const codes = new Map(stdout.trim().split('\n').map((line) => line.split(' ')));
    for (const { file, expect, why } of cases) {
      const loads = codes.get(file) === '0';
      if (expect !== 'either') assert.equal(loads, expect === 'accept' || OF_THE_VOCABULARY.includes(file), `${file} (${why}): ${codes.get(file)}`);
    }
  });
}

test('native checks under ThreadSanitizer', () => make('tsan'));
test('what the fuzzers have found stays mended', () => make('regress'));
test('token ids in, logits out: the native program builds', () => make('native'));

const here = (/** @type {string} */ name) => spawnSync(name, ['--version']).status === 0;
const fallback = here('clang-19') && here('wasm-ld-19');

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
