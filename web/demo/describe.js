/* Models, answers and errors in the page's words. */

/** The model that `npm run model` fetches. Its file need not state its licence, so it stands here. */
export const SERVED = {
  url: new URL('../../models/SmolLM2-135M-Instruct.Q4_1.gguf', import.meta.url),
  name: 'SmolLM2 135M Instruct',
  license: 'Apache-2.0',
};

/** @param {number} value */
const number = (value, digits = 0) =>
  value.toLocaleString('en', { maximumFractionDigits: digits, minimumFractionDigits: digits });

/** @param {number} count @param {string} noun */
const counted = (count, noun) => `${number(count)} ${noun}${count === 1 ? '' : 's'}`;

/** @param {number} bytes */
export const megabytes = (bytes) => `${number(bytes / 1e6, bytes < 1e7 ? 1 : 0)} MB`;

/** What a source is called before its header is read. @param {string | URL | File} source */
export function nameOf(source) {
  if (source === SERVED.url) return SERVED.name;
  if (source instanceof File) return source.name;
  return decodeURIComponent(new URL(source).pathname.split('/').pop() ?? '') || String(source);
}

/** @param {any} info @param {string | URL | File} source */
export const titleOf = (info, source) => (source === SERVED.url ? SERVED.name : info.name || nameOf(source));

/** @param {any} info @param {string | URL | File} source @returns {[string, string][]} */
export function factsOf(info, source) {
  const license = info.license ?? (source === SERVED.url ? SERVED.license : 'not stated in the file');
  return [
    ['Licence', license],
    ['Architecture', info.architecture],
    ['Parameters', `${number(info.parameters / 1e6)} million, ${info.quantisation}`],
    ['Context', counted(info.contextLength, 'token')],
    ['Memory', megabytes(info.bytes.memory)],
    ['Variant', info.variant],
    ['Precision', info.precision],
    ['Threads', info.threadsReason ? `${info.threads}: ${info.threadsReason}` : String(info.threads)],
  ];
}

/** @param {any} info @param {number} [tokensPerSecond] */
export function statusOf(info, tokensPerSecond) {
  const parts = [info.variant, counted(info.threads, 'thread'), megabytes(info.bytes.memory)];
  if (tokensPerSecond) parts.push(`${number(tokensPerSecond, 1)} tokens/s`);
  return parts.join(' · ');
}

/** @param {any} result */
export const speedOf = (result) => result.timings.tokensPerSecond;

/** @param {any} result */
export const timingsOf = (result) =>
  `${counted(result.usage.completionTokens, 'token')}, ${number(speedOf(result), 1)} per second`;

/** Why an answer ended, where a reader would wonder. @param {any} result @param {any} info */
export function endNote(result, info) {
  if (result.reason === 'stopped') return 'Stopped.';
  if (result.reason === 'length') {
    return `Cut off after ${counted(result.usage.completionTokens, 'token')}; the limit is set under the model’s name.`;
  }
  if (result.reason !== 'context') return '';
  return `The conversation fills the model’s context of ${counted(info.contextLength, 'token')}. Start a new chat to go on.`;
}

/** @param {any} error @param {string | URL | File} source */
export function sentenceOf(error, source) {
  const text = error instanceof Error ? error.message : String(error);
  /* a first word is capitalised, an address or a name is not */
  const sentence = text.replace(/^[a-z]+(?= )/, capitalised) + (/[.!?]$/.test(text) ? '' : '.');
  return source === SERVED.url && error.code === 'NOT_FOUND' ? `${sentence} Run “npm run model” first.` : sentence;
}

/** @param {string} word */
const capitalised = (word) => word.charAt(0).toUpperCase() + word.slice(1);
