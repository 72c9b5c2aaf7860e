/* What tests/cache-browsers.test.js reads: copies of models in the browser's storage. ?visit=second comes
 * when the server has no model any more, ?visit=cut is closed in the middle of a write, ?visit=after comes then. */
import { ModelError, load, models, persist } from '../../dist/index.js';

const query = new URLSearchParams(location.search);
const MODEL = new URL(query.get('model') ?? '../model/model.gguf', location.href).href;
const outcomes = {};

async function tell(name, check) {
  try {
    outcomes[name] = await check();
  } catch (error) {
    outcomes[name] = { code: error.code, message: error.message, ours: error instanceof ModelError };
  }
}

async function loaded(options) {
  const model = await load(MODEL, { cache: true, ...options });
  const { tokens } = await model.generate('to sit on', { temperature: 0, maxTokens: 6 }).result();
  await model.close();
  return { tokens, cached: model.info.cached, warnings: model.info.warnings };
}

/** Until a store that was left in a hurry is free again: every load must give the model, the last one a copy. */
async function loadedAndKept() {
  const all = [];
  do all.push(await loaded());
  while (!all.at(-1).cached && all.length < 20);
  return all;
}

/** Begins a load that stands still after some blocks, and ends its worker there. */
async function killed() {
  const begun = [];
  const RealWorker = window.Worker;
  window.Worker = class extends RealWorker {
    constructor(...values) {
      super(...values);
      begun.push(this);
    }
  };
  await stuck();
  window.Worker = RealWorker;
  begun[0].terminate();
}

/** Until some blocks have come of a load that stands still after them. */
const stuck = () =>
  new Promise((resolve, reject) => {
    load(MODEL, { cache: true, onProgress: ({ loaded }) => loaded > 2 ** 20 && resolve() }).catch(reject);
  });

/** Changes some bytes of what is stored under names that end so. */
async function damage(end) {
  const root = await navigator.storage.getDirectory();
  const folder = await (await root.getDirectoryHandle('tabllama')).getDirectoryHandle('models');
  for await (const [name, handle] of folder) {
    if (!name.endsWith(end)) continue;
    const stream = await handle.createWritable({ keepExistingData: true });
    await stream.write({ type: 'write', position: 1000, data: new Uint8Array(8) });
    await stream.close();
  }
}

/** A load that is given up when some blocks have come. */
async function givenUp() {
  const controller = new AbortController();
  const onProgress = ({ loaded }) => loaded > 2 ** 20 && controller.abort();
  return load(MODEL, { cache: true, onProgress, signal: controller.signal });
}

const list = async () => (await models()).map(({ url, bytes, complete }) => ({ url, bytes, complete }));

const visits = {
  async second() {
    await tell('without the server', loaded);
    await tell('two readers', () => Promise.all([loaded(), loaded()]));
    await tell('listed', list);
    await tell('damaged', async () => {
      await damage('.gguf');
      return loaded();
    });
    await tell('after it', list);
  },
  async cut() {
    await tell('stuck', stuck);
  },
  async after() {
    await tell('begun', list);
    await tell('once more', loadedAndKept);
    await tell('listed', list);
  },
  async killed() {
    await tell('killed', killed);
    await visits.after();
  },
  async damaged() {
    await tell('given up', givenUp);
    await damage('.part');
    await visits.after();
  },
  async other() {
    await tell('other', loaded);
    await tell('listed', list);
  },
  async first() {
    await tell('two at once', () => Promise.all([loaded(), loaded()]));
    await tell('listed', list);
    await tell('deleted', async () => Promise.all((await models()).map((model) => model.delete())));
    await tell('nothing', list);
    await tell('once more', loaded);
    // Firefox asks the user, who is not there.
    await tell('persist', () => Promise.race([persist().then((agreed) => typeof agreed), new Promise((resolve) => setTimeout(resolve, 2000, 'asks'))]));
  },
};

await visits[query.get('visit') ?? 'first']();
document.querySelector('pre').textContent = JSON.stringify(outcomes);
document.title = 'done';
