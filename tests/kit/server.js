/**
 * An HTTP server on loopback that serves one file well and in every wrong way.
 *
 *   /ok            whole, with its length               /chunked       whole, without a length
 *   /identity      the same, content-encoding: identity /gzip          compressed, length of what travels
 *   /404  /503     with a text                          /html          200 and a web page
 *   /redirect      302 to /ok                           /loop          302 to itself
 *   /cut/N         whole length told, gone after N      /drop          no answer at all
 *   /short/N       tells N bytes and sends those        /ends/N        no length, ends well after N
 *   /longer/N      N bytes more, length told            /longer-chunked/N   the same without a length
 *   /stall/N       whole length told, silent after N    /silent        never answers
 *   /garbage       random-looking bytes                 /secret        403 without the header x-key: open
 *   /partial       206 and half of it
 */

import { createServer } from 'node:http';
import { gzipSync } from 'node:zlib';

/** @param {Uint8Array} file */
export async function startFaultServer(file) {
  const seen = [];
  let open = 0;
  const server = createServer((request, response) => {
    const [, kind, number] = new URL(request.url, 'http://x').pathname.split('/');
    seen.push({ kind, headers: request.headers });
    open++;
    response.on('close', () => open--);
    answer(kind, Number(number), file, request, response);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    /** requests so far: what was asked for, and the headers */
    seen,
    /** answers that are neither finished nor given up */
    open: () => open,
    close: () =>
      new Promise((resolve) => {
        server.close(resolve);
        server.closeAllConnections();
      }),
  };
}

function answer(kind, n, file, request, response) {
  const whole = (headers = {}) => response.writeHead(200, { 'content-length': file.length, ...headers });
  const plain = () => response.writeHead(200, { 'content-type': 'application/octet-stream' });
  const text = (status, body, type = 'text/plain') => response.writeHead(status, { 'content-type': type }).end(body);
  const zeros = () => Buffer.alloc(n);
  const answers = {
    ok: () => whole().end(file),
    identity: () => whole({ 'content-encoding': 'identity' }).end(file),
    chunked: () => plain().end(file),
    gzip() {
      const packed = gzipSync(file, { level: 1 });
      whole({ 'content-encoding': 'gzip', 'content-length': packed.length }).end(packed);
    },
    404: () => text(404, 'There is nothing here.'),
    503: () => text(503, 'Come back later.'),
    html: () => text(200, '<!doctype html><title>Please log in</title>', 'text/html; charset=utf-8'),
    redirect: () => response.writeHead(302, { location: '/ok' }).end(),
    loop: () => response.writeHead(302, { location: '/loop' }).end(),
    cut: () => whole().write(file.subarray(0, n), () => response.destroy()),
    drop: () => request.socket.destroy(),
    short: () => whole({ 'content-length': n }).end(file.subarray(0, n)),
    ends: () => plain().end(file.subarray(0, n)),
    longer: () => whole({ 'content-length': file.length + n }).end(Buffer.concat([file, zeros()])),
    'longer-chunked': () => plain().end(Buffer.concat([file, zeros()])),
    stall: () => whole().write(file.subarray(0, n)),
    silent() {},
    garbage: () => plain().end(Uint8Array.from({ length: 65536 }, (_, i) => (i * 2654435761) >>> 13)),
    secret: () => (request.headers['x-key'] === 'open' ? whole().end(file) : text(403, 'no')),
    partial: () => response.writeHead(206, { 'content-range': `bytes 0-9/${file.length}` }).end(file.subarray(0, 10)),
  };
  (answers[kind] ?? answers[404])();
}
