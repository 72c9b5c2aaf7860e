/* front.js: a page's server and a server that fails as one origin: /fault/... goes to the latter. */
import { createServer, request as ask } from 'node:http';

/**
 * @param {string} page URL with a slash at its end
 * @param {string} faults URL without
 */
export async function startFront(page, faults) {
  const server = createServer((request, response) => {
    const [, fault] = /^\/fault(\/.*)/.exec(request.url) ?? [];
    const target = new URL(fault ? faults + fault : page + request.url.slice(1));
    const through = ask(target, { headers: { ...request.headers, host: target.host } }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.on('error', () => response.destroy());
      answer.pipe(response);
    });
    through.on('error', () => response.destroy());
    response.on('close', () => through.destroy());
    through.end();
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://localhost:${server.address().port}/`,
    close: () =>
      new Promise((resolve) => {
        server.close(resolve);
        server.closeAllConnections();
      }),
  };
}
