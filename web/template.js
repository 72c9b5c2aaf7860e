/** template.js: the worker in which chat templates run. Self-contained in dist/; renderer.js starts and ends it. */
import { ModelError } from './errors.js';
import { compile } from './jinja/template.js';
import { onNode, parentNodePort } from './node.js';
import { Rpc, parentPort } from './rpc.js';

/** Conversations render one template again and again. @type {{ source?: string, run?: ReturnType<typeof compile> }} */
let latest = {};

/** @param {{ source: string, vars: Record<string, any>, now: Date }} what */
function render({ source, vars, now }) {
  try {
    if (latest.source !== source) latest = { source, run: compile(source) };
    return /** @type {ReturnType<typeof compile>} */ (latest.run)(vars, now);
  } catch (cause) {
    const { message } = /** @type {Error} */ (cause);
    // The engine's own words on a full stack or an overlong string would tell nobody anything.
    const reason = cause instanceof RangeError ? 'it is nested too deeply or makes too much' : message;
    throw new ModelError('TEMPLATE', `the chat template failed: ${reason}`, { cause });
  }
}

new Rpc(onNode() ? parentNodePort() : parentPort(), { hello: () => null, render });
