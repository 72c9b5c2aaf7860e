/** options.js: what the commands' options are, and reading them. */
import { suggest } from '../suggest.js';

/** Said on stderr, with exit code 2. */
export class UsageError extends Error {}

/**
 * @typedef {Record<string, any>} Options  by name in camelCase; what was not given is absent
 * @typedef {object} Command
 * @property {() => Promise<(model: any, options: Options) => Promise<void>>} code
 * @property {string} model  how usage spells it; in brackets: may be left out
 * @property {string[]} options
 * @property {string} about
 */

const ROPE = ['rope-base', 'rope-scaling', 'rope-factor', 'rope-original-context', 'window'];
/** Options of every command that loads a model. */
export const COMMON = ['threads', 'variant', 'context', ...ROPE, 'kv', 'precision', 'json'];

/**
 * value: what stands for it in usage, none for a flag; read: text to value; many: may be repeated.
 * @typedef {{ value?: string, read?: (text: string) => any, many?: boolean, about: string }} Option
 */

/** @param {number} least @returns {(text: string) => number} */
const integer = (least) => (text) => {
  const n = Number(text);
  if (!/^[+-]?\d+$/.test(text) || !Number.isSafeInteger(n) || n < least)
    throw new UsageError(`an integer from ${least} to ${Number.MAX_SAFE_INTEGER}`);
  return n;
};

/** @param {string} text */
function number(text) {
  const n = Number(text);
  if (text.trim() === '' || !Number.isFinite(n)) throw new UsageError('a number');
  return n;
}

/** @param {string} text */
function date(text) {
  const time = new Date(text);
  if (Number.isNaN(time.getTime())) throw new UsageError('a date and time like 2024-07-26T12:00:00');
  return time;
}

/** @type {Record<string, Option>} */
const OPTIONS = {
  prompt: { value: 'TEXT', about: "what to continue; '' starts from BOS alone, - reads stdin up to the line break that ends it" },
  system: { value: 'TEXT', about: 'what the model is told before the conversation' },
  message: { value: 'TEXT', many: true, about: 'a user turn, instead of stdin; may be repeated' },
  'max-tokens': { value: 'N', read: integer(0), about: 'end after so many tokens' },
  temperature: { value: 'X', read: number, about: '0 always takes the likeliest token' },
  'top-k': { value: 'N', read: integer(0), about: 'sample from the N likeliest; 0: all' },
  'top-p': { value: 'X', read: number, about: 'sample from the likeliest that make up X' },
  'min-p': { value: 'X', read: number, about: 'sample from those above X times the likeliest' },
  'repeat-penalty': { value: 'X', read: number, about: 'divides the logits of recent tokens; 1: off' },
  'repeat-last-n': { value: 'N', read: integer(0), about: 'how many tokens are recent' },
  'frequency-penalty': { value: 'X', read: number, about: 'subtracted for each recent occurrence' },
  'presence-penalty': { value: 'X', read: number, about: 'subtracted for any recent occurrence' },
  seed: { value: 'N', read: integer(0), about: 'the same seed gives the same text' },
  stop: { value: 'TEXT', many: true, about: 'end before this text; may be repeated' },
  variants: { about: 'the variants that run here, instead of a model' },
  special: { about: 'recognise control tokens in the text' },
  template: { value: 'FILE', about: 'a Jinja template, instead of a model' },
  cases: { value: 'FILE', about: 'JSON: {cases: [...]}' },
  now: { value: 'ISO', read: date, about: "the templates' clock" },
  text: { value: 'FILE', about: 'a text' },
  greedy: { value: 'N', read: integer(0), about: 'the N likeliest ids that follow, too' },
  predict: { value: 'N', read: integer(1), about: 'tokens to decode, 64' },
  depth: { value: 'N', read: integer(0), about: 'tokens already in the context, 0' },
  repeat: { value: 'N', read: integer(1), about: 'runs to take the median of, 3' },
  threads: { value: 'N', read: integer(0), about: 'default: half of the logical cores, 1 to 8' },
  variant: { value: 'NAME', about: 'of the module; default: the best that runs here' },
  context: { value: 'N', read: integer(1), about: "positions; default: the model's, at most 8192" },
  'rope-base': { value: 'X', read: number, about: "of rotary positions, in place of the file's" },
  'rope-scaling': { value: 'NAME', about: "none, linear or yarn, in place of the file's" },
  'rope-factor': { value: 'X', read: number, about: 'of the scaling' },
  'rope-original-context': { value: 'N', read: integer(1), about: 'trained tokens before scaling' },
  window: { value: 'N', read: integer(1), about: 'tokens that layers with a window see' },
  kv: { value: 'TYPE', about: 'of the cache: q16 (default), f16, f32, q8_0, q4_0' },
  precision: { value: 'fast|high', about: 'default: high below 500 M parameters' },
  memory: { value: 'BYTES', read: integer(0), about: 'that may be used; default: all that can be addressed' },
  cache: { about: 'keep a copy of a model from a URL, and use it from then on' },
  sha256: { value: 'HEX', about: 'of the file: another one is an error; of a split model HEX,HEX... of each file' },
  json: { about: 'answer in JSON' },
};

