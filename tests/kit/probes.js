/**
 * probes.js: models built by hand so that their logits show one thing.
 *
 * Each token's embedding is a unit vector; matrices that are not needed are zero, so that a layer adds
 * nothing but what the probe is about; the output matrix reads single dimensions.
 */
import { makeModel } from './make-model.js';

const zero = () => 0;

/** A layer that adds nothing. */
const SILENT = {
  'blk.0.attn_q.weight': zero,
  'blk.0.attn_k.weight': zero,
  'blk.0.attn_v.weight': zero,
  'blk.0.attn_output.weight': zero,
  'blk.0.ffn_gate.weight': zero,
  'blk.0.ffn_up.weight': zero,
  'blk.0.ffn_down.weight': zero,
};
const ones = () => 1;
const NORMS = { 'blk.0.attn_norm.weight': ones, 'blk.0.ffn_norm.weight': ones, 'output_norm.weight': ones };

/**
 * After token t, whatever came before, the logits are exactly tables[t], to the bit: the embedding 2^20 of 64
 * dimensions is normalised to 8, so that eps vanishes, and the output matrix holds the logits / 8.
 * @param {number[][]} tables at most 64 of one length, the vocabulary
 */
export function tableModel(tables) {
  const nVocab = tables[0].length;
  return makeModel({
    nLayers: 1,
    dModel: 64,
    nHeads: 1,
    nKvHeads: 1,
    dFf: 32,
    nVocab,
    vocabulary: null,
    nCtx: 1 << 17,
    weights: {
      ...SILENT,
      ...NORMS,
      'token_embd.weight': (column, row) => (column === row ? 2 ** 20 : 0),
      'output.weight': (column, row) => (tables[column]?.[row] ?? 0) / 8,
    },
  });
}

/** Dimensions in which attention writes what it read start here; tokens are 0 .. 31. */
const SHOWN = 32;
const D_MODEL = 64;
const N_VOCAB = D_MODEL;

/** What normalisation makes of a unit vector's 1. */
const UNIT = Math.sqrt(D_MODEL);

/**
 * A model of 64 dimensions whose token t < 32 is unit vector t, and whose logits are its dimensions, all
 * scaled alike: logits[t] / logits[token] is dimension t where the token's own is 1.
 */
function attentionProbe(options, weights) {
  return makeModel({
    nLayers: 1,
    dModel: D_MODEL,
    dFf: 32,
    nVocab: N_VOCAB,
    vocabulary: null,
    eps: 1e-12,
    ...options,
    weights: {
      ...SILENT,
      ...NORMS,
      'token_embd.weight': (column, row) => (column === row && row < SHOWN ? 1 : 0),
      'output.weight': (column, row) => (column === row ? 1 : 0),
      ...weights,
    },
  });
}

/** Attention's output as a probe's logits show it: dimensions 32 .. 32 + n - 1. */
export function shown(logits, token, n) {
  return Array.from({ length: n }, (_, i) => logits[SHOWN + i] / logits[token]);
}

/** One head, all scores 0: shown(i) is the share of the attention that token i gets (token ids below 16). */
export const shareProbe = () =>
  attentionProbe(
    { nHeads: 1, nKvHeads: 1, headDim: 16, nCtx: 512 },
    {
      'blk.0.attn_v.weight': (column, row) => (column === row ? 1 / UNIT : 0),
      'blk.0.attn_output.weight': (column, row) => (row === SHOWN + column ? 1 : 0),
    },
  );

/** Token 0 makes KV head g hold the value g + 1: shown(h) is 1 + the KV head that query head h reads. */
export const headProbe = (nHeads, nKvHeads) =>
  attentionProbe(
    { nHeads, nKvHeads, headDim: 8, nCtx: 64 },
    {
      'blk.0.attn_v.weight': (column, row) => (column === 0 && row % 8 === 0 ? (row / 8 + 1) / UNIT : 0),
      'blk.0.attn_output.weight': (column, row) => (column % 8 === 0 && row === SHOWN + column / 8 ? 1 : 0),
    },
  );

/** Tokens of the rope probe: one without key, query and value; one with key and value; one with a query. */
export const ROPE = { filler: 0, key: 1, query: 2 };

/**
 * One head whose only key is ROPE.key's and whose only query is ROPE.query's: shown(0) of a query is the
 * share that the key gets among scores of 0. Positions count `stride` times (RoPE's divisors are 1 /
 * stride), so that a short context reaches far.
 * @param {{ q: number[], k: number[], stride: number, theta: number }} options q, k: [headDim]
 */
export function ropeProbe({ q, k, stride, theta }) {
  const headDim = q.length;
  return attentionProbe(
    {
      nHeads: 1,
      nKvHeads: 1,
      headDim,
      ropeTheta: theta,
      nCtx: 512,
      ropeFreqs: new Array(headDim / 2).fill(1 / stride),
    },
    {
      'blk.0.attn_q.weight': (column, row) => (column === ROPE.query ? q[row] / UNIT : 0),
      'blk.0.attn_k.weight': (column, row) => (column === ROPE.key ? k[row] / UNIT : 0),
      'blk.0.attn_v.weight': (column, row) => (column === ROPE.key && row === 0 ? 1 / UNIT : 0),
      'blk.0.attn_output.weight': (column, row) => (column === 0 && row === SHOWN ? 1 : 0),
    },
  );
}

/** The score behind the share that one key gets among n others of score 0. */
export const scoreOf = (share, n) => Math.log((share * n) / (1 - share));
