/** suggest.js: "did you mean" for names that people type. */

/**
 * Number of insertions, deletions, replacements and swaps of neighbours that turn a into b.
 * @param {string} a
 * @param {string} b
 */
function distance(a, b) {
  /** @type {[number[], number[]]} */
  let [before, above] = [[], Array.from({ length: b.length + 1 }, (_, j) => j)];
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1];
      row[j] = Math.min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (same ? 0 : 1));
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        row[j] = Math.min(row[j], before[j - 2] + 1);
    }
    [before, above] = [above, row];
  }
  return above[b.length];
}

/**
 * `: did you mean 'x'?`, or nothing where no known name is near.
 * @param {string} word
 * @param {Iterable<string>} known
 */
export function suggest(word, known) {
  let nearest = '';
  let least = Math.max(2, Math.floor(word.length / 3)) + 1;
  for (const name of known) {
    const d = distance(word.toLowerCase(), name.toLowerCase());
    if (d < least && d < name.length) [nearest, least] = [name, d];
  }
  return nearest ? ` (did you mean '${nearest}'?)` : '';
}
