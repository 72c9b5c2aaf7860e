/** cli.test.js: the command line as its users call it: what goes in and out, exit codes, pipes and Ctrl-C. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { gunzipSync } from 'node:zlib';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test, { after } from 'node:test';
import { fileURLToPath } from 'node:url';
import { createEngine, runnable } from '../web/engine.js';
import { SMOLLM2, absent, fixture, fixtureJson, floats } from './kit/fixtures.js';
import { makeGguf, makeModel } from './kit/make-model.js';

const CLI = fileURLToPath(new URL('../web/cli.js', import.meta.url));
const FOLDER = mkdtempSync(path.join(tmpdir(), 'tabllama-'));
after(() => rmSync(FOLDER, { recursive: true }));

/** @param {string} name @param {Uint8Array | string | object} content */
function file(name, content) {
  const full = path.join(FOLDER, name);
  writeFileSync(full, content instanceof Uint8Array || typeof content === 'string' ? content : JSON.stringify(content));
  return full;
}

const TEMPLATE = '{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}';
const MODEL = file('model.gguf', makeModel({ vocabulary: 'bpe', chatTemplate: TEMPLATE }));
/** Its answers are as long as the context. */
const TALKER = file('talker.gguf', makeModel({ vocabulary: 'bpe', nLayers: 1, nCtx: 1 << 17, chatTemplate: TEMPLATE }));

/**
 * @param {string[]} args
 * @param {{ input?: string, whileRunning?: (child: import('node:child_process').ChildProcess, output: { stdout: string }) => void,
 *   interruptAfter?: number }} [options]  input: stdin, then its end; whileRunning: called at each piece of output, with
 *   stdin left open; interruptAfter: milliseconds
 * @returns {Promise<{ code: number | null, signal: string | null, stdout: string, stderr: string }>}
 */
function cli(args, { input = '', whileRunning, interruptAfter } = {}) {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, [CLI, ...args]);
    const output = { stdout: '', stderr: '' };
    child.stdout.on('data', (data) => {
      output.stdout += data;
      whileRunning?.(child, output);
    });
    child.stderr.on('data', (data) => (output.stderr += data));
    child.stdin.on('error', () => {}); // it may end before it has read all
    if (whileRunning) child.stdin.write(input);
    else child.stdin.end(input);
    const timer = setTimeout(() => child.kill('SIGKILL'), 60000);
    if (interruptAfter) setTimeout(() => child.kill('SIGINT'), interruptAfter);
    child.on('close', (code, signal) => {
      clearTimeout(timer);
      resolve({ code, signal, ...output });
    });
  });
}

/** stdout of a call that must go well and say nothing else. */
async function good(args, options) {
  const { code, signal, stdout, stderr } = await cli(args, options);
  assert.deepEqual({ code, signal, stderr }, { code: 0, signal: null, stderr: '' }, args.join(' '));
  return stdout;
}

/** A call that must fail with one sentence. */
async function bad(args, expected, sentence, options) {
  const { code, stdout, stderr } = await cli(args, options);
  assert.equal(code, expected, `${args.join(' ')}: ${stderr}`);
  assert.equal(stdout, '');
  assert.match(stderr, /^tabllama: [^\n]+\n$/, 'one line');
  assert.doesNotMatch(stderr, /\bError\b|\n\s+at /, 'no class name, no stack');
  assert.match(stderr, sentence);
}

test('help and version', async () => {
  const help = await good(['--help']);
  for (const name of ['run', 'chat', 'info', 'tokenize', 'render', 'logits', 'bench']) {
    assert.match(help, new RegExp(`tabllama ${name}\\b`));
    assert.match(await good([name, '--help']), new RegExp(`^usage: tabllama ${name}`));
  }
  const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
  assert.equal(await good(['--version']), `${version}\n`);
});

