/**
 * Text <-> token ids, from the vocabulary that a GGUF file carries.
 *
 *   text -> cut out special tokens -> cut into words (BPE only) -> symbols -> merge neighbours -> ids
 *
 * Both models of tokenizer are the same loop (merge the best pair of neighbours, again and again) over another
 * ranking: byte-level BPE ranks pairs by the file's list of merges, SPM by the score of the piece that the
 * pair makes. Control tokens are kept out of that loop, so ordinary text never becomes one.
 * Why not a library: docs/tokenizer.md.
 */
import { ModelError } from './errors.js';

/**
 * @typedef {(key: string) => any} Meta the JS value of a GGUF metadata key, or undefined; numeric arrays as
 *   the typed array of their element type, arrays of strings as string[]
 * @typedef {{ special?: boolean }} TextOptions special: control tokens are recognised (encode) or shown (decode)
 * @typedef {{ special?: boolean, restore?: (text: string) => string }} EncodeOptions restore: applied to the
 *   text between special tokens, after these were cut out
 * @typedef {ReturnType<typeof createTokenizer>} Tokenizer
 */

const CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d";
const ANY_CASE = "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])";
const SPACES = '\\s+(?!\\S)|\\s+';
const GPT2 = `${CONTRACTIONS}| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|${SPACES}`;
/** @param {string} digits @param {string} letters */
const gpt4 = (digits, letters = '\\p{L}') =>
  `${ANY_CASE}|[^\\r\\n\\p{L}\\p{N}]?[${letters}]+|${digits}| ?[^\\s${letters}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|${SPACES}`;
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
    cuts: ['[\\r\\n]', '\\s?(?:(?![\u10d0-\u10ff])\\p{LC})+', '\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+',
      '\\s+$', HAN_KANA_HANGUL, '\\p{N}+'],
  },
  { names: 'deepseek-coder', cuts: ['[\\r\\n]', '\\s?\\p{L}+', '\\s?\\p{P}+', HAN_KANA_HANGUL, '\\p{N}'] },
  {
    names: 'deepseek-v3',
    cuts: ['\\p{N}{1,3}', '[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+',
      '[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*' +
      `|\\s*[\\r\\n]+|${SPACES}`],
  },
];

/** `tokenizer.ggml.token_type` */
const UNKNOWN = 2;
const CONTROL = 3;
const USER_DEFINED = 4;
const BYTE = 6;

/** Texts by which vocabularies name the token that ends a turn or a text. */
const END_TEXTS = new Set(['<|im_end|>', '<|eot_id|>', '<|eom_id|>', '<|endoftext|>', '<|end_of_text|>', '<|end|>',
  '<end_of_turn>', '<turn|>', '<eos>', '</s>', '<|eos|>', '<|return|>', '<|call|>', '<|eot|>', '<EOT>', '<|EOT|>', '[EOS]',
  '<|END_OF_TURN_TOKEN|>', '<end_of_utterance>', '<\uff5cend\u2581of\u2581sentence\uff5c>', '<|end_of_turn|>']);
/** A user-defined token of this shape marks turns as control tokens do. */
const MARKER = /^<[|\uff5c].*[|\uff5c]>$/u;

const LONE_SURROGATES = /\p{Surrogate}/gu;
const SPACE_MARK = '\u2581';
/** A sort key is rank * POSITIONS + position, exact in a double: ranks below 2^22, text below 2^30. */
const POSITIONS = 2 ** 30;

/** BPE's alphabet: byte -> character; printable ones stand for themselves. */
const BYTE_CHARS = byteChars();
const CHAR_BYTES = new Map(BYTE_CHARS.map((char, byte) => [char, byte]));

const utf8 = new TextEncoder();

/**
 * Throws ModelError: UNSUPPORTED for a tokenizer or pre-tokenizer that is not here, FORMAT for a vocabulary
 * that contradicts itself.
 * @param {Meta} meta
 */
