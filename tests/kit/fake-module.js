/**
 * fake-module.js: tiny wasm modules with exports of our choice, for what the engine's own cannot be made to
 * do: have another version, return an address above 2 GiB, trap.
 */

const leb = (n) => {
  const bytes = [];
  for (;;) {
    const low = n & 0x7f;
    n >>= 7;
    if ((n === 0 && !(low & 0x40)) || (n === -1 && low & 0x40)) return [...bytes, low];
    bytes.push(low | 0x80);
  }
};
const vector = (items) => [...leb(items.length), ...items.flat()];
const section = (id, items) => [id, ...vector([...vector(items)].map((byte) => [byte]))];
const name = (text) => vector([...new TextEncoder().encode(text)].map((byte) => [byte]));

/**
 * A module that imports env.memory.
 * @param {Record<string, { args?: number, result?: number, trap?: boolean }>} functions  each takes `args` i32s
 *   and returns the i32 `result`, or nothing without one, or traps
 * @param {boolean} [shared] memory
 */
export function fakeModule(functions, shared = false) {
  const rows = Object.entries(functions);
  const I32 = 127;
  const returns = ({ result, trap }) => result !== undefined || trap;
  const types = rows.map(([, f]) => [96, ...vector(Array(f.args ?? 0).fill([I32])), ...vector(returns(f) ? [[I32]] : [])]);
  const bodies = rows.map(([, { result, trap }]) => {
    const code = trap ? [0] : result === undefined ? [] : [65, ...leb(result)];
    return vector([0, ...code, 11].map((byte) => [byte]));
  });
  const limits = shared ? [3, 1, ...leb(65536)] : [1, 1, ...leb(65536)];
  return new WebAssembly.Module(new Uint8Array([
    0, 97, 115, 109, 1, 0, 0, 0,
    ...section(1, types),
    ...section(2, [[...name('env'), ...name('memory'), 2, ...limits]]),
    ...section(3, rows.map((_, i) => [i])),
    ...section(7, rows.map(([text], i) => [...name(text), 0, ...leb(i)])),
    ...section(10, bodies),
  ]));
} // prettier-ignore