test('wrong usage is exit code 2 and a sentence', async () => {
  const cases = file('cases.json', { cases: [] });
  for (const [args, sentence] of [
    [[], /no command/],
    [['rnu', MODEL], /did you mean 'run'/],
    [['toString', MODEL], /unknown command/],
    [['run'], /needs a model/],
    [['run', MODEL, '--promt', 'x'], /did you mean '--prompt'/],
    [['run', MODEL, '--cases', 'x'], /--cases is not an option of run/],
    [['run', MODEL, 'text'], /one argument too many/],
    [['run', MODEL, '-p', 'x'], /unknown option '-p'/],
    [['run', MODEL, '--prompt'], /--prompt needs a value/],
    [['run', MODEL, '--prompt', '--json'], /--prompt needs a value/],
    [['run', MODEL, '--prompt', 'a', '--prompt', 'b'], /twice/],
    [['run', MODEL, '--json=yes', '--prompt', 'a'], /takes no value/],
    [['run', MODEL, '--prompt', 'a', '--max-tokens', 'ten'], /--max-tokens is 'ten'/],
    [['run', MODEL, '--prompt', 'a', '--temperature', 'hot'], /--temperature is 'hot'/],
    [['run', MODEL, '--prompt', 'a', '--temperature', '-1'], /temperature is -1/],
    [['run', MODEL, '--prompt', 'a', '--top-p', '1.5'], /topP is 1.5/],
    [['run', MODEL, '--prompt', 'a', '--kv', 'f8'], /f8.*f16/],
    [['run', MODEL, '--prompt', 'a', '--threads', '-2'], /--threads is '-2'/],
    [['run', MODEL, '--prompt', 'a', '--variant', 'smid'], /did you mean 'simd'/],
    [['run', MODEL, '--prompt', 'a', '--variant', 'simd', '--threads', '2'], /one thread, not 2/],
    [['logits', MODEL], /--cases/],
    [['logits', MODEL, '--cases', cases, '--precision', 'low'], /low.*fast, high/],
    [['logits', MODEL, '--cases', cases, '--context', '0'], /--context is '0'/],
    [['render', MODEL], /--cases/],
    [['info'], /needs a model/],
    [['bench', MODEL, '--predict', '0'], /--predict is '0'/],
  ]) await bad(args, 2, sentence);
});

test('errors are exit code 1 and a sentence', async () => {
  const whole = readFileSync(MODEL);
  const broken = file('broken.gguf', whole.subarray(0, whole.length - 100));
  const stub = file('stub.gguf', whole.subarray(0, 100));
  const text = file('text.gguf', 'a text, not a model');
  const other = file('other.gguf', makeModel({ arch: 'walrus' }));
  const cases = (list) => file('bad-cases.json', { cases: list });
  for (const [args, sentence] of [
    [['run', path.join(FOLDER, 'absent.gguf'), '--prompt', 'a'], /absent\.gguf/],
    [['info', path.join(FOLDER, 'absent.gguf')], /absent\.gguf/],
    [['info', FOLDER], /folder/],
    [['info', text], /GGUF/],
    [['info', stub], /100 bytes/],
    [['run', broken, '--prompt', 'a'], new RegExp(`${whole.length - 100}|${whole.length}`)],
    [['run', other, '--prompt', 'a'], /walrus/],
    [['run', 'http://127.0.0.1:9/model.gguf', '--prompt', 'a'], /127\.0\.0\.1:9/],
    [['logits', MODEL, '--cases', path.join(FOLDER, 'absent.json')], /absent\.json/],
    [['logits', MODEL, '--cases', text], /not JSON/],
    [['logits', MODEL, '--cases', file('list.json', [])], /no list 'cases'/],
    [['logits', MODEL, '--cases', cases([{ tokens: [] }])], /case 0.*tokens/],
    [['logits', MODEL, '--cases', cases([{ tokens: [1], positions: [{ at: 1 }] }])], /position 1.*1 token/],
    [['tokenize', MODEL, '--json'], /not JSON/],
  ]) await bad(args, 1, sentence);
  await bad(['tokenize', MODEL, '--json'], 1, /list of strings/, { input: '[1]' });
  const missing = ['relaxed', 'relaxed-mt'].find((name) => !runnable().includes(name));
  if (missing) await bad(['run', MODEL, '--prompt', 'a', '--variant', missing], 1, /relaxed SIMD/);
});

test('an error in a later case ends logits with its number', async () => {
  const cases = file('late.json', { cases: [{ tokens: [1] }, { tokens: [1, 4000] }] });
  const { code, stderr } = await cli(['logits', MODEL, '--cases', cases]);
  assert.equal(code, 1);
  assert.match(stderr, /^tabllama: case 1 of .*4000[^\n]*\n$/);
});

