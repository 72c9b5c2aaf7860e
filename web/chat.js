/**
 * Messages -> prompt, through the template that the model file carries.
 *
 * What a message says must not steer the chat. So where one holds the text of a control token (or, at its
 * end, the beginning of one), the first character of that text is replaced by a mark, a private-use character
 * that occurs nowhere else; the rendering is cut at its control tokens, which only the template can have
 * written; then the marks turn back. The ids are those of the whole rendering, had it no forged token.
 */
import { ModelError } from './errors.js';
import { compile } from './jinja/template.js';

/**
 * @typedef {import('./tokenizer.js').Meta} Meta
 * @typedef {{ addGenerationPrompt?: boolean, tools?: object[], now?: Date }} RenderOptions
 * @typedef {{ vars?: Record<string, any> }} Case
 */

const [FIRST_MARK, LAST_MARK] = [0xe000, 0xf8ff];

/**
 * @param {Meta} meta
 * @param {import('./tokenizer.js').Tokenizer} tokenizer
 */
export function createTemplate(meta, tokenizer) {
  const source = meta('tokenizer.chat_template');
  const forgery = forgeries(tokenizer.controlTexts);
  const spelling = (/** @type {number | undefined} */ id) => (id === undefined ? '' : tokenizer.spelling(id));
  /** @type {ReturnType<typeof compile> | undefined} */
  let compiled;

  /**
   * @param {object[]} messages
   * @param {RenderOptions} [options]
   */
  function render(messages, { addGenerationPrompt = true, tools, now = new Date() } = {}) {
    if (typeof source !== 'string') {
      throw new ModelError('TEMPLATE', 'the model has no chat template; generate() can continue a text');
    }
    try {
      compiled ??= compile(source);
      return compiled({
        messages,
        ...(tools && { tools }),
        add_generation_prompt: addGenerationPrompt,
        bos_token: spelling(tokenizer.bos),
        eos_token: spelling(tokenizer.eos),
      }, now);
    } catch (error) {
      throw failure(error);
    }
  }

  /**
   * Ids of the rendering, beginning as the vocabulary wants it.
   * @param {object[]} messages
   * @param {RenderOptions} [options]
   */
  function encode(messages, options = {}) {
    const marks = new Marks(`${source}${JSON.stringify([messages, options.tools])}`);
    const guard = (/** @type {string} */ text) =>
      forgery ? text.replace(forgery, ([first, ...rest]) => marks.of(first) + rest.join('')) : text;
    const text = render(eachString(messages, guard), { ...options, tools: eachString(options.tools, guard) });
    return tokenizer.prompt(text, { special: true, restore: (part) => marks.restore(part) });
  }

  return { render, encode };
}

/**
 * A template on cases, as `tabllama render` wants it.
 * @param {string} source
 * @param {Case[]} cases
 * @param {{ now?: Date }} [options]
 * @returns {({ text: string } | { error: string })[]}
 */
export function renderCases(source, cases, { now = new Date() } = {}) {
  return cases.map(({ vars = {} }) => {
    try {
      return { text: compile(source)(vars, now) };
    } catch (error) {
      return { error: failure(error).message };
    }
  });
}

/** @param {unknown} error */
function failure(error) {
  const { message } = /** @type {Error} */ (error);
  // The engine's own words on a full stack or an overlong string would tell nobody anything.
  const reason = error instanceof RangeError ? 'it is nested too deeply or makes too much' : message;
  return new ModelError('TEMPLATE', `the chat template failed: ${reason}`, { cause: error });
}

/**
 * Finds control texts anywhere, and at the end of a text the beginning of one, which the next part of a
 * message could complete.
 * @param {string[]} texts
 */
function forgeries(texts) {
  if (texts.length === 0) return undefined;
  const beginnings = texts.flatMap(([...chars]) => chars.map((_, i) => chars.slice(0, i).join('')).slice(1));
  const atEnd = [...new Set(beginnings)].map((text) => `${literal(text)}$`);
  return new RegExp([...texts.map(literal), ...atEnd].sort((a, b) => b.length - a.length).join('|'), 'gu');
}

/** @param {string} text */
const literal = (text) => text.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&');

/** One private-use character for each character that it stands for. */
class Marks {
  #taken;
  #next = FIRST_MARK;
  /** @type {Map<string, string>} */
  #marks = new Map();

  /** @param {string} taken a text whose characters are no marks */
  constructor(taken) {
    this.#taken = new Set(taken.match(/[\ue000-\uf8ff]/g));
  }

  /** @param {string} char */
  of(char) {
    const known = this.#marks.get(char);
    if (known) return known;
    while (this.#taken.has(String.fromCharCode(this.#next))) this.#next++;
    if (this.#next > LAST_MARK) {
      throw new ModelError('TEMPLATE', 'the messages use every private-use character');
    }
    const mark = String.fromCharCode(this.#next++);
    this.#marks.set(char, mark);
    return mark;
  }

  /** @param {string} text */
  restore(text) {
    for (const [char, mark] of this.#marks) text = text.replaceAll(mark, () => char);
    return text;
  }
}

/**
 * The same value with every string in it changed.
 * @template T
 * @param {T} value
 * @param {(text: string) => string} change
 * @returns {T}
 */
function eachString(value, change) {
  if (typeof value === 'string') return /** @type {any} */ (change(value));
  if (Array.isArray(value)) return /** @type {any} */ (value.map((item) => eachString(item, change)));
  if (value === null || typeof value !== 'object') return value;
  const entries = Object.entries(value).map(([key, item]) => [change(key), eachString(item, change)]);
  return /** @type {any} */ (Object.fromEntries(entries));
}
