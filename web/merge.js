/**
 * Merging neighbours, the loop at the heart of BPE and SPM.
 */

/** Of a character in UTF-8. @param {number} first its first byte */
export const bytesFrom = (first) => (first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4);

/** A sort key is rank * POSITIONS + position, exact in a double: ranks below 2^22, text below 2^30. */
const POSITIONS = 2 ** 30;

/**
 * Returns merge(text, n, use): cuts n bytes of UTF-8 into characters, joins the pair of neighbours of the lowest
 * rank (leftmost first) until none has a rank, and hands over each symbol left. n log n.
 *
 * A symbol is known by where it begins; the next one begins at its end. Pairs wait in a heap; one is stale
 * when the pair that begins there has another rank by now.
 * @param {(text: Uint8Array, left: number, mid: number, right: number) => number} rankOf -1: does not join
 */
export function merger(rankOf) {
  let end = new Int32Array(64);
  let previous = new Int32Array(64);
  let rank = new Int32Array(64);
  /** @type {number[]} */
  const heap = [];

  /** @param {Uint8Array} text @param {number} n @param {number} left */
  const consider = (text, n, left) => {
    const mid = end[left];
    rank[left] = mid < n ? rankOf(text, left, mid, end[mid]) : -1;
    if (rank[left] >= 0) push(heap, rank[left] * POSITIONS + left);
  };

  /** @param {Uint8Array} text @param {number} n @param {(from: number, to: number) => void} use */
  return (text, n, use) => {
    if (n > end.length) {
      end = new Int32Array(2 * n);
      previous = new Int32Array(2 * n);
      rank = new Int32Array(2 * n);
    }
    for (let at = 0, before = -1; at < n; before = at, at = end[at]) {
      end[at] = at + bytesFrom(text[at]);
      previous[at] = before;
    }
    for (let at = 0; at < n; at = end[at]) consider(text, n, at);
    while (heap.length > 0) {
      const key = pop(heap);
      const left = key % POSITIONS;
      if (rank[left] !== (key - left) / POSITIONS) continue;
      const mid = end[left];
      rank[mid] = -1;
      end[left] = end[mid];
      if (end[left] < n) previous[end[left]] = left;
      consider(text, n, left);
      if (previous[left] >= 0) consider(text, n, previous[left]);
    }
    for (let at = 0; at < n; at = end[at]) use(at, end[at]);
  };
}

/** @param {number[]} heap smallest first @param {number} key */
function push(heap, key) {
  let i = heap.length;
  heap.push(key);
  while (i > 0) {
    const parent = (i - 1) >> 1;
    if (heap[parent] <= key) break;
    heap[i] = heap[parent];
    i = parent;
  }
  heap[i] = key;
}

/** @param {number[]} heap not empty */
function pop(heap) {
  const top = heap[0];
  const key = /** @type {number} */ (heap.pop());
  const n = heap.length;
  if (n === 0) return top;
  let i = 0;
  for (;;) {
    let child = 2 * i + 1;
    if (child + 1 < n && heap[child + 1] < heap[child]) child++;
    if (child >= n || heap[child] >= key) break;
    heap[i] = heap[child];
    i = child;
  }
  heap[i] = key;
  return top;
}