const RUN = ['run', MODEL, '--temperature', '0', '--max-tokens', '12'];

test('run streams the continuation, the same from every form of prompt', async () => {
  const text = await good([...RUN, '--prompt', 'hello there']);
  assert.equal(await good([...RUN, '--prompt=hello there']), text);
  assert.equal(await good([...RUN, '--prompt', '-'], { input: 'hello there' }), text);
  assert.equal(await good(RUN, { input: 'hello there' }), text);
  const { text: same, tokens, reason, usage, timings, seed } = JSON.parse(await good([...RUN, '--prompt', 'hello there', '--json']));
  assert.equal(same, text);
  assert.equal(tokens.length, 12);
  assert.equal(reason, 'length');
  assert.equal(usage.completionTokens, 12);
  assert.equal(typeof seed, 'number');
  assert.ok(Object.values(timings).every((value) => typeof value === 'number'));
  assert.notEqual(await good([...RUN, '--prompt', 'other']), text);
});

test('run starts from BOS alone, where there is one', async () => {
  const args = ['--prompt', '', '--temperature', '0', '--max-tokens', '5'];
  assert.notEqual(await good(['run', MODEL, ...args]), '');
  const without = file('no-bos.gguf', makeModel({ vocabulary: 'bpe', meta: { 'tokenizer.ggml.bos_token_id': null, 'tokenizer.ggml.add_bos_token': null } }));
  await bad(['run', without, ...args], 2, /no token to begin with/);
});

test('run obeys stop, seed and the context', async () => {
  const args = ['run', MODEL, '--prompt', 'hello', '--max-tokens', '40'];
  const text = await good([...args, '--seed', '7']);
  assert.equal(await good([...args, '--seed', '7']), text);
  assert.notEqual(await good([...args, '--seed', '8']), text);
  const stop = text.slice(5, 9);
  const { text: cut, reason, stopSequence } = JSON.parse(await good([...args, '--seed', '7', '--json', '--stop', 'never said', '--stop', stop]));
  assert.deepEqual({ cut, reason, stopSequence }, { cut: text.slice(0, text.indexOf(stop)), reason: 'stop', stopSequence: stop });
  const { code, stderr } = await cli([...args.slice(0, 4), '--context', '20', '--seed', '7']);
  assert.equal(code, 0);
  assert.match(stderr, /context is full/);
  await bad(['run', MODEL, '--prompt', 'hello '.repeat(50), '--context', '20'], 1, /20/);
});

test('chat: messages, lines of stdin, a system text', async () => {
  const args = ['chat', MODEL, '--temperature', '0', '--max-tokens', '6', '--json'];
  const answers = (stdout) => stdout.trimEnd().split('\n').map((line) => JSON.parse(line).text);
  const two = answers(await good([...args, '--message', 'hi', '--message', 'and then?']));
  assert.equal(two.length, 2);
  assert.deepEqual(answers(await good(args, { input: 'hi\n\nand then?\n' })), two);
  assert.notDeepEqual(answers(await good([...args, '--system', 'be brief', '--message', 'hi'])), two.slice(0, 1));
  assert.equal(await good([...args.slice(0, -1), '--message', 'hi']), `${two[0]}\n`);
  assert.equal(await good(args), '', 'no turn, no answer');
});