export function createTokenizer(meta) {
  const vocab = readVocab(meta);
  const spm = vocab.model === 'llama';
  const encodeText = spm ? spmEncoder(vocab) : bpeEncoder(vocab);
  const bytesOf = spm ? spmBytes(vocab) : bpeBytes(vocab);
  const { tokens, type, bos, addBos, spacePrefix } = vocab;
  const users = trie(vocab, (t) => t === USER_DEFINED);
  const specials = trie(vocab, (t) => t === USER_DEFINED || t === CONTROL || t === UNKNOWN);
  /** @param {number} id */
  const isControl = (id) => type(id) === CONTROL || type(id) === UNKNOWN;

  /**
   * Ids of a text, without BOS.
   * @param {string} text
   * @param {EncodeOptions} [options]
   * @returns {number[]}
   */
  function encode(text, { special = false, restore } = {}) {
    /** @type {number[]} */
    const ids = [];
    const clean = text.replace(LONE_SURROGATES, '\ufffd');
    let first = true;
    cut(clean, special ? specials : users, (part) => {
      if (typeof part === 'number') ids.push(part);
      else encodeText(restore ? restore(part) : part, ids, first);
      first = false;
    });
    return ids;
  }

  /**
   * Ids of a text that begins a context: with exactly one BOS where the vocabulary wants it.
   * @param {string} text
   * @param {EncodeOptions} [options]
   */
  function prompt(text, options) {
    const ids = encode(text, options);
    if (addBos && ids[0] !== bos) ids.unshift(/** @type {number} */ (bos));
    return ids;
  }

  /**
   * A decoder for ids that come one by one: what push() returns never ends in half a character.
   * `before`: the ids these continue. Where SPM puts a space in front of each text, the one after nothing
   * or a control token is not part of the text.
   * @param {Iterable<number>} [before]
   * @param {TextOptions} [options]
   */
  function stream(before = [], { special = false } = {}) {
    const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
    let atStart = spacePrefix;
    /** @param {number} id */
    const step = (id) => {
      const control = isControl(id);
      const bytes = control && !special ? EMPTY : bytesOf(id);
      const skip = atStart && !control && bytes[0] === 0x20 ? 1 : 0;
      atStart = spacePrefix && (control || (special && type(id) === USER_DEFINED));
      return bytes.subarray(skip);
    };
    for (const id of before) step(id);
    return {
      /** @param {number} id */
      push: (id) => decoder.decode(step(id), { stream: true }),
      end: () => decoder.decode(),
    };
  }

  /**
   * @param {Iterable<number>} ids
   * @param {TextOptions} [options]
   */
  function decode(ids, options) {
    const { push, end } = stream([], options);
    let text = '';
    for (const id of ids) text += push(id);
    return text + end();
  }

  return {
    model: vocab.model, pre: vocab.pre, nVocab: tokens.length,
    bos, eos: vocab.eos, addBos, eogIds: endIds(vocab), encode, prompt, decode, stream, isControl,
    /** What a token shows when it stands alone; half a character as U+FFFD. @param {number} id */
    piece: (id) => new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytesOf(id)),
    /** A token's text as the vocabulary spells it. @param {number} id */
    spelling: (id) => tokens[id],
    /** Texts that steer a chat, so that a message must not become them. */
    controlTexts: tokens.filter((text, id) => text !== '' && steers(text, type(id))),
  };
}

const EMPTY = new Uint8Array(0);

/* ---- reading and checking ---- */

/** @typedef {ReturnType<typeof readVocab>} Vocab */

/** @param {Meta} meta */
function readVocab(meta) {
  const model = meta('tokenizer.ggml.model');
  if (model === undefined) throw new ModelError('UNSUPPORTED', 'the file has no tokenizer (no tokenizer.ggml.model)');
  if (model !== 'llama' && model !== 'gpt2') {
    throw new ModelError('UNSUPPORTED', `tokenizer.ggml.model '${model}' is not supported; supported: llama, gpt2`);
  }
  const tokens = strings(meta, 'tokenizer.ggml.tokens');
  const types = numbers(meta, 'tokenizer.ggml.token_type', [Int32Array, Uint32Array], tokens.length);
  const row = model === 'gpt2' ? preTokenizer(meta('tokenizer.ggml.pre')) : undefined;
  const spm = model === 'llama';
  const bos = tokenId(meta, 'bos', tokens.length) ?? (spm && types?.[1] === CONTROL ? 1 : undefined);
  return {
    model, tokens, row, pre: row && meta('tokenizer.ggml.pre'), bos,
    eos: tokenId(meta, 'eos', tokens.length) ?? (spm && types?.[2] === CONTROL ? 2 : undefined),
    unknown: tokenId(meta, 'unknown', tokens.length) ?? (types?.[0] === UNKNOWN ? 0 : undefined),
    ends: ['eot', 'eom'].map((name) => tokenId(meta, name, tokens.length)),
    addBos: bos !== undefined && flag(meta, 'tokenizer.ggml.add_bos_token', spm || row?.addBos === true),
    spacePrefix: spm && flag(meta, 'tokenizer.ggml.add_space_prefix', true),
    merges: spm ? [] : strings(meta, 'tokenizer.ggml.merges'),
    scores: spm ? required(numbers(meta, 'tokenizer.ggml.scores', [Float32Array], tokens.length), 'tokenizer.ggml.scores')
      : new Float32Array(0),
    /** @param {number} id */
    type: (id) => types?.[id],
  };
}

