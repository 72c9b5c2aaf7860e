/**
 * threads.js: how many threads, and starting and ending the compute workers, in Node and browsers.
 */

import { startWorker, within } from './workers.js';

/** @typedef {{ threads: number, reason: string | null }} ThreadChoice  the reason says why fewer or only one */

/** LM_MAX_THREADS of lm_bind. */
const MOST = 64;

/** Logical cores, as far as the platform tells. */
export function logicalCores() {
  const cores = globalThis.process?.getBuiltinModule?.('node:os')?.availableParallelism();
  return cores ?? globalThis.navigator?.hardwareConcurrency ?? 1;
}

/**
 * Half of the logical cores (they are mostly two to a real one), 1 to 8, unless asked. More than the
 * cores only slows down, but twice as many may be asked for: some browsers report fewer than there are.
 * @param {{ asked?: number, supported: boolean, unsupported?: string, cores?: number }} options
 *   supported: shared memory and workers are to be had; unsupported: why not
 * @returns {ThreadChoice}
 */
export function chooseThreads({
  asked,
  supported,
  unsupported = 'shared memory is missing',
  cores = logicalCores(),
}) {
  if (asked !== undefined && !(Number.isInteger(asked) && asked >= 0)) {
    throw new RangeError(`threads is ${asked}, must be an integer from 1 to ${MOST}`);
  }
  const least = Math.max(1, cores || 1);
  if (!supported) {
    return { threads: 1, reason: asked === 1 ? null : unsupported };
  }
  if (asked === undefined) {
    const threads = Math.min(8, Math.max(1, Math.floor(least / 2)));
    return {
      threads,
      reason: threads === 1 ? `half of ${least} logical core${least === 1 ? '' : 's'}` : null,
    };
  }
  const threads = Math.min(Math.max(asked, 1), 2 * least, MOST);
  return {
    threads,
    reason:
      threads === asked ? null : `${asked} asked for, ${threads} is the bound with ${least} logical cores`,
  };
}

/** The compute workers of one engine. */
export class Threads {
  /** @type {import('./rpc.js').Port[]} */
  #workers = [];
  /** @type {Promise<void>[]} */
  #ended = [];

  /**
   * Starts one worker per stack and waits until all are ready: a browser starts nested workers with the
   * help of their parent's event loop, so none may be waited for by blocking.
   * @param {{ url: string | URL, module: WebAssembly.Module, memory: WebAssembly.Memory, stacks: (number | bigint)[],
   *           deadlineMs?: number }} options  stacks: lm_stack(1), lm_stack(2) ...
   * @returns {Promise<Threads>}
   */
  static async start({ url, module, memory, stacks, deadlineMs = 4000 }) {
    const threads = new Threads();
    const ready = stacks.map((stack, i) => threads.#add(url, { module, memory, stack, index: i + 1 }));
    try {
      if (!(await within(Promise.all(ready), deadlineMs)))
        throw new Error(`not ready after ${deadlineMs} ms`);
      for (const worker of threads.#workers) worker.hold(false); // an idle engine keeps no process alive
      return threads;
    } catch (error) {
      threads.terminate();
      throw error;
    }
  }

  /**
   * @param {string | URL} url
   * @param {object} init
   * @returns {Promise<void>} settled when it is ready, or has failed
   */
  #add(url, init) {
    return new Promise((ready, failed) => {
      const worker = startWorker(url);
      this.#workers.push(worker);
      this.#ended.push(
        new Promise((ended) => {
          const fail = (/** @type {Error} */ error) => {
            failed(error); // nothing after 'ready', when the trap of thread 0 tells it
            ended();
          };
          worker.listen((data) => {
            if (data === 'ready') ready();
            else if (data === 'ended') ended();
            else fail(new Error(data.error));
          }, fail);
        }),
      );
      worker.post(init, []);
      worker.hold(true);
    });
  }

  /** Ends workers that were told to (lm_stop); one that does not obey in time is terminated. */
  async stop() {
    await within(Promise.all(this.#ended), 1000);
    await Promise.all(this.terminate());
  }

  terminate() {
    return this.#workers.splice(0).map((worker) => worker.close());
  }
}
