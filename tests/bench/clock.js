/** clock.js: when tokens were out: on the wall's clock, and of the process's CPU time, which does not see what
 * other programs take. A browser has only the former. */

const cpu = globalThis.process?.cpuUsage
  ? () => {
      const { user, system } = process.cpuUsage();
      return (user + system) / 1000;
    }
  : () => NaN;

export class Clock {
  #start = performance.now();
  #cpuStart = cpu();
  /** Milliseconds since the start. */
  ms = /** @type {number[]} */ ([]);
  cpuMs = /** @type {number[]} */ ([]);

  tick() {
    this.ms.push(performance.now() - this.#start);
    this.cpuMs.push(cpu() - this.#cpuStart);
    return this.ms.length;
  }

  times() {
    return { ms: this.ms, cpuMs: this.cpuMs };
  }
}
