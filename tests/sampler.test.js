/**
 * sampler.test.js: the sampler chain against its definition (src/sample.def, src/sample.c): bias,
 * penalties, top-k, top-p, min-p, temperature, draw. The logits are exactly known: a model made for it.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { argmax, softmax } from './kit/compare.js';
import { assertDrawn } from './kit/draws.js';
import { BUILDS, tellMissing, using } from './kit/engines.js';
import { randomNumbers } from './kit/make-model.js';
import { tableModel } from './kit/probes.js';

const DRAWS = 10000;
const N_VOCAB = 50;
/** Everything off: draws from the logits as they are. */
const PLAIN = {
  temperature: 1,
  topK: 0,
  topP: 1,
  minP: 0,
  repeatPenalty: 1,
  frequencyPenalty: 0,
  presencePenalty: 0,
};

const random = randomNumbers(5);
const bell = () => 3 * (random() + random() + random() - 1.5);
const row = (value) => Array.from({ length: N_VOCAB }, (_, i) => value(i));
/** Token t is followed by TABLES[t]. */
const TABLES = [
  row(() => Math.fround(bell())),
  row((i) => [Math.log(0.6), Math.log(0.3), Math.log(0.1)][i] ?? -100).map(Math.fround),
  row(() => 1),
  row((i) => (i === 7 || i === 30 || i === 31 ? 5 : -5)),
  row((i) => (i % 2 ? 1e4 - i : -1e4)),
  row((i) => Math.fround(i / 16)),
  row((i) => (i ? -500 * i : 0)),
];
const [BELL, THREE, FLAT, TIES, HUGE, STEPS, STEEP] = TABLES.keys();

/** The definition, in float64: probability of each token. */
function distribution(logits, options, { last = [], bias = {} } = {}) {
  const o = { ...PLAIN, ...options };
  const x = Float64Array.from(logits);
  for (const [id, value] of Object.entries(bias)) x[id] += value;
  for (const id of new Set(last)) {
    x[id] = x[id] > 0 ? x[id] / o.repeatPenalty : x[id] * o.repeatPenalty;
    x[id] -= last.filter((other) => other === id).length * o.frequencyPenalty + o.presencePenalty;
  }
  let kept = [...x.keys()].filter((id) => x[id] > -Infinity).sort((a, b) => x[b] - x[a] || a - b);
  if (o.topK) kept = kept.slice(0, o.topK);
  const p = softmax(kept.map((id) => x[id]));
  let sum = 0;
  kept = kept.filter((_, i) => {
    const enough = i > 0 && ((o.topP < 1 && sum >= o.topP) || p[i] < o.minP * p[0]);
    sum += p[i];
    return !enough;
  });
  const shares = softmax(kept.map((id) => x[id] / o.temperature));
  return Float64Array.from({ length: logits.length }, (_, id) =>
    kept.includes(id) ? shares[kept.indexOf(id)] : 0,
  );
}

/** Puts table `t` into kept row 0 and returns a sequence with the options. */
function prepare(engine, t, options = {}, seed = 1) {
  const seq = engine.seq();
  engine.setSampler(seq, { ...PLAIN, ...options });
  engine.seed(seq, seed);
  engine.eval({ tokens: [t], seq });
  return seq;
}

/** How often each token is drawn. */
function counts(engine, t, options, { last = [], bias = {}, draws = DRAWS, seed } = {}) {
  const seq = prepare(engine, t, options, seed);
  engine.bias(seq, bias);
  const out = new Array(N_VOCAB).fill(0);
  for (let i = 0; i < draws; i++) out[engine.sample(seq, 0, last)]++;
  engine.drop(seq);
  return out;
}

const [build] = BUILDS;
const withEngine = (use) => () => using([build, tableModel(TABLES), {}], use);

test('the logits of the test model are the tables, to the bit, in every variant', async (t) => {
  tellMissing(t);
  for (const build of BUILDS) {
    await using([build, tableModel(TABLES), { threads: build.threads.at(-1) }], (engine) => {
      TABLES.forEach((table, i) => {
        const seq = engine.seq();
        engine.eval({ tokens: [3, i], seq });
        assert.deepEqual(engine.logits(), Float32Array.from(table), `${build.name}, table ${i}`);
        engine.drop(seq);
      });
    });
  }
});

