/**
 * download.js: a file over HTTP, for source.js alone. What breaks off is asked for again, a little later
 * each time, and goes on where it ended: only where the server says by a strong ETag that it is the same
 * file. Where that can't be known, Restart tells that what has come is no longer good for anything.
 */
import { ModelError } from './errors.js';

/** A server that sends nothing for so long is asked again. */
export const STALL_MS = 30_000;
/** The first pause; each one is twice the one before, give or take a half. */
export const RETRY_MS = 250;
const MOST_PAUSE_MS = 8_000;
/** What a server may ask for by Retry-After. */
const MOST_ASKED_MS = 60_000;
/** Faults in a row before the first byte, where the address is likely wrong, and after it. */
const MOST_FAULTS = { before: 3, after: 6 };
/** So much between two faults, and they are not in a row. */
const PROGRESS_BYTES = 1 << 20;
const PASSING = [408, 425, 429, 500, 502, 503, 504];

/** The bytes so far are not, or may not be, the beginning of those to come: read from the start. */
export class Restart extends ModelError {}

/** What another attempt may cure. */
class Fault extends ModelError {
  /**
   * @param {string} sentence
   * @param {ErrorOptions & { pauseMs?: number }} [options] pauseMs: what the server asks for
   */
  constructor(sentence, { pauseMs = 0, ...options } = {}) {
    super('NETWORK', sentence, options);
    this.pauseMs = pauseMs;
  }
}

/**
 * @typedef {object} DownloadOptions
 * @property {AbortSignal} signal
 * @property {number} [stallMs]
 * @property {number} [retryMs]
 * @property {Resume} [resume] the bytes before are there already
 * @property {number} [pieceBytes] asks for so many at a time, where the server can, and no further than the
 *   reader goes
 */

/** @typedef {{ from: number, etag?: string }} Resume */

/**
 * @param {{name: string, headers: [string, string][]}} origin
 * @param {DownloadOptions} options
 * @returns {Promise<import('./source.js').Opened>}
 */
export async function download(origin, options) {
  const transfer = new Transfer(origin, options);
  const first = await transfer.connect();
  const { total, exact, etag } = transfer;
  const chunks = transfer.chunks(first);
  const close = chunks.return.bind(chunks);
  chunks.return = (value) => {
    first.watch.end(); // a generator that was never begun knows of no connection
    return close(value);
  };
  return { name: origin.name, total, exact, etag, chunks };
}

/** @typedef {{ response: Response, watch: Watch }} Answer */

class Transfer {
  #url;
  #headers;
  #signal;
  #stallMs;
  #retryMs;
  #pieceBytes;
  #from;
  #loaded;
  /** Bytes of the current answer that are there already. */
  #skip = 0;
  /** Where the current answer ends, if it says so. @type {number | undefined} */
  #until;
  /** A page asks other origins beforehand whether If-Range may be sent, and many say no. */
  #conditional;
  #faults = 0;
  #lastFaultAt;
  /** The file's strong one. @type {string | undefined} */
  etag;
  /** @type {number | undefined} */
  total;
  exact = false;

  /**
   * @param {{name: string, headers: [string, string][]}} origin
   * @param {DownloadOptions} options
   */
  constructor({ name, headers }, { signal, stallMs = STALL_MS, retryMs = RETRY_MS, pieceBytes, resume }) {
    this.#url = name;
    this.#headers = headers;
    this.#signal = signal;
    this.#stallMs = stallMs;
    this.#retryMs = retryMs;
    this.#pieceBytes = pieceBytes;
    this.#from = this.#loaded = this.#lastFaultAt = resume?.from ?? 0;
    this.etag = resume?.etag;
    this.#conditional = !globalThis.location || new URL(name).origin === location.origin;
  }

