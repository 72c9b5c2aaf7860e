/**
 * cache.js: copies of models that were downloaded. A copy is
 *
 *   KEY.part, KEY.part.json    while it comes: blocks as they are written, and the hashes of those that surely are
 *   KEY.gguf, KEY.json         when all has come, and a model was made of it: only renamed
 *   KEY.used                   when it was used last
 *
 * where KEY is the hash of the URL. A whole copy is used without asking the network, each block compared with
 * its hash as it is read; it stays until it is deleted or makes room. One that broke off goes on under the
 * server's strong ETag. Whatever the store refuses, the model loads all the same, and the report says so.
 */
import { Restart } from './download.js';
import { nodeHash } from './node.js';

export const BLOCK_BYTES = 1 << 20;
/** With the one in use and all else they stay below the 4 MiB that may be held outside of WebAssembly memory. */
const BLOCKS_AHEAD = 2;
/** The hashes so far are written after so many blocks. */
const BLOCKS_PER_NOTE = 16;

/**
 * A folder of files: of the browser (storage.js) or of Node (node.js). Anything may throw.
 * @typedef {object} Store
 * @property {() => Promise<string[]>} list names
 * @property {(name: string) => Promise<StoredFile | undefined>} open
 * @property {(name: string, keep: number) => Promise<Writer>} write from there on, cut off there
 * @property {(from: string, to: string) => Promise<void>} rename over what is there
 * @property {(name: string) => Promise<void>} remove also what is not there
 * @property {() => Promise<{ usage?: number, quota?: number }>} room
 * @property {(name: string) => Promise<(() => Promise<void>) | undefined>} lock releases it; undefined if it
 *   is held elsewhere
 * @typedef {{ size: number, read: (from: number, to: number, used?: Uint8Array) => Promise<Uint8Array>, close: () => Promise<void> }} StoredFile
 *   several reads may go on at once; used: what one gave, and nobody needs any more, may hold what this one gives
 * @typedef {{ write: (bytes: Uint8Array) => Promise<void>, close: () => Promise<void> }} Writer
 */

/**
 * @typedef {{ url: string, bytes: number, etag?: string, hashes: string[], used: number }} Note of a copy
 * @typedef {{ files: number, kept: number, warnings: string[] }} Report files that a model is made of, and how
 *   many of them are kept
 * @typedef {import('./source.js').Opened} Opened
 * @typedef {import('./download.js').Resume} Resume
 */

/**
 * In Node on this thread: `subtle` copies what it is given, which takes half as long as hashing it here.
 * @param {Uint8Array} bytes
 */
