/**
 * model.js: the page's side of a loaded model: Model, Chat and Generation of index.d.ts. They keep the
 * order of the calls and the conversations; the worker keeps nothing that could not be computed again.
 */
import { ModelError } from './errors.js';
import { CHAT, GENERATE, RENDER, TOKENIZE, biased, check, messages, prompt, text, tokens } from './options.js';

/** @typedef {import('./index.js').Message} Message */
/** @typedef {import('./index.js').Piece} Piece */
/** @typedef {import('./index.js').Result} Result */
/** @typedef {(send: (piece: Piece) => void, stop: AbortSignal) => Promise<Result>} Start */
/**
 * One call in the queue: its prompt, asked for when its turn has come, and what is done with the result
 * before the next one's has.
 * @typedef {{ slot: number, prompt: () => object, keep?: (result: Result) => void }} Turn
 */

/** Not every platform has the symbol; there nobody can ask for it. @type {typeof Symbol.asyncDispose} */
const asyncDispose = Symbol.asyncDispose ?? Symbol('asyncDispose');

export class Model {
  #rpc;
  #info;
  /** The slot of generate(); each Chat takes the next number. */
  #lastSlot = 0;
  /** @type {Promise<unknown>} */
  #last = Promise.resolve();

  /**
   * @param {import('./rpc.js').Rpc} rpc
   * @param {import('./index.js').ModelInfo} info
   */
  constructor(rpc, info) {
    this.#rpc = rpc;
    this.#info = info;
  }

  get info() {
    return this.#info;
  }

  /**
   * @param {string} input
   * @param {{ special?: boolean }} [options]
   */
  async tokenize(input, options) {
    return this.#rpc.call('tokenize', { text: text(input, 'text'), options: check(options, TOKENIZE) });
  }

  /** @param {Iterable<number>} ids */
  async detokenize(ids) {
    return this.#rpc.call('detokenize', { tokens: tokens(ids, this.#info.nVocab) });
  }

  /**
   * @param {readonly Message[]} conversation
   * @param {{ addGenerationPrompt?: boolean, tools?: object[] }} [options]
   */
  async render(conversation, options) {
    return this.#rpc.call('render', { messages: messages(conversation), options: check(options, RENDER) });
  }