const CHAINS = {
  'nothing but the logits': {},
  'temperature 0.5': { temperature: 0.5 },
  'temperature 2': { temperature: 2 },
  'top-k 5': { topK: 5 },
  'top-k beyond the vocabulary': { topK: 1000 },
  'top-p 0.7': { topP: 0.7 },
  'min-p 0.2': { minP: 0.2 },
  'top-k, top-p, min-p and temperature': { topK: 20, topP: 0.9, minP: 0.05, temperature: 0.8 },
  'top-p of what top-k leaves': { topK: 4, topP: 0.6 },
  'min-p before temperature': { minP: 0.3, temperature: 3 },
  'repetition penalty': { repeatPenalty: 1.8, last: [0, 3, 3, 9, 12, 20, 21, 22] },
  'repetition bonus': { repeatPenalty: 0.5, last: [1, 2, 3] },
  'frequency penalty': { frequencyPenalty: 0.7, last: [4, 4, 4, 5, 6, 6] },
  'presence penalty': { presencePenalty: 1.5, last: [4, 4, 4, 5, 6, 6] },
  'all penalties': {
    repeatPenalty: 1.3,
    frequencyPenalty: 0.2,
    presencePenalty: -0.5,
    last: [...Array(40).keys()],
  },
  bias: { bias: { 3: 2.5, 8: -4, 11: -Infinity } },
  'bias before penalties': { bias: { 3: 4, 4: -4 }, repeatPenalty: 2, last: [3, 4] },
};

test(
  'each parameter, and combinations, draw what their definition says',
  withEngine((engine) => {
    for (const [name, { last, bias, ...options }] of Object.entries(CHAINS)) {
      for (const t of [BELL, STEPS]) {
        const given = { last, bias };
        assertDrawn(
          counts(engine, t, options, given),
          distribution(TABLES[t], options, given),
          `${name}, table ${t}`,
        );
      }
    }
  }),
);

test(
  'each parameter has an effect',
  withEngine((engine) => {
    const neutral = JSON.stringify(counts(engine, BELL, {}, { draws: 500, last: [1, 2, 2] }));
    const effects = {
      temperature: 0.1,
      topK: 1,
      topP: 0.1,
      minP: 0.9,
      repeatPenalty: 3,
      frequencyPenalty: 5,
      presencePenalty: 5,
    };
    assert.deepEqual(Object.keys(effects).sort(), Object.keys(PLAIN).sort());
    for (const [name, value] of Object.entries(effects)) {
      const last = [argmax(TABLES[BELL]), 2, 2];
      assert.notEqual(
        JSON.stringify(counts(engine, BELL, { [name]: value }, { draws: 500, last })),
        neutral,
        name,
      );
    }
  }),
);

test(
  'three tokens with 0.6, 0.3, 0.1: top-p takes as few as reach it',
  withEngine((engine) => {
    const support = (topP) => counts(engine, THREE, { topP }).flatMap((n, id) => (n ? [id] : []));
    assert.deepEqual(support(0), [0]);
    assert.deepEqual(support(0.5), [0]);
    assert.deepEqual(support(0.65), [0, 1]);
    assert.deepEqual(support(0.85), [0, 1]);
    assert.deepEqual(support(0.95), [0, 1, 2]);
    assert.deepEqual(support(1), [0, 1, 2]);
    const minP = (value) => counts(engine, THREE, { minP: value }).flatMap((n, id) => (n ? [id] : []));
    assert.deepEqual(minP(0.6), [0]);
    assert.deepEqual(minP(0.4), [0, 1]);
    assert.deepEqual(minP(0.1), [0, 1, 2]);
  }),
);

