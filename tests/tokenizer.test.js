/** tokenizer.test.js: text to ids and back, against the fixtures and by what must hold for any vocabulary. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { Tokenizer as Library } from '@huggingface/tokenizers';
import { Index, Strings } from '../web/strings.js';
import { createTokenizer } from '../web/tokenizer.js';
import { fuzzTokenizer } from './fuzz/fuzz_tokenizer.js';
import { FIXTURES, absent, fixture, fixtureJson, fixtureNames } from './kit/fixtures.js';
import { readMeta } from './kit/gguf-meta.js';

const SECOND = 1000;
/** Vocabulary of an .inp file, where it has another name. */
const VOCABULARY = { 'llama-spm': 'llama2', 'llama-bpe': 'llama3', 'gpt-2': 'gpt2', qwen2: 'qwen3' };

/** Each file is read once. */
function once(make) {
  const made = new Map();
  return (name) => made.get(name) ?? made.set(name, make(name)).get(name);
}
const tokenizerOf = (meta) => createTokenizer((key) => meta.get(key));
const metaOf = once((path) => readMeta(join(FIXTURES, path)));
const vocabulary = once((name) => tokenizerOf(metaOf(`vocab/${name}.gguf.gz`)));
const wellFormed = (text) => text.replace(/\p{Surrogate}/gu, '\ufffd');

/** An SPM vocabulary: unknown, BOS, EOS, two tokens of a chat, the bytes, then pieces with falling scores. */
function spm(pieces, more = {}) {
  const special = ['<unk>', '<s>', '</s>', '<|im_start|>', '<|im_end|>'];
  const bytes = Array.from({ length: 256 }, (_, b) => `<0x${b.toString(16).toUpperCase().padStart(2, '0')}>`);
  const tokens = [...special, ...bytes, ...pieces];
  const type = (id) => (id === 0 ? 2 : id < 5 ? 3 : id < 261 ? 6 : 1);
  return new Map(Object.entries({
    'tokenizer.ggml.model': 'llama',
    'tokenizer.ggml.tokens': tokens,
    'tokenizer.ggml.scores': Float32Array.from(tokens, (_, id) => -id),
    'tokenizer.ggml.token_type': Int32Array.from(tokens, (_, id) => type(id)),
    'tokenizer.ggml.bos_token_id': 1,
    'tokenizer.ggml.eos_token_id': 2,
    'tokenizer.ggml.add_space_prefix': true,
    ...more,
  }));
}
const PIECES = [...'\u2581onceO', '\u2581O', '\u2581On', 'ce', '\u2581Once', 'on', 'once', '\u2581o'];
const byteId = (byte) => 5 + byte;

const NAMES = fixtureNames('tokens').map((file) => file.replace('.json', ''));

test('the fixtures are there', { skip: absent('tokens') }, () => assert.ok(NAMES.length >= 10));

for (const name of NAMES) {
  test(`tokens of ${name}`, () => {
    const tokenizer = vocabulary(name);
    const { cases } = fixtureJson(`tokens/${name}.json`);
    for (const { s, ids, idsHf, special = ids, specialHf = idsHf } of cases) {
      isOneOf(tokenizer.encode(s), [ids, idsHf], s);
      isOneOf(tokenizer.encode(s, { special: true }), [special, specialHf], s);
    }
  });
}

/** Where the fixtures give two answers, either is right. */
function isOneOf(ids, answers, text) {
  const right = answers.find((answer) => `${answer}` === `${ids}`) ?? answers[0];
  assert.deepEqual(ids, right, JSON.stringify(text));
}

test('gpt-4o: marks belong to words, as the published pattern has it', { skip: absent('tokens') }, () => {
  const { cases } = fixtureJson('tokens/gpt4o.json');
  const told = cases.filter(({ idsHf }) => idsHf);
  assert.ok(told.length > 0);
  for (const { s, idsHf } of told) assert.deepEqual(vocabulary('gpt4o').encode(s), idsHf, s);
});

