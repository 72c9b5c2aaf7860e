/** cli.test.js: the command line: usage, errors, `run`, `chat`; see inspect.test.js and interrupt.test.js too. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { closeSync, existsSync, openSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import path from 'node:path';
import test from 'node:test';
import { runnable } from '../web/engine.js';
import { CLI, FOLDER, TEMPLATE, bad, cli, file, good } from './kit/command-line.js';
import { makeModel } from './kit/make-model.js';

const MODEL = file('model.gguf', makeModel({ vocabulary: 'bpe', chatTemplate: TEMPLATE }));

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
    [['info', ''], /empty/],
    [['info', 'http://'], /'http:\/\/' is not a URL/],
    [['info', 'hf:owner/repo'], /hf:owner\/repo\/file/],
    [['tokenize', MODEL, '--variant', 'smid'], /did you mean 'simd'/],
    [['run', MODEL, '--prompt', 'a', '--seed', '9007199254740992'], /from 0 to 9007199254740991/],
    [['bench', MODEL, '--predict', '0'], /--predict is '0'/],
  ])
    await bad(args, 2, sentence);
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
    [['info', '--', '--json'], /--json: there is no such file/],
    [['logits', MODEL, '--cases', FOLDER], /it is a folder/],
    [['logits', MODEL, '--cases', text], /not JSON/],
    [['logits', MODEL, '--cases', file('list.json', [])], /no list 'cases'/],
    [['logits', MODEL, '--cases', cases([{ tokens: [] }])], /case 0.*tokens/],
    [['bench', MODEL, '--prompt', '400', '--depth', '200'], /200 tokens and 400 more.*512/],
    [['logits', MODEL, '--cases', cases([{ tokens: [1], positions: [{ at: 1 }] }])], /position 1.*1 token/],
    [['tokenize', MODEL, '--json'], /not JSON/],
  ])
    await bad(args, 1, sentence);
  await bad(['tokenize', MODEL, '--json'], 1, /list of strings/, { input: '[1]' });
  const missing = ['relaxed', 'relaxed-mt'].find((name) => !runnable().includes(name));
  if (missing) await bad(['run', MODEL, '--prompt', 'a', '--variant', missing], 1, /relaxed SIMD/);
});

test('cases that are none are said with their number', async () => {
  const cases = file('odd-cases.json', { cases: [{ tokens: [1] }, null] });
  const vars = file('odd-vars.json', { cases: [{ vars: {} }, { vars: 5 }] });
  const huge = file('huge.json', { cases: [{ tokens: [1e12] }] });
  const template = file('plain.jinja', 'text');
  await bad(['logits', MODEL, '--cases', cases], 1, /case 1 of .*odd-cases.json is not an object/);
  await bad(['render', '--template', template, '--cases', cases], 1, /case 1 of .*odd-cases.json is not an object/);
  await bad(['render', '--template', template, '--cases', vars], 1, /case 1 of .*'vars' must be an object/);
  await bad(['logits', MODEL, '--cases', huge], 1, /case 0 of .*'tokens' must be a list of ids/);
  await good(['render', '--template', template, '--cases', file('no-vars.json', { cases: [{}] }), '--json']);
});

test('an answer that can not be written is an error', { skip: !existsSync('/dev/full') && 'no /dev/full' }, async () => {
  const full = openSync('/dev/full', 'w');
  const { status, stderr } = spawnSync(process.execPath, [CLI, 'info', MODEL], { stdio: ['ignore', full, 'pipe'], encoding: 'utf8' });
  closeSync(full);
  assert.equal(status, 1);
  assert.match(stderr, /^tabllama: the answer can't be written: [^\n]*space[^\n]*\n$/);
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
  assert.equal(await good(RUN, { input: 'hello there\n' }), text, 'as echo ends it');
  assert.notEqual(await good(RUN, { input: 'hello there\n\n' }), text);
  const {
    text: same,
    tokens,
    reason,
    usage,
    timings,
    seed,
  } = JSON.parse(await good([...RUN, '--prompt', 'hello there', '--json']));
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
  const without = file(
    'no-bos.gguf',
    makeModel({
      vocabulary: 'bpe',
      meta: { 'tokenizer.ggml.bos_token_id': null, 'tokenizer.ggml.add_bos_token': null },
    }),
  );
  await bad(['run', without, ...args], 2, /no token to begin with/);
});

test('run obeys stop, seed and the context', async () => {
  const args = ['run', MODEL, '--prompt', 'hello', '--max-tokens', '40'];
  const text = await good([...args, '--seed', '7']);
  assert.equal(await good([...args, '--seed', '7']), text);
  assert.notEqual(await good([...args, '--seed', '8']), text);
  const stop = text.slice(5, 9);
  const {
    text: cut,
    reason,
    stopSequence,
  } = JSON.parse(await good([...args, '--seed', '7', '--json', '--stop', 'never said', '--stop', stop]));
  assert.deepEqual(
    { cut, reason, stopSequence },
    { cut: text.slice(0, text.indexOf(stop)), reason: 'stop', stopSequence: stop },
  );
  const { code, stderr } = await cli([...args.slice(0, 4), '--context', '20', '--seed', '7']);
  assert.equal(code, 0);
  assert.match(stderr, /context is full/);
  await bad(['run', MODEL, '--prompt', 'hello '.repeat(50), '--context', '20'], 1, /20/);
});

test('fewer threads than asked for are told', async () => {
  const cases = file('one.json', { cases: [{ tokens: [1] }] });
  for (const args of [['run', MODEL, '--prompt', 'a', '--max-tokens', '2'], ['logits', MODEL, '--cases', cases]]) {
    const { code, stderr } = await cli([...args, '--threads', '64']);
    assert.equal(code, 0);
    assert.match(stderr, /^tabllama: threads: 64 asked for, [^\n]*\n$/);
  }
});

test('chat: messages, lines of stdin, a system text', async () => {
  const args = ['chat', MODEL, '--temperature', '0', '--max-tokens', '6', '--json'];
  const answers = (stdout) =>
    stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line).text);
  const two = answers(await good([...args, '--message', 'hi', '--message', 'and then?']));
  assert.equal(two.length, 2);
  assert.deepEqual(answers(await good(args, { input: 'hi\n\nand then?\n' })), two);
  assert.notDeepEqual(
    answers(await good([...args, '--system', 'be brief', '--message', 'hi'])),
    two.slice(0, 1),
  );
  assert.equal(await good([...args.slice(0, -1), '--message', 'hi']), `${two[0]}\n`);
  assert.equal(await good(args), '', 'no turn, no answer');
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
