/* worker.js that ends as soon as a file ending in .part has the bytes that DIE_AT tells: as a crash would. */
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import '../../web/worker.js';

const { DIE_AT, XDG_CACHE_HOME } = process.env;
setInterval(() => {
  const parts = readdirSync(XDG_CACHE_HOME, { recursive: true }).filter((name) => name.endsWith('.part'));
  if (parts.some((name) => statSync(join(XDG_CACHE_HOME, name)).size >= Number(DIE_AT))) process.exit(7);
}, 5);
