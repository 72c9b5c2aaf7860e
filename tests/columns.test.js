/**
 * columns.test.js: a negative control for each column of src/arch.def. The `flipped` build has one wrong column in
 * each row (tests/native/flipped.def); golden logits must tell, or nothing would tell in arch.def itself.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { maxDifference } from './kit/compare.js';
import { BUILDS, FLIPPED, allLogits, using } from './kit/engines.js';
import { ARCHS, COVERED } from './kit/fixture-models.js';
import { absent, fixture, fixtureJson, floats } from './kit/fixtures.js';

/** How far a logit is from the reference: right, and unmistakably wrong. */
const RIGHT = 1e-3;
const WRONG = 1e-1;
const RIGHT_BUILD = BUILDS.find(({ name }) => name === 'simd');

/** Columns of each row; the name is the first one. */
function rows(path) {
  const text = readFileSync(new URL(`../${path}`, import.meta.url), 'utf8');
  return [...text.matchAll(/^ARCH\((.*)\)$/gm)].map(([, row]) => row.match(/\w+\([^)]*\)|\w+/g));
}
const RIGHT_ROWS = rows('src/arch.def');
const WRONG_ROWS = rows('tests/native/flipped.def');
/** Architecture to index of the wrong column. */
const WRONG_COLUMN = new Map(
  WRONG_ROWS.map((row, i) => [row[0], row.findIndex((column, j) => column !== RIGHT_ROWS[i][j])]),
);

test('one column of each row is wrong, and each column somewhere', () => {
  assert.deepEqual([...WRONG_COLUMN.keys()], ARCHS);
  WRONG_ROWS.forEach((row, i) => {
    assert.equal(row.length, RIGHT_ROWS[i].length);
    assert.equal(row.filter((column, j) => column !== RIGHT_ROWS[i][j]).length, 1, row[0]);
  });
  const columns = RIGHT_ROWS[0].map((_, j) => j).slice(1);
  assert.deepEqual([...new Set(WRONG_COLUMN.values())].sort(), columns);
});

/** The largest difference of a model's last golden case from the reference. */
function difference(build, name) {
  const { context, cases } = fixtureJson(`golden/${name}.json`);
  const { tokens, positions } = cases.at(-1);
  return using([build, fixture(`${name}.gguf`), { kvType: 'f32', contextLength: context }], (engine) => {
    const logits = allLogits(engine, tokens);
    return Math.max(...positions.map(({ at, logits: reference }) => maxDifference(logits[at], floats(reference))));
  });
}

for (const arch of ARCHS) {
  test(`${arch}: golden logits see the wrong column`, { skip: absent() }, async (t) => {
    const models = COVERED.filter((model) => model.arch === arch && !model.quantised && model.type === 'F32');
    assert.ok(models.length > 0);
    let most = 0;
    for (const { name } of models) {
      assert.ok((await difference(RIGHT_BUILD, name)) < RIGHT, name);
      most = Math.max(most, await difference(FLIPPED, name));
    }
    t.diagnostic(`column ${WRONG_COLUMN.get(arch)}: logits off by ${most.toFixed(2)}`);
    assert.ok(most > WRONG, `off by ${most}`);
  });
}
