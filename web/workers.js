/** workers.js: what starting any worker takes, in Node and browsers. */
import { onNode, startNodeWorker } from './node.js';
import { workerPort } from './rpc.js';

/** @typedef {import('./rpc.js').Port} Port */
/** @typedef {import('./rpc.js').Rpc} Rpc */

/** @type {(url: string | URL) => Port} */
let start = (url) => (onNode() ? startNodeWorker(url) : workerPort(new Worker(url, { type: 'module' })));

/**
 * @param {string | URL} url of a module
 * @returns {Port}
 */
export const startWorker = (url) => start(url);

/**
 * From now on the page starts this worker's workers. In Firefox (seen in 153) `new Worker` in a worker may never
 * return: it waits on a condition that the new worker's thread sleeps on too, and one of the two is woken. Of
 * those made soon after others have ended, that is one in 200.
 * @param {Rpc} rpc to the page, which answers 'startWorker' as HostedWorkers does
 */
export function letPageStart(rpc) {
  start = (url) => {
    const { port1, port2 } = new MessageChannel();
    const end = new AbortController();
    return {
      post: (message, transfer) => port1.postMessage(message, transfer),
      listen(onMessage, onFailure) {
        port1.onmessage = ({ data }) => onMessage(data);
        port1.onmessageerror = () => onFailure(new Error('a message could not be read'));
        const call = rpc.call('startWorker', { url: String(url), port: port2 }, { signal: end.signal, transfer: [port2] });
        call.catch((error) => end.signal.aborted || onFailure(error)); // it has no other end
      },
      hold() {},
      close() {
        end.abort();
        port1.close();
      },
    };
  };
}

/** Workers that are started, and ended, on behalf of another one. */
export class HostedWorkers {
  /** @type {Set<Port>} */
  #workers = new Set();

  /**
   * Lasts as long as the worker, which talks to `port` and not to its parent.
   * @param {{ url: string, port: MessagePort }} what
   * @param {{ signal: AbortSignal }} job
   * @returns {Promise<never>}
   */
  start = ({ url, port }, { signal }) =>
    new Promise((_, failed) => {
      const worker = workerPort(new Worker(url, { type: 'module' }));
      this.#workers.add(worker);
      const end = (/** @type {Error} */ error) => {
        this.#workers.delete(worker);
        worker.close();
        failed(error);
      };
      worker.listen(() => {}, end);
      signal.addEventListener('abort', () => end(signal.reason));
      worker.post({ port }, [port]);
    });

  end() {
    for (const worker of this.#workers) worker.close();
    this.#workers.clear();
  }
}

/**
 * @param {Promise<unknown>} promise
 * @param {number} ms
 * @returns {Promise<boolean>} whether it settled in time; rejects where it does
 */
export async function within(promise, ms) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const late = new Promise((resolve) => (timer = setTimeout(resolve, ms, false)));
  try {
    return await Promise.race([promise.then(() => true), late]);
  } finally {
    clearTimeout(timer);
  }
}
