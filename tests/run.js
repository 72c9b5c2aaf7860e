/**
 * npm test [-- FILE...]: sets up what is missing, then runs the tests: what depends on the version of
 * Node in the older ones, and last everything in the newest. With files: those alone, in this Node.
 */
import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { ready } from '../web/demo/ready.js';
import { fetchGemma3 } from './kit/gemma3.js';
import { nodeOf } from './kit/nodes.js';
import { installPackages } from './kit/packages.js';

const ROOT = fileURLToPath(new URL('../', import.meta.url));
const ALL = readdirSync(new URL('.', import.meta.url))
  .filter((name) => name.endsWith('.test.js'))
  .map((name) => `tests/${name}`);
/** They start compilers and browsers, or look at files: the same whichever Node does. */
const ONCE = ['api-browsers', 'browser', 'cache-browsers', 'demo-cache', 'kernels', 'native', 'package', 'serve'].map(
  (name) => `tests/${name}.test.js`,
);
const NEWEST = 24;
const OLDER = [20, 22];
/** For a test that hangs. */
const TIMEOUT_MS = 15 * 60e3;

/** @param {string} node @param {string[]} files @returns {boolean} whether all passed */
function passes(node, files) {
  const args = ['--test', '--test-reporter=spec', `--test-timeout=${TIMEOUT_MS}`, ...files];
  return spawnSync(node, args, { cwd: ROOT, stdio: 'inherit' }).status === 0;
}

try {
  await ready();
  const named = process.argv.slice(2);
  const passed = [];
  if (named.length > 0) {
    passed.push(passes(process.execPath, named));
  } else {
    installPackages();
    await fetchGemma3();
    const nodes = [...OLDER, NEWEST].map(nodeOf);
    for (const [i, node] of nodes.entries()) {
      const newest = i === nodes.length - 1;
      console.log(`\nNode ${newest ? NEWEST : OLDER[i]}`);
      passed.push(passes(node, newest ? ALL : ALL.filter((file) => !ONCE.includes(file))));
    }
  }
  if (passed.includes(false)) process.exitCode = 1;
} catch (error) {
  console.error(/** @type {Error} */ (error).message);
  process.exitCode = 1;
}
