/**
 * invariance.test.js: what must not change a bit: threads, batches, prefill or decode, the sizes of chunks
 * that come in, what other sequences do, the cache's history; for quantised models the variant too. And
 * what must not change at all: logits before a changed token, scores at the same distance.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { sameBits } from './kit/compare.js';
import { BUILDS, allLogits, feed, open, tellMissing, using } from './kit/engines.js';
import { COVERED, isQuantised } from './kit/fixture-models.js';
import { SMOLLM2, absent, fixture, fixtureJson } from './kit/fixtures.js';
import { makeModel, randomNumbers } from './kit/make-model.js';
import { ROPE, ropeProbe, scoreOf, shareProbe, shown } from './kit/probes.js';
import { TYPES, wholeBlocks } from './kit/tensor-types.js';

/** Heads that share in threes, rows that fill no group of 16, more positions than one cache chunk. */
const SHAPE = { dModel: 96, nHeads: 12, nKvHeads: 4, dFf: 160, nVocab: 301, nLayers: 2, nCtx: 1024 };
const N_TOKENS = 300;

const random = randomNumbers(7);
const TOKENS = Array.from({ length: N_TOKENS }, () => Math.floor(random() * SHAPE.nVocab));
const FILES = Object.fromEntries(Object.keys(TYPES).map((type) => [type, makeModel({ ...SHAPE, type, ...wholeBlocks(type) })]));

/** Heads of whole blocks, for a quantised cache. */
const WIDE_HEADS = makeModel({ ...SHAPE, nHeads: 6, nKvHeads: 2, headDim: 64, type: 'Q4_0' });

/** Every model that is worth telling apart: type, precision, type of the cache. */
const MODES = Object.keys(TYPES).flatMap((type) =>
  (isQuantised(type) ? ['high', 'fast'] : ['high']).flatMap((precision) =>
    ['q16', 'f32'].map((kvType) => ({ type, precision, kvType, file: FILES[type] })),
  ),
).concat(['q16', 'f16', 'q8_0', 'q4_0'].map((kvType) => ({ type: 'Q4_0', precision: 'high', kvType, file: WIDE_HEADS })));

function hash(rows) {
  const h = createHash('sha256');
  for (const row of rows) h.update(new Uint8Array(row.buffer, row.byteOffset, row.byteLength));
  return h.digest('hex');
}

/** All that promise bits: ref has an arithmetic of its own. */
const KERNEL_BUILDS = BUILDS.filter(({ name }) => name !== 'ref');

/**
 * Builds whose bits must agree: all for quantised models, else those that fuse multiply and add, or do
 * not.
 */
const family = (build, floats) => (floats && build.fuses ? 'fused' : 'exact');

test('equal bits for every variant, number of threads, batch, prefill and decode', async (t) => {
  tellMissing(t);
  for (const { type, file, ...options } of MODES) {
    await t.test(`${type} ${options.precision}, cache ${options.kvType}${file === WIDE_HEADS ? ', wide heads' : ''}`, async () => {
      const seen = new Map();
      for (const build of KERNEL_BUILDS) {
        for (const threads of build.threads) {
          await using([build, file, { ...options, threads }], (engine) => {
            const steps = threads === 1 ? [1, engine.info.maxAll] : [4 + threads];
            for (const step of steps) {
              const key = family(build, !isQuantised(type));
              const own = hash(allLogits(engine, TOKENS, step));
              const first = seen.get(key) ?? { own, by: build.name };
              seen.set(key, first);
              assert.equal(
                own,
                first.own,
                `${build.name}, ${threads} threads, batches of ${step}: differs from ${first.by}`,
              );
            }
          });
        }
      }
    });
  }
});

test(
  'fixtures: every architecture gives equal bits for threads and batches',
  { skip: absent() },
  async () => {
    for (const { name, floats } of COVERED.filter((model) => model.arch !== 'llama' || model.experts)) {
      const tokens = TOKENS.slice(0, 70);
      const seen = new Map();
      for (const build of KERNEL_BUILDS) {
        const threads = build.threads.at(-1);
        await using([build, fixture(`${name}.gguf`), { threads, contextLength: 256 }], (engine) => {
          for (const step of threads === 1 ? [1, engine.info.maxAll] : [9]) {
            const own = hash(allLogits(engine, tokens, step));
            const key = family(build, floats);
            const first = seen.get(key) ?? { own, by: build.name };
            seen.set(key, first);
            assert.equal(
              own,
              first.own,
              `${name}: ${build.name}, batches of ${step}: differs from ${first.by}`,
            );
          }
        });
      }
    }
  },
);

