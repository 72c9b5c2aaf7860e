/**
 * options.js: what each option may be. A wrong one is a TypeError or RangeError, said before anything
 * starts; an unknown one names the nearest; undefined is as good as absent.
 */
import { SCALINGS } from './rope.js';
import { kindOf } from './describe.js';
import { suggest } from './suggest.js';

/**
 * The samplers' rows of src/sample.def, as options. The ranges include their ends.
 * @type {Record<string, { otherwise: number, least: number, most: number, integer?: boolean }>}
 */
export const SAMPLERS = {
  temperature: { otherwise: 0.8, least: 0, most: 1e6 },
  topK: { otherwise: 40, least: 0, most: 1e9, integer: true },
  topP: { otherwise: 0.95, least: 0, most: 1 },
  minP: { otherwise: 0.05, least: 0, most: 1 },
  repeatPenalty: { otherwise: 1, least: 0.01, most: 100 },
  frequencyPenalty: { otherwise: 0, least: -100, most: 100 },
  presencePenalty: { otherwise: 0, least: -100, most: 100 },
};

/** Tokens that the penalties look back at. */
export const REPEAT_LAST_N = 64;
const MOST_LAST_N = 4096;
const MOST_BIASES = 1024;
/** That lm_bind plans for. */
const MOST_CONTEXT = 2 ** 20;

/** @typedef {(value: any, name: string) => any} Check  returns what goes to the worker */

/** @param {any} value */
const shown = (value) =>
  typeof value === 'string' ? `'${value}'`
  : value === null || typeof value !== 'object' ? String(value)
  : Array.isArray(value) ? 'an array'
  : 'an object';

/**
 * @param {string} name
 * @param {any} value
 * @param {string} wanted
 */
const wrongType = (name, value, wanted) => new TypeError(`${name} is ${shown(value)}, must be ${wanted}`);

/**
 * @param {number} least
 * @param {number} most
 * @param {boolean} [integer]
 * @returns {Check}
 */
const number = (least, most, integer) => (value, name) => {
  if (typeof value !== 'number') throw wrongType(name, value, 'a number');
  if (value >= least && value <= most && (!integer || Number.isInteger(value))) return value;
  throw new RangeError(`${name} is ${value}, must be ${integer ? 'an integer' : 'a number'} from ${least} to ${most}`);
};

/** @param {string} type @param {string} wanted @returns {Check} */
const typed = (type, wanted) => (value, name) => {
  if (typeof value === type) return value;
  throw wrongType(name, value, wanted);
};

const string = typed('string', 'a string');
const boolean = typed('boolean', 'true or false');

/** @type {Check} */
const signal = (value, name) => {
  if (kindOf(value) === 'AbortSignal') return value;
  throw wrongType(name, value, 'an AbortSignal');
};

/** @type {Check} */
const stop = (value, name) => {
  const stops = typeof value === 'string' ? [value] : value;
  if (!Array.isArray(stops) || stops.some((text) => typeof text !== 'string')) {
    throw wrongType(name, value, 'a string or an array of strings');
  }
  if (stops.includes('')) throw new RangeError(`${name} has an empty string in it, which would stop anything`);
  return [...stops];
};

/** @type {Check} */
const logitBias = (value, name) => {
  if (value === null || typeof value !== 'object') throw wrongType(name, value, 'an object of token id: number');
  const pairs = (value instanceof Map ? [...value] : Object.entries(value)).map(([key, bias]) => {
    const id = typeof key === 'string' && /^\d+$/.test(key) ? Number(key) : key;
    if (!Number.isInteger(id)) throw new RangeError(`${name} has the key ${shown(key)}, must be a token id`);
    if (typeof bias !== 'number') throw wrongType(`${name}[${id}]`, bias, 'a number');
    if (!(Math.fround(bias) < Infinity)) {
      throw new RangeError(`${name}[${id}] is ${bias}, must be finite in 32 bits or -Infinity`);
    }
    return [id, bias];
  });
  if (pairs.length > MOST_BIASES) throw new RangeError(`${name} has ${pairs.length} entries, at most ${MOST_BIASES} can be`);
  return pairs;
};

/** @type {Check} */
const tools = (value, name) => {
  if (Array.isArray(value) && value.every((tool) => tool !== null && typeof tool === 'object')) return copied(value, name);
  throw wrongType(name, value, 'an array of objects');
};

/** Of one file, or of each part. @type {Check} */
const sha256 = (value, name) => {
  if (Array.isArray(value)) return value.map((one, i) => sha256(one, `${name}[${i}]`));
  if (/^[0-9a-f]{64}$/i.test(string(value, name))) return value;
  throw new RangeError(`${name} is '${value}', must be 64 hexadecimal digits`);
};

/** @type {Record<string, Check>} */
const ASSETS = { worker: string, thread: string, template: string, wasm: string };

/** Their ranges are those of src/override.def. @type {Record<string, Check>} */
const ROPE = {
  base: number(2, 1e12),
  scaling: (value, name) => {
    if (SCALINGS.includes(string(value, name))) return value;
    throw new RangeError(`${name} is '${value}', must be one of ${SCALINGS.join(', ')}`);
  },
  factor: number(1, 1e6),
  originalContext: number(1, 2 ** 31 - 1, true),
  window: number(1, 2 ** 31 - 1, true),
};

/** @type {Check} */
const cache = (value, name) => {
  if (typeof value === 'boolean') return value;
  if (/^[\w-]{1,64}$/.test(string(value, name))) return value;
  throw new RangeError(`${name} is '${value}', must be true, false, or a name of letters, digits, _ and -`);
};

