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
import { BYTE, CONTROL, UNKNOWN, USER_DEFINED, endIds, readVocab, steers } from './vocabulary.js';

/**
 * @typedef {import('./vocabulary.js').Meta} Meta
 * @typedef {ReturnType<typeof readVocab>} Vocab
 * @typedef {{ special?: boolean }} TextOptions special: control tokens are recognised (encode) or shown (decode)
 * @typedef {{ special?: boolean, restore?: (text: string) => string }} EncodeOptions restore: applied to the
 *   text between special tokens, after these were cut out
 * @typedef {ReturnType<typeof createTokenizer>} Tokenizer
 */

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
  /** @param {number} id */
  const isSpecial = (id) => isControl(id) || type(id) === USER_DEFINED;

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
   * `before`: the ids these continue. Where SPM puts a space in front of each text, the one after nothing or
   * a special token is not part of the text.
   * @param {Iterable<number>} [before]
   * @param {TextOptions} [options]
   */
  function stream(before = [], { special = false } = {}) {
    const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
    let [last] = [...before].slice(-1);
    /** @param {number} id */
    const step = (id) => {
      const atStart = spacePrefix && (last === undefined || isSpecial(last));
      last = id;
      if (isControl(id) && !special) return EMPTY;
      const bytes = bytesOf(id);
      return atStart && bytes[0] === 0x20 && !isSpecial(id) ? bytes.subarray(1) : bytes;
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
  const { cuts, whole } = /** @type {NonNullable<Vocab['row']>} */ (vocab.row);
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