/** One engine of each variant, with as many threads as it is tested with. */
async function inEachBuild(t, file, options, use) {
  for (const build of KERNEL_BUILDS) {
    await t.test(build.name, () => using([build, file, { threads: build.threads.at(-1), ...options }], use));
  }
}

/** Logits of the last of `tokens`, computed alone and in one batch after another. */
function alone(engine, tokens) {
  const seq = engine.seq();
  feed(engine, seq, tokens);
  const logits = engine.logits();
  engine.drop(seq);
  return logits;
}

test('one long prompt, however it is cut, leaves the same cache', async (t) => {
  await inEachBuild(t, FILES.Q4_1, { kvType: 'f16' }, (engine) => {
    const { maxBatch } = engine.info;
    const whole = alone(engine, TOKENS);
    for (const sizes of [[1], [2], [255, 1], [17, 64, 3], [maxBatch, 1]]) {
      const seq = engine.seq();
      for (let at = 0, i = 0; at < TOKENS.length; i++) {
        const size = Math.min(sizes[i % sizes.length], maxBatch);
        engine.eval(
          { tokens: TOKENS.slice(at, at + size), seq },
          at + size >= TOKENS.length ? 'last' : 'none',
        );
        at += size;
      }
      assert.ok(sameBits(engine.logits(), whole), `batches of ${sizes}`);
      engine.drop(seq);
    }
  });
});

test('sequences interleaved in one eval compute what each does alone', async (t) => {
  await inEachBuild(t, FILES.Q8_0, {}, (engine) => {
    const texts = [TOKENS.slice(0, 40), TOKENS.slice(100, 103), TOKENS.slice(30, 290), TOKENS.slice(5, 30)];
    const expected = texts.map((tokens) => alone(engine, tokens));
    const seqs = texts.map(() => engine.seq());
    const next = texts.map(() => 0);
    const steps = [3, 1, 16, 2];
    for (let round = 0; next.some((at, i) => at < texts[i].length); round++) {
      const order = seqs.map((_, i) => (i + round) % seqs.length).filter((i) => next[i] < texts[i].length);
      const rows = order.flatMap((i) => {
        const some = texts[i].slice(next[i], next[i] + steps[i]);
        next[i] += some.length;
        return some.map((token) => [token, seqs[i]]);
      });
      const kept = engine.eval(rows, 'last');
      assert.equal(kept, order.length);
      order.forEach((i, row) => {
        if (next[i] === texts[i].length)
          assert.ok(sameBits(engine.logits(row), expected[i]), `sequence ${i}`);
      });
    }
  });
});

for (const kvType of ['q16', 'f16', 'q4_0'])
  test(`a fork goes its own way, and so does what it was forked from: ${kvType}`, (t) => assertForks(t, kvType));

async function assertForks(t, kvType) {
  await inEachBuild(t, WIDE_HEADS, { kvType }, (engine) => {
    const [first, second] = [TOKENS.slice(270, 295), TOKENS.slice(0, 30)];
    for (const shared of [1, 200, 255, 256, 257, 270]) {
      const stem = TOKENS.slice(0, shared);
      const seq = engine.seq();
      feed(engine, seq, stem);
      const fork = engine.fork(seq);
      assert.equal(engine.pos(fork), shared);
      for (let i = 0; i < 25; i++) {
        engine.eval([
          [first[i], seq],
          [second[i], fork],
        ]);
      }
      const [own, forked] = [engine.logits(0), engine.logits(1)];
      assert.ok(sameBits(own, alone(engine, [...stem, ...first])), `${shared} shared: the first`);
      assert.ok(
        sameBits(forked, alone(engine, [...stem, ...second.slice(0, 25)])),
        `${shared} shared: the fork`,
      );
      engine.drop(seq);
      feed(engine, fork, second.slice(25));
      assert.ok(
        sameBits(engine.logits(), alone(engine, [...stem, ...second])),
        `${shared} shared: after the first is gone`,
      );
      engine.drop(fork);
    }
  });
}

for (const [file, kvType] of [[FILES.Q4_1, 'q16'], [FILES.Q4_1, 'f16'], [WIDE_HEADS, 'q8_0'], [WIDE_HEADS, 'q4_0']])
  test(`a rewound sequence remembers nothing of what it lost: ${kvType}`, (t) => assertRewinds(t, file, kvType));

