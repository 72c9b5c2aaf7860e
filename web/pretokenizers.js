/** How text is cut into words before BPE, by the name that a vocabulary gives it. */
import { ModelError } from './errors.js';

const CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d";
const ANY_CASE = "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])";
const SPACES = '\\s+(?!\\S)|\\s+';
const GPT2 = `${CONTRACTIONS}| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|${SPACES}`;
/** @param {string} digits @param {string} letters */
const gpt4 = (digits, letters = '\\p{L}') =>
  `${ANY_CASE}|[^\\r\\n\\p{L}\\p{N}]?[${letters}]+|${digits}| ?[^\\s${letters}\\p{N}]+[\\r\\n]*` +
  `|\\s*[\\r\\n]+|${SPACES}`;
const UPPER = '[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]';
const LOWER = '[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]';
/** @param {string} digits @param {string} suffix */
const cased = (digits, suffix) =>
  `[^\\r\\n\\p{L}\\p{N}]?(?:${UPPER}*${LOWER}+|${UPPER}+${LOWER}*)${suffix}|${digits}` +
  `| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|${SPACES}`;
const HAN_KANA_HANGUL = '[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+';

/**
 * One row per way of cutting text into words before BPE: the names of `tokenizer.ggml.pre` it goes by, the
 * patterns, each of which cuts what those before it left whole (matches and gaps both stay), and what
 * such vocabularies imply. whole: a word that is a token is taken as it is, whatever its merges say.
 * @type {{ names: string, cuts: string[], whole?: boolean, addBos?: boolean }[]}
 */
const PRE_TOKENIZERS = [
  { names: 'gpt-2 phi-2 mpt olmo jais', cuts: [GPT2] },
  { names: 'smollm starcoder refact command-r codeshell', cuts: ['\\p{N}', GPT2] },
  { names: 'llama-bpe llama3 llama-v3', cuts: [gpt4('\\p{N}{1,3}')], whole: true, addBos: true },
  { names: 'dbrx smaug-bpe', cuts: [gpt4('\\p{N}{1,3}')] },
  { names: 'qwen2 deepseek-r1-qwen stablelm2', cuts: [gpt4('\\p{N}')] },
  { names: 'qwen35', cuts: [gpt4('\\p{N}', '\\p{L}\\p{M}')] },
  { names: 'gpt-4o llama4', cuts: [cased('\\p{N}{1,3}', `(?:${ANY_CASE})?`)] },
  { names: 'tekken', cuts: [cased('\\p{N}', '')], whole: true },
  {
    // The published pattern lists cased letters by range, without the small letters of modern Georgian.
    names: 'deepseek-llm',
    cuts: ['[\\r\\n]', '\\s?(?:(?![\u10d0-\u10ff])\\p{LC})+',
      '\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+', '\\s+$', HAN_KANA_HANGUL,
      '\\p{N}+'],
  },
  { names: 'deepseek-coder', cuts: ['[\\r\\n]', '\\s?\\p{L}+', '\\s?\\p{P}+', HAN_KANA_HANGUL, '\\p{N}'] },
  {
    names: 'deepseek-v3',
    cuts: ['\\p{N}{1,3}', '[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+',
      '[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*' +
      `|\\s*[\\r\\n]+|${SPACES}`],
  },
];

/** All values of `tokenizer.ggml.pre` that are known. */
export const PRE_NAMES = PRE_TOKENIZERS.flatMap(({ names }) => names.split(' '));

/** @param {any} name `tokenizer.ggml.pre` */
export function preTokenizer(name) {
  const row = PRE_TOKENIZERS.find(({ names }) => names.split(' ').includes(name));
  if (row) return row;
  const what = name === undefined ? 'is missing' : `'${name}' is not supported`;
  throw new ModelError('UNSUPPORTED', `tokenizer.ggml.pre ${what}; supported: ${[...PRE_NAMES].sort().join(', ')}`);
}
