#!/usr/bin/env node
/* The demo's web server: the page, dist/ and models/, with the headers a deployment should send.
 *
 *   node web/demo/serve.js [--port 8080] [--host localhost] [--no-isolation]
 *
 * Isolation (COOP and COEP) is what gives a page shared memory, and so threads; without it the demo
 * runs on one thread. The content security policy is sent either way, on every response: a worker is
 * governed by the headers of its own script. */
import { createReadStream, realpathSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { createServer } from 'node:http';
import path from 'node:path';
import { pipeline } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

/** @typedef {import('node:http').IncomingMessage} Request */
/** @typedef {import('node:http').ServerResponse} Response */
/** @typedef {Record<string, string>} Folders  path on the server → folder on the disk */
/** @typedef {{ path: string, size: number, modified: number }} Found */

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const HOME = '/web/demo/';

export const POLICY = [
  "default-src 'none'",
  "script-src 'self' 'wasm-unsafe-eval'",
  "worker-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self' https:",
  "base-uri 'none'",
  "form-action 'none'",
].join('; ');

/** @type {Record<string, string>} */
const TYPES = {
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.json': 'application/json; charset=utf-8',
  '.map': 'application/json; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.wasm': 'application/wasm',
};

/**
 * Starts the server.
 * @param {object} [options]
 * @param {number} [options.port] the first port to try, 0 for any; a taken one gives the next
 * @param {string} [options.host]
 * @param {boolean} [options.isolation] send COOP, COEP and CORP
 * @param {Folders} [options.folders] what is served
 * @param {string | null} [options.policy] content security policy; null: none
 * @returns {Promise<{ url: string, port: number, close(): Promise<void> }>}
 */
export async function startServer({ port = 8080, host = 'localhost', isolation = true, folders, policy = POLICY } = {}) {
  const served = folders ?? defaultFolders();
  const headers = {
    ...(policy && { 'Content-Security-Policy': policy }),
    'X-Content-Type-Options': 'nosniff',
    'Referrer-Policy': 'no-referrer',
    'Cache-Control': 'no-cache',
    ...(isolation && {
      'Cross-Origin-Opener-Policy': 'same-origin',
      'Cross-Origin-Embedder-Policy': 'require-corp',
      'Cross-Origin-Resource-Policy': 'same-origin',
    }),
  };
  const server = createServer((request, response) => {
    for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
    respond(request, response, served).catch((error) => {
      console.error(error);
      refuse(response, 500, 'The server failed.');
    });
  });
  const bound = await listen(server, port, host);
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${bound}/`,
    port: bound,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

/** The folders of the checkout that a page may read; nothing else in it is served. */
export function defaultFolders() {
  return Object.fromEntries([HOME, '/dist/', '/models/'].map((name) => [name, path.join(ROOT, name)]));
}

/**
 * Listens on the first free port from `port` on, of a hundred; resolves to it.
 * @param {import('node:http').Server} server
 * @param {number} port
 * @param {string} host
 * @returns {Promise<number>}
 */
function listen(server, port, host) {
  return new Promise((resolve, reject) => {
    const last = Math.min(port + 100, 65535);
    server.on('error', (/** @type {NodeJS.ErrnoException} */ error) => {
      if (error.code !== 'EADDRINUSE' || port === last) return reject(error);
      server.listen(++port, host);
    });
    server.on('listening', () => {
      const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
      resolve(port);
    });
    server.listen(port, host);
  });
}

/** @param {Request} request @param {Response} response @param {Folders} folders */
async function respond(request, response, folders) {
  if (request.method !== 'GET' && request.method !== 'HEAD') {
    response.setHeader('Allow', 'GET, HEAD');
    return refuse(response, 405, 'Only GET and HEAD are answered here.');
  }
  const name = requestPath(request.url ?? '');
  if (name === null) return refuse(response, 400, 'The address is malformed.');
  if (name === '/') {
    response.writeHead(302, { Location: HOME }).end();
    return;
  }
  const file = await findFile(name, folders);
  if (!file) return refuse(response, 404, `There is no ${name} here.`);
  sendFile(request, response, file);
}

/** The decoded path of a request's target, or null if it is not one. @param {string} target */
function requestPath(target) {
  try {
    const name = decodeURIComponent(new URL(target, 'http://host').pathname);
    return name.includes('\0') ? null : name;
  } catch {
    return null;
  }
}

/**
 * The regular file that stands for a path, or null. A link out of a folder is its owner's choice.
 * @param {string} name
 * @param {Folders} folders
 * @returns {Promise<Found | null>}
 */
async function findFile(name, folders) {
  const prefix = Object.keys(folders).find((key) => name.startsWith(key));
  if (!prefix) return null;
  const folder = path.resolve(folders[prefix]);
  const rest = name.slice(prefix.length);
  const file = path.resolve(folder, `./${rest}`, rest === '' || rest.endsWith('/') ? 'index.html' : '');
  if (!file.startsWith(folder + path.sep)) return null;
  try {
    const stats = await stat(file);
    return stats.isFile() ? { path: file, size: stats.size, modified: stats.mtimeMs } : null;
  } catch (error) {
    const { code = '' } = /** @type {NodeJS.ErrnoException} */ (error);
    if (['ENOENT', 'ENOTDIR', 'ELOOP', 'ENAMETOOLONG', 'EACCES'].includes(code)) return null;
    throw error;
  }
}

/** @param {Request} request @param {Response} response @param {Found} file */
function sendFile(request, response, file) {
  const tag = `"${file.size.toString(36)}-${Math.round(file.modified).toString(36)}"`;
  response.setHeader('Content-Type', TYPES[path.extname(file.path)] ?? 'application/octet-stream');
  response.setHeader('Accept-Ranges', 'bytes');
  response.setHeader('ETag', tag);
  if (request.headers['if-none-match'] === tag) {
    response.writeHead(304).end();
    return;
  }
  const condition = request.headers['if-range'];
  const range = condition && condition !== tag ? null : parseRange(request.headers.range, file.size);
  if (range === 'unsatisfiable') {
    response.setHeader('Content-Range', `bytes */${file.size}`);
    return refuse(response, 416, 'The range lies outside the file.');
  }
  const { start, end } = range ?? { start: 0, end: file.size - 1 };
  if (range) response.setHeader('Content-Range', `bytes ${start}-${end}/${file.size}`);
  response.writeHead(range ? 206 : 200, { 'Content-Length': end - start + 1 });
  if (request.method === 'HEAD' || file.size === 0) {
    response.end();
    return;
  }
  pipeline(createReadStream(file.path, { start, end }), response, (error) => {
    /* a page that goes away in the middle is its good right */
    if (error && error.code !== 'ERR_STREAM_PREMATURE_CLOSE') console.error(error);
  });
}

/**
 * One byte range (RFC 9110, 14.2); null stands for the whole file, also where several are asked for.
 * @param {string | undefined} header
 * @param {number} size
 */
function parseRange(header, size) {
  const [, first, last] = /^bytes=(\d*)-(\d*)$/.exec(header ?? '') ?? ['', '', ''];
  if (first === '' && last === '') return null;
  if (first === '') {
    const count = Math.min(Number(last), size);
    return count > 0 ? { start: size - count, end: size - 1 } : 'unsatisfiable';
  }
  if (last !== '' && Number(last) < Number(first)) return null;
  if (Number(first) >= size) return 'unsatisfiable';
  return { start: Number(first), end: last === '' ? size - 1 : Math.min(Number(last), size - 1) };
}

/** @param {Response} response @param {number} status @param {string} sentence */
function refuse(response, status, sentence) {
  if (response.headersSent) return response.destroy();
  response.removeHeader('ETag');
  response.writeHead(status, { 'Content-Type': 'text/plain; charset=utf-8' }).end(`${sentence}\n`);
}

async function main() {
  const { values } = parseArgs({
    options: {
      port: { type: 'string', default: '8080' },
      host: { type: 'string', default: 'localhost' },
      'no-isolation': { type: 'boolean', default: false },
    },
  });
  const port = Number(values.port);
  if (!/^\d+$/.test(values.port) || port > 65535) throw new RangeError(`--port ${values.port} is not a port`);
  const isolation = !values['no-isolation'];
  const { url } = await startServer({ port, host: values.host, isolation });
  console.log(`tabllama: ${url}${isolation ? '' : ' (not isolated: one thread)'}`);
}

if (process.argv[1] && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
  main().catch((error) => {
    console.error(`serve: ${error.message}`);
    process.exitCode = error instanceof RangeError || /^ERR_PARSE_ARGS/.test(error.code) ? 2 : 1;
  });
}
