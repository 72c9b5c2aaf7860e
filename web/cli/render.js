/** render.js: `render`: a chat template, from a file or a model's header, on cases. */
import { renderCases } from '../chat.js';
import { readHeader } from '../engine.js';
import { Renderer } from '../renderer.js';
import { UsageError, hubOptions } from './options.js';
import { readCases, readText, writeJson } from './output.js';

/**
 * @param {string | undefined} model
 * @param {import('./options.js').Options} options
 */
async function templateOf(model, { template }) {
  if ((model === undefined) === (template === undefined))
    throw new UsageError('render needs a model or --template FILE, one of them');
  if (template !== undefined) return readText(template);
  const source = (await readHeader(/** @type {string} */ (model), hubOptions(/** @type {string} */ (model)))).meta('tokenizer.chat_template');
  if (typeof source !== 'string') throw new Error(`${model} has no chat template`);
  return source;
}

/**
 * @param {string | undefined} model
 * @param {import('./options.js').Options} options
 */
export async function render(model, options) {
  if (!options.cases) throw new UsageError('render needs --cases FILE');
  const template = await templateOf(model, options);
  const cases = await readCases(options.cases);
  cases.forEach(({ vars = {} }, i) => {
    if (vars === null || typeof vars !== 'object') throw new Error(`case ${i} of ${options.cases}: 'vars' must be an object`);
  });
  const renderer = new Renderer(new URL('../template.js', import.meta.url));
  await writeJson({ cases: await renderCases(renderer, template, cases, { now: options.now }) });
}
