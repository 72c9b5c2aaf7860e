/** draws.js: whether a random choice follows its distribution. */
import assert from 'node:assert/strict';

/**
 * Fails where counts are no likely outcome of the probabilities p: a token that has none, or a chi-square
 * more than five standard deviations beyond its mean. Tokens with fewer than five draws to expect count
 * as one.
 */
export function assertDrawn(count, p, what) {
  const draws = count.reduce((a, b) => a + b);
  let chi = 0;
  let freedom = -1;
  let [restCount, restP] = [0, 0];
  for (let id = 0; id < p.length; id++) {
    if (p[id] === 0) assert.equal(count[id], 0, `${what}: token ${id} has no probability`);
    if (p[id] * draws < 5) {
      restCount += count[id];
      restP += p[id];
    } else {
      chi += (count[id] - p[id] * draws) ** 2 / (p[id] * draws);
      freedom++;
    }
  }
  if (restP * draws >= 5) {
    chi += (restCount - restP * draws) ** 2 / (restP * draws);
    freedom++;
  } else assert.ok(restCount <= restP * draws + 12, `${what}: ${restCount} draws of unlikely tokens`);
  const most = freedom + 5 * Math.sqrt(2 * Math.max(1, freedom));
  assert.ok(chi <= most, `${what}: chi-square ${chi.toFixed(1)} with ${freedom} degrees of freedom`);
}
