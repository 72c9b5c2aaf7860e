/** pace.test.js: when single tokens go on on one thread, and when on all. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Pace } from '../web/pace.js';
import { BUILDS, using } from './kit/engines.js';
import { makeModel } from './kit/make-model.js';

/** `n` steps that take all[i] ms on all threads and alone[i] on one; which way each went, 'a' or '1'. */
function steps(pace, n, all, alone) {
  let ways = '';
  for (let i = 0; i < n; i++) {
    ways += pace.alone ? '1' : 'a';
    pace.took(pace.alone ? alone(i) : all(i));
  }
  return ways;
}

test('a quiet machine: all threads, and ever fewer trials', () => {
  const ways = steps(new Pace(), 2000, () => 5, () => 8);
  const trials = [...ways.matchAll(/1/g)].map((match) => match.index);
  assert.deepEqual(trials, [16, 49, 114, 243, 500, 1013, 1526]);
});

test('a busy machine: one thread soon, and back when it is quiet', () => {
  const pace = new Pace();
  assert.match(steps(pace, 40, () => 12, () => 8), /^a{16}1{18}a1{5}$/);
  assert.match(steps(pace, 200, () => 5, () => 8).slice(-100), /^a+1?a+$/);
});

test('a machine that becomes busy is noticed, however long ago the last trial was', () => {
  const pace = new Pace();
  steps(pace, 1100, () => 5, () => 8);
  assert.match(steps(pace, 60, () => 12, () => 8), /1{20}a?1*$/);
});

test('single slow steps, and a context that grows, change little', () => {
  const spikes = steps(new Pace(), 1000, (i) => (i % 50 === 20 ? 40 : 5), () => 8);
  assert.ok([...spikes].filter((way) => way === '1').length < 60, spikes);
  const growing = steps(new Pace(), 2000, (i) => 5 + i / 200, (i) => 8 + i / 100);
  assert.ok([...growing].filter((way) => way === '1').length < 20, growing);
});

test('two threads, now and then one alone: the same bits as one', async () => {
  const file = makeModel({ type: 'Q8_0' });
  const walk = (engine) => {
    const seq = engine.seq();
    return Array.from({ length: 60 }, (_, i) => {
      engine.eval({ tokens: [1 + (i % 7)], seq });
      return engine.logits();
    });
  };
  const [plain, threaded] = ['simd', 'simd-mt'].map((name) => BUILDS.find((build) => build.name === name));
  const expected = await using([plain, file], walk);
  assert.deepEqual(await using([threaded, file, { threads: 2 }], walk), expected);
});
