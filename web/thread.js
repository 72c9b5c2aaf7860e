/**
 * thread.js: one compute worker: its own instance of the module on the shared memory and on a stack of
 * its own, in lm_work until lm_stop. Self-contained; the same in Node and browsers.
 */
/** @type {any} */
const port = globalThis.process?.getBuiltinModule?.('node:worker_threads').parentPort ?? self;

/** @param {{ data: { module: WebAssembly.Module, memory: WebAssembly.Memory, stack: number, index: number } }} start */
port.onmessage = ({ data: { module, memory, stack, index } }) => {
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
  port.close();
};
