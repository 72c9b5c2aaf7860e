/* bits.js in a browser's worker: the address of a model comes in, the hashes go out. */
import * as engineModule from '/dist/engine.js';
import { bitsOf } from './bits.js';

self.onmessage = async ({ data }) => {
  try {
    const response = await fetch(data);
    self.postMessage({ rows: await bitsOf(engineModule, await response.blob()) });
  } catch (error) {
    self.postMessage({ error: String(error) });
  }
};
