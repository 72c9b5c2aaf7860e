/**
 * Everything that exists in Node alone. It is reached through process.getBuiltinModule and not by an
 * import, so that one and the same file can be bundled for a page, and importing it does nothing.
 */

import { ModelError } from './errors.js';

/**
 * @template {string} N
 * @param {N} name
 * @returns {any}
 */
const builtin = (name) => globalThis.process?.getBuiltinModule?.(`node:${name}`);

/** Node has worker_threads and no global Worker; browsers, Deno and Electron's pages have that one. */
export const onNode = () => typeof globalThis.Worker !== 'function' && builtin('worker_threads') !== undefined;

/**
 * A worker of the module at `url`, as a port for rpc.js. It keeps the process alive only while held.
 * @param {URL | string} url
 * @returns {import('./rpc.js').Port}
 */
export function startNodeWorker(url) {
  const { Worker } = /** @type {typeof import('node:worker_threads')} */ (builtin('worker_threads'));
  // The flags of `node --input-type=module -e` would be wrong ones for a file.
  const worker = new Worker(typeof url === 'string' ? new URL(url) : url, { execArgv: [] });
  const { threadId } = worker; // gone when it has ended
  worker.unref();
  return {
    post: (message, transfer) => worker.postMessage(message, transfer),
    listen(onMessage, onFailure) {
      worker.on('message', onMessage);
      worker.on('messageerror', onFailure);
      worker.on('error', onFailure);
      worker.on('exit', (code) => onFailure(new Error(`it exited with code ${code}`)));
    },
    hold: (busy) => (busy ? worker.ref() : worker.unref()),
    async close() {
      await worker.terminate();
      await dropLocks(threadId);
    },
  };
}

/**
 * Inside such a worker: the port to the thread that started it.
 * @returns {import('./rpc.js').Port}
 */
export function parentNodePort() {
  const { parentPort } = /** @type {typeof import('node:worker_threads')} */ (builtin('worker_threads'));
  if (!parentPort) throw new Error('worker.js runs in a worker only');
  return {
    post: (message, transfer) => parentPort.postMessage(message, transfer),
    listen(onMessage, onFailure) {
      parentPort.on('message', onMessage);
      parentPort.on('messageerror', onFailure);
    },
    hold() {},
    close: () => parentPort.close(),
  };
}

/**
 * Node's own SHA-256, ten times as fast as one in JS; undefined elsewhere.
 * @returns {{ update: (bytes: Uint8Array) => unknown, digest: () => Uint8Array } | undefined}
 */
export const nodeHash = () => builtin('crypto')?.createHash('sha256');

/**
 * @param {string | URL} path a path, or a file: URL
 * @returns {string} absolute
 */
export function absolutePath(path) {
  const text = String(path);
  if (text.startsWith('file:')) return builtin('url').fileURLToPath(text);
  return builtin('path').resolve(text);
}

/**
 * A path or URL as a URL.
 * @param {string} address
 * @returns {string}
 */
export const fileUrl = (address) =>
  /^[a-z][a-z0-9+.-]+:/i.test(address) ? address : builtin('url').pathToFileURL(address).href;

/** Read at a time: as long as a block of cache.js, which need not be put together then. */
const CHUNK_BYTES = 1 << 20;

/**
 * A file's bytes, to be read once: a chunk is in use while the next is read into the other of two buffers. Not of a
 * pipe: whoever leaves the loop would wait for its writer.
 * @param {import('node:fs/promises').FileHandle} file closed when all is read, or the loop is left
 * @param {number | undefined} total bytes; undefined: a pipe or device
 * @returns {AsyncGenerator<Uint8Array, void>}
 */
async function* chunksOf(file, total) {
  const length = Math.max(1, Math.min(CHUNK_BYTES, total ?? CHUNK_BYTES));
  /** @type {Uint8Array[]} */
  const buffers = [];
  const read = async (/** @type {number} */ i) => {
    const buffer = (buffers[i % 2] ??= new Uint8Array(length));
    const { bytesRead } = await file.read(buffer, 0, length, null);
    return buffer.subarray(0, bytesRead);
  };
  let next = read(0);
  try {
    for (let i = 1; ; i++) {
      const bytes = await next;
      if (bytes.length === 0) return;
      if (total !== undefined) next = read(i);
      next.catch(() => {}); // seen by the await above, unless the loop is left first: then nobody asks
      yield bytes;
      if (total === undefined) next = read(i);
    }
  } finally {
    await next.catch(() => {});
    await file.close();
  }
}

/** @param {string} path @param {any} cause */
function unreadable(path, cause) {
  const said = { ENOENT: 'there is no such file', EACCES: 'permission denied', EISDIR: 'it is a folder' }[
    /** @type {string} */ (cause.code)
  ];
  return new ModelError('FILE', `cannot read ${path}: ${said ?? cause.message}`, { cause });
}

/**
 * A small file's bytes.
 * @param {string} path
 */
export async function readFile(path) {
  const fs = /** @type {typeof import('node:fs/promises')} */ (builtin('fs/promises'));
  return fs.readFile(path).catch((cause) => Promise.reject(unreadable(path, cause)));
}

/**
 * Opens a file for reading.
 * @param {string} path
 * @returns {Promise<{ total: number | undefined, chunks: AsyncGenerator<Uint8Array, void> }>} total: undefined for a
 *   pipe or device; chunks: as chunksOf, of which one at least must be asked for, or the file stays open
 */
