/**
 * bits.js: a hash over every logit that a model gives to a fixed prompt and to what follows it, for each variant
 * and thread count that runs where this runs: in Node as in a browser's worker. Equal bits, equal hashes.
 */

const PROMPT = Array.from({ length: 40 }, (_, i) => (i * i * 7 + 3) % 256);
const N_MORE = 24;
const N_THREADS = [1, 2];

/**
 * @param {typeof import('../../web/engine.js')} engineModule
 * @param {Blob} file
 * @returns {Promise<{ variant: string, threads: number, precision: string, hash: string }[]>}
 */
export async function bitsOf({ createEngine, runnable }, file) {
  const rows = [];
  for (const variant of runnable()) {
    for (const threads of variant.endsWith('-mt') ? N_THREADS : [1]) {
      for (const precision of ['high', 'fast']) {
        const engine = await createEngine(file, { variant, threads, precision });
        rows.push({ variant, threads, precision, hash: await hashOf(engine) });
        await engine.close();
      }
    }
  }
  return rows;
}

/** @param {import('../../web/engine.js').Engine} engine */
async function hashOf(engine) {
  const seq = engine.seq();
  engine.setSampler(seq, { temperature: 0 });
  const logits = [];
  let tokens = PROMPT;
  for (let i = 0; i <= N_MORE; i++) {
    engine.eval({ tokens, seq });
    logits.push(engine.logits());
    tokens = [engine.sample(seq)];
  }
  const digest = await crypto.subtle.digest('SHA-256', await new Blob(logits).arrayBuffer());
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, '0')).join('');
}
