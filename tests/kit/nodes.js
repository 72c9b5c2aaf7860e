/** Node's binaries of other versions, out of the npm packages that carry them, in the user's cache. */
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import path from 'node:path';
import { cacheFolder } from '../../wasm/toolchain/cache.js';

const OS = { win32: 'win' }[/** @type {string} */ (process.platform)] ?? process.platform;
const NAME = `node-${OS}-${process.arch}`;

/** @param {string} node */
const version = (node) => execFileSync(node, ['--version'], { encoding: 'utf8' }).trim();

/**
 * @param {number} major
 * @returns {string} the path of a Node of that version; this one if it is
 */
export function nodeOf(major) {
  if (process.versions.node.split('.')[0] === String(major)) return process.execPath;
  const folder = path.join(cacheFolder, 'nodes', String(major));
  const node = path.join(folder, 'node_modules', NAME, 'bin', OS === 'win' ? 'node.exe' : 'node');
  if (!existsSync(node)) {
    console.log(`node ${major}: fetching npm's ${NAME}@${major}`);
    mkdirSync(path.dirname(folder), { recursive: true });
    const part = mkdtempSync(`${folder}-`);
    try {
      const args = ['install', '--silent', '--no-save', '--prefix', part, `${NAME}@${major}`];
      if (
        spawnSync('npm', args, { stdio: ['ignore', 'inherit', 'inherit'], shell: OS === 'win' }).status !== 0
      ) {
        throw new Error(`npm has no ${NAME}@${major}`);
      }
      rmSync(folder, { recursive: true, force: true });
      renameSync(part, folder);
    } finally {
      rmSync(part, { recursive: true, force: true });
    }
  }
  console.log(`node ${major}: ${version(node)}`);
  return node;
}
