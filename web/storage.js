/**
 * storage.js: the browser's own files (OPFS) as a Store of cache.js. Reading and deleting work everywhere,
 * writing in workers alone.
 */
import { ModelError } from './errors.js';
import { nodeStore, onNode } from './node.js';

/**
 * The folder of a cache. There is none in some private windows, on pages that are not secure, and in WebKitGTK.
 * @param {string | true} name
 * @returns {Promise<import('./cache.js').Store>}
 */
export async function openStore(name) {
  const folder = name === true ? 'models' : name;
  if (onNode()) return nodeStore(folder);
  try {
    const root = await globalThis.navigator?.storage?.getDirectory?.();
    if (!root) throw new ModelError('STORAGE', 'this page has no file storage');
    const all = await root.getDirectoryHandle('tabllama', { create: true });
    return browserStore(await all.getDirectoryHandle(folder, { create: true }), folder);
  } catch (cause) {
    if (cause instanceof ModelError) throw cause;
    throw new ModelError('STORAGE', `this page's file storage is refused: ${/** @type {Error} */ (cause).message}`, { cause });
  }
}

/** @param {ReadableStreamDefaultReader<Uint8Array>} reader */
async function* streamed(reader) {
  try {
    for (let next; !(next = await reader.read()).done; ) yield next.value;
  } finally {
    await reader.cancel().catch(() => {}); // it had failed: read() has said so
  }
}

/**
 * @param {FileSystemDirectoryHandle} folder
 * @param {string} cache
 * @returns {import('./cache.js').Store}
 */
function browserStore(folder, cache) {
  const absent = (/** @type {any} */ error) => {
    if (error.name === 'NotFoundError') return undefined;
    throw error;
  };
  const remove = (/** @type {string} */ name) => folder.removeEntry(name).catch(absent);
  return {
    async list() {
      const names = [];
      for await (const name of /** @type {any} */ (folder).keys()) names.push(name);
      return names;
    },
    async open(name) {
      const handle = await folder.getFileHandle(name).catch(absent);
      if (!handle) return undefined;
      return streamed((await handle.getFile()).stream().getReader());
    },
    async write(name, keep) {
      const handle = /** @type {any} */ (await folder.getFileHandle(name, { create: true }));
      const access = await handle.createSyncAccessHandle();
      access.truncate(keep);
      let at = keep;
      return {
        async write(bytes) {
          const written = access.write(bytes, { at });
          if (written !== bytes.length) throw new DOMException(`${written} of ${bytes.length} bytes were written`, 'QuotaExceededError');
          at += written;
        },
        async close(lasting = true) {
          if (lasting) access.flush();
          access.close();
        },
      };
    },
    async rename(from, to) {
      await remove(to);
      await /** @type {any} */ (await folder.getFileHandle(from)).move(to);
    },
    remove,
    room: () => navigator.storage.estimate(),
    lock: (name) => webLock(`tabllama ${cache} ${name}`),
  };
}

/**
 * @param {string} name
 * @returns {Promise<(() => Promise<void>) | undefined>}
 */
function webLock(name) {
  return new Promise((resolve, reject) => {
    /** @param {Lock | null} lock */
    const held = (lock) => {
      if (!lock) return resolve(undefined);
      return new Promise((/** @type {(value: void) => void} */ release) => resolve(async () => release()));
    };
    navigator.locks.request(name, { ifAvailable: true }, held).catch(reject);
  });
}