test('info says what the header says', async () => {
  const shape = { nLayers: 4, dModel: 128, nHeads: 8, nKvHeads: 2, dFf: 256, nVocab: 300, type: 'Q8_0', nCtx: 4096 };
  const model = file('info.gguf', makeModel(shape));
  const facts = JSON.parse(await good(['info', model, '--json', '--context', '1024']));
  const engine = await createEngine(model, { contextLength: 1024, threads: 1 });
  for (const name of ['nLayers', 'dModel', 'nHeads', 'nKvHeads', 'dFf', 'nVocab']) assert.equal(facts[name], shape[name], name);
  assert.equal(facts.architecture, 'llama');
  assert.equal(facts.quantisation, 'Q8_0');
  assert.equal(facts.fileBytes, readFileSync(model).length);
  assert.equal(facts.kv.bytesPerToken, 2 * 2 * 4 * 2 * 16);
  assert.equal(facts.memory.context, 1024);
  assert.equal(facts.memory.kv, 1024 * facts.kv.bytesPerToken);
  assert.equal(facts.memory.weights, engine.memory().weights);
  const sum = (shares, what) => Object.values(shares).reduce((total, share) => total + share[what], 0);
  assert.equal(sum(facts.types, 'parameters'), facts.parameters);
  assert.equal(sum(facts.parts, 'parameters'), facts.parameters);
  assert.equal(facts.parts.attention.parameters, 4 * (2 * 128 * 128 + 2 * 128 * 32));
  assert.equal(facts.parts.feedForward.parameters, 4 * 3 * 128 * 256);
  assert.equal(facts.parts.feedForward.bytes, (4 * 3 * 128 * 256 * 34) / 32);
  assert.equal(JSON.parse(await good(['info', model, '--json', '--kv', 'f32'])).kv.bytesPerToken, 2 * facts.kv.bytesPerToken);

  const seq = engine.seq();
  for (let at = 0; at < 1024; at += 64) engine.eval({ tokens: Array(64).fill(1), seq }, 'none');
  assert.equal(engine.memory().wasm, facts.memory.total, 'memory for the context, to the byte');
  await engine.close();
  assert.match(await good(['info', model]), /^architecture +llama$/m);
});

test('info needs no more than the header, and says what does not run', async () => {
  const header = file('header.gguf', makeModel({ nLayers: 80, dModel: 8192, nHeads: 64, nKvHeads: 8, dFf: 28672, nVocab: 32000, type: 'Q8_0', headerOnly: true }));
  const facts = JSON.parse(await good(['info', header, '--json', '--context', '32768']));
  assert.equal(facts.kv.bytesPerToken, 327680);
  assert.equal(facts.memory.kv, 10 * 2 ** 30);
  assert.match(facts.unsupported, /./);
  assert.equal(facts.parts.feedForward.parameters, 80 * 3 * 8192 * 28672);
  const walrus = JSON.parse(await good(['info', file('walrus.gguf', makeModel({ arch: 'walrus' })), '--json']));
  assert.equal(walrus.architecture, 'walrus');
  assert.match(walrus.unsupported, /walrus/);
});

test('info --variants lists what runs here', async () => {
  assert.deepEqual(JSON.parse(await good(['info', '--variants', '--json'])), runnable());
  assert.deepEqual((await good(['info', '--variants'])).trim().split('\n'), runnable());
});

test('a model from a URL', async () => {
  const server = createServer((request, response) => response.end(readFileSync(MODEL)));
  await new Promise((ready) => server.listen(0, '127.0.0.1', () => ready(undefined)));
  const url = `http://127.0.0.1:${/** @type {any} */ (server.address()).port}/model.gguf`;
  try {
    assert.equal(await good(['info', url]), await good(['info', MODEL]));
    const args = ['--prompt', 'hello', '--temperature', '0', '--max-tokens', '8'];
    assert.equal(await good(['run', url, ...args]), await good(['run', MODEL, ...args]));
  } finally {
    server.close();
  }
});

test('tokenize: ids of texts, without a model', async () => {
  const vocabulary = file('vocabulary.gguf', makeGguf({ meta: [...gpt2Vocabulary()] }));
  const input = JSON.stringify(['abc', '', 'é', '<|end|>']);
  assert.deepEqual(JSON.parse(await good(['tokenize', vocabulary, '--json'], { input })), [[14, 2], [], [3, 4], [7, 8, 9, 10, 11, 8, 12]]);
  assert.deepEqual(JSON.parse(await good(['tokenize', vocabulary, '--json', '--special'], { input })).at(-1), [13]);
  assert.equal(await good(['tokenize', vocabulary], { input: 'ac' }), '      0  "a"\n      2  "c"\n');
});

/** A byte-level vocabulary of an architecture that no build knows. */
function gpt2Vocabulary() {
  const tokens = ['a', 'b', 'c', 'Ã', '©', 'x', 'y', '<', '|', 'e', 'n', 'd', '>', '<|end|>', 'ab'];
  return Object.entries({
    'general.architecture': ['string', 'walrus'],
    'tokenizer.ggml.model': ['string', 'gpt2'],
    'tokenizer.ggml.pre': ['string', 'gpt-2'],
    'tokenizer.ggml.tokens': ['array', ['string', tokens]],
    'tokenizer.ggml.token_type': ['array', ['i32', tokens.map((token) => (token.length > 2 ? 3 : 1))]],
    'tokenizer.ggml.merges': ['array', ['string', ['a b']]],
  });
}

