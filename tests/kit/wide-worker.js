/* wide-model.js in a browser's worker. */
import { createLoader } from '/dist/engine.js';
import { runWideModel } from './wide-model.js';

self.onmessage = async ({ data }) => {
  try {
    self.postMessage(await runWideModel(createLoader, data));
  } catch (error) {
    self.postMessage({ error: String(error) });
  }
};
