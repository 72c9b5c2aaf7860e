/** What the published package holds, depends on and exports. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { VARIANTS, WIDE_VARIANTS } from '../web/features.js';

const ROOT = fileURLToPath(new URL('../', import.meta.url));
/** @param {string} name */
const read = (name) => readFileSync(path.join(ROOT, name), 'utf8');
const manifest = JSON.parse(read('package.json'));

/** @param {string} command @param {string[]} args @returns {string} its output */
function run(command, ...args) {
  const { status, stdout, stderr } = spawnSync(command, args, { cwd: ROOT, encoding: 'utf8' });
  assert.equal(status, 0, `${command} ${args.join(' ')}\n${stdout}${stderr}`);
  return stdout;
}

/** @param {string[]} files @returns {Promise<string[]>} the packages and built-ins that they import */
async function importsOf(files) {
  const { metafile } = await build({
    absWorkingDir: ROOT,
    entryPoints: files,
    bundle: true,
    packages: 'external',
    format: 'esm',
    platform: 'node',
    write: false,
    outdir: 'out',
    metafile: true,
  });
  const all = Object.values(metafile.inputs)
    .flatMap(({ imports }) => imports)
    .filter(({ external }) => external);
  return [...new Set(all.map(({ path }) => path))].sort();
}

/** @type {string[]} */
const packed = JSON.parse(run('npm', 'pack', '--dry-run', '--json', '--ignore-scripts'))[0].files.map(
  (/** @type {{ path: string }} */ file) => file.path,
);

test('the package holds what it exports and all it needs, and nothing of the demo or the build', () => {
  const targets = [
    manifest.bin.tabllama,
    ...Object.values(manifest.exports).flatMap((to) => (typeof to === 'string' ? [] : Object.values(to))),
  ];
  const modules = [...VARIANTS, ...WIDE_VARIANTS].map((name) => `dist/lm-${name}.wasm`);
  const bundles = ['index', 'engine', 'worker', 'thread', 'template'].map((name) => `dist/${name}.js`);
  for (const name of [
    ...targets.map((to) => to.replace('./', '')),
    ...modules,
    ...bundles,
    'LICENSE',
    'README.md',
    'dist/THIRD-PARTY-NOTICES',
  ]) {
    assert.ok(packed.includes(name), name);
  }
  assert.deepEqual(packed.filter((name) => !/^(web|dist)\//.test(name)).sort(), [
    'CHANGELOG.md',
    'LICENSE',
    'README.md',
    'package.json',
  ]);
  assert.deepEqual(
    packed.filter((name) => /demo|bundle\.js|tsconfig/.test(name)),
    [],
  );
  assert.deepEqual(
    packed.filter((name) => name.endsWith('.wasm')).sort(),
    modules.sort(),
    'released modules alone',
  );
});

test('the dependencies are those that the shipped sources import', async () => {
  const names = await importsOf(packed.filter((name) => /^web\/.*\.js$/.test(name)));
  const packages = names
    .filter((name) => !name.startsWith('node:'))
    .map((name) => name.match(/^(@[^/]+\/)?[^/]+/)?.[0]);
  assert.deepEqual(packages, Object.keys(manifest.dependencies).sort());
});

test('the bundles import nothing, and name the libraries inside', async () => {
  assert.deepEqual(await importsOf(packed.filter((name) => /^dist\/.*\.js$/.test(name))), []);
  const notices = read('dist/THIRD-PARTY-NOTICES');
  for (const [name, version] of Object.entries(manifest.dependencies)) {
    assert.ok(notices.includes(`${name} ${version} (`), name);
    assert.ok(notices.includes(read(`node_modules/${name}/LICENSE`).trim()), `${name}'s licence`);
  }
});

test('the page bundle exports what the sources do, and finds its files beside it', async () => {
  const [source, bundle] = await Promise.all(
    ['web', 'dist'].map((folder) => import(`../${folder}/index.js`)),
  );
  assert.deepEqual(Object.keys(bundle).sort(), ['ModelError', 'estimate', 'load', 'models', 'persist', 'support']);
  assert.deepEqual(Object.keys(source).sort(), Object.keys(bundle).sort());
  for (const entry of ['index', 'engine']) {
    const files = [...read(`dist/${entry}.js`).matchAll(/new URL\("([^"]+)",\s*import\.meta\.url\)/g)].map(
      ([, file]) => file,
    );
    assert.ok(files.length > 4, entry);
    for (const file of files) assert.ok(existsSync(path.join(ROOT, 'dist', file)), `${entry}: ${file}`);
  }
});

test('the lock file names no registry', () => assert.doesNotMatch(read('package-lock.json'), /"resolved"/));

test('types hold: the sources against their JSDoc, and a user against the package', () => {
  run('node_modules/.bin/tsc', '-p', 'web');
  run('node_modules/.bin/tsc', '-p', 'tests/types');
  // With a library that has no Symbol.asyncDispose.
  run('node_modules/.bin/tsc', '--noEmit', '--strict', '--target', 'es2022', '--lib', 'es2022,dom', '--types', '', 'web/index.d.ts');
});
