/**
 * strings.js: many strings in one piece, as a header holds them, and an index of them by their bytes. A vocabulary has
 * 100,000 and more, of which a text needs a few: a JS string and an entry of a Map for each would take a third of a load.
 */

const utf8 = new TextEncoder();
const decoder = new TextDecoder('utf-8', { ignoreBOM: true });

/** A list of strings in UTF-8. */
export class Strings {
  /**
   * @param {Uint8Array} bytes  not shared
   * @param {Uint32Array} spans  where each begins and ends
   */
  constructor(bytes, spans) {
    this.bytes = bytes;
    this.spans = spans;
    this.length = spans.length / 2;
  }

  /** @param {string[]} texts */
  static of(texts) {
    const spans = new Uint32Array(2 * texts.length);
    const bytes = new Uint8Array(3 * texts.reduce((sum, { length }) => sum + length, 0));
    let at = 0;
    texts.forEach((text, i) => {
      spans[2 * i] = at;
      spans[2 * i + 1] = at += utf8.encodeInto(text, bytes.subarray(at)).written;
    });
    return new Strings(bytes, spans);
  }

  /**
   * Most are tokens: short and ASCII, where building the string beats the decoder.
   * @param {number} i
   * @returns {string | undefined} undefined: there are not so many
   */
  at(i) {
    const start = this.spans[2 * i];
    const end = this.spans[2 * i + 1];
    if (start === undefined) return undefined;
    if (end - start < 16) {
      let ascii = '';
      let at = start;
      for (; at < end && this.bytes[at] < 0x80; at++) ascii += String.fromCharCode(this.bytes[at]);
      if (at === end) return ascii;
    }
    return decoder.decode(this.bytes.subarray(start, end));
  }

  /** @returns {Generator<string>} */
  *[Symbol.iterator]() {
    for (let i = 0; i < this.length; i++) yield /** @type {string} */ (this.at(i));
  }
}

/** Which of them some bytes are: a table of their numbers, at the place that their hash says or behind it. */
export class Index {
  #strings;
  /** @type {Int32Array} */
  #table;
  /** Another one each time, so that no file can be made whose strings all want one place. */
  #seed = (Math.random() * 2 ** 32) | 0;
  /** Bytes of the longest. */
  longest = 0;

  /**
   * Of equal ones the first counts.
   * @param {Strings} strings
   * @param {(i: number) => boolean} [wanted]
   */
  constructor(strings, wanted = () => true) {
    const { bytes, spans, length } = strings;
    const table = new Int32Array(2 ** Math.ceil(Math.log2(2 * length + 1))).fill(-1);
    let longest = 0;
    this.#strings = strings;
    this.#table = table;
    for (let i = 0; i < length; i++) {
      if (!wanted(i)) continue;
      const from = spans[2 * i];
      const to = spans[2 * i + 1];
      const place = this.#place(bytes, from, to);
      if (table[place] < 0) table[place] = i;
      if (to - from > longest) longest = to - from;
    }
    this.longest = longest;
  }

  /**
   * @param {Uint8Array} bytes
   * @param {number} from
   * @param {number} to
   * @returns {number} -1: none
   */
  find(bytes, from, to) {
    return to - from > this.longest ? -1 : this.#table[this.#place(bytes, from, to)];
  }

  /**
   * Where the number of these bytes is, or would be.
   * @param {Uint8Array} bytes
   * @param {number} from
   * @param {number} to
   * @returns {number}
   */
  #place(bytes, from, to) {
    const table = this.#table;
    const { bytes: mine, spans } = this.#strings;
    let hash = this.#seed;
    for (let i = from; i < to; i++) hash = Math.imul(hash ^ bytes[i], 0x01000193);
    let place = (hash ^ (hash >>> 15)) & (table.length - 1);
    for (let i; (i = table[place]) >= 0; place = (place + 1) & (table.length - 1)) {
      const start = spans[2 * i];
      if (spans[2 * i + 1] - start !== to - from) continue;
      let at = from;
      while (at < to && bytes[at] === mine[start + at - from]) at++;
      if (at === to) break;
    }
    return place;
  }
}
