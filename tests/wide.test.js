/** A model of more than 4 GiB, in 64-bit memory: chosen by need alone, right on both sides of the 4 GiB. */
import assert from 'node:assert/strict';
import { freemem } from 'node:os';
import { test } from 'node:test';
import { createLoader, support } from '../web/engine.js';
import { runWideModel } from './kit/wide-model.js';

const skip = !support().memory64
  ? `skipped: ${support().reasons.at(-1)}`
  : freemem() < 8e9 && 'skipped: 8 GB of free memory are needed';

for (const threads of [1, 2]) {
  test(`a model beyond 4 GiB on ${threads} thread(s)`, { skip }, async () => {
    const { variant, bytes, wrong, largest } = await runWideModel(createLoader, { threads });
    assert.equal(variant, threads > 1 ? 'relaxed-m64-mt' : 'relaxed-m64');
    assert.ok(bytes > 2 ** 32, `${bytes} bytes of memory`);
    assert.ok(largest > 1e-3, 'logits are not zero');
    assert.equal(wrong, 0, 'logits that differ across 4 GiB');
  });
}

test('without 64-bit memory, or with another variant asked for, it is refused with its size', async () => {
  await assert.rejects(runWideModel(createLoader, { variant: 'simd' }), { code: 'MEMORY', message: /4\d{9} bytes.*4294\d+/ });
});
