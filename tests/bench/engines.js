/**
 * engines.js: programs that run models, each in a process of its own, all driven alike:
 *
 *   load({ file, threads, precision, context })  -> { ms, ... }
 *   run({ tokens, n, keep })  -> { ms, cpuMs }    when each of n greedy tokens was out (clock.js); `keep` of
 *                                                 the tokens stand in the context already
 */
import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';

export class Engine {
  /** @param {string} name @param {string} program beside this file @param {string[]} args @param {string} node */
  constructor(name, program, args, node) {
    this.name = name;
    this.child = fork(fileURLToPath(new URL(program, import.meta.url)), args, { execPath: node });
  }

  /** @param {string} operation @param {object} [args] @returns {Promise<any>} */
  ask(operation, args = {}) {
    return new Promise((resolve, reject) => {
      const ended = (code) => reject(new Error(`${this.name} has ended with ${code}`));
      this.child.once('exit', ended);
      this.child.once('message', (/** @type {any} */ { value, error }) => {
        this.child.off('exit', ended);
        if (error) reject(new Error(`${this.name}: ${error}`));
        else resolve(value);
      });
      this.child.send({ operation, args });
    });
  }

  async close() {
    await this.ask('close').catch(() => {});
    this.child.kill();
  }
}