for (const file of fixtureNames('vocab').filter((name) => name.endsWith('.inp'))) {
  const name = file.replace('.inp', '');
  test(`published strings of ${name}`, () => {
    const text = (extension) => new TextDecoder().decode(fixture(`vocab/${name}.${extension}`));
    const strings = text('inp').split('\n__ggml_vocab_test__\n');
    const lines = text('out').split('\n').slice(0, strings.length);
    assert.equal(lines.length, strings.length);
    const tokenizer = vocabulary(VOCABULARY[name] ?? name);
    strings.forEach((string, i) => {
      const ids = (lines[i].match(/\d+/g) ?? []).map(Number);
      assert.deepEqual(tokenizer.encode(string), ids, JSON.stringify(string));
    });
  });
}

test('decoding gives back the bytes', { skip: absent('tokens') }, () => {
  for (const name of NAMES) {
    const tokenizer = vocabulary(name);
    // SPM writes a space as U+2581 and so can't tell the two apart; SmolLM2's vocabulary lacks 13 bytes.
    const lossless = (text) => tokenizer.model === 'gpt2' || !text.includes('\u2581');
    const known = (text) => name !== 'smollm' || !/[\x00-\x08\x0e-\x1f]/.test(text);
    for (const { s } of fixtureJson(`tokens/${name}.json`).cases.filter(({ s }) => lossless(s) && known(s))) {
      for (const special of [false, true]) {
        assert.equal(tokenizer.decode(tokenizer.encode(s, { special }), { special: true }), wellFormed(s));
      }
    }
  }
});

test('a stream shows whole characters, and in the end the same text', { skip: absent('tokens') }, () => {
  for (const name of NAMES) {
    const tokenizer = vocabulary(name);
    for (const { s } of fixtureJson(`tokens/${name}.json`).cases) {
      const ids = tokenizer.encode(s);
      const stream = tokenizer.stream();
      const chunks = [...ids.map((id) => stream.push(id)), stream.end()];
      assert.equal(chunks.join(''), tokenizer.decode(ids));
      if (wellFormed(s).includes('\ufffd') || tokenizer.decode(ids) !== s) continue;
      for (const chunk of chunks) {
        assert.ok(!chunk.includes('\ufffd') && wellFormed(chunk) === chunk, JSON.stringify(s));
      }
    }
  }
});

test('A13: the bytes of a character come one by one, letters at once', () => {
  const tokenizer = tokenizerOf(spm(PIECES));
  const stream = tokenizer.stream([3]);
  const smile = [...new TextEncoder().encode('\u{1f600}')].map(byteId);
  assert.deepEqual(smile.map((id) => stream.push(id)), ['', '', '', '\u{1f600}']);
  const o = tokenizer.nVocab - PIECES.length + PIECES.indexOf('o');
  assert.equal(stream.push(o), 'o');
  assert.equal(stream.push(smile[0]), '');
  assert.equal(stream.end(), '\ufffd', 'an answer that ends in half a character says so');
});

test('A12: no space is made up between special tokens and line breaks', () => {
  const tokenizer = tokenizerOf(spm(PIECES));
  const text = '<|im_start|><|im_end|>\n';
  assert.deepEqual(tokenizer.encode(text, { special: true }), [3, 4, byteId(10)]);
  for (const string of [text, '<|im_start|>once Once<|im_end|>\n once', '<s>  once</s> ', '', ' ', ' Once']) {
    assert.equal(tokenizer.decode(tokenizer.encode(string, { special: true }), { special: true }), string);
  }
});

test('A15: the first piece of a text has no leading space, a later one keeps it', () => {
  const tokenizer = tokenizerOf(spm(PIECES));
  const [once] = tokenizer.encode('Once');
  assert.equal(tokenizer.spelling(once), '\u2581Once');
  assert.equal(tokenizer.stream([1]).push(once), 'Once');
  assert.equal(tokenizer.stream([1, once]).push(once), ' Once');
  assert.equal(tokenizer.decode([1, once, once]), 'Once Once');
});