/** @type {Record<string, Check>} */
export const MODELS = { cache };

/** @type {Record<string, Check>} */
const ENGINE = {
  contextLength: number(1, MOST_CONTEXT, true),
  kvType: string,
  precision: string,
  rope: (value, name) => check(value, ROPE, name),
  threads: number(0, 2 ** 31 - 1, true),
  variant: string,
};

/** How a source is read. @type {Record<string, Check>} */
const READ = { headers: (value) => value, token: string, hub: string, cache, signal };

/** Of load() and estimate() alike. @type {Record<string, Check>} */
const PAGE = { ...ENGINE, ...READ, assets: (value, name) => check(value, ASSETS, name) };

/** @type {Record<string, Check>} */
export const LOAD = { ...PAGE, sha256, onProgress: typed('function', 'a function') };

/** @type {Record<string, Check>} */
export const ESTIMATE = { ...PAGE, memoryLimit: number(0, Number.MAX_SAFE_INTEGER) };

/** Of tabllama/engine: without a source, and with one. @type {Record<string, Check>} */
export const LOADER = {
  ...ENGINE,
  fileBytes: number(0, Number.MAX_SAFE_INTEGER, true),
  wasm: typed('function', 'a function'),
  thread: (value) => value,
};

/** @type {Record<string, Check>} */
export const HEADER = { ...LOADER, ...READ };

/** @type {Record<string, Check>} */
export const CREATE = { ...HEADER, sha256 };

/** @type {Record<string, Check>} */
export const GENERATE = {
  maxTokens: number(0, Number.MAX_SAFE_INTEGER, true),
  stop,
  seed: number(0, Number.MAX_SAFE_INTEGER, true),
  ...Object.fromEntries(
    Object.entries(SAMPLERS).map(([name, { least, most, integer }]) => [name, number(least, most, integer)]),
  ),
  repeatLastN: number(0, MOST_LAST_N, true),
  logitBias,
  signal,
};

/** @type {Record<string, Check>} */
export const TOKENIZE = { special: boolean };

/** @type {Record<string, Check>} */
export const RENDER = { addGenerationPrompt: boolean, tools };

/** @type {Record<string, Check>} */
export const CHAT = { system: string, messages: (value) => messages(value) };

/**
 * The options, checked, without those that are undefined.
 * @param {any} options
 * @param {Record<string, Check>} table
 * @param {string} [name]
 * @returns {Record<string, any>}
 */
export function check(options, table, name = 'options') {
  if (options === undefined) return {};
  if (options === null || typeof options !== 'object' || Symbol.iterator in options) {
    throw wrongType(name, options, 'a plain object');
  }
  /** @type {Record<string, any>} */
  const checked = {};
  for (const [key, value] of Object.entries(options)) {
    if (!Object.hasOwn(table, key)) {
      throw new TypeError(`there is no option '${key}'${suggest(key.replaceAll('_', ''), Object.keys(table))}`);
    }
    if (value !== undefined) checked[key] = table[key](value, name === 'options' ? key : `${name}.${key}`);
  }
  return checked;
}

/**
 * @param {any} value
 * @param {string} name
 * @returns {string}
 */
export function text(value, name) {
  return string(value, name);
}

/**
 * A deep copy: what can't be copied can't go to the worker either.
 * @template T
 * @param {T} value
 * @param {string} name
 * @returns {T}
 */
function copied(value, name) {
  try {
    return structuredClone(value);
  } catch (cause) {
    throw new TypeError(`${name} has something in it that can't be copied: ${/** @type {Error} */ (cause).message}`, { cause });
  }
}

/**
 * Messages, copied, with whatever else a template may look at.
 * @param {any} value
 * @returns {import('./index.js').Message[]}
 */
export function messages(value) {
  if (!Array.isArray(value)) throw wrongType('messages', value, 'an array of messages');
  return value.map((message, i) => {
    if (message === null || typeof message !== 'object') throw wrongType(`messages[${i}]`, message, '{ role, content }');
    string(message.role, `messages[${i}].role`);
    string(message.content, `messages[${i}].content`);
    return Object.freeze(copied({ ...message }, `messages[${i}]`));
  });
}

/**
 * @param {any} value
 * @param {number} nVocab
 * @returns {number[]}
 */
export function tokens(value, nVocab) {
  if (typeof value?.[Symbol.iterator] !== 'function' || typeof value === 'string') {
    throw wrongType('tokens', value, 'token ids');
  }
  return Array.from(value, (id, i) => number(0, nVocab - 1, true)(id, `tokens[${i}]`));
}

/**
 * @param {[id: number, bias: number][]} biases
 * @param {number} nVocab
 */
export function biased(biases, nVocab) {
  for (const [id] of biases) number(0, nVocab - 1, true)(id, 'a token of logitBias');
}

/**
 * What generate() goes on from.
 * @param {any} input
 * @param {number} nVocab
 * @returns {{ text: string } | { tokens: number[] } | { messages: import('./index.js').Message[] }}
 */
export function prompt(input, nVocab) {
  if (typeof input === 'string') return { text: input };
  if (typeof input?.[Symbol.iterator] !== 'function') throw wrongType('input', input, 'text, token ids or messages');
  const items = [...input];
  if (items.length === 0) throw new RangeError('input is empty: there is nothing to go on from');
  return typeof items[0] === 'object' ? { messages: messages(items) } : { tokens: tokens(items, nVocab) };
}
