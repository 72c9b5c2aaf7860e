/**
 * renderer.js: runs chat templates, which are programs from strangers, in a worker of their own, template.js.
 * It is made on first use, ended when a template takes longer than MAX_MS, even in a single built-in function,
 * and made anew for the next one.
 */
import { ModelError } from './errors.js';
import { Rpc } from './rpc.js';
import { startWorker, within } from './workers.js';

const MAX_MS = 1000;
const START_MS = 10_000;

export class Renderer {
  #url;
  /** @type {Rpc | undefined} */
  #rpc;
  /** @type {Promise<unknown>} */
  #last = Promise.resolve();

  /** @param {string | URL} url of template.js */
  constructor(url) {
    this.#url = url;
  }

  /**
   * One after the other, so that none waits for another on its own time.
   * @param {string} source
   * @param {Record<string, any>} vars what the template sees: data alone
   * @param {Date} now
   * @returns {Promise<string>}
   */
  render(source, vars, now) {
    const text = this.#last.then(() => this.#render({ source, vars, now }));
    this.#last = text.catch(() => {}); // the caller has it; the next one does not depend on it
    return text;
  }

  async close() {
    await this.#rpc?.fail(new ModelError('CLOSED', 'the templates are closed'));
  }

  /** @param {{ source: string, vars: Record<string, any>, now: Date }} what */
  async #render(what) {
    const rpc = (this.#rpc ??= await this.#start());
    const text = rpc.call('render', what);
    const late = `the chat template failed: it takes longer than ${MAX_MS} ms`;
    if (!(await within(text, MAX_MS))) this.#end(rpc, new ModelError('TEMPLATE', late));
    return text;
  }

  async #start() {
    const unstarted = (/** @type {string} */ why) => new ModelError('WORKER', `${this.#url} could not be started: ${why}`);
    let started = false;
    /** @param {Error} error */
    const explain = ({ message }) => {
      this.#rpc = undefined;
      return started ? new ModelError('TEMPLATE', `the chat template failed: ${message}`) : unstarted(message);
    };
    const rpc = new Rpc(startWorker(this.#url), {}, explain);
    const hello = rpc.call('hello', null);
    started = await within(hello, START_MS);
    if (!started) this.#end(rpc, unstarted(`it does not answer within ${START_MS} ms`));
    await hello;
    return rpc;
  }

  /**
   * Without waiting: a built-in function may go on for a while.
   * @param {Rpc} rpc
   * @param {ModelError} error for whoever waits for it
   */
  #end(rpc, error) {
    this.#rpc = undefined;
    void rpc.fail(error);
  }
}
