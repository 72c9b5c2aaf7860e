/** The vocabulary of a GGUF file, read and checked. */
import { ModelError } from './errors.js';
import { preTokenizer } from './pretokenizers.js';
import { Strings } from './strings.js';

/**
 * @typedef {(key: string) => any} Meta the JS value of a GGUF metadata key, or undefined; numeric arrays as
 *   the typed array of their element type, arrays of strings as string[] or Strings
 */

/** `tokenizer.ggml.token_type` */
const NORMAL = 1;
export const UNKNOWN = 2;
export const CONTROL = 3;
export const USER_DEFINED = 4;
export const BYTE = 6;

/** Texts by which vocabularies name the token that ends a turn or a text. */
const END_TEXTS = new Set([
  '<|im_end|>', '<|eot_id|>', '<|eom_id|>', '<|endoftext|>', '<|end_of_text|>', '<|end|>', '<end_of_turn>',
  '<|end_of_turn|>', '<|END_OF_TURN_TOKEN|>', '<turn|>', '<end_of_utterance>', '<eos>', '<|eos|>', '[EOS]',
  '</s>', '<|return|>', '<|call|>', '<|eot|>', '<EOT>', '<|EOT|>', '<\uff5cend\u2581of\u2581sentence\uff5c>',
]);
/** A user-defined token of this shape marks turns as control tokens do. */
const MARKER = /^<[|\uff5c].*[|\uff5c]>$/u;

/** @typedef {ReturnType<typeof readVocab>} Vocab */

/** @param {Meta} meta */
export function readVocab(meta) {
  const model = meta('tokenizer.ggml.model');
  if (model === undefined) {
    throw new ModelError('UNSUPPORTED', 'the file has no tokenizer (no tokenizer.ggml.model)');
  }
  if (model !== 'llama' && model !== 'gpt2') {
    throw new ModelError('UNSUPPORTED', `tokenizer.ggml.model '${model}' is neither llama nor gpt2`);
  }
  const tokens = strings(meta, 'tokenizer.ggml.tokens');
  const types = numbers(meta, 'tokenizer.ggml.token_type', [Int32Array, Uint32Array], tokens.length);
  const row = model === 'gpt2' ? preTokenizer(meta('tokenizer.ggml.pre')) : undefined;
  const spm = model === 'llama';
  const bos = tokenId(meta, 'bos', tokens.length) ?? (spm && types?.[1] === CONTROL ? 1 : undefined);
  /** @type {number[]} */
  const unusual = [];
  for (let id = 0; id < tokens.length; id++) if (types?.[id] !== NORMAL) unusual.push(id);
  return {
    model, tokens, row, pre: row && meta('tokenizer.ggml.pre'), bos,
    eos: tokenId(meta, 'eos', tokens.length) ?? (spm && types?.[2] === CONTROL ? 2 : undefined),
    unknown: tokenId(meta, 'unknown', tokens.length) ?? (types?.[0] === UNKNOWN ? 0 : undefined),
    ends: ['eot', 'eom'].map((name) => tokenId(meta, name, tokens.length)),
    addBos: bos !== undefined && flag(meta, 'tokenizer.ggml.add_bos_token', spm || row?.addBos === true),
    spacePrefix: spm && flag(meta, 'tokenizer.ggml.add_space_prefix', true),
    merges: spm ? Strings.of([]) : strings(meta, 'tokenizer.ggml.merges'),
    scores: spm ? scores(meta, tokens.length) : new Float32Array(0),
    /** Ids of those that may be more than text: few, where the file says which. */
    unusual,
    /** @param {number} id */
    type: (id) => types?.[id],
  };
}

/** @param {string} key @param {string} expected @param {any} value */
function wrong(key, expected, value) {
  const found = value === undefined ? 'there is none'
    : `found ${typeof value === 'object' ? value.constructor.name : typeof value}`;
  return new ModelError('FORMAT', `${key}: expected ${expected}, ${found}`);
}

/** @param {Meta} meta @param {number} length */
function scores(meta, length) {
  const value = numbers(meta, 'tokenizer.ggml.scores', [Float32Array], length);
  if (!value) throw wrong('tokenizer.ggml.scores', 'Float32Array', value);
  return value;
}

/** @param {Meta} meta @param {string} key @returns {Strings} */
function strings(meta, key) {
  const value = meta(key);
  if (value instanceof Strings && value.length > 0) return value;
  if (!Array.isArray(value) || value.length === 0 || value.some((item) => typeof item !== 'string')) {
    throw wrong(key, 'strings, at least one', value);
  }
  return Strings.of(value);
}

/**
 * @param {Meta} meta
 * @param {string} key
 * @param {(Int32ArrayConstructor | Uint32ArrayConstructor | Float32ArrayConstructor)[]} kinds
 * @param {number} length
 * @returns {Int32Array | Uint32Array | Float32Array | undefined}
 */
function numbers(meta, key, kinds, length) {
  const value = meta(key);
  if (value === undefined) return undefined;
  if (!kinds.some((kind) => value instanceof kind)) {
    throw wrong(key, kinds.map((kind) => kind.name).join(' or '), value);
  }
  if (value.length !== length) {
    throw new ModelError('FORMAT', `${key} has ${value.length} items, the vocabulary has ${length} tokens`);
  }
  return value;
}

/** @param {Meta} meta @param {string} key @param {boolean} otherwise */
function flag(meta, key, otherwise) {
  const value = meta(key) ?? otherwise;
  if (typeof value !== 'boolean') throw wrong(key, 'a boolean', value);
  return value;
}

/** @param {Meta} meta @param {string} name @param {number} nVocab @returns {number | undefined} */
function tokenId(meta, name, nVocab) {
  const key = `tokenizer.ggml.${name}_token_id`;
  const value = meta(key);
  if (value === undefined || value === 0xffffffff || value === -1) return undefined;
  if (!Number.isInteger(value)) throw wrong(key, 'a token id', value);
  if (value < 0 || value >= nVocab) {
    throw new ModelError('FORMAT', `${key} is ${value}, the vocabulary has ${nVocab} tokens`);
  }
  return value;
}

/** @param {Vocab} vocab @returns {Set<number>} */
export function endIds({ tokens, unusual, type, eos, ends }) {
  const ids = new Set([eos, ...ends].filter((id) => id !== undefined));
  for (const id of unusual) {
    const mayEnd = type(id) === CONTROL || type(id) === USER_DEFINED;
    if (mayEnd && END_TEXTS.has(/** @type {string} */ (tokens.at(id)))) ids.add(id);
  }
  // Where there are <|return|> and <|call|>, <|end|> ends a message of the turn, not the turn.
  const known = [...ids].map((id) => tokens.at(id));
  if (known.includes('<|return|>') && known.includes('<|call|>')) {
    for (const id of ids) if (tokens.at(id) === '<|end|>' && id !== eos) ids.delete(id);
  }
  return ids;
}

/** Whether a token steers a chat. @param {Vocab} vocab @param {number} id */
export function steers({ tokens, type }, id) {
  if (type(id) !== USER_DEFINED) return type(id) === CONTROL || type(id) === UNKNOWN;
  const text = /** @type {string} */ (tokens.at(id));
  return MARKER.test(text) || END_TEXTS.has(text);
}