test('logits: any positions of any length, as the engine has them', async () => {
  const tokens = Array.from({ length: 300 }, (_, i) => (i * 31 + 7) % 320);
  const all = tokens.map((_, at) => ({ at }));
  const cases = file('logits.json', { cases: [
    { tokens, positions: [{ at: 299 }, { at: 0 }, { at: 150 }, { at: 151 }] },
    { tokens: tokens.slice(0, 70), positions: all.slice(0, 70) },
    { tokens: [5] },
  ] });
  const args = ['logits', MODEL, '--cases', cases, '--threads', '1'];
  const out = JSON.parse(await good([...args, '--greedy', '4']));
  const engine = await createEngine(MODEL, { threads: 1 });
  const logitsOf = (ids) => {
    const seq = engine.seq();
    for (const id of ids) engine.eval({ tokens: [id], seq });
    const logits = engine.logits();
    engine.drop(seq);
    return logits;
  };
  assert.deepEqual(out.cases.map(({ positions }) => positions.length), [4, 70, 0]);
  for (const { at, logits } of out.cases[0].positions) assert.deepEqual(floats(logits), logitsOf(tokens.slice(0, at + 1)), `at ${at}`);
  assert.deepEqual(floats(out.cases[1].positions[69].logits), logitsOf(tokens.slice(0, 70)));
  const ids = [5];
  for (let i = 0; i < 4; i++) {
    const logits = logitsOf(ids);
    ids.push(logits.indexOf(Math.max(...logits)));
  }
  assert.deepEqual(out.cases[2].greedy, ids.slice(1));
  await engine.close();
  const plain = JSON.parse(await good(args));
  assert.deepEqual(plain.cases.map((result) => 'greedy' in result), [false, false, false]);
  assert.deepEqual(plain.cases[0].positions, out.cases[0].positions);
});

test('logits of a fixture are the reference\'s', { skip: absent('golden/tiny/llama-gqa.json') }, async () => {
  const golden = fixtureJson('golden/tiny/llama-gqa.json');
  const model = file('gqa.gguf', fixture('tiny/llama-gqa.gguf'));
  const out = JSON.parse(await good(['logits', model, '--cases', file('golden.json', golden), '--greedy', '32', '--kv', 'f32']));
  for (const [i, { positions, greedy }] of golden.cases.entries()) {
    assert.deepEqual(out.cases[i].greedy, greedy);
    for (const [j, { at, logits }] of positions.entries()) {
      const got = floats(out.cases[i].positions[j].logits);
      assert.equal(out.cases[i].positions[j].at, at);
      floats(logits).forEach((expected, id) => assert.ok(Math.abs(got[id] - expected) < 1e-3));
    }
  }
});

test('render: cases of a file, with a template file or a model', async () => {
  const template = file('greeting.jinja', "{{ greeting }}, {{ name | upper }}{{ raise_exception('no name') if not name }} {{ strftime_now('%Y') }}");
  const cases = file('render.json', { cases: [{ vars: { greeting: 'Hi', name: 'you' } }, { vars: {} }] });
  const out = JSON.parse(await good(['render', '--template', template, '--cases', cases, '--now', '2024-07-26T12:00:00']));
  assert.deepEqual(out.cases[0], { text: 'Hi, YOU 2024' });
  assert.deepEqual(Object.keys(out.cases[1]), ['error']);
  const talk = file('talk.json', { cases: [{ vars: { messages: [{ role: 'user', content: 'hi' }], add_generation_prompt: true } }] });
  assert.deepEqual(JSON.parse(await good(['render', MODEL, '--cases', talk])), { cases: [{ text: '<user>hi\n<assistant>' }] });
  await bad(['render', MODEL, '--template', template, '--cases', cases], 2, /one of them/);
  await bad(['render', '--cases', cases], 2, /one of them/);
  await bad(['render', '--template', template, '--cases', cases, '--now', 'noon'], 2, /--now is 'noon'/);
  await bad(['render', file('mute.gguf', makeModel()), '--cases', cases], 1, /no chat template/);
});

