/** workers.js: what starting any worker takes, in Node and browsers. */
import { onNode, startNodeWorker } from './node.js';
import { workerPort } from './rpc.js';

/**
 * @param {string | URL} url of a module
 * @returns {import('./rpc.js').Port}
 */
export const startWorker = (url) =>
  onNode() ? startNodeWorker(url) : workerPort(new Worker(url, { type: 'module' }));

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
