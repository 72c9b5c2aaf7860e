/** output.js: reading and writing of the command line. */
import { readFile } from 'node:fs/promises';
import { text } from 'node:stream/consumers';

/** Writes to stdout and waits until it is taken: a long answer never piles up.
 * @param {string} text
 * @returns {Promise<void>} */
export const write = (text) =>
  new Promise((done, failed) => {
    process.stdout.write(text, (error) => (error ? failed(error) : done()));
  });

/** @param {unknown} value */
export const writeJson = (value) => write(`${JSON.stringify(value, null, process.stdout.isTTY ? 2 : 0)}\n`);

export const readStdin = () => text(process.stdin);

/** Lets Ctrl-C and timers in between two synchronous calls. */
export const breathe = () => new Promise((done) => setImmediate(done));

/**
 * @param {string} json
 * @param {string} from  where it comes from, for the sentence
 */
export function parseJson(json, from) {
  try {
    return JSON.parse(json);
  } catch (cause) {
    throw new Error(`${from} is not JSON: ${/** @type {Error} */ (cause).message}`, { cause });
  }
}

/** @param {string} path */
export async function readText(path) {
  try {
    return await readFile(path, 'utf8');
  } catch (cause) {
    const { code, message } = /** @type {NodeJS.ErrnoException} */ (cause);
    const said = { ENOENT: 'there is no such file', EISDIR: 'it is a folder' }[/** @type {string} */ (code)];
    throw new Error(`cannot read ${path}: ${said ?? message}`, { cause });
  }
}

/**
 * The list of objects of a file {cases: [...]}.
 * @param {string} path
 * @returns {Promise<any[]>}
 */
export async function readCases(path) {
  const { cases } = parseJson(await readText(path), path) ?? {};
  if (!Array.isArray(cases)) throw new Error(`${path} has no list 'cases'`);
  const odd = cases.findIndex((one) => one === null || typeof one !== 'object');
  if (odd >= 0) throw new Error(`case ${odd} of ${path} is not an object`);
  return cases;
}

/** Shows a share of a hundred on the terminal, in place; nothing where stderr is no terminal.
 * @param {{ loaded: number, total?: number }} progress */
export function showProgress({ loaded, total }) {
  if (!process.stderr.isTTY) return;
  const done = loaded === total;
  const share = total ? `${Math.floor((100 * loaded) / total)} %` : `${(loaded / 1e6).toFixed(0)} MB`;
  process.stderr.write(done ? '\r\x1b[K' : `\rloading ${share}\x1b[K`);
}

/** @param {string} sentence */
export const warn = (sentence) => process.stderr.write(`tabllama: ${sentence}\n`);

/**
 * What may disappoint about a model as it was loaded.
 * @param {{ warnings: readonly string[], threads: number, threadsReason?: string | null }} info
 * @param {import('./options.js').Options} options
 */
export function warnOf({ warnings, threads, threadsReason }, options) {
  warnings.forEach(warn);
  if (options.threads > threads) warn(`threads: ${threadsReason}`);
}

/** @type {() => void} */
const leave = () => process.exit(130);
let onInterrupt = leave;
process.on('SIGINT', () => onInterrupt());

/**
 * While `work` lasts, the first Ctrl-C calls `stop`; any other ends the process.
 * @param {() => void} stop
 * @param {() => Promise<void>} work
 */
export async function interruptible(stop, work) {
  onInterrupt = () => {
    onInterrupt = leave;
    stop();
  };
  await work();
  onInterrupt = leave;
}