async function assertRewinds(t, file, kvType) {
  await inEachBuild(t, file, { kvType }, (engine) => {
    const seq = engine.seq();
    feed(engine, seq, TOKENS);
    for (const pos of [299, 257, 256, 255, 100, 1, 0]) {
      engine.rewind(seq, pos);
      assert.equal(engine.pos(seq), pos);
      const other = TOKENS.slice(20, 20 + 40);
      feed(engine, seq, other);
      assert.ok(
        sameBits(engine.logits(), alone(engine, [...TOKENS.slice(0, pos), ...other])),
        `rewound to ${pos}`,
      );
      engine.rewind(seq, pos);
    }
    const fork = engine.fork(seq);
    feed(engine, seq, TOKENS);
    engine.drop(seq);
    engine.drop(fork);
    assert.equal(engine.memory().kvUsed, 0, 'all chunks are back');
  });
}

test('changing token j leaves every logit before j, and changes those from j on', async (t) => {
  await inEachBuild(t, FILES.Q4_0, {}, (engine) => {
    const before = allLogits(engine, TOKENS);
    for (const j of [0, 1, 31, 255, 256, 299]) {
      const changed = TOKENS.map((token, i) => (i === j ? (token + 1) % SHAPE.nVocab : token));
      const after = allLogits(engine, changed);
      before.forEach((row, i) =>
        assert.equal(sameBits(row, after[i]), i < j, `token ${j} changed, logits of ${i}`),
      );
    }
  });
});

test('causal: of five tokens 15 of 25 pairs see each other, with shares that sum to 1', async (t) => {
  await inEachBuild(t, shareProbe(), { kvType: 'f32' }, (engine) => {
    const tokens = [3, 1, 4, 15, 9];
    const shares = allLogits(engine, tokens).map((logits, i) => shown(logits, tokens[i], 16));
    assert.equal(shares.flat().filter((share) => share !== 0).length, 15);
    shares.forEach((row, i) => {
      assert.ok(Math.abs(row.reduce((a, b) => a + b) - 1) < 1e-6, `row ${i} sums to 1`);
      tokens.slice(0, i + 1).forEach((token) => assert.ok(Math.abs(row[token] * (i + 1) - 1) < 1e-6));
    });
  });
});

/* RoPE: a query and a key whose score is known in closed form. */
const HEAD_DIM = 64;
const ROPE_THETA = 100000;
const vector = () => Array.from({ length: HEAD_DIM }, () => 4 * random() - 2);
const [QUERY, KEY] = [vector(), vector()];
const SCALE = (Math.hypot(...QUERY) * Math.hypot(...KEY)) / Math.sqrt(HEAD_DIM);
const ropeModel = (stride) => ropeProbe({ q: QUERY, k: KEY, stride, theta: ROPE_THETA });

/** rope(q, m) . rope(k, n) / sqrt(head size) where m - n is the distance, in float64. */
function score(distance) {
  let sum = 0;
  for (let i = 0; i < HEAD_DIM; i += 2) {
    const angle = distance * ROPE_THETA ** (-i / HEAD_DIM);
    const [c, s] = [Math.cos(angle), Math.sin(angle)];
    sum += QUERY[i] * (KEY[i] * c + KEY[i + 1] * s) + QUERY[i + 1] * (KEY[i + 1] * c - KEY[i] * s);
  }
  return sum / Math.sqrt(HEAD_DIM);
}

/** Appends a key, then a query `distance` later; fails unless their score is that of their distance. */
function assertScore(engine, seq, distance, stride) {
  const fill = new Array(distance - 1).fill(ROPE.filler);
  feed(engine, seq, [ROPE.key, ...fill], 'none');
  engine.eval({ tokens: [ROPE.query], seq });
  const [share] = shown(engine.logitsView(), ROPE.query, 1);
  const position = engine.pos(seq) - 1;
  const error = Math.abs(scoreOf(share, position) - score(distance * stride)) / SCALE;
  assert.ok(
    error < 1e-5,
    `positions ${position - distance} and ${position}, times ${stride}: error ${error}`,
  );
}

