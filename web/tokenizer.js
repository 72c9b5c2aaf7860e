/**
 * Text <-> token ids, from the vocabulary that a GGUF file carries.
 *
 *   text -> cut out special tokens -> cut into words (BPE only) -> symbols -> merge neighbours -> ids
 *
 * Both models of tokenizer are the same loop (merge.js: join the best pair of neighbours, again and again)
 * over another ranking: byte-level BPE ranks pairs by the file's list of merges, SPM by the score of the
 * piece that the pair makes. Control tokens are kept out of that loop, so ordinary text never becomes one.
 * Why not a library: docs/tokenizer.md.
 */
import { ModelError } from './errors.js';
import { bytesFrom, merger } from './merge.js';
import { Index } from './strings.js';
import { BYTE, CONTROL, UNKNOWN, USER_DEFINED, endIds, readVocab, steers } from './vocabulary.js';

/**
 * @typedef {import('./vocabulary.js').Meta} Meta
 * @typedef {ReturnType<typeof readVocab>} Vocab
 * @typedef {{ special?: boolean }} TextOptions special: control tokens are recognised or, in decoding, shown
 * @typedef {{ special?: boolean, restore?: (text: string) => string }} EncodeOptions restore: applied to the
 *   text between special tokens, after these were cut out
 */

const LONE_SURROGATES = /\p{Surrogate}/gu;
const SPACE_MARK = '\u2581';
/** BPE's alphabet: byte -> character; printable ones stand for themselves. */
const BYTE_CHARS = byteChars();
const CHAR_BYTES = new Map(BYTE_CHARS.map((char, byte) => [char, byte]));
/** The same as code points, all of them one or two bytes in UTF-8. */
const BYTE_CODES = BYTE_CHARS.map((char) => char.charCodeAt(0));
const SPACE = 0x20;

const utf8 = new TextEncoder();
const EMPTY = new Uint8Array(0);

/** @param {number | undefined} type */
const isSpecialType = (type) => type === CONTROL || type === UNKNOWN || type === USER_DEFINED;

/**
 * Throws ModelError: UNSUPPORTED for a tokenizer or pre-tokenizer that is not here, FORMAT for a vocabulary
 * that contradicts itself.
 * @param {Meta} meta
 */
export const createTokenizer = (meta) => new Tokenizer(readVocab(meta));

export class Tokenizer {
  #vocab;
  #encodeText;
  #bytesOf;
  #users;
  #specials;

  /** @param {Vocab} vocab */
  constructor(vocab) {
    const { model, pre, tokens, type, bos, eos, addBos } = vocab;
    const spm = model === 'llama';
    this.#vocab = vocab;
    this.#encodeText = spm ? spmEncoder(vocab) : bpeEncoder(vocab);
    this.#bytesOf = spm ? spmBytes(vocab) : bpeBytes(vocab);
    this.#users = trie(vocab, (t) => t === USER_DEFINED);
    this.#specials = trie(vocab, isSpecialType);
    this.model = model;
    /** Of BPE: the name of the pre-tokenizer. @type {string | undefined} */
    this.pre = pre;
    this.nVocab = tokens.length;
    this.bos = bos;
    this.eos = eos;
    this.addBos = addBos;
    /** Every token that ends an answer. */
    this.eogIds = endIds(vocab);
    /** Texts that steer a chat, so that a message must not become them. */
    this.controlTexts = vocab.unusual.filter((id) => steers(vocab, id)).map((id) => tokens.at(id) ?? '').filter((text) => text !== '');
  }