test('A16: empty, odd and huge texts', { skip: absent('vocab') }, () => {
  const units = ['a', '\n', ' ', '<', '7', '\u{1f600}', '\u4e2d', 'a\u0301', "'s", '\r\n', 'Aa', '\0'];
  const texts = [
    ...units.map((unit) => unit.repeat(1 << 16)),
    'a'.repeat(1 << 20),
    'The quick brown fox jumped over 12 lazy dogs. '.repeat(1 << 14),
  ];
  for (const name of ['smollm', 'llama2', 'llama3']) {
    const tokenizer = vocabulary(name);
    assert.deepEqual(tokenizer.encode(''), []);
    assert.equal(tokenizer.decode(tokenizer.encode('\ud83d x \ude00')), '\ufffd x \ufffd');
    for (const text of texts) {
      const start = performance.now();
      const ids = tokenizer.encode(text, { special: true });
      const took = performance.now() - start;
      assert.ok(took < 60 * SECOND, `${name}: ${JSON.stringify(text.slice(0, 8))}...: ${took} ms`);
      if (name !== 'smollm' || text[0] !== '\0') assert.equal(tokenizer.decode(ids), text);
    }
  }
});

const SMILES = '\u{1f600}'.repeat(4 << 20);
const overflows = () => {
  try {
    return SMILES.match(/[^\s\p{L}\p{N}]+/u) === null;
  } catch {
    return true;
  }
};

test('a word beyond what a regular expression can hold is an error, not a crash', (t) => {
  if (absent('vocab')) return t.skip(absent('vocab'));
  if (!overflows()) return t.skip('this engine can hold it');
  const tokenizer = vocabulary('smollm');
  assert.throws(() => tokenizer.encode(SMILES), { name: 'ModelError', code: 'ARGUMENT' });
  assert.equal(tokenizer.decode(tokenizer.encode('after')), 'after');
});

test('A17: exactly one BOS', { skip: absent('vocab') }, () => {
  for (const name of ['llama2', 'llama3', 'gemma3']) {
    const tokenizer = vocabulary(name);
    const bos = tokenizer.spelling(tokenizer.bos);
    for (const text of ['', 'Hi', bos, `${bos}Hi`]) {
      const ids = tokenizer.prompt(text, { special: true });
      assert.equal(ids.filter((id) => id === tokenizer.bos).length, 1, `${name}: ${text}`);
      assert.equal(ids[0], tokenizer.bos);
    }
  }
  assert.deepEqual(vocabulary('smollm').prompt('Hi'), vocabulary('smollm').encode('Hi'));
});

test('special text is text in plain mode, and stays what it is', { skip: absent('vocab') }, () => {
  for (const name of NAMES) {
    const tokenizer = vocabulary(name);
    const type = metaOf(`vocab/${name}.gguf.gz`).get('tokenizer.ggml.token_type');
    const controls = [...type.keys()].filter((id) => type[id] === 3);
    assert.ok(controls.length > 0);
    for (const id of controls) {
      const text = tokenizer.spelling(id);
      const plain = tokenizer.encode(text);
      assert.ok(!plain.some((other) => tokenizer.isControl(other)), `${name}: ${text}`);
      const shown = tokenizer.model === 'llama' ? text.replaceAll('\u2581', ' ') : text;
      assert.equal(tokenizer.decode(plain), shown);
      assert.deepEqual(tokenizer.encode(text, { special: true }), [id]);
      assert.equal(tokenizer.decode([id]), '');
      assert.equal(tokenizer.decode([id], { special: true }), text);
    }
  }
});

test('tokens that end an answer', { skip: absent('vocab') }, () => {
  const ends = (name) => [...vocabulary(name).eogIds].map((id) => vocabulary(name).spelling(id)).sort();
  assert.deepEqual(ends('smollm'), ['<|endoftext|>', '<|im_end|>']);
  assert.deepEqual(ends('llama3'), ['<|end_of_text|>', '<|eot_id|>']);
  assert.deepEqual(ends('qwen3'), ['<|endoftext|>', '<|im_end|>']);
  assert.deepEqual(ends('phi-3'), ['</s>', '<|endoftext|>', '<|end|>'].sort());
  assert.deepEqual(ends('llama2'), ['</s>']);
  const eot = spm(PIECES, { 'tokenizer.ggml.eot_token_id': 4, 'tokenizer.ggml.eom_token_id': 265 });
  assert.deepEqual([...tokenizerOf(eot).eogIds].sort((a, b) => a - b), [2, 4, 265]);
});