async function hashOf(bytes) {
  const hash = nodeHash();
  hash?.update(bytes);
  const digest = hash?.digest() ?? (await crypto.subtle.digest('SHA-256', /** @type {Uint8Array<ArrayBuffer>} */ (bytes)));
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** @param {string} url */
const keyOf = async (url) => (await hashOf(new TextEncoder().encode(url))).slice(0, 32);

/** @param {Store} store @param {string} name @returns {Promise<Note | undefined>} */
async function readNote(store, name) {
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
  const file = await store.open(name);
  try {
    return file && JSON.parse(new TextDecoder().decode(await file.read(0, file.size)));
  } finally {
    await file?.close();
  }
}

/** @param {Store} store @param {string} name @param {Note} note */
async function writeNote(store, name, note) {
  const writer = await store.write(`${name}.new`, 0);
  try {
    await writer.write(new TextEncoder().encode(JSON.stringify(note)));
  } finally {
    await writer.close();
  }
  await store.rename(`${name}.new`, name);
}

/**
 * The blocks of a copy, each as it was written, or none of them any more. Some are read and compared while one is used.
 * @param {Store} store
 * @param {string} name
 * @param {Note} note
 * @param {() => Promise<void>} drop
 */
async function* blocksOf(store, name, note, drop) {
  const file = await store.open(name);
  /**
   * @param {number} i
   * @param {Uint8Array} [used]
   * @returns {Promise<Uint8Array | undefined>} undefined: damaged, or not to be read
   */
  const block = async (i, used) => {
    const bytes = await file?.read(i * BLOCK_BYTES, Math.min((i + 1) * BLOCK_BYTES, note.bytes), used).catch(() => undefined);
    return bytes && (await hashOf(bytes)) === note.hashes[i] ? bytes : undefined;
  };
  const coming = note.hashes.slice(0, BLOCKS_AHEAD).map((_, i) => block(i));
  let used;
  try {
    for (let i = 0; i < note.hashes.length; i++) {
      const bytes = await coming.shift();
      if (!bytes) {
        await drop();
        throw new Restart('FILE', `the stored copy of ${note.url} was damaged at byte ${i * BLOCK_BYTES}`);
      }
      if (i + BLOCKS_AHEAD < note.hashes.length) coming.push(block(i + BLOCKS_AHEAD, used));
      yield bytes;
      used = bytes;
    }
  } finally {
    await Promise.all(coming);
    await file?.close();
  }
}

/** @param {Store} store @param {string} key */
async function forget(store, key) {
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
 * Notes that a copy is used now: in a file of its own, so that the note itself is never written again.
 * @param {Store} store
 * @param {string} key
 */
async function touch(store, key) {
  const writer = await store.write(`${key}.used`, 0);
  try {
    await writer.write(new TextEncoder().encode(String(Date.now())));
  } finally {
    await writer.close();
  }
}

/**
 * Makes room by deleting the longest unused copies.
 * @param {Store} store
 * @param {number} bytes
 * @returns {Promise<boolean>} whether there is room now
 */
async function makeRoom(store, bytes) {
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

/** @param {unknown} error @param {{ usage?: number, quota?: number }} room */
function refusal(error, { usage, quota }) {
  const why = error instanceof Error ? error.message || error.name : String(error);
  return `the model is not stored: ${why}${quota === undefined ? '' : ` (${usage} of ${quota} bytes are used)`}`;
}

/**
 * Opens a URL through the store.
 * @param {Store} store
 * @param {string} url
 * @param {{ header: boolean, report: Report, download: (resume?: Resume) => Promise<Opened>,
 *   verify: (source: Opened) => Opened }} how
 * @returns {Promise<Opened>}
 */
export async function openThrough(store, url, { header, report, download, verify }) {
  const key = await keyOf(url);
  let release;
  try {
    const note = await readNote(store, `${key}.json`);
    if (note?.url === url) {
      if (!header) report.kept++;
      const chunks = blocksOf(store, `${key}.gguf`, note, () => forget(store, key));
      const keep = () => touch(store, key).catch(() => {}); // another does just that, or the store is full: it counts as longer unused
      return verify({ name: url, total: note.bytes, exact: true, chunks, keep });
    }
    if (!header) release = await store.lock(key);
    if (!header && !release) report.warnings.push(`the model is not stored: ${url} is being stored elsewhere`);
  } catch (error) {
    report.warnings.push(refusal(error, {}));
  }
  if (!release) return verify(await download());
  const copy = new Copy(store, key, url, report, release);
  try {
    return await copy.open(download, verify);
  } catch (error) {
    await release();
    throw error;
  }
}

/** One that is being written. */
class Copy {
  #store;
  #key;
  #url;
  #report;
  #release;
  /** @type {Note} */
  #note;
  /** @type {Writer | undefined} */
  #writer;
  #block = new Uint8Array(BLOCK_BYTES);
  #filled = 0;
  #whole = false;
  /** Nothing is written any more. */
  #refused = false;

  /**
   * @param {Store} store
   * @param {string} key
   * @param {string} url
   * @param {Report} report
   * @param {() => Promise<void>} release
   */
  constructor(store, key, url, report, release) {
    this.#store = store;
    this.#key = key;
    this.#url = url;
    this.#report = report;
    this.#release = release;
    this.#note = { url, bytes: 0, hashes: [], used: Date.now() };
  }

  /**
   * @param {(resume?: Resume) => Promise<Opened>} download
   * @param {(source: Opened) => Opened} verify
   * @returns {Promise<Opened>}
   */
  async open(download, verify) {
    const begun = await this.#begun();
    let source;
    try {
      source = await download(begun && { from: begun.bytes, etag: begun.etag });
    } catch (error) {
      if (!begun || !(error instanceof Restart)) throw error;
      await this.#try(() => forget(this.#store, this.#key)); // another file by now
      return this.open(download, verify);
    }
    this.#note = begun ?? { ...this.#note, etag: source.etag };
    const from = this.#note.bytes;
    await this.#try(async () => {
      const { total } = source;
      if (total !== undefined && !(await makeRoom(this.#store, total - from))) throw new Error(`${total - from} bytes are too many`);
      if (!begun) await this.#writeNote(); // what nobody knows of could not be deleted
      this.#writer = await this.#store.write(`${this.#key}.part`, from);
    });
    const rest = /** @type {AsyncGenerator<Uint8Array>} */ (source.chunks);
    const stored = begun && blocksOf(this.#store, `${this.#key}.part`, begun, () => this.#drop());
    const all = async function* () {
      try {
        if (stored) yield* stored;
        yield* rest;
      } finally {
        await rest.return(undefined);
      }
    };
    return {
      ...source,
      toEnd: true,
      chunks: this.#keeping(verify({ ...source, chunks: all() }).chunks, from),
      keep: () => this.#keep(),
      release: () => this.#leave(),
    };
  }

  /** What is there of it, if it can be gone on with. */
  async #begun() {
    const note = await readNote(this.#store, `${this.#key}.part.json`).catch(() => undefined);
    return note?.url === this.#url && note.etag && note.bytes > 0 ? note : undefined;
  }

  /**
   * @param {AsyncIterable<Uint8Array>} chunks
   * @param {number} from what is stored already
   */
  async *#keeping(chunks, from) {
    let at = 0;
    for await (const chunk of chunks) {
      if (at + chunk.length > from) await this.#take(chunk.subarray(Math.max(0, from - at)));
      at += chunk.length;
      yield chunk;
    }
    if (this.#filled > 0) await this.#try(() => this.#writeBlock());
    this.#block = new Uint8Array(0); // the other parts of a model come still
    this.#whole = true;
  }

  /** @param {Uint8Array} bytes */
  async #take(bytes) {
    while (bytes.length > 0 && !this.#refused) {
      const taken = bytes.subarray(0, BLOCK_BYTES - this.#filled);
      this.#block.set(taken, this.#filled);
      this.#filled += taken.length;
      bytes = bytes.subarray(taken.length);
      if (this.#filled === BLOCK_BYTES) await this.#try(() => this.#writeBlock());
    }
  }

  async #writeBlock() {
    const block = this.#block.subarray(0, this.#filled);
    const hash = await hashOf(block);
    await /** @type {Writer} */ (this.#writer).write(block);
    this.#note.hashes.push(hash);
    this.#note.bytes += block.length;
    this.#filled = 0;
    if (this.#note.etag && this.#note.hashes.length % BLOCKS_PER_NOTE === 0) await this.#writeNote();
  }

  #writeNote() {
    return writeNote(this.#store, `${this.#key}.part.json`, this.#note);
  }

  /**
   * What the store refuses ends the storing, not the loading.
   * @param {() => Promise<void>} work
   */
  async #try(work) {
    if (this.#refused) return;
    try {
      await work();
    } catch (error) {
      this.#report.warnings.push(refusal(error, await this.#store.room().catch(() => ({}))));
      await this.#drop().catch(() => {}); // the report has said why
    }
  }

  /** Nothing of it stays. */
  async #drop() {
    this.#refused = true;
    await this.#writer?.close();
    await forget(this.#store, this.#key);
  }

  /** A model was made of it. */
  async #keep() {
    if (!this.#whole) return;
    await this.#try(async () => {
      await /** @type {Writer} */ (this.#writer).close();
      this.#writer = undefined;
      this.#note.used = Date.now();
      await this.#writeNote();
      for (const [part, whole] of [['part', 'gguf'], ['part.json', 'json']]) await this.#store.rename(`${this.#key}.${part}`, `${this.#key}.${whole}`);
      this.#report.kept++;
    });
  }

  /** Whether it went well or not: what can be gone on with stays. */
  async #leave() {
    try {
      if (this.#refused || !this.#writer) return;
      await this.#writer.close();
      const useful = this.#note.etag && this.#note.bytes > 0 && !this.#whole;
      if (useful) await this.#writeNote();
      else await forget(this.#store, this.#key);
    } catch {
      // The next load finds what is there, by its hashes, or nothing.
    } finally {
      await this.#release();
    }
  }
}
