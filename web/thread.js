/**
 * thread.js: one compute worker: its own instance of the module on the shared memory and on a stack of
 * its own, in lm_work until lm_stop. Self-contained; the same in Node and browsers.
 */
/** @typedef {{ module: WebAssembly.Module, memory: WebAssembly.Memory, stack: number, index: number }} Start */

/** @type {any} */
const parent = globalThis.process?.getBuiltinModule?.('node:worker_threads').parentPort ?? self;

/**
 * @param {Start} start
 * @param {any} port who is told
 */
function work({ module, memory, stack, index }, port) {
  /** @type {any} */
  let engine;
  try {
    engine = new WebAssembly.Instance(module, { env: { memory } }).exports;
    engine.__stack_pointer.value = stack;
    port.postMessage('ready');
    engine.lm_work(index);
    port.postMessage('ended');
  } catch (error) {
    engine?.lm_fail(); // whoever waits for this thread traps too, instead of waiting for ever
    port.postMessage({ error: String(error) });
  }
}

/** @param {{ data: Start & { port?: MessagePort } }} message  a port: whoever started it speaks for another */
parent.onmessage = ({ data }) => {
  if (data.port) {
    data.port.onmessage = ({ data: start }) => work(start, data.port);
  } else {
    work(data, parent);
    parent.close();
  }
};
