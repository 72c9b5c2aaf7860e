/**
 * Calls over postMessage, the same on both sides: each end may ask and may answer.
 *
 *   ask     {ask: id, name, args}            answered by exactly one of
 *   value   {end: id, value}                 or {end: id, error}
 *   item    {item: id, value}                any number before the end: progress, pieces of text
 *   cancel  {cancel: id, how}                'abort': nobody waits any more; 'stop': end early, well
 *
 * An abort rejects at once on the asking side; what the other side still says about that id is dropped.
 * A Uint8Array that is an answer is given away (transferred), never copied.
 */

import { ModelError } from './errors.js';

/**
 * What carries messages: a worker seen from outside, or from within.
 * @typedef {object} Port
 * @property {(message: any, transfer: any[]) => void} post
 * @property {(onMessage: (message: any) => void, onFailure: (error: Error) => void) => void} listen once
 * @property {(busy: boolean) => void} hold whether the process must stay alive for it
 * @property {() => unknown} close a promise where it takes time
 */

/**
 * What a handler gets beside its arguments.
 * @typedef {object} Job
 * @property {AbortSignal} signal nobody waits for the answer any more
 * @property {AbortSignal} stop answer with what there is
 * @property {(item: any) => void} send an item before the answer
 */

/** @typedef {(args: any, job: Job) => any} Handler */

/**
 * @typedef {object} CallOptions
 * @property {AbortSignal} [signal] rejects with signal.reason
 * @property {AbortSignal} [stop]
 * @property {(item: any) => void} [onItem] what it throws rejects the call
 * @property {Transferable[]} [transfer] of the arguments
 */

export class Rpc {
  #port;
  #handlers;
  /** @type {Map<number, {resolve: (value: any) => void, reject: (error: any) => void, onItem?: (item: any) => void}>} */
  #calls = new Map();
  /** @type {Map<number, {abort: AbortController, stop: AbortController}>} */
  #jobs = new Map();
  #lastId = 0;
  /** @type {Error | undefined} */
  #failure;
  /** @type {unknown} */
  #closed;

