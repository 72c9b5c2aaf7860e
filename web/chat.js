/**
 * Messages -> prompt, through the template that the model file carries.
 *
 * What a message says must not steer the chat. So the template is run twice: on messages in which no more than
 * whole control tokens are hidden, and, where it is not the same, on messages in which all are hidden that could
 * begin one. Hidden means that the character is replaced by a mark, a private-use character that occurs nowhere
 * else. If the first rendering has the control tokens of the second, they are the template's own; else the
 * template joins pieces of messages to one, and the second rendering is taken. The text is cut at its control
 * tokens, then the marks turn back: the ids are those of the whole rendering, had it no forged token.
 */
import { ModelError } from './errors.js';

/**
 * @typedef {import('./tokenizer.js').Meta} Meta
 * @typedef {{ addGenerationPrompt?: boolean, tools?: object[], now?: Date }} RenderOptions
 * @typedef {{ vars?: Record<string, any> }} Case
 */

const [FIRST_MARK, LAST_MARK] = [0xe000, 0xf8ff];

/**
 * @param {Meta} meta
 * @param {import('./tokenizer.js').Tokenizer} tokenizer
 * @param {import('./renderer.js').Renderer} renderer
 */
export function createTemplate(meta, tokenizer, renderer) {
  const source = meta('tokenizer.chat_template');
  const control = oneOf(tokenizer.controlTexts);
  const beginning = oneOf(tokenizer.controlTexts.map(([first]) => first));
  const spelling = (/** @type {number | undefined} */ id) => (id === undefined ? '' : tokenizer.spelling(id));

  /**
   * @param {object[]} messages
   * @param {RenderOptions} [options]
   */
  async function render(messages, { addGenerationPrompt = true, tools, now = new Date() } = {}) {
    if (typeof source !== 'string') {
      throw new ModelError('TEMPLATE', 'the model has no chat template; generate() can continue a text');
    }
    const vars = {
      messages,
      ...(tools && { tools }),
      add_generation_prompt: addGenerationPrompt,
      bos_token: spelling(tokenizer.bos),
      eos_token: spelling(tokenizer.eos),
    };
    return renderer.render(source, vars, now);
  }

  /**
   * Ids of the rendering, beginning as the vocabulary wants it.
   * @param {object[]} messages
   * @param {RenderOptions} [options]
   */
  async function encode(messages, { tools, ...options } = {}) {
    const marks = new Marks(`${source}${JSON.stringify([messages, tools])}`);
    const hidden = (/** @type {string} */ [first, ...rest]) => marks.of(first) + rest.join('');
    const hide = (/** @type {RegExp} */ what) =>
      eachString({ messages, tools }, (text) => text.replace(what, hidden));
    const rendered = (/** @type {{ messages: object[], tools?: object[] }} */ { messages, tools }) =>
      render(messages, { ...options, tools });
    const [open, closed] = [hide(control), hide(beginning)];
    let text = await rendered(open);
    if (JSON.stringify(open) !== JSON.stringify(closed)) {
      const safe = await rendered(closed);
      if (String(text.match(control)) !== String(safe.match(control))) text = safe;
    }
    return tokenizer.prompt(text, { special: true, restore: (part) => marks.restore(part) });
  }

  return { render, encode };
}

/**
 * A template on cases, as `tabllama render` wants it.
 * @param {import('./renderer.js').Renderer} renderer
 * @param {string} source
 * @param {Case[]} cases
 * @param {{ now?: Date }} [options]
 */
export async function renderCases(renderer, source, cases, { now = new Date() } = {}) {
  const outcome = (/** @type {Case} */ { vars = {} }) =>
    renderer.render(source, vars, now).then(
      (text) => ({ text }),
      (error) => {
        if (error.code === 'TEMPLATE') return { error: String(error.message) };
        throw error;
      },
    );
  return Promise.all(cases.map(outcome));
}

/** Any of the texts, the longest one. @param {string[]} texts */
function oneOf(texts) {
  const longestFirst = [...new Set(texts)].sort((a, b) => b.length - a.length);
  return new RegExp(longestFirst.map(literal).join('|') || '(?!)', 'gu');
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
