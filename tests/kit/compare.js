/** compare.js: how far two sets of logits are from each other. */

export function maxDifference(a, b) {
  if (a.length !== b.length) throw new Error(`${a.length} logits against ${b.length}`);
  let max = 0;
  for (let i = 0; i < a.length; i++) {
    const d = Math.abs(a[i] - b[i]);
    if (!(d <= max)) max = d; /* NaN stays */
    if (Number.isNaN(d)) return NaN;
  }
  return max;
}

export function logSumExp(x) {
  const max = x.reduce((a, b) => Math.max(a, b), -Infinity);
  return max + Math.log(x.reduce((sum, v) => sum + Math.exp(v - max), 0));
}

/** Probabilities of logits, in float64. */
export function softmax(x) {
  const log = logSumExp(x);
  return Float64Array.from(x, (v) => Math.exp(v - log));
}

/** Kullback-Leibler divergence of the distribution of `logits` from that of `reference`. */
export function divergence(reference, logits) {
  const logP = logSumExp(reference);
  const logQ = logSumExp(logits);
  let sum = 0;
  for (let i = 0; i < reference.length; i++) {
    const p = reference[i] - logP;
    sum += Math.exp(p) * (p - (logits[i] - logQ));
  }
  return sum;
}

/** Index of the largest, the lowest one on a tie. */
export function argmax(x) {
  let best = 0;
  for (let i = 1; i < x.length; i++) if (x[i] > x[best]) best = i;
  return best;
}

/** How many leading greedy steps are certain: up to the first whose margin two such errors could turn. */
export function certainSteps(margins, difference) {
  const i = margins.findIndex((margin) => margin < 2 * difference);
  return i < 0 ? margins.length : i;
}

export function sameBits(a, b) {
  const bytes = (x) => Buffer.from(x.buffer, x.byteOffset, x.byteLength);
  return a.length === b.length && bytes(a).equals(bytes(b));
}