test('rope: scores depend on the distance alone, at every position up to 131,071', async (t) => {
  const last = 131071;
  await inEachBuild(t, ropeModel(1), { kvType: 'f32', contextLength: last + 1 }, (engine) => {
    const seq = engine.seq();
    for (const at of [1, 1000, 32768, 65537, last]) {
      for (const distance of [1, 2, 7, 100].filter((d) => d <= at)) {
        if (engine.pos(seq) > at - distance) engine.rewind(seq, at - distance);
        const fill = new Array(at - distance - engine.pos(seq)).fill(ROPE.filler);
        if (fill.length) feed(engine, seq, fill, 'none');
        assertScore(engine, seq, distance, 1);
        assert.equal(engine.pos(seq), at + 1);
        engine.rewind(seq, at - distance);
      }
    }
  });
});

test('rope: the same far apart: 128 strides of 1,024', async (t) => {
  const stride = 1024;
  await inEachBuild(t, ropeModel(stride), { kvType: 'f32' }, (engine) => {
    for (const distance of [1, 2, 7, 31, 100, 128]) {
      for (const at of [0, 1, 3, 28].filter((n) => n + distance <= 128)) {
        const seq = engine.seq();
        if (at) feed(engine, seq, new Array(at).fill(ROPE.filler), 'none');
        assertScore(engine, seq, distance, stride);
        engine.drop(seq);
      }
    }
  });
});

/** A file in pieces of these sizes, again and again. */
function* pieces(file, sizes) {
  for (let at = 0, i = 0; at < file.length; i++) {
    const size = sizes[i % sizes.length];
    yield file.subarray(at, at + size);
    at += size;
  }
}

test('equal bits however the file comes in', async (t) => {
  const tokens = TOKENS.slice(0, 12);
  const bits = (build, file) => using([build, file, {}], (engine) => hash(allLogits(engine, tokens)));
  const small = { dModel: 32, nHeads: 2, nKvHeads: 1, dFf: 64, nLayers: 1, nVocab: 301 };
  for (const type of Object.keys(TYPES)) {
    await t.test(type, async () => {
      const file = makeModel({ ...small, type, ...wholeBlocks(type) });
      for (const build of KERNEL_BUILDS.filter((b) => b.threads.length === 1)) {
        const whole = await bits(build, file);
        const each = build.name === 'simd' ? [[1], [7, 1, 31], [4097, 3], [1 << 20]] : [[641, 2]];
        for (const sizes of each)
          assert.equal(await bits(build, pieces(file, sizes)), whole, `${build.name}, pieces of ${sizes}`);
      }
    });
  }
  await t.test('layouts of the file', async () => {
    const [build] = BUILDS;
    const plain = await bits(build, makeModel({ ...small, type: 'Q4_1' }));
    for (const layout of [
      { version: 2 },
      { alignment: 8 },
      { alignment: 4096 },
      { vocabulary: 'bpe' },
      { order: 'reversed' },
    ]) {
      assert.equal(
        await bits(build, makeModel({ ...small, ...layout, type: 'Q4_1' })),
        plain,
        JSON.stringify(layout),
      );
    }
  });
});

test('two engines side by side do not disturb each other', async () => {
  const [one, two] = await Promise.all(['Q4_0', 'Q8_0'].map((type) => open(BUILDS.at(-1), FILES[type])));
  const tokens = TOKENS.slice(0, 9);
  const expected = [hash(allLogits(one, tokens)), hash(allLogits(two, tokens))];
  const seqs = [one.seq(), two.seq()];
  const rows = [[], []];
  for (const token of tokens) {
    [one, two].forEach((engine, i) => {
      engine.eval({ tokens: [token], seq: seqs[i] });
      rows[i].push(engine.logits());
    });
  }
  assert.deepEqual(rows.map(hash), expected);
  await Promise.all([one.close(), two.close()]);
});

test(
  'the real model: equal bits in every released variant',
  { skip: absent(SMOLLM2.path) || absent() },
  async () => {
    const { tokens } = fixtureJson('golden/real/smollm2.json').cases[0];
    for (const precision of ['high', 'fast']) {
      const seen = new Map();
      for (const build of KERNEL_BUILDS.filter((b) => b.name !== 'grow')) {
        const options = { precision, threads: build.threads.at(-1), contextLength: 256 };
        const own = await using([build, SMOLLM2.path, options], (engine) => {
          const seq = engine.seq();
          feed(engine, seq, tokens.slice(0, 12));
          const rows = [engine.logits()];
          engine.eval({ tokens: tokens.slice(12, 13), seq });
          return hash([...rows, engine.logits()]);
        });
        seen.set(own, [...(seen.get(own) ?? []), build.name]);
      }
      assert.equal(seen.size, 1, `${precision}: ${[...seen.values()].join(' differ from ')}`);
    }
  },
);