export async function openFile(path) {
  const fs = /** @type {typeof import('node:fs/promises')} */ (builtin('fs/promises'));
  const file = await fs.open(path).catch((cause) => Promise.reject(unreadable(path, cause)));
  try {
    const stat = await file.stat();
    if (stat.isDirectory()) throw Object.assign(new Error(), { code: 'EISDIR' });
    const total = stat.isFile() ? stat.size : undefined;
    const chunks = async function* () {
      try {
        yield* chunksOf(file, total);
      } catch (cause) {
        throw unreadable(path, cause);
      }
    };
    return { total, chunks: chunks() };
  } catch (cause) {
    await file.close();
    throw unreadable(path, cause);
  }
}

/** Where a user's programs keep what can be had again: all our copies. */
function copiesFolder() {
  const { env, platform } = process;
  const home = builtin('os').homedir();
  const { join } = builtin('path');
  const windows = platform === 'win32' && (env.LOCALAPPDATA ?? join(home, 'AppData', 'Local'));
  const caches = env.XDG_CACHE_HOME || windows || join(home, platform === 'darwin' ? 'Library/Caches' : '.cache');
  return join(caches, 'tabllama', 'copies');
}

/**
 * A Store of cache.js in the user's cache folder.
 * @param {string} name
 * @returns {Promise<import('./cache.js').Store>}
 */
export async function nodeStore(name) {
  const fs = /** @type {typeof import('node:fs/promises')} */ (builtin('fs/promises'));
  const path = /** @type {typeof import('node:path')} */ (builtin('path'));
  const folder = path.join(copiesFolder(), name);
  await fs.mkdir(folder, { recursive: true });
  const full = (/** @type {string} */ file) => path.join(folder, file);
  const open = async (/** @type {string} */ file) => {
    const handle = await fs.open(full(file)).catch((error) => {
      if (error.code === 'ENOENT') return undefined;
      throw error;
    });
    if (!handle) return undefined;
    return chunksOf(handle, (await handle.stat()).size);
  };
  return {
    list: () => fs.readdir(folder),
    open,
    async write(file, keep) {
      const handle = await fs.open(full(file), keep > 0 ? 'r+' : 'w'); // 'w' empties it
      if (keep > 0) await handle.truncate(keep);
      let at = keep;
      return {
        async write(bytes) {
          for (let done = 0; done < bytes.length;) done += (await handle.write(bytes, done, bytes.length - done, at + done)).bytesWritten;
          at += bytes.length;
        },
        async close(lasting = true) {
          if (lasting) await handle.sync();
          await handle.close();
        },
      };
    },
    rename: (from, to) => fs.rename(full(from), full(to)),
    remove: (file) => fs.rm(full(file), { force: true }),
    async room() {
      const { blocks, bavail, bsize } = await fs.statfs(folder);
      return { usage: (blocks - bavail) * bsize, quota: blocks * bsize };
    },
    lock: (key) => fileLock(full(`${key}.lock`)),
  };
}

/** What a lock of a thread of this process says. @param {number} threadId */
const holder = (threadId) => `${process.pid} ${threadId}`;

/**
 * A file that names the process and thread which hold it; one of a process that is gone counts for nothing.
 * @param {string} file
 * @returns {Promise<(() => Promise<void>) | undefined>}
 */
async function fileLock(file) {
  const fs = /** @type {typeof import('node:fs/promises')} */ (builtin('fs/promises'));
  const { threadId } = builtin('worker_threads');
  for (let attempt = 0; attempt < 2; attempt++) {
    try {
      await fs.writeFile(file, holder(threadId), { flag: 'wx' });
      return () => fs.rm(file, { force: true });
    } catch (error) {
      if (/** @type {NodeJS.ErrnoException} */ (error).code !== 'EEXIST') throw error;
    }
    if (await isHeld(file)) return undefined;
    await fs.rm(file, { force: true });
  }
  return undefined;
}

/** A lock that is empty for longer was never written. */
const WRITING_MS = 1000;

/**
 * Whether whoever took a lock is still there. Numbers of processes come back, in containers soon: a lock
 * older than this process is not its own.
 * @param {string} file
 */
async function isHeld(file) {
  const fs = /** @type {typeof import('node:fs/promises')} */ (builtin('fs/promises'));
  const [text, stat] = await Promise.all([fs.readFile(file, 'utf8'), fs.stat(file)]).catch(() => []); // released meanwhile
  if (text === undefined || !stat) return false;
  const pid = Number.parseInt(text);
  if (!(pid > 0)) return Date.now() - stat.mtimeMs < WRITING_MS;
  if (pid === process.pid) return stat.mtimeMs > Date.now() - 1000 * process.uptime();
  return isAlive(pid);
}

/**
 * Removes the locks that a thread of this process did not live to release.
 * @param {number} threadId
 */
async function dropLocks(threadId) {
  const fs = /** @type {typeof import('node:fs/promises')} */ (builtin('fs/promises'));
  const folder = copiesFolder();
  const names = await fs.readdir(folder, { recursive: true }).catch(() => []); // no copies, no locks
  for (const name of names.filter((name) => name.endsWith('.lock'))) {
    const file = builtin('path').join(folder, name);
    const text = await fs.readFile(file, 'utf8').catch(() => ''); // another's, released meanwhile
    if (text === holder(threadId)) await fs.rm(file, { force: true });
  }
}

/** @param {number} pid */
function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return /** @type {NodeJS.ErrnoException} */ (error).code === 'EPERM';
  }
}
