/**
 * copy.js: a copy of a download (cache.js) is read, or written while the download is used.
 */
import { createXXHash64 } from 'hash-wasm';
import { BLOCK_BYTES, forget, makeRoom, readNote, writeNote } from './cache.js';
import { Restart } from './download.js';

/** The hashes so far are written after so many blocks. */
const BLOCKS_PER_NOTE = 16;

/**
 * @typedef {import('./cache.js').Store} Store
 * @typedef {import('./cache.js').Writer} Writer
 * @typedef {import('./cache.js').Note} Note
 * @typedef {import('./cache.js').Report} Report
 * @typedef {import('./source.js').Opened} Opened
 * @typedef {import('./download.js').Resume} Resume
 */

/** @type {Promise<import('hash-wasm').IHasher> | undefined} */
let hasher;

/**
 * XXH64, which tells that a block is as it was written, and names a copy after its URL. Damage is meant and no forgery:
 * who can write the block can write the note, which has the URL too. SHA-256 took a quarter of a load.
 */
async function makeHash() {
  hasher ??= createXXHash64().catch((error) => {
    hasher = undefined; // the next load asks again
    throw error;
  });
  const hash = await hasher;
  return (/** @type {Uint8Array | string} */ bytes) => hash.init().update(bytes).digest('hex');
}

/**
 * The first bytes in blocks, of which each is good until the next.
 * @param {AsyncIterable<Uint8Array> | Iterable<Uint8Array>} chunks
 * @param {number} bytes
 */
async function* inBlocks(chunks, bytes) {
  /** @type {Uint8Array | undefined} */
  let block;
  let filled = 0;
  for await (const chunk of chunks) {
    for (let at = 0; at < chunk.length && bytes > 0; ) {
      const length = Math.min(BLOCK_BYTES, bytes);
      const piece = chunk.subarray(at, at + length - filled);
      at += piece.length;
      if (piece.length < length) (block ??= new Uint8Array(BLOCK_BYTES)).set(piece, filled);
      filled += piece.length;
      if (filled < length) continue;
      yield piece.length === length ? piece : /** @type {Uint8Array} */ (block).subarray(0, length);
      bytes -= length;
      filled = 0;
    }
    if (bytes === 0) return;
  }
}

/**
 * The blocks of a copy, each as it was written, or none of them any more.
 * @param {Store} store
 * @param {string} name
 * @param {Note} note
 * @param {() => Promise<void>} drop
 */
async function* blocksOf(store, name, note, drop) {
  const hashOf = await makeHash();
  const chunks = await store.open(name); // a failure says nothing of the copy
  let good = 0;
  let inUse = false;
  let cause;
  try {
    for await (const block of inBlocks(chunks ?? [], note.bytes)) {
      if (hashOf(block) !== note.hashes[good]) break;
      good++;
      inUse = true;
      yield block;
      inUse = false;
    }
  } catch (error) {
    if (inUse) throw error; // the loop was left, and the file could not be closed
    cause = error; // not to be read is as good as damaged
  }
  if (good === note.hashes.length) return;
  await drop();
  throw new Restart('FILE', `the stored copy of ${note.url} was damaged at byte ${good * BLOCK_BYTES}`, { cause });
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
    await writer.close(false); // a lost one makes the copy look longer unused
  }
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
  let key = '';
  let release;
  try {
    key = (await makeHash())(url);
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
    const hash = (await makeHash())(block);
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
