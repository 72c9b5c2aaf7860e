/** report.js: tables from what run.js has measured. */

/** @param {number[]} values */
export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2;
}

/** Ratios to llama.cpp that are aimed at: decode, prefill, decode after 1,024 tokens. */
const GOALS = {
  fast: {
    'smollm2-135m.q4_1': [1.5, 0.7, 1.3], 'smollm2-135m.q8_0': [1.4, 0.65, 1.3], 'smollm2-135m.q4_0': [1.5, 0.7, 1.3],
    'tinyllama-1.1b.q4_0': [1.3, 0.8, 1.3], 'tinyllama-1.1b.q8_0': [1.1, 0.65],
    'llama-3.2-1b.q4_k_m': [1.1, 0.8],
  },
  high: {
    'smollm2-135m.q4_1': [1, 0.45], 'smollm2-135m.q8_0': [1, 0.45], 'smollm2-135m.q4_0': [1, 0.45],
    'tinyllama-1.1b.q4_0': [0.9, 0.45],
  },
};
const JOBS = { p128: 'prefill 128', p512: 'prefill 512', d8: 'decode', d1024: 'decode at 1,024', d2048: 'decode at 2,048' };
const goalOf = (precision, name, job) => GOALS[precision]?.[name]?.[job === 'd8' ? 0 : job[0] === 'p' ? 1 : job === 'd1024' ? 2 : 3];

const table = (head, rows) =>
  [head, head.map(() => '---'), ...rows].map((row) => `| ${row.join(' | ')} |`).join('\n');
const number = (x, digits = 1) => (Number.isFinite(x) ? x.toFixed(digits) : '-');
/** Median of the ratios of neighbours. */
const ratio = (a, b) => (a && b ? median(a.map((x, i) => x / b[i])) : NaN);

function kernelTable({ kernels }) {
  const rows = [];
  for (const [variant, { peaks, products }] of Object.entries(kernels))
    for (const [name, m] of Object.entries(products)) {
      rows.push([variant, name, number(m.hot), number(m.cold), `${number((100 * m.cold) / peaks.readGbPerSecond, 0)} %`, number(m.gopsOf8), number(m.gops)]);
    }
  const peaks = Object.entries(kernels).map(([variant, { peaks: p }]) =>
    `${variant}: ${Object.entries(p).map(([name, x]) => `${name === 'readGbPerSecond' ? 'read GB/s' : `${name.replace('peak_', '')} GOPS`} ${number(x)}`).join(', ')}`);
  return `Peaks of one thread: ${peaks.join('; ')}\n\n${table(['variant', 'type', 'hot GB/s', 'cold GB/s', 'of reading', '8 tokens GOPS', '128 tokens GOPS'], rows)}`;
}

function attentionTable({ kernels }) {
  const rows = Object.entries(kernels.relaxed?.attention ?? kernels.simd.attention).map(([name, rate]) => [name, number(rate)]);
  return table(['cache, queries per KV head', 'attention GMAC/s'], rows);
}

function modelRows(name, { runs }) {
  const rows = [];
  for (const [threads, { rates, loaded }] of Object.entries(runs))
    for (const [job, label] of Object.entries(JOBS))
      for (const precision of ['fast', 'high']) {
        const own = rates[precision]?.[job];
        if (!own) continue;
        const { bytesToken, gigaOpsToken, nVocab, dModel } = loaded[precision];
        const rate = median(own), n = Number(job.slice(1));
        const head = (2 * nVocab * dModel) / 1e9;
        const use = job[0] === 'd'
          ? `${number((bytesToken * rate) / 1e9)} GB/s`
          : `${number((rate * (n * (gigaOpsToken - head) + head)) / n, 0)} GOPS`;
        const shallow = rates[precision].d8;
        const share = n > 8 && job[0] === 'd' ? `${number(100 * (1 - rate / median(shallow)), 0)} %` : '';
        const goal = threads === '1' ? goalOf(precision, name, job) : undefined;
        const against = ratio(own, rates['llama.cpp']?.[job]);
        rows.push([name, threads, precision, label, number(rate), use, share, number(against, 2),
          goal ? `${goal}${Number.isFinite(against) && against < goal ? ' missed' : ''}` : '']);
      }
  return rows;
}

function otherRows(name, { runs, chromium }) {
  const one = runs[1], two = runs[2];
  const steady = median(one.loaded.fast.firstTokens.slice(10));
  const gain = (job) => number(ratio(two?.rates.fast?.[job], one.rates.fast[job]), 2);
  const c = chromium?.rates;
  return [name, number(one.loaded.fast.ms, 0), number(median(one.loaded.fast.firstTokens.slice(1, 6)) / steady, 2), number(one.batch, 2),
    gain('p128'), gain('d8'), c ? `${number(ratio(c.tabllama.decode, c.wllama.decode), 1)} / ${number(ratio(c.tabllama.prefill, c.wllama.prefill), 1)}` : '-'];
}

/** @param {any} result @returns {string} Markdown */
export function report(result) {
  const models = Object.entries(result.models), { machine } = result;
  return [
    `${result.date}, ${machine.cpu}, ${machine.cores} cores, ${machine.platform}, Node ${machine.node}; load ${number(machine.loadBefore)} before, ${number(machine.loadAfter)} after.`,
    kernelTable(result),
    attentionTable(result),
    table(['model', 'threads', 'precision', 'job', 'tokens/s', 'use', "attention's share", 'of llama.cpp', 'goal'], models.flatMap(([name, m]) => modelRows(name, m))),
    table(['model', 'load ms', 'tokens 2 to 6 against later', 'eight sequences', 'two threads: prefill', 'decode', 'wllama: decode / prefill'], models.map(([name, m]) => otherRows(name, m))),
  ].join('\n\n');
}
