/**
 * fixtures.js: the conformance fixtures, a folder beside the checkout (../shared/fixtures), and the real
 * model in models/. Neither belongs to the project's files: where one is absent, tests that need it say
 * "skipped"; with CI=true its absence is a failure.
 */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../../', import.meta.url));

/** Folder of the fixtures. */
export const FIXTURES = join(root, '..', 'shared', 'fixtures');

/** The real model. */
export const SMOLLM2 = {
  path: join(root, 'models', 'SmolLM2-135M-Instruct.Q4_1.gguf'),
  sha256: 'b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53',
};

/**
 * Whether a test that needs `path` must be skipped: false, or the reason. Throws where CI forbids to skip.
 * @param {string} [path] relative to the fixtures, or absolute; without: the folder itself
 */
export function absent(path = '') {
  const full = path.startsWith('/') ? path : join(FIXTURES, path);
  if (existsSync(full)) return false;
  if (process.env.CI === 'true') throw new Error(`${full} is absent, and CI=true allows no skipped test`);
  return `skipped: ${full} is absent`;
}

/** A file of the fixtures, whole. */
export function fixture(path) {
  return new Uint8Array(readFileSync(join(FIXTURES, path)));
}

/** A JSON file of the fixtures. */
export function fixtureJson(path) {
  return JSON.parse(readFileSync(join(FIXTURES, path), 'utf8'));
}

/** Names in a folder of the fixtures, sorted; none where the fixtures are absent. */
export function fixtureNames(folder) {
  const full = join(FIXTURES, folder);
  return existsSync(full) ? readdirSync(full).sort() : [];
}

export const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');

/** Little-endian float32 in base64, as golden files hold logits. */
export function floats(base64) {
  const bytes = new Uint8Array(Buffer.from(base64, 'base64'));
  return new Float32Array(bytes.buffer);
}
