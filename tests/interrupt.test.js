/** interrupt.test.js: the command line under Ctrl-C and with a closed pipe. */
import assert from 'node:assert/strict';
import test from 'node:test';
import { TEMPLATE, cli, file } from './kit/command-line.js';
import { makeModel } from './kit/make-model.js';

/** Its answers are as long as the context. */
const TALKER = file(
  'talker.gguf',
  makeModel({ vocabulary: 'bpe', nLayers: 1, nCtx: 1 << 17, chatTemplate: TEMPLATE }),
);

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
  const { code, signal } = await cli(['bench', TALKER, '--prompt', '90000', '--repeat', '10000', '--context', '100000'], {
    interruptAfter: 1500,
  });
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

for (const args of [
  ['run', TALKER, '--prompt', 'hello', ...TALK],
  ['chat', TALKER, '--message', 'hello', ...TALK],
]) {
  test(`a closed pipe ends ${args[0]} quietly`, async () => {
    const { code, signal, stderr } = await cli(args, {
      whileRunning: (child) => void child.stdout?.destroy(),
    });
    assert.deepEqual({ code, signal, stderr }, { code: 0, signal: null, stderr: '' });
  });
}
