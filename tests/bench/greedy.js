/** greedy.js: tokens out of our engine, timed; in Node and in a browser's worker. */
import { Clock } from './clock.js';

/** @param {any} engine @param {number} seq @param {number[]} tokens @param {'none' | 'last'} want */
export function prefill(engine, seq, tokens, want) {
  const { maxBatch } = engine.info;
  for (let i = 0; i < tokens.length; i += maxBatch)
    engine.eval({ tokens: tokens.slice(i, i + maxBatch), seq }, i + maxBatch < tokens.length ? 'none' : want);
}

/**
 * @param {any} engine
 * @param {number} seq
 * @param {number[]} tokens
 * @param {number} n
 * @param {number} keep  of the tokens stand in the context
 */
export function greedy(engine, seq, tokens, n, keep) {
  engine.rewind(seq, keep);
  engine.setSampler(seq, { temperature: 0 });
  const clock = new Clock();
  prefill(engine, seq, tokens.slice(keep), 'last');
  for (;;) {
    const token = engine.sample(seq);
    if (clock.tick() === n) return clock.times();
    engine.eval({ tokens: [token], seq });
  }
}
