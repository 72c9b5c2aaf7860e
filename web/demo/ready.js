/** What has to stand before the demo or the tests can run: libraries, compiler, build and model. */
import { spawnSync } from 'node:child_process';
import { statSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { fetchModel } from './model.js';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** @param {string} name  a path in the checkout */
const changed = (name) =>
  statSync(new URL(`../../${name}`, import.meta.url), { throwIfNoEntry: false })?.mtimeMs ?? 0;

/** @param {string[]} args */
function npm(...args) {
  const { error, status } = spawnSync('npm', args, {
    cwd: ROOT,
    stdio: 'inherit',
    shell: process.platform === 'win32',
  });
  if (error) throw new Error(`npm cannot be run: ${error.message}`);
  if (status !== 0) throw new Error(`'npm ${args.join(' ')}' failed`);
}

/** Each step says what it does, and does nothing where that is done. */
export async function ready() {
  if (changed('node_modules/.package-lock.json') < changed('package-lock.json')) {
    console.log('libraries: npm ci');
    npm('ci', '--include=dev', '--no-audit', '--no-fund');
  }
  npm('run', '--silent', 'setup');
  npm('run', '--silent', 'build');
  await fetchModel();
}