test(
  'greedy: the largest logit, on a tie the lowest id; also as top-k 1 and at tiny temperatures',
  withEngine((engine) => {
    const expected = [
      [BELL, argmax(TABLES[BELL])],
      [TIES, 7],
      [FLAT, 0],
      [HUGE, 1],
      [STEPS, N_VOCAB - 1],
    ];
    for (const [t, id] of expected) {
      for (const options of [
        { temperature: 0 },
        { topK: 1 },
        { temperature: 0, topP: 0.3, minP: 0.4, topK: 9 },
      ]) {
        const seq = prepare(engine, t, options);
        assert.equal(engine.sample(seq), id, `${JSON.stringify(options)}, table ${t}`);
        engine.drop(seq);
      }
      if (t === TIES || t === FLAT) continue;
      for (const temperature of [1e-9, 1e-4]) {
        const certain = counts(engine, t, { temperature }, { draws: 100 });
        assert.equal(certain[id], 100, `temperature ${temperature}, table ${t}`);
      }
    }
    assertDrawn(
      counts(engine, TIES, { temperature: 1e-9 }),
      distribution(TABLES[TIES], { temperature: 1e-9 }),
      'ties, tiny temperature',
    );
  }),
);

test(
  'a hot draw reaches what is far below the best',
  withEngine((engine) => {
    for (const temperature of [300, 1000, 1e6]) {
      assertDrawn(
        counts(engine, STEEP, { temperature }),
        distribution(TABLES[STEEP], { temperature }),
        `temperature ${temperature}`,
      );
    }
  }),
);

/** PCG-XSH-RR 64/32 as its paper defines it, on the default stream. */
function* pcg(seed) {
  const step = (state) => BigInt.asUintN(64, state * 6364136223846793005n + 1442695040888963407n);
  let state = step(step(0n) + BigInt(seed));
  for (;;) {
    const xored = Number(BigInt.asUintN(32, ((state >> 18n) ^ state) >> 27n));
    const turn = Number(state >> 59n);
    yield ((xored >>> turn) | (xored << (-turn & 31))) >>> 0;
    state = step(state);
  }
}

test(
  'the generator is the documented one: draws follow it for any seed',
  withEngine((engine) => {
    for (const seed of [0, 1, 42, 2 ** 32, 2 ** 53 - 1, 2n ** 64n - 1n]) {
      const seq = prepare(engine, FLAT, {}, seed);
      const numbers = pcg(seed);
      for (let i = 0; i < 200; i++) {
        const [high, low] = [numbers.next().value >>> 5, numbers.next().value >>> 6];
        const fraction = (high * 2 ** 26 + low) / 2 ** 53;
        assert.equal(engine.sample(seq), Math.floor(fraction * N_VOCAB), `seed ${seed}, draw ${i}`);
      }
      engine.drop(seq);
    }
  }),
);

test('a seed gives the same ids in every variant; another seed gives others', async () => {
  const drawn = [];
  for (const build of BUILDS) {
    drawn.push(
      await using([build, tableModel(TABLES), {}], (engine) => {
        const ids = (seed) => {
          const seq = prepare(engine, BELL, { topP: 0.95, minP: 0.02, temperature: 0.9 }, seed);
          const out = Array.from({ length: 64 }, () => engine.sample(seq));
          engine.drop(seq);
          return out;
        };
        assert.deepEqual(ids(7), ids(7));
        assert.notDeepEqual(ids(7), ids(8));
        return ids(7);
      }),
    );
  }
  for (const ids of drawn) assert.deepEqual(ids, drawn[0]);
});

test(
  'a fork copies sampler and random state, and draws on its own from there',
  withEngine((engine) => {
    const seq = prepare(engine, BELL, { temperature: 1.5 }, 9);
    engine.sample(seq);
    const fork = engine.fork(seq);
    const draw = (s) => Array.from({ length: 30 }, () => engine.sample(s));
    const first = draw(seq);
    assert.deepEqual(draw(fork), first);
    engine.setSampler(fork, { temperature: 0 });
    assert.equal(new Set(draw(seq)).size > 1, true);
  }),
);

