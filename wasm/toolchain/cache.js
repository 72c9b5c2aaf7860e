/** Where what is fetched stands, outside the checkout, so that a second clone finds it: as cache.sh. */
import os from 'node:os';
import path from 'node:path';

export const cacheFolder = path.join(
  process.env.XDG_CACHE_HOME || path.join(os.homedir(), '.cache'),
  'tabllama',
);