  /**
   * Ids of a text, without BOS.
   * @param {string} text
   * @param {EncodeOptions} [options]
   */
  encode(text, { special = false, restore } = {}) {
    /** @type {number[]} */
    const ids = [];
    let first = true;
    cut(text.replace(LONE_SURROGATES, '\ufffd'), special ? this.#specials : this.#users, (part) => {
      if (typeof part === 'number') ids.push(part);
      else this.#encodeText(restore ? restore(part) : part, ids, first);
      first = false;
    });
    return ids;
  }

  /**
   * Ids of a text that begins a context: with exactly one BOS where the vocabulary wants it.
   * @param {string} text
   * @param {EncodeOptions} [options]
   */
  prompt(text, options) {
    const ids = this.encode(text, options);
    if (this.addBos && ids[0] !== this.bos) ids.unshift(/** @type {number} */ (this.bos));
    return ids;
  }

  /**
   * A decoder for ids that come one by one: what push() returns never ends in half a character.
   * `before`: the ids these continue. Where SPM puts a space in front of each text, the one after nothing or
   * a special token is not part of the text.
   * @param {Iterable<number>} [before]
   * @param {TextOptions} [options]
   */
  stream(before = [], { special = false } = {}) {
    const { type, spacePrefix } = this.#vocab;
    const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
    let [last] = [...before].slice(-1);
    /** @param {number} id */
    const step = (id) => {
      const atStart = spacePrefix && (last === undefined || isSpecialType(type(last)));
      last = id;
      if (this.isControl(id) && !special) return EMPTY;
      const bytes = this.#bytesOf(id);
      return atStart && bytes[0] === 0x20 && !isSpecialType(type(id)) ? bytes.subarray(1) : bytes;
    };
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
  decode(ids, options) {
    const { push, end } = this.stream([], options);
    let text = '';
    for (const id of ids) text += push(id);
    return text + end();
  }

  /**
   * What a token shows when it stands alone; half a character as U+FFFD.
   * @param {number} id
   */
  piece(id) {
    return new TextDecoder('utf-8', { ignoreBOM: true }).decode(this.#bytesOf(id));
  }

  /**
   * A token's text as the vocabulary spells it.
   * @param {number} id
   * @returns {string | undefined}
   */
  spelling(id) {
    return this.#vocab.tokens.at(id);
  }

  /** @param {number} id */
  isControl(id) {
    const type = this.#vocab.type(id);
    return type === CONTROL || type === UNKNOWN;
  }
}

/* ---- special tokens in a text ---- */

/** @typedef {Map<string, any>} Node character -> Node; '' -> id of the text that ends here */

/** @param {Vocab} vocab @param {(type: number | undefined) => boolean} wanted @returns {Node} */
function trie(vocab, wanted) {
  const root = new Map();
  for (const id of vocab.unusual) {
    if (!wanted(vocab.type(id))) continue;
    const text = /** @type {string} */ (vocab.tokens.at(id));
    if (text === '') continue;
    let node = root;
    for (let i = 0; i < text.length; i++) {
      let next = node.get(text[i]);
      if (!next) node.set(text[i], (next = new Map()));
      node = next;
    }
    node.set('', id);
  }
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

/**
 * Piece -> id of everything that text may become.
 * @param {Vocab} vocab
 */
function ordinary(vocab) {
  const left = new Uint8Array(vocab.tokens.length);
  for (const id of vocab.unusual) if (vocab.type(id) === BYTE || steers(vocab, id)) left[id] = 1;
  return new Index(vocab.tokens, (id) => left[id] === 0);
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
  const { cuts, whole } = /** @type {NonNullable<Vocab['row']>} */ (vocab.row);
  const patterns = cuts.map((source) => new RegExp(source, 'gu'));
  const ids = ordinary(vocab);
  const ranks = new Index(vocab.merges);
  const pair = new Uint8Array(ranks.longest);
  const merge = merger((text, left, mid, right) => {
    const n = right - left + 1;
    if (n > pair.length) return -1;
    for (let i = left, to = 0; i < right; i++) {
      if (i === mid) pair[to++] = SPACE;
      pair[to++] = text[i];
    }
    return ranks.find(pair, 0, n);
  });
  let chars = EMPTY;

  /** @param {string} text @param {number[]} out */
  return (text, out) => {
    /** @param {number} from @param {number} to */
    const use = (from, to) => {
      const id = ids.find(chars, from, to);
      if (id >= 0) return void out.push(id);
      // A byte that the vocabulary lacks is left out: its unknown token may be one that ends a text.
      if (to - from <= bytesFrom(chars[from])) return;
      for (let at = from, next; at < to; at = next) use(at, (next = at + bytesFrom(chars[at])));
    };
    for (const word of words(text, patterns)) {
      const bytes = utf8.encode(word);
      if (chars.length < 2 * bytes.length) chars = new Uint8Array(4 * bytes.length);
      let n = 0;
      for (const byte of bytes) {
        const char = BYTE_CODES[byte];
        if (char >= 0x80) chars[n++] = 0xc0 | (char >> 6);
        chars[n++] = char < 0x80 ? char : 0x80 | (char & 0x3f);
      }
      const id = whole ? ids.find(chars, 0, n) : -1;
      if (id >= 0) out.push(id);
      else merge(chars, n, use);
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
    const { length } = text;
    throw new ModelError('ARGUMENT', `a word in a text of ${length} characters is too long`, { cause });
  }
}

/** @param {Vocab} vocab @returns {(id: number) => Uint8Array} */
function bpeBytes({ tokens, type }) {
  return (id) => {
    const text = tokens.at(id) ?? '';
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
  const { tokens, unusual, type, scores, spacePrefix, unknown } = vocab;
  const ids = ordinary(vocab);
  // Bytes are left out where the table names a token for them that steers a chat.
  const filler = unknown !== undefined && (type(unknown) === UNKNOWN || !steers(vocab, unknown)) ? unknown : undefined;
  const bytes = new Map();
  for (const id of unusual.filter((id) => (type(id) ?? BYTE) === BYTE)) {
    const byte = byteOf(/** @type {string} */ (tokens.at(id)));
    if (byte >= 0) bytes.set(byte, id);
  }
  const sorted = Float32Array.from(scores).sort();
  const ranks = Int32Array.from(scores, (score) => scores.length - countUpTo(sorted, score));
  const merge = merger((text, left, mid, right) => {
    const id = ids.find(text, left, right);
    return id < 0 ? -1 : ranks[id];
  });

  /** @param {string} text @param {number[]} out @param {boolean} first */
  return (text, out, first) => {
    // Line breaks alone after a special token: there is no word that the space could belong to.
    const prefix = spacePrefix && (first || !/^\n+$/.test(text)) ? SPACE_MARK : '';
    const chars = utf8.encode(prefix + text.replaceAll(' ', SPACE_MARK));
    merge(chars, chars.length, (from, to) => {
      const id = ids.find(chars, from, to);
      if (id >= 0) return void out.push(id);
      for (let i = from; i < to; i++) {
        const byteId = bytes.get(chars[i]) ?? filler;
        if (byteId !== undefined) out.push(byteId);
      }
    });
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
    const text = tokens.at(id) ?? '';
    const byte = (type(id) ?? BYTE) === BYTE ? byteOf(text) : -1;
    if (byte >= 0) return Uint8Array.of(byte);
    return utf8.encode(type(id) === CONTROL ? text : text.replaceAll(SPACE_MARK, ' '));
  };
}
