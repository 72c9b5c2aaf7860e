/* small-store.js: a Store of web/cache.js in memory, that runs full or dies, and what takes bytes through one. */
import assert from 'node:assert/strict';
import { BLOCK_BYTES } from '../../web/cache.js';
import { openThrough } from '../../web/copy.js';
import { Restart } from '../../web/download.js';

const MOST_BYTES = 2 ** 26;

/** In memory, with so many bytes. `told` is what it claims to have, where that is not the truth. */
export function smallStore(quota, told = quota) {
  const files = new Map();
  const usage = () => [...files.values()].reduce((sum, { length }) => sum + length, 0);
  const store = {
    files,
    list: async () => [...files.keys()],
    open: async (name) => (files.has(name) ? inChunks(files.get(name), 300_000) : undefined),
    async write(name, keep) {
      const old = (files.get(name) ?? new Uint8Array(0)).slice(0, keep);
      const buffer = new ArrayBuffer(old.length, { maxByteLength: MOST_BYTES });
      const file = new Uint8Array(buffer); // as long as its buffer
      file.set(old);
      files.set(name, file);
      return {
        async write(bytes) {
          if (usage() + bytes.length > quota) throw new DOMException('the quota is exceeded', 'QuotaExceededError');
          const at = file.length;
          buffer.resize(at + bytes.length);
          file.set(bytes, at);
        },
        async close() {},
      };
    },
    async rename(from, to) {
      files.set(to, files.get(from));
      files.delete(from);
    },
    remove: async (name) => void files.delete(name),
    room: async () => ({ usage: usage(), quota: told }),
    lock: async () => async () => {},
    ...mortal(),
  };
  return store;
}

async function* inChunks(bytes, length) {
  for (let at = 0; at < bytes.length; at += length) yield bytes.slice(at, at + length);
}

/** `dyingAfter(n)`: the same store for whom n steps that change something succeed, then nothing happens any more. */
function mortal() {
  let die;
  return {
    death: new Promise((resolve) => (die = resolve)),
    dyingAfter(n) {
      const step = (change) => (...values) => (n-- > 0 ? change(...values) : (die(), new Promise(() => {})));
      return {
        ...this,
        write: step(async (...values) => {
          const writer = await this.write(...values);
          return { write: step(writer.write), close: writer.close };
        }),
        rename: step(this.rename),
        remove: step(this.remove),
      };
    },
  };
}

/** Takes `bytes` through the store, begun again where it wants that; what the report says. */
export async function through(store, url, bytes) {
  const report = { files: 1, kept: 0, warnings: [] };
  const download = async (resume) => ({ name: url, total: bytes.length, exact: true, etag: '"one"', chunks: inChunks(bytes.subarray(resume?.from ?? 0), 700_000) });
  const once = async () => {
    const source = await openThrough(store, url, { header: false, report, download, verify: (source) => source });
    try {
      const got = [];
      for await (const chunk of source.chunks) {
        assert.ok(chunk.length <= BLOCK_BYTES);
        got.push(chunk.slice());
      }
      await source.keep?.();
      assert.ok(Buffer.concat(got).equals(bytes));
    } finally {
      await source.release?.();
    }
  };
  await once().catch((error) => (error instanceof Restart ? once() : Promise.reject(error)));
  return report;
}
