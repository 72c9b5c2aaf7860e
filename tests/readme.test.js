/** The README's example runs as it stands, and its table says what the engine's tables say. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { SMOLLM2, absent } from './kit/fixtures.js';

const root = fileURLToPath(new URL('..', import.meta.url));
const readme = readFileSync(`${root}/README.md`, 'utf8');

/** Names of the first argument of each row of a table in C. */
const rows = (file, macro) =>
  [...readFileSync(`${root}/src/${file}`, 'utf8').matchAll(new RegExp(`^${macro}\\((\\w+),`, 'gm'))].map((m) => m[1]);
const listed = (row) => readme.match(new RegExp(`^\\| ${row} \\| ([\\w, ]+?)(?:, and any mixture.*)? \\|$`, 'm'))[1].split(', ');

test('the example of the README', { skip: absent(SMOLLM2.path) }, () => {
  const [, code] = readme.match(/```js\n([^]*?)```/);
  assert.equal(code.trim().split('\n').length, 9);
  mkdirSync(`${root}/build`, { recursive: true });
  writeFileSync(`${root}/build/readme.mjs`, code);
  const { stdout, stderr, status } = spawnSync(process.execPath, ['build/readme.mjs'], { cwd: root, encoding: 'utf8', timeout: 120_000 });
  assert.equal(status, 0, stderr);
  assert.match(stdout, /^The capital of France is Paris\.\n\d+ tokens, \d+ per second\n$/);
});

test('the table of what runs is that of the engine', () => {
  assert.deepEqual(listed('architectures'), rows('arch.def', 'ARCH'));
  assert.deepEqual(listed('weights').sort(), rows('quant.def', 'QUANT').sort());
  assert.deepEqual(listed('cache'), [...readFileSync(`${root}/src/kv.def`, 'utf8').matchAll(/"(\w+)"/g)].map((m) => m[1]));
});