/** bench counts tokens where run has text.
 * @type {Option} */
const BENCH_PROMPT = { value: 'N', read: integer(1), about: 'tokens of the prompt, 128' };

/** @param {string} command @param {string} name */
const optionOf = (command, name) => (command === 'bench' && name === 'prompt' ? BENCH_PROMPT : OPTIONS[name]);

/** @param {string} name  kebab-case */
const camelCase = (name) => name.replace(/-([a-z])/g, (_, letter) => letter.toUpperCase());

/**
 * @param {string[]} args  after the command
 * @param {string} name
 * @param {Command} command
 * @returns {{ model: string | undefined, options: Options }}
 */
export function parse(args, name, command) {
  /** @type {Options} */
  const options = {};
  const models = [];
  const rest = [...args];
  for (let arg; (arg = rest.shift()) !== undefined;) {
    if (arg === '--') models.push(...rest.splice(0));
    else if (arg.startsWith('--')) readOption(arg, rest, name, command, options);
    else if (arg.startsWith('-') && arg !== '-')
      throw new UsageError(`unknown option '${arg}'; options begin with --`);
    else models.push(arg);
  }
  const [model, ...more] = models;
  if (more.length) throw new UsageError(`'${more[0]}' is one argument too many after ${model}`);
  if (model === undefined && !command.model.startsWith('['))
    throw new UsageError(`${name} needs a model: tabllama ${name} MODEL`);
  return { model, options };
}

/**
 * @param {string} arg
 * @param {string[]} rest  a value is taken off it
 * @param {string} name
 * @param {Command} command
 * @param {Options} options  where it is written
 */
function readOption(arg, rest, name, command, options) {
  const [, word, inline] = /** @type {string[]} */ (arg.match(/^--([^=]*)(?:=(.*))?$/s));
  if (!command.options.includes(word)) {
    const where = Object.hasOwn(OPTIONS, word) ? `is not an option of ${name}` : 'is unknown';
    throw new UsageError(`--${word} ${where}${suggest(word, command.options).replace("'", "'--")}`);
  }
  const { value, read = String, many } = optionOf(name, word);
  const key = camelCase(word);
  if (key in options && !many) throw new UsageError(`--${word} is given twice`);
  if (!value) {
    if (inline !== undefined) throw new UsageError(`--${word} takes no value`);
    options[key] = true;
    return;
  }
  const isOption = rest[0]?.startsWith('--') && command.options.includes(rest[0].slice(2));
  const text = inline ?? (isOption ? undefined : rest.shift());
  if (text === undefined) throw new UsageError(`--${word} needs a value: --${word} ${value}`);
  const result = readValue(word, text, read);
  if (many) (options[key] ??= []).push(result);
  else options[key] = result;
}

/**
 * @param {string} word
 * @param {string} text
 * @param {(text: string) => any} read  throws what the value must be
 */
function readValue(word, text, read) {
  try {
    return read(text);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    throw new UsageError(`--${word} is '${text}', must be ${error.message}`);
  }
}

/**
 * @param {Options} options
 * @returns {{ threads?: number, variant?: string, contextLength?: number, kvType?: any, precision?: any, rope: any }}
 */
export function engineOptions({ threads, variant, context, kv, precision, ropeBase, ropeScaling, ropeFactor, ...options }) {
  const { ropeOriginalContext: originalContext, window } = options;
  const rope = { base: ropeBase, scaling: ropeScaling, factor: ropeFactor, originalContext, window };
  return { threads, variant, contextLength: context, kvType: kv, precision, rope };
}

/**
 * For hf: the hub's own environment variables count.
 * @param {string} model
 * @returns {{ token?: string, hub?: string }}
 */
export function hubOptions(model) {
  if (!/^hf:/i.test(model)) return {};
  return { token: process.env.HF_TOKEN || undefined, hub: process.env.HF_ENDPOINT || undefined };
}

/**
 * How a model is fetched.
 * @param {string} model
 * @param {Options} options
 * @returns {{ sha256?: string[], cache?: boolean, token?: string, hub?: string }}
 */
export const sourceOptions = (model, { sha256, cache }) => ({ sha256: sha256?.split(','), cache, ...hubOptions(model) });

/**
 * @param {Record<string, Command>} commands
 * @param {string} [only]
 */
export function usage(commands, only) {
  const line = (/** @type {string} */ name) =>
    `  tabllama ${name.padEnd(9)}${commands[name].model.padEnd(9)}${commands[name].about}`;
  if (only === undefined) {
    return [
      'usage: tabllama COMMAND MODEL [options]',
      ...Object.keys(commands).map(line),
      '',
      'MODEL is a path or URL of a GGUF file, or hf:owner/repo/file on the hub. tabllama COMMAND --help lists options; --version.',
    ].join('\n');
  }
  const options = commands[only].options.map((name) => {
    const { value, about } = optionOf(only, name);
    return `  ${`--${name} ${value ?? ''}`.padEnd(25)} ${about}`;
  });
  return [
    `usage: tabllama ${only} ${commands[only].model} [options]`,
    `  ${commands[only].about}`,
    '',
    ...options,
  ].join('\n');
}
