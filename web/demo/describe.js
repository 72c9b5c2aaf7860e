/* Models, answers and errors in the page's words. */

/** @typedef {import('../index.js').ModelInfo} ModelInfo */
/** @typedef {import('../index.js').Result} Result */
/** @typedef {string | URL | File} Source */

/** The model that `npm run model` fetches. Its file need not state its licence, so it stands here. */
export const SERVED = {
  url: new URL('../../models/SmolLM2-135M-Instruct.Q4_1.gguf', import.meta.url),
  name: 'SmolLM2 135M Instruct',
  license: 'Apache-2.0',
};

/** @param {number} value */
const number = (value, digits = 0) =>
  value.toLocaleString('en', { maximumFractionDigits: digits, minimumFractionDigits: digits });

/** @param {number} value */
const millions = (value) => number(value / 1e6, value < 1e7 ? 1 : 0);

/** @param {number} count @param {string} noun */
const counted = (count, noun) => `${number(count)} ${noun}${count === 1 ? '' : 's'}`;

/** @param {number} bytes */
export const megabytes = (bytes) => `${millions(bytes)} MB`;

/** What a source is called before its header is read. @param {Source} source */
export function fileName(source) {
  if (source === SERVED.url) return SERVED.name;
  if (source instanceof File) return source.name;
  return new URL(source).pathname.split('/').pop() || String(source);
}

/** @param {ModelInfo} info @param {Source} source */
export const title = (info, source) => (source === SERVED.url ? SERVED.name : info.name || fileName(source));

/** @param {ModelInfo} info @param {Source} source @returns {[string, string][]} */
export function facts(info, source) {
  const known = source === SERVED.url ? SERVED.license : 'Not stated in the file';
  return [
    ['Licence', info.license ?? known],
    ['Architecture', info.architecture],
    ['Parameters', `${millions(info.parameters)} million`],
    ['Weights', `mostly ${info.quantisation}`],
    ['Context', counted(info.contextLength, 'token')],
    ['Memory', megabytes(info.bytes.memory)],
    ['Variant', info.variant],
    ['Precision', info.precision],
    ['Threads', info.threads + (info.threadsReason ? `: ${info.threadsReason}` : '')],
    ...(source instanceof File ? [] : [/** @type {[string, string]} */ (['Kept', info.cached ? 'in this browser' : 'no'])]),
    ...info.warnings.map((warning) => /** @type {[string, string]} */ (['Note', warning])),
  ];
}

/** @param {import('../index.js').Estimate} estimate */
export const needs = ({ bytes, fits, reason }) =>
  `It needs ${megabytes(bytes.total)} of memory${fits ? ', which this device has' : `. It does not fit: ${reason}`}.`;

/** @param {ModelInfo} info @param {number} [tokensPerSecond] */
export function status(info, tokensPerSecond) {
  const parts = [info.variant, counted(info.threads, 'thread'), megabytes(info.bytes.memory)];
  if (tokensPerSecond) parts.push(`${number(tokensPerSecond, 1)} tokens/s`);
  return parts.join(' · ');
}

/** @param {Result} result */
export const timings = ({ usage, timings }) =>
  `${counted(usage.completionTokens, 'token')}, ${number(timings.tokensPerSecond, 1)} per second`;

/**
 * Why an answer ended, where a reader would wonder.
 * @param {Result} result
 * @param {ModelInfo} info
 */
export function ending({ reason, usage }, { contextLength }) {
  const notes = {
    stop: '',
    stopped: 'Stopped.',
    length: `Cut off after ${counted(usage.completionTokens, 'token')}; the limit is set under the model’s name.`,
    context: `The context of ${counted(contextLength, 'token')} is full. Start a new chat to go on.`,
  };
  return notes[reason];
}

/** An error as the page says it. @param {unknown} error @param {Source} source */
export function sentence(error, source) {
  const { code = '', message } = /** @type {Error & { code?: string }} */ (error);
  /* a first word is capitalised, an address or a name is not */
  const said = message.replace(/^[a-z](?=[a-z']* )/, (letter) => letter.toUpperCase());
  const whole = said + (/[.!?]$/.test(said) ? '' : '.');
  if (code === 'CONTEXT') return `${whole} Ask something shorter, or start a new chat.`;
  if (code === 'NETWORK' && source === SERVED.url) return `${whole} If it is not there yet: npm run model.`;
  return whole;
}
