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
 *   /partial       206 and a part of it                 /zeros/N       nothing but zeros from N on
 *   /flipped/N     one wrong bit at N
 *
 * Those that get over it; all but the last three know ranges and a strong ETag:
 *
 *   /range         well                                 /busy/N        503 N times, then well
 *   /limited/N     429 N times, then well               /halts/N       once half of N, a pause, to N, silence
 *   /flaky/N       each answer ends after N bytes       /pauses/N      each answer is silent after N bytes
 *   /pieces/N      parts of at most N bytes             /no-range/N    200 for 206, cut once, the same ETag
 *   /changed/N     cut, then another ETag               /changed-length/N   cut, then other Content-Range
 *   /shifted/N     cut, then parts that start wrong     /gone/N        cut, then 416
 *   /weak/N        cut once, a weak ETag, 200           /bare/N        cut once, no ETag
 *   /hidden        206 without Content-Range
 */

import { createServer } from 'node:http';
import { gzipSync } from 'node:zlib';

/**
 * @param {Uint8Array} file
 * @param {Record<string, Uint8Array>} [others] by name: /KIND/NAME or /KIND/N/NAME instead of /KIND or /KIND/N
 */
export async function startFaultServer(file, others = {}) {
  const seen = [];
  let open = 0;
  const healed = new Set();
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url, 'http://x');
    const [, kind, number, last = number] = pathname.split('/');
    const body = others[last] ?? file;
    seen.push({ kind, last, path: pathname, headers: request.headers });
    open++;
    response.on('close', () => open--);
    const times = seen.filter((one) => one.kind === kind && one.last === last).length;
    if (!recover(healed.has(pathname) ? 'range' : kind, Number(number), times, body, request, response)) answer(kind, Number(number), body, request, response);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    /** requests so far: what was asked for, and the headers */
    seen,
    /** from now on this URL is served well */
    heal: (url) => healed.add(new URL(url).pathname),
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
    zeros: () => whole().end(Buffer.concat([file.subarray(0, n), Buffer.alloc(file.length - n)])),
    flipped: () => whole().end(file.map((byte, i) => (i === n ? byte ^ 1 : byte))),
    garbage: () => plain().end(Uint8Array.from({ length: 65536 }, (_, i) => (i * 2654435761) >>> 13)),
    secret: () => (request.headers['x-key'] === 'open' ? whole().end(file) : text(403, 'no')),
    partial: () => response.writeHead(206, { 'content-range': `bytes 0-9/${file.length}` }).end(file.subarray(0, 10)),
  };
  (answers[kind] ?? answers[404])();
}

/**
 * @param {string} kind
 * @param {number} n
 * @param {number} times requests of this kind so far
 * @returns {boolean} whether there is such a kind
 */
function recover(kind, n, times, file, request, response) {
  const [, from, to] = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '') ?? [];
  const first = times === 1;
  /** Bytes as asked for, of which only `most` are sent. */
  const send = ({ etag = '"one"', most = Infinity, shift = 0, longer = 0, piece = Infinity, ranges = true, end = true, halfwayMs = 0 } = {}) => {
    const conditional = request.headers['if-range'];
    const ranged = ranges && from !== undefined && (conditional === undefined || conditional === etag);
    const start = ranged ? Number(from) + shift : 0;
    const last = ranged ? Math.min(to ? Number(to) : Infinity, start + piece - 1, file.length - 1) : file.length - 1;
    response.writeHead(ranged ? 206 : 200, {
      'content-length': last + 1 - start,
      ...(etag && { etag }),
      ...(ranged && { 'content-range': `bytes ${start}-${last}/${file.length + longer}` }),
    });
    const body = file.subarray(start, last + 1);
    if (body.length <= most) response.end(body);
    else if (halfwayMs) {
      response.write(body.subarray(0, most / 2));
      setTimeout(() => response.write(body.subarray(most / 2, most)), halfwayMs);
    } else response.write(body.subarray(0, most), () => end && response.destroy());
    return true;
  };
  const cutOnce = (options, after) => (first ? send({ ...options, most: n }) : send({ ...options, ...after }));
  const kinds = {
    range: () => send(),
    busy: () => (times <= n ? response.writeHead(503, { 'retry-after': '0' }).end('busy') : send()),
    limited: () => (times <= n ? response.writeHead(429, { 'retry-after': '0' }).end('too many') : send()),
    halts: () => cutOnce({ end: false, halfwayMs: 300 }, { halfwayMs: 0 }),
    flaky: () => send({ most: n }),
    pauses: () => send({ most: n, end: false }),
    pieces: () => send({ piece: n }),
    'no-range': () => cutOnce({ ranges: false }),
    changed: () => cutOnce({}, { etag: '"two"' }),
    'changed-length': () => (times === 2 ? send({ longer: 1 }) : cutOnce()),
    shifted: () => (times === 2 ? send({ shift: 1 }) : cutOnce()),
    gone: () => (times === 2 ? response.writeHead(416).end() : cutOnce()),
    weak: () => cutOnce({ etag: 'W/"one"' }),
    bare: () => cutOnce({ etag: undefined, ranges: false }),
    hidden: () => (from ? response.writeHead(206).end(file.subarray(0, 10)) : send()),
  };
  return Object.hasOwn(kinds, kind) && kinds[kind]() !== false;
}