  /**
   * @param {string | Iterable<number> | readonly Message[]} input
   * @param {import('./index.js').GenerateOptions} [options]
   */
  generate(input, options) {
    const checked = this.#check(options);
    const given = prompt(input, this.#info.nVocab);
    return new Generation((send, stop) => this.#generate({ slot: 0, prompt: () => given }, checked, send, stop));
  }

  /** @param {{ system?: string, messages?: readonly Message[] }} [options] */
  chat(options) {
    const { system, messages: given = [] } = check(options, CHAT);
    const slot = ++this.#lastSlot;
    const first = system === undefined ? given : [Object.freeze({ role: 'system', content: system }), ...given];
    return new Chat(first, {
      check: (options) => this.#check(options),
      generate: (turn, ...rest) => this.#generate({ slot, ...turn }, ...rest),
      // It fails only where the model is closed or has crashed, and all memory is given back anyway.
      forget: () => this.#rpc.call('forget', { slot }).catch(() => {}),
    });
  }

  async close() {
    await this.#rpc.fail(new ModelError('CLOSED', 'the model is closed'));
  }

  async [asyncDispose]() {
    await this.close();
  }

  /** @param {any} options */
  #check(options) {
    const checked = check(options, GENERATE);
    biased(checked.logitBias ?? [], this.#info.nVocab);
    return checked;
  }

  /**
   * Calls wait for those before them; an abort need not.
   * @param {Turn} turn
   * @param {Record<string, any>} options
   * @param {(piece: Piece) => void} send
   * @param {AbortSignal} stop
   * @returns {Promise<Result>}
   */
  async #generate({ slot, prompt, keep }, { signal, ...options }, send, stop) {
    const before = this.#last;
    /** @type {() => void} */
    let done = () => {};
    this.#last = new Promise((resolve) => (done = () => resolve(before)));
    try {
      await unlessAborted(before, signal);
      const args = { slot, prompt: prompt(), options };
      const { result, memory } = await this.#rpc.call('generate', args, { signal, stop, onItem: send });
      if (memory !== this.#info.bytes.memory) this.#info = { ...this.#info, bytes: { ...this.#info.bytes, memory } };
      keep?.(result);
      return result;
    } finally {
      done();
    }
  }
}

/**
 * @template T
 * @param {Promise<T>} promise
 * @param {AbortSignal} [signal]
 * @returns {Promise<T>}
 */
async function unlessAborted(promise, signal) {
  signal?.throwIfAborted();
  if (!signal) return promise;
  let onAbort = () => {};
  const aborted = new Promise((_, reject) => signal.addEventListener('abort', (onAbort = () => reject(signal.reason))));
  try {
    return await Promise.race([promise, /** @type {Promise<never>} */ (aborted)]);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

export class Chat {
  /** @type {readonly Message[]} */
  #messages;
  #model;
  #closed = false;

  /**
   * @param {Message[]} first
   * @param {{ check: (options: any) => any, forget: () => Promise<void>,
   *   generate: (turn: Omit<Turn, 'slot'>, options: any, ...rest: Parameters<Start>) => Promise<Result> }} model
   */
  constructor(first, model) {
    this.#messages = Object.freeze(first);
    this.#model = model;
  }

  get messages() {
    return this.#messages;
  }

  /**
   * @param {string} content
   * @param {import('./index.js').GenerateOptions} [options]
   */
  send(content, options) {
    const checked = this.#model.check(options);
    const question = Object.freeze({ role: 'user', content: text(content, 'text') });
    const prompt = () => {
      if (this.#closed) throw new ModelError('CLOSED', 'the chat is closed');
      return { messages: [...this.#messages, question] };
    };
    /** @param {Result} result */
    const keep = (result) => {
      const answer = Object.freeze({ role: 'assistant', content: result.text });
      this.#messages = Object.freeze([...this.#messages, question, answer]);
    };
    return new Generation((send, stop) => this.#model.generate({ prompt, keep }, checked, send, stop));
  }

  async close() {
    if (this.#closed) return;
    this.#closed = true;
    await this.#model.forget();
  }
}

/** Starts when somebody first looks. Pieces stay, so that a loop may come late or twice. */
export class Generation {
  #start;
  #stop = new AbortController();
  /** @type {Piece[]} */
  #pieces = [];
  /** @type {Promise<Result> | undefined} */
  #outcome;
  #settled = false;
  /** Called, once each, when something has changed. @type {(() => void)[]} */
  #waiting = [];

  /** @param {Start} start */
  constructor(start) {
    this.#start = start;
  }

  #begin() {
    if (this.#outcome) return this.#outcome;
    const wake = () => this.#waiting.splice(0).forEach((resolve) => resolve());
    const settle = () => {
      this.#settled = true;
      wake();
    };
    this.#outcome = this.#start((piece) => {
      this.#pieces.push(piece);
      wake();
    }, this.#stop.signal);
    this.#outcome.then(settle, settle); // whoever asks for the outcome gets the error
    return this.#outcome;
  }

  async text() {
    return (await this.#begin()).text;
  }

  async result() {
    return this.#begin();
  }

  stop() {
    this.#stop.abort();
  }

  /** @returns {AsyncIterator<Piece, undefined>} */
  [Symbol.asyncIterator]() {
    let at = 0;
    let left = false;
    return {
      next: async () => {
        if (left) return { done: true, value: undefined };
        const outcome = this.#begin();
        while (at === this.#pieces.length && !this.#settled) {
          await new Promise((/** @type {(value: void) => void} */ resolve) => this.#waiting.push(resolve));
        }
        if (at < this.#pieces.length) return { done: false, value: this.#pieces[at++] };
        await outcome;
        return { done: true, value: undefined };
      },
      /* A loop that is left stops the answer and waits until it is kept. */
      return: async () => {
        left = true;
        this.stop();
        await this.#outcome?.catch(() => {}); // for result() to tell: the loop has been left
        return { done: true, value: undefined };
      },
    };
  }
}