/* ---- strings in one piece ---- */

test('an index finds each string, the first of equal ones, and nothing else', () => {
  let state = 1;
  const next = (n) => (state = (Math.imul(state, 48271) >>> 0) % 0x7fffffff) % n;
  const text = () => Array.from({ length: next(7) }, () => 'ab\u0120\u{1f600}'.slice(0, 1 + next(5)).at(-1)).join('');
  const texts = Array.from({ length: 5000 }, text).map(wellFormed);
  const strings = Strings.of(texts);
  assert.deepEqual([...strings], texts);
  assert.equal(strings.at(texts.length), undefined);
  const wanted = (i) => i % 3 > 0;
  const [all, some] = [new Index(strings), new Index(strings, wanted)];
  for (const text of [...texts, ...Array.from({ length: 5000 }, () => wellFormed(`${texts[next(5000)]}c`))]) {
    const bytes = new TextEncoder().encode(`x${text}x`);
    assert.equal(all.find(bytes, 1, bytes.length - 1), texts.indexOf(text));
    assert.equal(some.find(bytes, 1, bytes.length - 1), texts.findIndex((other, i) => other === text && wanted(i)));
  }
});

test('a piece that is not UTF-8 shows U+FFFD, and no text becomes it', () => {
  const meta = spm([...PIECES, '##']);
  const strings = Strings.of(meta.get('tokenizer.ggml.tokens'));
  const last = strings.length - 1;
  strings.bytes.fill(0xff, strings.spans[2 * last], strings.spans[2 * last + 1]);
  const tokenizer = tokenizerOf(new Map([...meta, ['tokenizer.ggml.tokens', strings]]));
  assert.equal(tokenizer.spelling(last), '\ufffd\ufffd');
  assert.ok(!tokenizer.encode('\ufffd\ufffd').includes(last));
  assert.deepEqual(tokenizer.encode('Once'), tokenizerOf(meta).encode('Once'));
});

/* ---- what is refused ---- */

test('A11: unknown kinds of tokenizer are refused, with the known names', { skip: absent('vocab') }, () => {
  const meta = new Map(metaOf('vocab/gpt2.gguf.gz'));
  const refused = (key, value, message) => {
    assert.throws(() => tokenizerOf(new Map([...meta, [key, value]])), { code: 'UNSUPPORTED', message });
  };
  refused('tokenizer.ggml.pre', 'does-not-exist', /'does-not-exist'.*gpt-2.*llama-bpe.*qwen2.*smollm/);
  refused('tokenizer.ggml.pre', undefined, /is missing.*smollm/);
  refused('tokenizer.ggml.model', 'rwkv', /'rwkv'.*llama.*gpt2/);
  refused('tokenizer.ggml.model', undefined, /no tokenizer/);
});

test('a vocabulary that contradicts itself is refused, naming the key', () => {
  const n = spm(PIECES).get('tokenizer.ggml.tokens').length;
  const cases = {
    'tokenizer.ggml.tokens': [undefined, new Int32Array(n), [1, 2], []],
    'tokenizer.ggml.scores': [undefined, new Uint8Array(n), new Float32Array(n - 1), 'high'],
    'tokenizer.ggml.token_type': [new Uint8Array(n), new Int32Array(n + 1), 3],
    'tokenizer.ggml.bos_token_id': ['<s>', n, 1.5],
    'tokenizer.ggml.eos_token_id': [n, true],
    'tokenizer.ggml.add_bos_token': [1],
    'tokenizer.ggml.add_space_prefix': ['yes'],
  };
  for (const [key, values] of Object.entries(cases)) {
    for (const value of values) {
      const wrong = spm(PIECES, { [key]: value });
      assert.throws(() => tokenizerOf(wrong), { code: 'FORMAT', message: new RegExp(key) });
    }
  }
  const bpe = (merges) => spm(PIECES, {
    'tokenizer.ggml.model': 'gpt2', 'tokenizer.ggml.pre': 'gpt-2', 'tokenizer.ggml.merges': merges,
  });
  for (const merges of [undefined, [], new Float32Array(3)]) {
    assert.throws(() => tokenizerOf(bpe(merges)), { code: 'FORMAT', message: /tokenizer\.ggml\.merges/ });
  }
  assert.ok(tokenizerOf(bpe(['oo', '', ' ', 'x y', 'o n extra'])).encode('once').length > 0);
});

