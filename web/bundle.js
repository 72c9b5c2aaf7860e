/**
 * npm run build, second half: one self-contained bundle per entry into dist/, for pages without a
 * bundler, beside the wasm modules that make put there. The libraries inside are named, with their
 * licences, in dist/THIRD-PARTY-NOTICES.
 */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const ROOT = fileURLToPath(new URL('../', import.meta.url));
const ENTRIES = ['index', 'engine', 'worker', 'thread', 'template'];

/** The sources find the wasm modules in ../dist/; a bundle stands among them. */
const besideTheModules = {
  name: 'beside-the-modules',
  /** @param {import('esbuild').PluginBuild} build */
  setup(build) {
    build.onLoad({ filter: /[\\/]web[\\/][^\\/]+\.js$/ }, async ({ path }) => ({
      contents: (await readFile(path, 'utf8')).replaceAll("'../dist/", "'./"),
    }));
  },
};

const { metafile } = await build({
  absWorkingDir: ROOT,
  entryPoints: ENTRIES.map((name) => `web/${name}.js`),
  outdir: 'dist',
  bundle: true,
  format: 'esm',
  platform: 'browser',
  target: ['es2022'],
  minify: true,
  sourcemap: true,
  legalComments: 'none',
  metafile: true,
  plugins: [besideTheModules],
}).catch(() => process.exit(1)); // esbuild has said why

const inside = new Set(
  Object.keys(metafile.inputs).flatMap(
    (file) => file.match(/^node_modules\/((?:@[^/]+\/)?[^/]+)\//)?.[1] ?? [],
  ),
);
const notices = await Promise.all(
  [...inside].sort().map(async (name) => {
    const folder = path.join(ROOT, 'node_modules', name);
    const { version, license } = JSON.parse(await readFile(path.join(folder, 'package.json'), 'utf8'));
    return `${name} ${version} (${license})\n\n${(await readFile(path.join(folder, 'LICENSE'), 'utf8')).trim()}\n`;
  }),
);
await writeFile(
  path.join(ROOT, 'dist/THIRD-PARTY-NOTICES'),
  `The bundles in this folder contain these libraries:\n\n${notices.join(`\n${'-'.repeat(80)}\n\n`)}`,
);
// The API is declared once, in web/: for the bundles, and for the engine's types, which tsc emits.
await mkdir(path.join(ROOT, 'dist/types'), { recursive: true });
await writeFile(path.join(ROOT, 'dist/index.d.ts'), "export * from '../web/index.js';\n");
await writeFile(path.join(ROOT, 'dist/types/index.d.ts'), "export * from '../../web/index.js';\n");

for (const [file, { bytes }] of Object.entries(metafile.outputs)) {
  if (file.endsWith('.js')) console.log(`bundle: ${file} (${(bytes / 1000).toFixed(1)} kB)`);
}
