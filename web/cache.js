/**
 * cache.js: copies of models that were downloaded, and what is noted of them; copy.js writes and reads them. A copy is
 *
 *   KEY.part, KEY.part.json    while it comes: blocks as they are written, and the hashes of those that surely are
 *   KEY.gguf, KEY.json         when all has come, and a model was made of it: only renamed
 *   KEY.used                   when it was used last
 *
 * where KEY is the hash of the URL. A whole copy is used without asking the network, each block compared with
 * its hash as it is read; it stays until it is deleted or makes room. One that broke off goes on under the
 * server's strong ETag. Whatever the store refuses, the model loads all the same, and the report says so.
 */

export const BLOCK_BYTES = 1 << 20;

/**
 * A folder of files: of the browser (storage.js) or of Node (node.js). Anything may throw.
 * @typedef {object} Store
 * @property {() => Promise<string[]>} list names
 * @property {(name: string) => Promise<AsyncGenerator<Uint8Array, void> | undefined>} open its bytes, to be read once,
 *   in chunks of which each is good until the next
 * @property {(name: string, keep: number) => Promise<Writer>} write from there on, cut off there
 * @property {(from: string, to: string) => Promise<void>} rename over what is there
 * @property {(name: string) => Promise<void>} remove also what is not there
 * @property {() => Promise<{ usage?: number, quota?: number }>} room
 * @property {(name: string) => Promise<(() => Promise<void>) | undefined>} lock releases it; undefined if it
 *   is held elsewhere
 * @typedef {{ write: (bytes: Uint8Array) => Promise<void>, close: (lasting?: boolean) => Promise<void> }} Writer
 *   lasting: what was written must outlive a crash of the machine; true unless said
 */

/**
 * @typedef {{ url: string, bytes: number, etag?: string, hashes: string[], used: number }} Note of a copy
 * @typedef {{ files: number, kept: number, warnings: string[] }} Report files that a model is made of, and how
 *   many of them are kept
 */

/** @param {Store} store @param {string} name @returns {Promise<Note | undefined>} */
export async function readNote(store, name) {
  try {
    const note = (await readJson(store, name)) ?? {};
    return Array.isArray(note.hashes) && note.hashes.length === Math.ceil(note.bytes / BLOCK_BYTES) ? note : undefined;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined; // cut off while it was written: as good as none
    throw error;
  }
}

/**
 * @param {Store} store
 * @param {string} name
 * @returns {Promise<any>} undefined where there is no such file
 */
async function readJson(store, name) {
  const chunks = await store.open(name);
  if (!chunks) return undefined;
  const decoder = new TextDecoder();
  let text = '';
  for await (const chunk of chunks) text += decoder.decode(chunk, { stream: true });
  return JSON.parse(text + decoder.decode());
}

/** @param {Store} store @param {string} name @param {Note} note */
export async function writeNote(store, name, note) {
  const writer = await store.write(`${name}.new`, 0);
  try {
    await writer.write(new TextEncoder().encode(JSON.stringify(note)));
  } finally {
    await writer.close();
  }
  await store.rename(`${name}.new`, name);
}

/** @param {Store} store @param {string} key */
export async function forget(store, key) {
  for (const end of ['json', 'gguf', 'part.json', 'part', 'used', 'part.json.new']) await store.remove(`${key}.${end}`);
}

/**
 * @param {Store} store
 * @returns {Promise<(Note & { key: string, complete: boolean })[]>} the longest unused first
 */
export async function listModels(store) {
  const names = (await store.list()).filter((name) => name.endsWith('.json'));
  const models = names.map(async (name) => {
    const note = await readNote(store, name);
    const key = name.split('.')[0];
    const used = await readJson(store, `${key}.used`).catch(() => undefined); // being written: now, or nearly
    return note ? [{ ...note, key, used: used ?? note.used, complete: !name.endsWith('.part.json') }] : [];
  });
  return (await Promise.all(models)).flat().sort((a, b) => a.used - b.used);
}

/**
 * Deletes a copy that nobody is writing.
 * @param {Store} store
 * @param {string} key
 * @returns {Promise<boolean>} whether it is gone
 */
export async function deleteModel(store, key) {
  const release = await store.lock(key);
  if (!release) return false;
  try {
    await forget(store, key);
    return true;
  } finally {
    await release();
  }
}

/**
 * Makes room by deleting the longest unused copies.
 * @param {Store} store
 * @param {number} bytes
 * @returns {Promise<boolean>} whether there is room now
 */
export async function makeRoom(store, bytes) {
  const fits = async () => {
    const { usage = 0, quota = Infinity } = await store.room();
    return quota - usage >= bytes;
  };
  for (const { key } of await listModels(store)) {
    if (await fits()) return true;
    await deleteModel(store, key);
  }
  return fits();
}
