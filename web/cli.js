#!/usr/bin/env node
/**
 * cli.js: the command `tabllama`. Answers go to stdout, everything else to stderr. Exit codes: 0; 1 for an
 * error, said in one sentence; 2 for wrong usage; 130 after Ctrl-C.
 */
import { readFileSync } from 'node:fs';
import { COMMON, UsageError, parse, usage } from './cli/options.js';
import { ModelError } from './errors.js';
import { suggest } from './suggest.js';

const SAMPLING = [
  'max-tokens',
  'temperature',
  'top-k',
  'top-p',
  'min-p',
  'repeat-penalty',
  'repeat-last-n',
  'frequency-penalty',
  'presence-penalty',
  'seed',
  'stop',
];

/** What a command needs is loaded when it is called.
 * @type {Record<string, import('./cli/options.js').Command>} */
const COMMANDS = {
  run: {
    code: async () => (await import('./cli/generate.js')).run,
    model: 'MODEL',
    options: ['prompt', ...SAMPLING, 'sha256', 'cache', ...COMMON],
    about: 'continue a text',
  },
  chat: {
    code: async () => (await import('./cli/generate.js')).chat,
    model: 'MODEL',
    options: ['system', 'message', ...SAMPLING, 'sha256', 'cache', ...COMMON],
    about: "a conversation, through the model's template",
  },
  info: {
    code: async () => (await import('./cli/inspect.js')).info,
    model: '[MODEL]',
    options: ['variants', 'memory', ...COMMON],
    about: "what a file's header says",
  },
  tokenize: {
    code: async () => (await import('./cli/inspect.js')).tokenize,
    model: 'MODEL',
    options: ['special', 'threads', 'variant', 'json'],
    about: 'token ids of a text, or of a JSON list of texts, on stdin',
  },
  render: {
    code: async () => (await import('./cli/render.js')).render,
    model: '[MODEL]',
    options: ['template', 'cases', 'now', 'json'],
    about: 'a chat template on the cases of a file',
  },
  logits: {
    code: async () => (await import('./cli/measure.js')).logits,
    model: 'MODEL',
    options: ['cases', 'greedy', 'sha256', 'cache', ...COMMON],
    about: 'logits at positions of token lists',
  },
  perplexity: {
    code: async () => (await import('./cli/perplexity.js')).perplexity,
    model: 'MODEL',
    options: ['text', 'sha256', 'cache', ...COMMON],
    about: 'how well a model foretells a text',
  },
  bench: {
    code: async () => (await import('./cli/measure.js')).bench,
    model: 'MODEL',
    options: ['prompt', 'predict', 'depth', 'repeat', 'sha256', 'cache', ...COMMON],
    about: 'speed and memory',
  },
};

function version() {
  return JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')).version;
}

/** @param {string[]} args */
async function main(args) {
  const [name, ...rest] = args;
  if (name === '--version') return console.log(version());
  if (name === '--help' || name === '-h' || name === 'help') return console.log(usage(COMMANDS));
  if (name === undefined) throw new UsageError(`no command; there are ${Object.keys(COMMANDS).join(', ')}`);
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  if (!command) throw new UsageError(`unknown command '${name}'${suggest(name, Object.keys(COMMANDS))}`);
  if (rest.includes('--help') || rest.includes('-h')) return console.log(usage(COMMANDS, name));
  const { model, options } = parse(rest, name, command);
  const run = await command.code();
  await run(model, options);
}

/** @param {unknown} error */
function fail(error) {
  const wrongUsage =
    [UsageError, TypeError, RangeError].some((Class) => error instanceof Class) ||
    (error instanceof ModelError && error.code === 'ARGUMENT');
  const sentence = error instanceof Error ? error.message : String(error);
  process.stderr.write(`tabllama: ${sentence.replace(/\s*\n\s*/g, ' ')}\n`);
  process.exit(wrongUsage ? 2 : 1);
}

process.stdout.on('error', (error) => {
  if (/** @type {NodeJS.ErrnoException} */ (error).code === 'EPIPE') process.exit(0);
  fail(new Error(`the answer can't be written: ${error.message}`, { cause: error }));
});
process.stderr.on('error', () => process.exit(1)); // nobody can be told
main(process.argv.slice(2)).catch(fail);
