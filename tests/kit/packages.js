/**
 * What the tests need of the system beyond Node: browsers, and compilers for the native checks. Where
 * apt and root (or sudo without a password) are there, what is missing is installed; elsewhere it is
 * said, and the tests that need it say themselves that they cannot run.
 */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import path from 'node:path';

/** @param {string[]} names @returns {boolean} whether one of these commands is there */
const command = (...names) =>
  (process.env.PATH ?? '')
    .split(path.delimiter)
    .some((folder) => names.some((name) => existsSync(path.join(folder, name))));

/** @param {string} compiler @param {string[]} flags @returns {boolean} whether a program compiles and links */
const links = (compiler, ...flags) =>
  spawnSync(compiler, [...flags, '-x', 'c', '-', '-o', '/dev/null'], {
    input: 'int main(void) { return 0; }',
  }).status === 0;

/** Rows: what for, how to see that it is there, Debian's packages. */
const NEEDS = [
  {
    what: 'Chromium',
    there: () => command('chromium', 'chromium-browser', 'google-chrome'),
    packages: ['chromium'],
  },
  { what: 'Firefox', there: () => command('firefox-esr', 'firefox'), packages: ['firefox-esr'] },
  {
    what: 'WebKit',
    there: () => command('WebKitWebDriver') && command('xvfb-run') && command('xauth'),
    packages: ['webkit2gtk-driver', 'xvfb', 'xauth'],
  },
  {
    what: '32-bit checks',
    there: () => links('gcc', '-m32', '-fsanitize=address,undefined'),
    packages: ['gcc-multilib'],
  },
  {
    what: 'clang with its sanitizers, and wasm-ld',
    there: () => command('wasm-ld-19') && links('clang-19', '-fsanitize=address,undefined'),
    packages: ['clang-19', 'libclang-rt-19-dev', 'lld-19'],
  },
];

/** @param {string[]} args @returns {boolean} whether it went well */
function apt(...args) {
  const words = [
    'env',
    'DEBIAN_FRONTEND=noninteractive',
    'apt-get',
    '-qq',
    '-o',
    'DPkg::Lock::Timeout=600',
    '-o',
    'Acquire::Retries=3',
    ...args,
  ];
  if (process.getuid?.() !== 0) words.unshift('sudo', '-n');
  return spawnSync(words[0], words.slice(1), { stdio: ['ignore', 'ignore', 'inherit'] }).status === 0;
}

export function installPackages() {
  const missing = NEEDS.filter(({ there }) => !there());
  if (missing.length === 0) return console.log('system packages: all there');
  if (command('apt-get')) {
    console.log(`system packages: installing ${missing.flatMap(({ packages }) => packages).join(' ')}`);
    apt('update');
    // One by one: what a system does not have must not keep the others away.
    for (const { packages } of missing) apt('install', '--yes', '--no-install-recommends', ...packages);
  }
  for (const { what, packages } of missing.filter(({ there }) => !there())) {
    console.error(`system packages: for ${what}: missing; install what Debian calls ${packages.join(' ')}`);
  }
}
