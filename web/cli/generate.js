/** generate.js: `run` and `chat`, through the package's public API. */
import { createInterface } from 'node:readline';
import { load } from '../index.js';
import { UsageError, engineOptions, sourceOptions } from './options.js';
import { interruptible, readStdin, showProgress, warn, warnOf, write, writeJson } from './output.js';

/** @typedef {import('../index.js').Generation} Generation */
/** @typedef {import('./options.js').Options} Options */

const SAMPLING = [
  'maxTokens',
  'temperature',
  'topK',
  'topP',
  'minP',
  'repeatPenalty',
  'repeatLastN',
  'frequencyPenalty',
  'presencePenalty',
  'seed',
  'stop',
];

/** @param {Options} options */
const samplingOf = (options) => Object.fromEntries(SAMPLING.map((name) => [name, options[name]]));

/**
 * @param {string} source
 * @param {Options} options
 */
async function loadModel(source, options) {
  const model = await load(source, { ...engineOptions(options), ...sourceOptions(source, options), onProgress: showProgress });
  warnOf(model.info, options);
  return model;
}

/**
 * Writes an answer as it comes, or with --json what is known of it at the end.
 * @param {Generation} generation
 * @param {Options} options
 * @param {string} end  what closes the text
 */
async function answer(generation, { json }, end) {
  if (!json) {
    for await (const { text } of generation) await write(text);
    await write(end);
  }
  const result = await generation.result();
  if (json) await writeJson(result);
  if (result.reason === 'context') warn('the context is full: the answer ends here');
}

/** Of a pipe without the line break that ends it: a model would go on behind it, in a line of its own.
 * @param {Options} options */
async function promptOf({ prompt }) {
  if (prompt !== undefined && prompt !== '-') return prompt;
  if (prompt === undefined && process.stdin.isTTY)
    throw new UsageError('run needs --prompt TEXT, or a text on stdin');
  return (await readStdin()).replace(/\r?\n$/, '');
}

/**
 * @param {string} source
 * @param {Options} options
 */
export async function run(source, options) {
  const prompt = await promptOf(options);
  const model = await loadModel(source, options);
  await answer(model.generate(prompt, samplingOf(options)), options, process.stdout.isTTY ? '\n' : '');
  await model.close();
}

/** User turns: one per line of stdin, with an invitation on a terminal. */
async function* lines() {
  const { isTTY } = process.stdin;
  const input = createInterface({
    input: process.stdin,
    output: isTTY ? process.stderr : undefined,
    prompt: '> ',
  });
  input.on('SIGINT', () => process.emit('SIGINT'));
  if (isTTY) input.prompt();
  for await (const line of input) {
    if (line.trim()) yield line;
    if (isTTY) input.prompt();
  }
}

/**
 * @param {string} source
 * @param {Options} options
 */
export async function chat(source, options) {
  const model = await loadModel(source, options);
  const conversation = model.chat({ system: options.system });
  for await (const message of options.message ?? lines()) {
    const generation = conversation.send(message, samplingOf(options));
    await interruptible(
      () => generation.stop(),
      () => answer(generation, options, '\n'),
    );
  }
  await model.close();
}