test('malformed vocabularies load or are refused, as their cases say', { skip: absent('malformed') }, () => {
  // That a vocabulary has as many tokens as the embedding has rows is checked where both are known.
  const about = /^(vo-(?!fewer)|pub-types|pub-byte)/;
  const mine = fixtureJson('malformed/CASES.json').filter(({ file }) => about.test(file));
  assert.ok(mine.length > 15);
  for (const { file, expect } of mine) {
    let tokenizer;
    try {
      tokenizer = tokenizerOf(metaOf(`malformed/${file}`));
    } catch (error) {
      assert.ok(error.code === 'FORMAT' || error.code === 'UNSUPPORTED', `${file}: ${error}`);
      assert.notEqual(expect, 'accept', `${file}: ${error.message}`);
      continue;
    }
    assert.notEqual(expect, 'reject', file);
    for (const text of ['', 'Hello', '\u{1f600}\0', '<s>x</s>', 'a'.repeat(10_000)]) {
      const ids = tokenizer.encode(text, { special: true });
      assert.ok(ids.every((id) => Number.isInteger(id) && id >= 0 && id < tokenizer.nVocab), file);
      tokenizer.decode(ids);
    }
    for (let id = 0; id < tokenizer.nVocab; id++) assert.equal(typeof tokenizer.piece(id), 'string');
  }
});

/* ---- an independent second opinion ---- */

test('random text: the same ids as a published tokenizer library', { skip: absent('vocab') }, () => {
  const meta = metaOf('vocab/smollm.gguf.gz');
  const split = (Regex) => ({ type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false });
  const library = new Library({
    version: '1.0', added_tokens: [], normalizer: null, post_processor: null, decoder: { type: 'ByteLevel' },
    pre_tokenizer: {
      type: 'Sequence',
      pretokenizers: [
        split('\\p{N}'),
        split("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"),
        { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false },
      ],
    },
    model: {
      type: 'BPE', unk_token: null, byte_fallback: false,
      vocab: Object.fromEntries(meta.get('tokenizer.ggml.tokens').map((text, id) => [text, id])),
      merges: meta.get('tokenizer.ggml.merges').map((pair) => pair.split(' ')),
    },
  }, {});
  const tokenizer = vocabulary('smollm');
  for (const text of randomTexts(2000)) {
    const { ids } = library.encode(text, { add_special_tokens: false });
    assert.deepEqual(tokenizer.encode(text), ids, JSON.stringify(text));
  }
});

test('hostile vocabularies are refused, or hold what they promise', () => {
  const accepted = fuzzTokenizer(4000, 0);
  assert.ok(accepted > 1000 && accepted < 3000, `${accepted} of 4000 were accepted`);
});

/** Texts of letters, spaces, digits, marks and symbols of many scripts, always the same ones. */
function* randomTexts(count) {
  let state = 1;
  const next = (n) => (state = (Math.imul(state, 48271) >>> 0) % 0x7fffffff) % n;
  const units = [
    'a', 'e', 'th', ' ', '  ', '\n', '\t', '\r\n', '1', '23', "'s", "'LL", '.', '!?', '<|', '\u00e9',
    'e\u0301', '\u0436', '\u4e2d\u6587', '\u304b', '\uac00', '\u0939\u093f', '\u{1f600}',
    '\u{1f469}\u200d\u{1f4bb}', '\u00a0', '\u3000', '_', '\u2581', '\u20ac',
  ];
  for (let i = 0; i < count; i++) {
    yield Array.from({ length: 1 + next(12) }, () => units[next(units.length)]).join('');
  }
}
