/**
 * writer.js: the text of an answer while it is being drawn, cut before stop strings.
 */

/** Ids in, pieces of text out, without what a stop string takes away. */
export class Writer {
  #decoder;
  #matcher;
  #send;
  text = '';
  /** @type {number[]} */
  tokens = [];
  /** @type {string | undefined} */
  stopSequence;

  /**
   * @param {{ push: (id: number) => string, end: () => string }} decoder
   * @param {string[]} stops
   * @param {(piece: import('./index.js').Piece) => void} send
   */
  constructor(decoder, stops, send) {
    this.#decoder = decoder;
    this.#matcher = new StopMatcher(stops);
    this.#send = send;
  }

  /**
   * @param {number} id
   * @returns {boolean} whether a stop string is complete
   */
  take(id) {
    this.tokens.push(id);
    this.#write(this.#matcher.push(this.#decoder.push(id)), [id]);
    this.stopSequence = this.#matcher.found;
    return this.stopSequence !== undefined;
  }

  /** The text that was held back. */
  end() {
    if (this.stopSequence !== undefined) return;
    const rest = this.#matcher.push(this.#decoder.end());
    this.#write(rest + this.#matcher.end(), []);
  }

  /**
   * @param {string} text
   * @param {number[]} tokens
   */
  #write(text, tokens) {
    this.text += text;
    if (text !== '' || tokens.length > 0) this.#send({ text, tokens });
  }
}

/**
 * Cuts a text that comes in pieces before the stop string that is complete first; of several that end at
 * the same place, before the longest. What may be the beginning of one is held back, and nothing else,
 * so that the result does not depend on the pieces.
 */
export class StopMatcher {
  #stops;
  #longest;
  #held = '';
  /** @type {string | undefined} */
  found;

  /** @param {string[]} stops none of them empty */
  constructor(stops) {
    this.#stops = stops;
    this.#longest = Math.max(0, ...stops.map((stop) => stop.length));
  }

  /**
   * @param {string} text
   * @returns {string} what can be shown
   */
  push(text) {
    if (this.found !== undefined) return '';
    const held = this.#held + text;
    let [start, end] = [held.length, Infinity];
    for (const stop of this.#stops) {
      const at = held.indexOf(stop);
      if (at < 0 || at + stop.length > end || (at + stop.length === end && at > start)) continue;
      [start, end, this.found] = [at, at + stop.length, stop];
    }
    if (this.found === undefined) start -= this.#beginning(held);
    this.#held = held.slice(start);
    return held.slice(0, start);
  }

  /** What is still held back when no more text comes. */
  end() {
    return this.found === undefined ? this.#held : '';
  }

  /**
   * Length of the longest end of `text` with which a stop string begins.
   * @param {string} text
   */
  #beginning(text) {
    let n = Math.min(this.#longest - 1, text.length);
    while (n > 0 && !this.#stops.some((stop) => stop.length > n && stop.startsWith(text.slice(-n)))) n--;
    return Math.max(n, 0);
  }
}