/** @param {string} key @param {string} expected @param {any} value */
function wrong(key, expected, value) {
  const found = value === undefined ? 'there is none'
    : `found ${ArrayBuffer.isView(value) || Array.isArray(value) ? value.constructor.name : typeof value}`;
  return new ModelError('FORMAT', `${key}: expected ${expected}, ${found}`);
}

/** @template T @param {T | undefined} value @param {string} key @returns {T} */
function required(value, key) {
  if (value === undefined) throw wrong(key, 'a value', value);
  return value;
}

/** @param {Meta} meta @param {string} key @returns {string[]} */
function strings(meta, key) {
  const value = meta(key);
  if (!Array.isArray(value) || value.length === 0 || value.some((item) => typeof item !== 'string')) {
    throw wrong(key, 'an array of strings', value);
  }
  return value;
}

/**
 * @param {Meta} meta @param {string} key
 * @param {(Int32ArrayConstructor | Uint32ArrayConstructor | Float32ArrayConstructor)[]} kinds @param {number} length
 * @returns {Int32Array | Uint32Array | Float32Array | undefined}
 */
function numbers(meta, key, kinds, length) {
  const value = meta(key);
  if (value === undefined) return undefined;
  if (!kinds.some((kind) => value instanceof kind)) throw wrong(key, kinds.map((kind) => kind.name).join(' or '), value);
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

/** @param {any} name */
function preTokenizer(name) {
  const row = PRE_TOKENIZERS.find(({ names }) => names.split(' ').includes(name));
  if (row) return row;
  const supported = PRE_TOKENIZERS.map(({ names }) => names).join(' ').split(' ').sort().join(', ');
  const what = name === undefined ? 'tokenizer.ggml.pre is missing' : `tokenizer.ggml.pre '${name}' is not supported`;
  throw new ModelError('UNSUPPORTED', `${what}; supported: ${supported}`);
}

/** @param {Vocab} vocab @returns {Set<number>} */
function endIds({ tokens, type, eos, ends }) {
  const ids = new Set([eos, ...ends].filter((id) => id !== undefined));
  tokens.forEach((text, id) => {
    if (END_TEXTS.has(text) && (type(id) === CONTROL || type(id) === USER_DEFINED)) ids.add(id);
  });
  // Where there are <|return|> and <|call|>, <|end|> ends a message of the turn, not the turn.
  const known = [...ids].map((id) => tokens[id]);
  if (known.includes('<|return|>') && known.includes('<|call|>')) {
    for (const id of ids) if (tokens[id] === '<|end|>' && id !== eos) ids.delete(id);
  }
  return ids;
}

/** @param {string} text @param {number | undefined} type */
function steers(text, type) {
  return type === CONTROL || type === UNKNOWN || (type === USER_DEFINED && (MARKER.test(text) || END_TEXTS.has(text)));
}

/* ---- special tokens in a text ---- */

/** @typedef {Map<string, any>} Node character -> Node; '' -> id of the text that ends here */

/** @param {Vocab} vocab @param {(type: number | undefined) => boolean} wanted @returns {Node} */
function trie({ tokens, type }, wanted) {
  const root = new Map();
  tokens.forEach((text, id) => {
    if (text === '' || !wanted(type(id))) return;
    let node = root;
    for (let i = 0; i < text.length; i++) {
      let next = node.get(text[i]);
      if (!next) node.set(text[i], (next = new Map()));
      node = next;
    }
    node.set('', id);
  });
  return root;
}

/**
 * Hands over the parts of a text in order: the ids of special tokens (leftmost, then longest) and the text
 * between them.
 * @param {string} text @param {Node} root @param {(part: string | number) => void} part
 */
function cut(text, root, part) {
  let from = 0;
  for (let at = 0; at < text.length; at++) {
    let node = root.get(text[at]);
    let id;
    let end = at;
    for (let i = at + 1; node; node = node.get(text[i++])) {
      if (node.has('')) [id, end] = [node.get(''), i];
    }
    if (id === undefined) continue;
    if (at > from) part(text.slice(from, at));
    part(id);
    from = end;
    at = end - 1;
  }
  if (from < text.length) part(text.slice(from));
}

/* ---- merging ---- */

/**
 * Returns merge(text, use): cuts text into characters, joins the pair of neighbours of the lowest rank
 * (leftmost first) until none has a rank, and hands over each symbol left. n log n.
 *
 * A symbol is known by where it begins; the next one begins at its end. Pairs wait in a heap; one is stale
 * when the pair that begins there has another rank by now.
 * @param {(text: string, left: number, mid: number, right: number) => number} rankOf -1: does not join
 */
function merger(rankOf) {
  let end = new Int32Array(64);
  let previous = new Int32Array(64);
  let rank = new Int32Array(64);
  /** @type {number[]} */
  const heap = [];

  /** @param {string} text @param {number} left */
  const consider = (text, left) => {
    const mid = end[left];
    rank[left] = mid < text.length ? rankOf(text, left, mid, end[mid]) : -1;
    if (rank[left] >= 0) push(heap, rank[left] * POSITIONS + left);
  };

  /** @param {string} text @param {(symbol: string) => void} use */
  return (text, use) => {
    const n = text.length;
    if (n > end.length) {
      end = new Int32Array(2 * n);
      previous = new Int32Array(2 * n);
      rank = new Int32Array(2 * n);
    }
    for (let at = 0, before = -1; at < n; before = at, at = end[at]) {
      end[at] = at + (/** @type {number} */ (text.codePointAt(at)) > 0xffff ? 2 : 1);
      previous[at] = before;
    }
    for (let at = 0; at < n; at = end[at]) consider(text, at);
    while (heap.length > 0) {
      const key = pop(heap);
      const left = key % POSITIONS;
      if (rank[left] !== (key - left) / POSITIONS) continue;
      const mid = end[left];
      rank[mid] = -1;
      end[left] = end[mid];
      if (end[left] < n) previous[end[left]] = left;
      consider(text, left);
      if (previous[left] >= 0) consider(text, previous[left]);
    }
    for (let at = 0; at < n; at = end[at]) use(text.slice(at, end[at]));
  };
}

/** @param {number[]} heap smallest first @param {number} key */
function push(heap, key) {
  let i = heap.length;
  heap.push(key);
  while (i > 0) {
    const parent = (i - 1) >> 1;
    if (heap[parent] <= key) break;
    heap[i] = heap[parent];
    i = parent;
  }
  heap[i] = key;
}

/** @param {number[]} heap not empty */
function pop(heap) {
  const top = heap[0];
  const key = /** @type {number} */ (heap.pop());
  const n = heap.length;
  if (n === 0) return top;
  let i = 0;
  for (;;) {
    let child = 2 * i + 1;
    if (child + 1 < n && heap[child + 1] < heap[child]) child++;
    if (child >= n || heap[child] >= key) break;
    heap[i] = heap[child];
    i = child;
  }
  heap[i] = key;
  return top;
}

/**
 * Piece -> id of everything that text may become.
 * @param {Vocab} vocab
 */
function ordinary({ tokens, type }) {
  const ids = new Map();
  tokens.forEach((text, id) => {
    if (type(id) !== BYTE && !steers(text, type(id)) && !ids.has(text)) ids.set(text, id);
  });
  return ids;
}

/* ---- byte-level BPE ---- */

function byteChars() {
  const chars = [];
  for (let byte = 0, extra = 256; byte < 256; byte++) {
    const prints = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
    chars.push(String.fromCharCode(prints ? byte : extra++));
  }
  return chars;
}

/** @param {Vocab} vocab */
function bpeEncoder(vocab) {
  const { merges } = vocab;
  const { cuts, whole } = /** @type {typeof PRE_TOKENIZERS[0]} */ (vocab.row);
  const patterns = cuts.map((source) => new RegExp(source, 'gu'));
  const ids = ordinary(vocab);
  const ranks = new Map();
  for (let rank = merges.length - 1; rank >= 0; rank--) ranks.set(merges[rank], rank);
  const merge = merger((text, left, mid, right) => ranks.get(`${text.slice(left, mid)} ${text.slice(mid, right)}`) ?? -1);

  /** @param {string} text @param {number[]} out */
  return (text, out) => {
    /** @param {string} symbol */
    const use = (symbol) => {
      const id = ids.get(symbol);
      if (id !== undefined) out.push(id);
      // A byte that the vocabulary lacks is left out: its unknown token may be one that ends a text.
      else if (symbol.length > 1) for (const char of symbol) use(char);
    };
    for (const word of words(text, patterns)) {
      let chars = '';
      for (const byte of utf8.encode(word)) chars += BYTE_CHARS[byte];
      const id = whole ? ids.get(chars) : undefined;
      if (id !== undefined) out.push(id);
      else merge(chars, use);
    }
  };
}

/** @param {string} text @param {RegExp[]} patterns each global */
function words(text, patterns) {
  let parts = [text];
  for (const pattern of patterns) {
    /** @type {string[]} */
    const cutUp = [];
    for (const part of parts) {
      let from = 0;
      for (const { 0: match, index } of matches(part, pattern)) {
        if (index > from) cutUp.push(part.slice(from, index));
        cutUp.push(match);
        from = index + match.length;
      }
      if (from < part.length) cutUp.push(part.slice(from));
    }
    parts = cutUp;
  }
  return parts;
}

/**
 * A JS regular expression runs out of stack on a word of some millions of characters.
 * @param {string} text @param {RegExp} pattern
 */
function matches(text, pattern) {
  try {
    return [...text.matchAll(pattern)];
  } catch (cause) {
    throw new ModelError('ARGUMENT', `a word in this text of ${text.length} characters is too long`, { cause });
  }
}

/** @param {Vocab} vocab @returns {(id: number) => Uint8Array} */
function bpeBytes({ tokens, type }) {
  return (id) => {
    const text = tokens[id] ?? '';
    if (type(id) === CONTROL || type(id) === USER_DEFINED) return utf8.encode(text);
    const bytes = [];
    for (const char of text) {
      const byte = CHAR_BYTES.get(char);
      if (byte !== undefined) bytes.push(byte);
      else bytes.push(...utf8.encode(char));
    }
    return Uint8Array.from(bytes);
  };
}

/* ---- SPM ---- */

/** @param {string} text @returns {number} the byte that a piece such as <0x0A> stands for, or -1 */
const byteOf = (text) => (/^<0x[0-9A-F]{2}>$/.test(text) ? parseInt(text.slice(3, 5), 16) : -1);

/** @param {Vocab} vocab */
function spmEncoder(vocab) {
  const { tokens, type, scores, spacePrefix, unknown } = vocab;
  const ids = ordinary(vocab);
  const bytes = new Map();
  tokens.forEach((text, id) => {
    if ((type(id) ?? BYTE) === BYTE && byteOf(text) >= 0) bytes.set(byteOf(text), id);
  });
  const sorted = Float32Array.from(scores).sort();
  const ranks = Int32Array.from(scores, (score) => scores.length - countUpTo(sorted, score));
  const merge = merger((text, left, mid, right) => {
    const id = ids.get(text.slice(left, right));
    return id === undefined ? -1 : ranks[id];
  });

  /** @param {string} text @param {number[]} out @param {boolean} first */
  return (text, out, first) => {
    /** @param {string} symbol */
    const use = (symbol) => {
      const id = ids.get(symbol);
      if (id !== undefined) return out.push(id);
      for (const byte of utf8.encode(symbol)) {
        const byteId = bytes.get(byte) ?? unknown;
        if (byteId !== undefined) out.push(byteId);
      }
    };
    // Line breaks alone after a special token: there is no word that the space could belong to.
    const prefix = spacePrefix && (first || !/^\n+$/.test(text)) ? SPACE_MARK : '';
    merge(prefix + text.replaceAll(' ', SPACE_MARK), use);
  };
}

/** @param {Float32Array} sorted @param {number} value @returns {number} how many are not above value */
function countUpTo(sorted, value) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (sorted[mid] <= value) low = mid + 1;
    else high = mid;
  }
  return low;
}

/** @param {Vocab} vocab @returns {(id: number) => Uint8Array} */
function spmBytes({ tokens, type }) {
  return (id) => {
    const text = tokens[id] ?? '';
    const byte = (type(id) ?? BYTE) === BYTE ? byteOf(text) : -1;
    if (byte >= 0) return Uint8Array.of(byte);
    return utf8.encode(type(id) === CONTROL ? text : text.replaceAll(SPACE_MARK, ' '));
  };
}
