/** npm start [-- --port N] [--no-isolation]: sets up what is missing, then serves the demo. */
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { ready } from './ready.js';

try {
  await ready();
} catch (error) {
  console.error(/** @type {Error} */ (error).message);
  process.exit(1);
}
const server = spawn(
  process.execPath,
  [fileURLToPath(new URL('serve.js', import.meta.url)), ...process.argv.slice(2)],
  {
    stdio: 'inherit',
  },
);
for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM']))
  process.on(signal, () => server.kill(signal));
server.on('exit', (code) => process.exit(code ?? 0));
