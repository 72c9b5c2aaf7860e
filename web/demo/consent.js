/* Before a download: what the model will need, and a question where that is much. */
import { estimate } from '../../dist/index.js';
import * as say from './describe.js';
import { $, show } from './dom.js';

/** Larger files are asked about first. */
const LARGE_BYTES = 150e6;

/**
 * Shows what a model at an address needs; whether it may be downloaded.
 * @param {string | URL} source
 * @param {import('../index.js').EstimateOptions & { signal: AbortSignal }} options
 */
export async function agreed(source, options) {
  const needed = await estimate(source, options);
  $('needs').textContent = say.needs(needed);
  /* one that can't run is refused by load(), which says why */
  if (!needed.runs || (needed.fits && needed.bytes.file < LARGE_BYTES)) return true;
  $('question-text').textContent = `${say.fileName(source)} is ${say.megabytes(needed.bytes.file)}. ${say.needs(needed)}`;
  show('loading', false);
  show('question', true);
  const yes = await answer(options.signal);
  show('question', false);
  options.signal.throwIfAborted();
  return yes;
}

/** @param {AbortSignal} signal @returns {Promise<boolean>} */
function answer(signal) {
  return new Promise((resolve) => {
    $('download').onclick = () => resolve(true);
    $('decline').onclick = () => resolve(false);
    signal.addEventListener('abort', () => resolve(false));
  });
}
