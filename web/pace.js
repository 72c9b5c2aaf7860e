/**
 * pace.js: whether single tokens are faster on all threads or on one. Where other programs want the cores, each
 * thread waits at barriers for whichever of them is off its core, and one thread alone is faster: now and then
 * the other way is tried, and kept if it is clearly better. Results are the same either way.
 */

/** Steps up to the first trial, and most between two: each that changes nothing doubles them. */
const FIRST = 16, MOST = 512;
/** Steps that have to be better before the way changes. */
const TRIALS = 2;
/** Better than the usual one: at most so much of its time. Worse than it was: at least so much. */
const BETTER = 0.9, WORSE = 1.3;
/** How many steps the mean looks back on. */
const SPAN = 8;

export class Pace {
  #alone = false;
  /** Milliseconds of a step the usual way: of late, and when it was tried last. */
  #mean = 0;
  #meanThen = 0;
  #interval = FIRST;
  #left = FIRST;
  #better = 0;

  /** Whether the coming step is for one thread alone. */
  get alone() {
    return this.#left > 0 ? this.#alone : !this.#alone;
  }

  /** @param {number} ms  what the step took */
  took(ms) {
    if (this.#left > 0) {
      this.#mean += (ms - this.#mean) / (this.#mean ? SPAN : 1);
      this.#left--;
      if (this.#interval > FIRST && this.#mean > WORSE * this.#meanThen) this.#wait(FIRST);
    } else if (ms > BETTER * this.#mean) {
      this.#wait(Math.min(MOST, 2 * this.#interval));
    } else if (++this.#better === TRIALS) {
      this.#alone = !this.#alone;
      this.#mean = ms;
      this.#wait(FIRST);
    }
  }

  /** @param {number} interval */
  #wait(interval) {
    this.#interval = this.#left = interval;
    this.#meanThen = this.#mean;
    this.#better = 0;
  }
}
