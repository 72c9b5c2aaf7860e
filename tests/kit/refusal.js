/** refusal.js: what loading a file comes to. */
import assert from 'node:assert/strict';
import { BUILDS, using } from './engines.js';

/** The smallest model: one layer, no vocabulary. */
export const NANO = {
  nLayers: 1,
  dModel: 32,
  nHeads: 2,
  nKvHeads: 1,
  dFf: 32,
  nVocab: 40,
  vocabulary: null,
  nCtx: 64,
};

/**
 * What loading a file comes to, from a source that knows its length and from one that does not: both must
 * agree.
 * @returns {Promise<Error | null>} the refusal
 */
export async function refusal(file) {
  const attempt = (source) => using([BUILDS[0], source, {}], () => null).catch((error) => error);
  const [whole, stream] = [await attempt(file), await attempt([file])];
  assert.equal(whole?.code, stream?.code, `${whole?.message} | ${stream?.message}`);
  return whole;
}

/** Fails unless the file is refused with this code and sentence. */
export async function assertRefused(file, message, code = 'FORMAT') {
  const error = await refusal(file);
  assert.ok(error, `loaded, instead of ${message}`);
  assert.equal(error.code, code, error.message);
  assert.match(error.message, message);
  assert.equal(error.name, 'ModelError');
}
