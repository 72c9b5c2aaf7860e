/* What tests/cache-browsers.test.js reads: copies of models in the browser's storage. ?visit=second comes
 * when the server has no model any more. */
import { ModelError, load, models, persist } from '../../dist/index.js';

const MODEL = new URL('../model/model.gguf', location.href).href;
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

const list = async () => (await models()).map(({ url, bytes, complete }) => ({ url, bytes, complete }));

if (new URLSearchParams(location.search).get('visit') === 'second') {
  await tell('without the server', loaded);
  await tell('two readers', () => Promise.all([loaded(), loaded()]));
  await tell('listed', list);
  await tell('damaged', async () => {
    const root = await navigator.storage.getDirectory();
    const folder = await (await root.getDirectoryHandle('tabllama')).getDirectoryHandle('models');
    for await (const [name, handle] of folder) {
      if (!name.endsWith('.gguf')) continue;
      const stream = await handle.createWritable({ keepExistingData: true });
      await stream.write({ type: 'write', position: 1000, data: new Uint8Array(8) });
      await stream.close();
    }
    return loaded();
  });
  await tell('after it', list);
} else {
  await tell('two at once', () => Promise.all([loaded(), loaded()]));
  await tell('listed', list);
  await tell('deleted', async () => Promise.all((await models()).map((model) => model.delete())));
  await tell('nothing', list);
  await tell('once more', loaded);
  // Firefox asks the user, who is not there.
  await tell('persist', () => Promise.race([persist().then((agreed) => typeof agreed), new Promise((resolve) => setTimeout(resolve, 2000, 'asks'))]));
}

document.querySelector('pre').textContent = JSON.stringify(outcomes);
document.title = 'done';