test(
  'logits are not changed by sampling, and any kept row can be drawn from',
  withEngine((engine) => {
    const [one, two] = [engine.seq(), engine.seq()];
    engine.eval([
      [BELL, one],
      [STEPS, two],
    ]);
    const before = [engine.logits(0), engine.logits(1)];
    engine.setSampler(one, { ...PLAIN, temperature: 0 });
    engine.bias(one, { 5: 100 });
    assert.equal(engine.sample(one, 1), 5);
    engine.bias(one, {});
    assert.equal(engine.sample(one, 1), N_VOCAB - 1);
    assert.equal(engine.sample(one, 0), argmax(TABLES[BELL]));
    assert.deepEqual([engine.logits(0), engine.logits(1)], before);
  }),
);

test(
  'values out of range are refused by name, and leave what was set',
  withEngine((engine) => {
    const seq = prepare(engine, BELL, { temperature: 0 });
    const refused = {
      temperature: [-1, NaN, Infinity, -1e-9],
      topK: [-1, 1.5, NaN, Infinity],
      topP: [-0.1, 1.0000001, NaN],
      minP: [-1, 2, NaN],
      repeatPenalty: [0, -1, NaN, Infinity],
      frequencyPenalty: [NaN, Infinity, -Infinity],
      presencePenalty: [NaN, Infinity],
    };
    for (const [name, values] of Object.entries(refused)) {
      const snake = name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
      for (const value of values) {
        assert.throws(
          () => engine.setSampler(seq, { [name]: value }),
          { code: 'ARGUMENT', message: new RegExp(snake) },
          `${name} ${value}`,
        );
      }
    }
    assert.throws(() => engine.setSampler(seq, { topP_: 1 }), { name: 'TypeError', message: /topP_.*topP/ });
    assert.throws(() => engine.bias(seq, { [N_VOCAB]: 1 }), {
      code: /ARGUMENT|TOKEN/,
      message: new RegExp(`${N_VOCAB}`),
    });
    assert.throws(() => engine.bias(seq, { [-1]: 1 }), { code: /ARGUMENT|TOKEN/ });
    assert.throws(() => engine.bias(seq, { 3: NaN }), { code: 'ARGUMENT' });
    for (const seed of [-1, 1.5, NaN, 2n ** 64n])
      assert.throws(() => engine.seed(seq, seed), { name: 'RangeError' });
    assert.throws(() => engine.sample(seq, 0, [N_VOCAB]), { code: /ARGUMENT|TOKEN/ });
    assert.throws(() => engine.sample(seq, 1));
    assert.throws(() => engine.sample(seq + 1), { code: 'SEQ' });
    assert.equal(engine.sample(seq), argmax(TABLES[BELL]), 'still greedy, without bias');
  }),
);

test('nothing to sample from is an error, a lone candidate is drawn', async () => {
  const infinite = (n) => row((i) => (i < n ? 0 : -Infinity));
  const cases = [
    { table: infinite(0), message: /-inf/ },
    { table: row((i) => (i === 33 ? NaN : 0)), message: /33.*NaN/ },
    { table: row((i) => (i === 33 ? Infinity : 0)), message: /33.*infinite/ },
  ];
  for (const { table, message } of cases) {
    await using([build, tableModel([table]), {}], (engine) => {
      for (const options of [{}, { temperature: 0 }, { topK: 3, topP: 0.5 }]) {
        const seq = prepare(engine, 0, options);
        assert.throws(() => engine.sample(seq), { code: 'LOGITS', message });
        engine.drop(seq);
      }
    });
  }
  await using([build, tableModel([infinite(1)]), {}], (engine) => {
    for (const options of [{}, { temperature: 0 }, { temperature: 1e6 }, { topP: 0 }]) {
      assert.equal(counts(engine, 0, options, { draws: 100 })[0], 100, JSON.stringify(options));
    }
  });
  await using([build, tableModel(TABLES), {}], (engine) => {
    const seq = prepare(engine, BELL);
    engine.bias(seq, Object.fromEntries(TABLES[BELL].map((_, id) => [id, -Infinity])));
    assert.throws(() => engine.sample(seq), { code: 'LOGITS' }, 'every token forbidden');
    engine.bias(seq, { 0: -1 });
    assert.ok(engine.sample(seq) >= 0, 'the next call works');
  });
});
