/** serve.js: the child's side of engines.js: one message in, one out, in order. */

/** @param {Record<string, (args: any) => any>} operations */
export function serve(operations) {
  let queue = Promise.resolve();
  process.on('disconnect', () => process.exit());
  process.on('message', (/** @type {any} */ { operation, args }) => {
    queue = queue.then(async () => {
      let answer;
      try {
        answer = { value: await operations[operation](args) };
      } catch (error) {
        answer = { error: String(/** @type {Error} */ (error)?.stack ?? error) };
      }
      process.send?.(answer);
    });
  });
}