  get #progress() {
    return this.total === undefined ? `${this.#loaded} bytes` : `${this.#loaded} of ${this.total} bytes`;
  }

  /**
   * An answer that goes on where the last one ended.
   * @returns {Promise<Answer>}
   */
  async connect() {
    for (;;) {
      try {
        return await this.#ask();
      } catch (error) {
        await this.#pause(error);
      }
    }
  }

  /** @param {Answer} answer */
  async *chunks(answer) {
    for (;;) {
      try {
        yield* this.#body(answer);
        if (this.#until === undefined || this.#until === this.total) return;
      } catch (error) {
        await this.#pause(error);
        const { message } = /** @type {Error} */ (error);
        if (this.#loaded > 0 && !this.etag) {
          throw new Restart('NETWORK', `${message}, and the server has no ETag to go on by`, { cause: error });
        }
      }
      answer = await this.connect();
    }
  }

  /**
   * Waits before the next attempt, or throws.
   * @param {any} error
   */
  async #pause(error) {
    if (!(error instanceof Fault) || !/^https?:/.test(this.#url)) throw error;
    if (this.#loaded - this.#lastFaultAt >= PROGRESS_BYTES) this.#faults = 0;
    this.#lastFaultAt = this.#loaded;
    const most = this.#loaded > this.#from ? MOST_FAULTS.after : MOST_FAULTS.before;
    if (this.#faults === most) {
      throw new ModelError('NETWORK', `${error.message} (tried ${most + 1} times)`, { cause: error.cause ?? error });
    }
    const backOff = Math.min(this.#retryMs * 2 ** this.#faults, MOST_PAUSE_MS) * (0.5 + Math.random());
    this.#faults++;
    await sleep(Math.max(backOff, Math.min(error.pauseMs, MOST_ASKED_MS)), this.#signal);
  }

  /** @returns {Promise<Answer>} */
  async #ask() {
    const watch = new Watch(this.#signal, this.#stallMs);
    try {
      // Firefox aborts model-sized downloads that it also tries to keep.
      const request = fetch(this.#url, { headers: this.#requestHeaders(), signal: watch.signal, cache: 'no-store' });
      const response = await watch.wait(request, `${this.#url} does not answer`);
      this.#accept(response);
      return { response, watch };
    } catch (cause) {
      throw watch.end(cause, (message) => `${this.#url} cannot be reached: ${message}`);
    }
  }

  #requestHeaders() {
    const headers = new Headers(this.#headers);
    if (this.#pieceBytes) headers.set('range', `bytes=${this.#loaded}-${this.#loaded + this.#pieceBytes - 1}`);
    else if (this.#loaded > 0) headers.set('range', `bytes=${this.#loaded}-`);
    if (this.#loaded > 0 && this.etag && this.#conditional) headers.set('if-range', this.etag);
    return headers;
  }

  /**
   * Takes note of what an answer says; throws where it isn't the file, or not from where it was asked for.
   * @param {Response} response
   */
  #accept(response) {
    if (response.status === 416 && this.#loaded > 0) throw this.#changed();
    refuseWrongAnswer(response, this.#url);
    const ranged = response.status === 206;
    const range = ranged ? rangeOf(response) : undefined;
    const { total, exact } = range ? { total: range.total, exact: range.total !== undefined } : lengthOf(response);
    const etag = /^"/.exec(response.headers.get('etag') ?? '')?.input;
    this.#skip = ranged ? 0 : this.#loaded;
    this.#until = range ? range.end : exact ? total : undefined;
    if (this.#loaded === 0) {
      if (ranged && !(this.#pieceBytes && range?.start === 0)) throw this.#withoutRange(response);
      if (!ranged) this.#pieceBytes = undefined;
      this.total = total;
      this.exact = exact;
      this.etag = (response.headers.get('content-encoding') ?? 'identity') === 'identity' ? etag : undefined;
      this.#conditional = response.type !== 'cors';
      return;
    }
    const confirmed = etag === undefined ? ranged && this.#conditional : etag === this.etag;
    const fits = !ranged || range?.start === this.#loaded;
    this.total ??= total; // of a file that another load has begun
    this.exact ||= exact;
    if ((this.etag && !confirmed) || !fits || (exact && this.total !== total)) {
      throw this.#changed();
    }
  }

  #changed() {
    return new Restart('NETWORK', `${this.#url} has changed after ${this.#progress}`);
  }

  /**
   * A part that doesn't say which one it is: all of the file, then.
   * @param {Response} response
   */
  #withoutRange({ status }) {
    const error = new Fault(`${this.#url} answers ${status} without the whole file`);
    if (!this.#pieceBytes) return new ModelError('NETWORK', error.message);
    this.#pieceBytes = undefined;
    return error;
  }

  /** @param {Answer} answer */
  async *#body({ response, watch }) {
    const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
    try {
      for (;;) {
        const { done, value } = await watch.wait(reader.read(), `${this.#url} sends nothing more after ${this.#progress}`);
        if (done) break;
        const skipped = Math.min(this.#skip, value.length);
        this.#skip -= skipped;
        this.#loaded += value.length - skipped;
        if (skipped < value.length) yield value.subarray(skipped);
      }
      if (this.#skip > 0 || (this.#until !== undefined && this.#loaded < this.#until)) throw new Fault(`${this.#url} ended after ${this.#progress}`);
    } catch (cause) {
      throw watch.end(cause, (message) => `the connection to ${this.#url} broke after ${this.#progress}: ${message}`);
    } finally {
      watch.end();
    }
  }
}

/**
 * @param {Response} response
 * @param {string} url
 */
function refuseWrongAnswer(response, url) {
  const { status, statusText } = response;
  if (!response.ok) {
    const sentence = `${url} answers ${`${status} ${statusText}`.trim()}`;
    if (!PASSING.includes(status)) throw new ModelError('NETWORK', sentence);
    throw new Fault(sentence, { pauseMs: retryAfter(response) });
  }
  if (/^text\/html/i.test(response.headers.get('content-type') ?? '')) {
    throw new ModelError('NETWORK', `${url} answers with a web page, not with a model file`);
  }
  if (!response.body) throw new ModelError('NETWORK', `${url} answers ${status} without a file`);
}

/** @param {Response} response */
function retryAfter({ headers }) {
  const text = headers.get('retry-after') ?? '';
  const ms = /^\d+$/.test(text) ? 1000 * Number(text) : Date.parse(text) - Date.now();
  return ms > 0 ? ms : 0;
}

/**
 * What a part says it is; undefined where it can't be read, as by a page from another origin.
 * @param {Response} response
 */
function rangeOf({ headers }) {
  const [, start, last, total] = /^bytes (\d+)-(\d+)\/(\d+|\*)$/i.exec(headers.get('content-range') ?? '') ?? [];
  if (start === undefined || Number(last) < Number(start)) return undefined;
  return { start: Number(start), end: Number(last) + 1, total: total === '*' ? undefined : Number(total) };
}

/**
 * Content-Length counts the bytes that travel: the file's only where no encoding was applied, which a
 * page cannot see across origins.
 * @param {Response} response
 */
function lengthOf(response) {
  const encoding = response.headers.get('content-encoding') ?? 'identity';
  const length = response.headers.get('content-length');
  if (encoding !== 'identity' || length === null || !/^\d+$/.test(length)) return { total: undefined, exact: false };
  return { total: Number(length), exact: response.type !== 'cors' };
}

/**
 * @param {number} ms
 * @param {AbortSignal} signal rejects with its reason
 */
async function sleep(ms, signal) {
  signal.throwIfAborted();
  let onAbort = () => {};
  await new Promise((/** @type {(value: void) => void} */ resolve) => {
    const timer = setTimeout(resolve, ms);
    onAbort = () => {
      clearTimeout(timer);
      resolve();
    };
    signal.addEventListener('abort', onAbort);
  });
  signal.removeEventListener('abort', onAbort);
  signal.throwIfAborted();
}

/** The caller's abort and a limit on silence, as one signal. */
class Watch {
  #controller = new AbortController();
  #outer;
  #stallMs;
  #onAbort = () => this.#controller.abort(this.#outer.reason);

  /**
   * @param {AbortSignal} outer
   * @param {number} stallMs
   */
  constructor(outer, stallMs) {
    this.#outer = outer;
    this.#stallMs = stallMs;
    outer.addEventListener('abort', this.#onAbort);
  }

  get signal() {
    return this.#controller.signal;
  }

  /**
   * @template T
   * @param {Promise<T>} promise
   * @param {string} sentence what to say if it takes too long
   * @returns {Promise<T>}
   */
  async wait(promise, sentence) {
    const stalled = () => this.#controller.abort(new Fault(`${sentence} (waited ${this.#stallMs / 1000} seconds)`));
    const timer = setTimeout(stalled, this.#stallMs);
    try {
      return await promise;
    } finally {
      clearTimeout(timer);
    }
  }

  /**
   * Stops watching and closes the connection; what an error of the platform means.
   * @param {any} [cause]
   * @param {(message: string) => string} [sentence]
   * @returns {any}
   */
  end(cause, sentence = String) {
    this.#outer.removeEventListener('abort', this.#onAbort);
    if (this.signal.aborted) return this.signal.reason;
    this.#controller.abort();
    if (!cause || cause instanceof ModelError) return cause;
    return new Fault(sentence(cause.cause?.message || cause.message), { cause });
  }
}