test('bench prints what its table says', async () => {
  const result = JSON.parse(await good(['bench', MODEL, '--prompt', '20', '--predict', '5', '--depth', '10', '--repeat', '2', '--json']));
  const keys = (value) => Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, typeof inner === 'object' ? keys(inner) : typeof inner]));
  assert.deepEqual(keys(result), {
    variant: 'string', threads: 'number', load: { ms: 'number', bytes: 'number' },
    prefill: { tokens: 'number', ms: 'number', tokensPerSecond: 'number', gops: 'number' },
    decode: { tokens: 'number', ms: 'number', tokensPerSecond: 'number', gbPerSecond: 'number' },
    memory: { wasm: 'number', weights: 'number', kv: 'number' },
  });
  assert.deepEqual([result.prefill.tokens, result.decode.tokens, result.load.bytes], [20, 5, readFileSync(MODEL).length]);
  assert.ok(runnable().includes(result.variant));
  assert.match(await good(['bench', MODEL, '--prompt', '8', '--predict', '4', '--repeat', '1']), /tokens\/s/);
});

const TALK = ['--temperature', '0', '--context', '100000', '--max-tokens', '90000'];

test('Ctrl-C ends run with 130', async () => {
  let sent = false;
  const { code, signal, stderr } = await cli(['run', TALKER, '--prompt', 'hello', ...TALK], {
    whileRunning(child) {
      if (!sent) sent = child.kill('SIGINT');
    },
  });
  assert.deepEqual({ sent, code, signal, stderr }, { sent: true, code: 130, signal: null, stderr: '' });
});

test('Ctrl-C ends bench with 130, in the midst of its work', async () => {
  const { code, signal } = await cli(['bench', TALKER, '--prompt', '90000', '--context', '100000'], { interruptAfter: 1500 });
  assert.deepEqual({ code, signal }, { code: 130, signal: null });
});

test('in chat the first Ctrl-C stops the answer, the next one ends it', async () => {
  let kills = 0;
  const { code, signal, stdout, stderr } = await cli(['chat', TALKER, ...TALK], {
    input: 'hello\n',
    whileRunning(child, output) {
      if (kills === 0) {
        kills = 1;
        child.kill('SIGINT');
      } else if (kills === 1 && output.stdout.endsWith('\n')) {
        kills = 2;
        setTimeout(() => child.kill('SIGINT'), 100);
      }
    },
  });
  assert.deepEqual({ kills, code, signal, stderr }, { kills: 2, code: 130, signal: null, stderr: '' });
  assert.ok(stdout.length > 1);
});

for (const args of [['run', TALKER, '--prompt', 'hello', ...TALK], ['chat', TALKER, '--message', 'hello', ...TALK]]) {
  test(`a closed pipe ends ${args[0]} quietly`, async () => {
    const { code, signal, stderr } = await cli(args, { whileRunning: (child) => void child.stdout?.destroy() });
    assert.deepEqual({ code, signal, stderr }, { code: 0, signal: null, stderr: '' });
  });
}

test('the real model: logits of its whole vocabulary', { skip: absent(SMOLLM2.path) }, async () => {
  const cases = file('real.json', { cases: [{ tokens: [504, 3575, 282, 4649, 314], positions: [{ at: 4 }] }] });
  const out = JSON.parse(await good(['logits', SMOLLM2.path, '--cases', cases, '--greedy', '1']));
  const logits = floats(out.cases[0].positions[0].logits);
  assert.equal(logits.length, 49152);
  assert.equal(out.cases[0].greedy[0], logits.indexOf(logits.reduce((a, b) => Math.max(a, b))));
});

test('tokenize reads vocabularies of other models', { skip: absent('vocab') }, async () => {
  const model = file('gpt2-vocab.gguf', new Uint8Array(gunzipSync(fixture('vocab/gpt2.gguf.gz'))));
  const { cases } = fixtureJson('tokens/gpt2.json');
  const ids = JSON.parse(await good(['tokenize', model, '--json'], { input: JSON.stringify(cases.map(({ s }) => s)) }));
  cases.forEach((c, i) => assert.deepEqual(ids[i], c.ids, JSON.stringify(c.s)));
});
