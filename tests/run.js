/**
 * npm test [-- FILE...]: sets up what is missing, then runs the tests: what depends on the version of
 * Node in the older ones, and last everything in the newest. With files: those alone, in this Node.
 */
import { spawn } from 'node:child_process';
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
/** They start browsers, look at files, or compute for long: the same whichever Node does. */
const ONCE = [
  'api-browsers', 'browser', 'cache-browsers', 'demo-cache', 'invariance', 'kernels', 'package',
  'perplexity', 'serve',
].map((name) => `tests/${name}.test.js`);
/** Compilers, for minutes. */
const NATIVE = 'tests/native.test.js';
const NEWEST = 24;
const OLDER = [20, 22];
/** For a test that hangs. */
const TIMEOUT_MS = 15 * 60e3;

/**
 * @param {string} node
 * @param {string[]} files
 * @param {string} [title] of what it says, shown when it has ended
 * @returns {Promise<boolean>} whether all passed
 */
function passes(node, files, title) {
  const output = title ? 'pipe' : 'inherit';
  const args = ['--test', '--test-reporter=spec', `--test-timeout=${TIMEOUT_MS}`, ...files];
  const child = spawn(node, args, { cwd: ROOT, stdio: ['inherit', output, output] });
  /** @type {Buffer[]} */
  const said = [];
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', (data) => said.push(data));
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code) => {
      if (title) process.stdout.write(`\n${title}\n${Buffer.concat(said)}`);
      resolve(code === 0);
    });
  });
}

try {
  await ready();
  const named = process.argv.slice(2);
  const passed = [];
  if (named.length > 0) {
    passed.push(await passes(process.execPath, named));
  } else {
    installPackages();
    await fetchGemma3();
    const [newest, ...older] = [NEWEST, ...OLDER].map(nodeOf);
    const everywhere = ALL.filter((file) => file !== NATIVE && !ONCE.includes(file));
    console.log(`\nNode ${OLDER.join(' and ')}, and the native checks, at once: all tell at the end`);
    const runs = older.map((node, i) => passes(node, everywhere, `Node ${OLDER[i]}`));
    passed.push(...(await Promise.all([...runs, passes(newest, [NATIVE], `Node ${NEWEST}, native checks`)])));
    console.log(`\nNode ${NEWEST}`);
    passed.push(await passes(newest, ALL.filter((file) => file !== NATIVE)));
  }
  if (passed.includes(false)) process.exitCode = 1;
} catch (error) {
  console.error(/** @type {Error} */ (error).message);
  process.exitCode = 1;
}