  /**
   * @param {Port} port
   * @param {Record<string, Handler>} handlers by name
   * @param {(error: Error) => Error} [explain] what a failure of the port means to callers
   */
  constructor(port, handlers, explain = (error) => error) {
    this.#port = port;
    this.#handlers = handlers;
    port.listen(
      (message) => this.#receive(message),
      (error) => {
        if (!this.#failure) void this.fail(explain(error));
      },
    );
  }

  /**
   * @param {string} name
   * @param {any} args
   * @param {CallOptions} [options]
   * @returns {Promise<any>}
   */
  async call(name, args, { signal, stop, onItem, transfer = [] } = {}) {
    signal?.throwIfAborted();
    if (this.#failure) throw this.#failure;
    const id = ++this.#lastId;
    const cancel = (/** @type {'abort' | 'stop'} */ how) => this.#port.post({ cancel: id, how }, []);
    const onStop = () => cancel('stop');
    /** @type {(reason: any) => void} */
    let leave;
    const onAbort = () => leave(signal?.reason);
    try {
      return await new Promise((resolve, reject) => {
        leave = (reason) => {
          reject(reason);
          cancel('abort');
        };
        this.#calls.set(id, { resolve, reject, onItem: onItem && guarded(onItem, leave) });
        this.#port.hold(true);
        this.#port.post({ ask: id, name, args }, transfer);
        signal?.addEventListener('abort', onAbort);
        if (stop?.aborted) onStop();
        else stop?.addEventListener('abort', onStop);
      });
    } finally {
      this.#calls.delete(id);
      if (this.#calls.size === 0 && !this.#failure) this.#port.hold(false);
      signal?.removeEventListener('abort', onAbort);
      stop?.removeEventListener('abort', onStop);
    }
  }

  /**
   * Ends everything: calls that wait and calls to come reject with the first `error`. Settles when the port is closed.
   * @param {Error} error
   */
  async fail(error) {
    if (!this.#failure) {
      this.#failure = error;
      for (const call of this.#calls.values()) call.reject(error);
      this.#closed = this.#port.close(); // which keeps the process alive until it is done
    }
    await this.#closed;
  }

  /** @param {any} message */
  #receive(message) {
    if ('ask' in message) void this.#answer(message);
    else if ('cancel' in message) this.#jobs.get(message.cancel)?.[/** @type {'abort' | 'stop'} */ (message.how)].abort();
    else if ('item' in message) this.#calls.get(message.item)?.onItem?.(message.value);
    else if ('error' in message) this.#calls.get(message.end)?.reject(unpack(message.error));
    else this.#calls.get(message.end)?.resolve(message.value);
  }

  /** @param {{ask: number, name: string, args: any}} message */
  async #answer({ ask: id, name, args }) {
    const job = { abort: new AbortController(), stop: new AbortController() };
    this.#jobs.set(id, job);
    const send = (/** @type {any} */ value) => this.#port.post({ item: id, value }, []);
    try {
      const value = await this.#handlers[name](args, { signal: job.abort.signal, stop: job.stop.signal, send });
      this.#port.post({ end: id, value }, value instanceof Uint8Array ? [/** @type {ArrayBuffer} */ (value.buffer)] : []);
    } catch (error) {
      this.#port.post({ end: id, error: pack(error) }, []);
    } finally {
      this.#jobs.delete(id);
    }
  }
}

/**
 * @param {(item: any) => void} onItem
 * @param {(error: any) => void} leave
 */
function guarded(onItem, leave) {
  return (/** @type {any} */ item) => {
    try {
      onItem(item);
    } catch (error) {
      leave(error);
    }
  };
}

/* Structured cloning keeps neither the class nor the code of an error, and refuses some causes. */

/** @typedef {{name: string, message: string, stack?: string, cause?: Packed, code?: string}} Packed */

/**
 * @param {any} error
 * @returns {Packed}
 */
function pack(error) {
  if (!(error instanceof Error)) return { name: 'Error', message: String(error) };
  const { name, message, stack } = error;
  const cause = error.cause === undefined ? undefined : pack(error.cause);
  return { name, message, stack, cause, code: error instanceof ModelError ? error.code : undefined };
}

/** @type {Record<string, ErrorConstructor>} */
const CLASSES = { TypeError, RangeError, SyntaxError };

/**
 * @param {Packed} packed
 * @returns {Error}
 */
function unpack({ name, message, stack, cause, code }) {
  const options = cause && { cause: unpack(cause) };
  const Class = CLASSES[name] ?? Error;
  const error = code ? new ModelError(code, message, options) : new Class(message, options);
  if (stack) error.stack = stack;
  return error;
}

/**
 * A browser's Worker, seen from the page.
 * @param {Worker} worker
 * @returns {Port}
 */
export function workerPort(worker) {
  return {
    post: (message, transfer) => worker.postMessage(message, transfer),
    listen(onMessage, onFailure) {
      worker.onmessage = ({ data }) => onMessage(data);
      worker.onmessageerror = () => onFailure(new Error('a message could not be read'));
      worker.onerror = (event) => {
        event.preventDefault();
        onFailure(new Error(event.message || 'it could not be loaded'));
      };
    },
    hold() {},
    close: () => worker.terminate(),
  };
}

/**
 * The same, seen from within. A message {port} says who is to be talked to in place of the parent.
 * @returns {Port}
 */
export function parentPort() {
  const scope = /** @type {any} */ (globalThis);
  let partner = scope;
  return {
    post: (message, transfer) => partner.postMessage(message, transfer),
    listen(onMessage, onFailure) {
      const hear = () => {
        partner.onmessage = (/** @type {MessageEvent} */ { data }) => {
          if (!('port' in data)) return onMessage(data);
          partner = data.port;
          hear();
        };
        partner.onmessageerror = () => onFailure(new Error('a message could not be read'));
      };
      hear();
    },
    hold() {},
    close: () => scope.close(),
  };
}
