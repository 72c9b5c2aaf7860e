/**
 * Methods, tests and filters that the library lacks or that Python's do otherwise; the rest is the library's.
 */
import {
  Dict, Float, Int, List, Markup, None, Str, TemplateError, Tuple, Undefined,
  attribute, equal, escape, items, keyValue, less, percent, plain, str, wrap,
} from './values.js';

/** @typedef {import('./values.js').Value} Value */
/**
 * A filter's view of its call: arguments by place or else by name, as JS values; the positional ones as they
 * are; other filters and tests by name.
 * @typedef {{
 *   get: (index: number, name: string, otherwise?: any) => any,
 *   rest: Value[],
 *   filter: (name: string, value: Value, rest: Value[]) => Value,
 *   test: (name: string, value: Value, arg: Value) => boolean,
 * }} Call
 */

const MAX_WIDTH = 10_000;

/** Results of filters that are generators in Python: no JSON can be made of them. @type {WeakSet<object>} */
const generators = new WeakSet();
/** @param {Value} value */
export const isGenerator = (value) => generators.has(value);
/** @param {Value[]} values */
function generator(values) {
  const list = new List(values);
  generators.add(list);
  return list;
}

/* ---- methods ---- */

/** @param {string} text */
const capitalize = (text) => text.charAt(0).toUpperCase() + text.slice(1).toLowerCase();

/**
 * @param {string} text
 * @param {string | null | undefined} chars
 * @param {boolean} left
 * @param {boolean} right
 */
function strip(text, chars, left, right) {
  const drop = (/** @type {string} */ char) => (chars == null ? /\s/.test(char) : chars.includes(char));
  let [from, to] = [0, text.length];
  while (left && from < to && drop(text[from])) from++;
  while (right && to > from && drop(text[to - 1])) to--;
  return text.slice(from, to);
}

/** str.format with places, without names and widths. @param {string} text @param {any[]} args */
function braces(text, args) {
  let next = 0;
  return text.replace(/\{\{|\}\}|\{(\d*)\}/g, (whole, place) => {
    if (place === undefined) return whole[0];
    const value = args[place === '' ? next++ : Number(place)];
    if (value === undefined) throw new TemplateError('not enough arguments for format()');
    return str(wrap(value));
  });
}

/** @param {string} text @param {string | null} [separator] @param {number} [most] */
function rsplit(text, separator, most = -1) {
  const parts = separator == null ? text.trim().split(/\s+/) : text.split(separator);
  const first = most < 0 ? 0 : Math.max(0, parts.length - most);
  return first > 1 ? [parts.slice(0, first).join(separator ?? ' '), ...parts.slice(first)] : parts;
}

/** @type {Record<string, (text: string, ...args: any[]) => any>} */
const stringMethods = {
  capitalize,
  rsplit,
  strip: (text, chars) => strip(text, chars, true, true),
  lstrip: (text, chars) => strip(text, chars, true, false),
  rstrip: (text, chars) => strip(text, chars, false, true),
  find: (text, part) => text.indexOf(part),
  rfind: (text, part) => text.lastIndexOf(part),
  count: (text, part) => text.split(part).length - 1,
  splitlines: (text) => text.replace(/\r?\n$/, '').split(/\r?\n/),
  zfill: (text, width) => text.replace(/^[+-]?/, '').padStart(Math.min(width, MAX_WIDTH), '0'),
  removeprefix: (text, part) => (text.startsWith(part) ? text.slice(part.length) : text),
  removesuffix: (text, part) => (part && text.endsWith(part) ? text.slice(0, -part.length) : text),
  format: (text, ...args) => braces(text, args),
  isdigit: (text) => /^\p{Nd}+$/u.test(text),
  isalpha: (text) => /^\p{L}+$/u.test(text),
  isspace: (text) => /^\s+$/.test(text),
};
export const STRING_METHODS = new Map(Object.entries(stringMethods));

/** @param {Value} dict */
const pairs = (dict) =>
  [...dict.value].map(([key, item]) => /** @type {Value} */ (new Tuple([keyValue(key), item])));

/** @type {Record<string, (dict: Value, ...args: Value[]) => Value>} */
const dictMethods = {
  get: (dict, key, otherwise = new None()) => dict.value.get(key.value) ?? otherwise,
  keys: (dict) => new List(items(dict)),
  values: (dict) => new List([...dict.value.values()]),
  items: (dict) => new List(pairs(dict)),
};
export const DICT_METHODS = new Map(Object.entries(dictMethods));

/* ---- tests ---- */

/** @type {Record<string, (value: Value, arg: Value) => boolean>} */
const tests = {
  equalto: equal,
  eq: equal,
  ne: (a, b) => !equal(a, b),
  lt: less,
  gt: (a, b) => less(b, a),
  le: (a, b) => !less(b, a),
  ge: (a, b) => !less(a, b),
  in: (a, b) => items(b).some((item) => equal(a, item)),
  float: (a) => a instanceof Float,
  iterable: (a) => a instanceof List || a instanceof Str || a.value instanceof Map,
  mapping: (a) => a.value instanceof Map,
};
export const TESTS = new Map(Object.entries(tests));

/* ---- filters ---- */

/**
 * Whether an item passes the test named first; without one, whether it is true.
 * @param {Value} item @param {Call['test']} test @param {Value[]} rest
 */
const passes = (item, test, [name, arg]) =>
  name === undefined ? item.__bool__().value : test(name.value, item, arg ?? new Undefined());

/** @param {boolean} wanted @returns {(value: Value, call: Call) => Value} */
const select = (wanted) => (value, { test, rest }) =>
  generator(items(value).filter((item) => passes(item, test, rest) === wanted));

/** @param {boolean} wanted @returns {(value: Value, call: Call) => Value} */
const selectAttr = (wanted) => (value, { test, rest: [path, ...rest] }) =>
  generator(items(value).filter((item) => passes(attribute(item, path.value), test, rest) === wanted));

/** @param {Value} value @param {Call} call */
function map(value, { get, rest: [name, ...rest], filter }) {
  const path = get(-1, 'attribute');
  if (path === undefined) return generator(items(value).map((item) => filter(name.value, item, rest)));
  const otherwise = get(-1, 'default');
  return generator(items(value).map((item) => {
    const found = attribute(item, path);
    return found instanceof Undefined && otherwise !== undefined ? wrap(otherwise) : found;
  }));
}

/** @param {Value} value @param {Call} call */
function dictsort(value, { get }) {
  const at = get(1, 'by', 'key') === 'value' ? 1 : 0;
  const key = (/** @type {Value} */ { value: pair }) => {
    const part = pair[at].value;
    return typeof part === 'string' && !get(0, 'case_sensitive', false) ? part.toLowerCase() : part;
  };
  const sorted = pairs(value).sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0));
  return new List(get(2, 'reverse', false) ? sorted.reverse() : sorted);
}

/** @param {Value} value @param {Call} call */
function int(value, { get }) {
  const text = value instanceof Str ? value.value.trim() : String(Number(value.value));
  const n = /^[+-]?[\d.]+(e[+-]?\d+)?$/i.test(text) ? Number(text) : NaN;
  return Number.isFinite(n) ? new Int(Math.trunc(n)) : get(0, 'default', 0);
}

/** @param {Value} value @param {Call} call */
function round(value, { get }) {
  const digits = get(0, 'precision', 0);
  return new Float(Number(`${Math.round(Number(`${value.value}e${digits}`))}e${-digits}`));
}

/** @param {Value} value */
function reverse(value) {
  if (value instanceof Str) return Array.from(value.value).reverse().join('');
  return generator([...items(value)].reverse());
}

/** @param {Value} value */
function unique(value) {
  const seen = new Set();
  return generator(items(value).filter((item) => {
    const key = item instanceof Str ? item.value.toLowerCase() : item.value;
    return !seen.has(key) && seen.add(key);
  }));
}

/**
 * Cuts into n lists, the first ones longer by one where it must be.
 * @param {Value} value
 * @param {Call} call
 */
function slice(value, { get }) {
  const all = items(value);
  const n = Math.min(Math.max(1, get(0, 'slices')), MAX_WIDTH);
  const [size, longer] = [Math.floor(all.length / n), all.length % n];
  const start = (/** @type {number} */ i) => i * size + Math.min(i, longer);
  return generator(Array.from({ length: n }, (_, i) => new List(all.slice(start(i), start(i + 1)))));
}

/** @param {Value} value @param {Call} call */
function batch(value, { get }) {
  const all = items(value);
  const n = Math.max(1, get(0, 'linecount'));
  const lists = Math.ceil(all.length / n);
  return generator(Array.from({ length: lists }, (_, i) => new List(all.slice(i * n, i * n + n))));
}

/** @param {Value} value @param {Call} call */
function center(value, { get }) {
  const space = Math.max(0, Math.min(get(0, 'width', 80), MAX_WIDTH) - str(value).length);
  return ' '.repeat(space >> 1) + str(value) + ' '.repeat(space - (space >> 1));
}

/** @param {Value} value @param {Call} call */
function join(value, { get }) {
  const path = get(1, 'attribute');
  const texts = items(value).map((item) => str(path === undefined ? item : attribute(item, path)));
  return texts.join(get(0, 'd', ''));
}

/** @param {Value} value @param {Call} call */
function sum(value, { get }) {
  const path = get(0, 'attribute');
  const of = (/** @type {Value} */ item) => (path == null ? item : attribute(item, path)).value;
  return items(value).reduce((total, item) => total + of(item), get(1, 'start', 0));
}

/** @param {Value} value @param {Call} call */
function otherwise(value, { get }) {
  const missing = value instanceof Undefined || (get(1, 'boolean', false) && !value.__bool__().value);
  return missing ? get(0, 'default_value', '') : value;
}

/** @param {Value} value */
const length = (value) => (value instanceof Str ? Array.from(value.value).length : items(value).length);
/** @param {Value} value */
const escaped = (value) => (value instanceof Markup ? value : new Markup(escape(str(value))));

/** They return values of JS or of the library. */
/** @type {Record<string, (value: Value, call: Call) => any>} */
const filters = {
  default: otherwise, d: otherwise,
  escape: escaped, e: escaped,
  length, count: length,
  batch, center, dictsort, int, join, map, reverse, round, slice, sum, unique,
  select: select(true), reject: select(false), selectattr: selectAttr(true), rejectattr: selectAttr(false),
  safe: (value) => new Markup(str(value)),
  string: (value) => (value instanceof Markup ? value : str(value)),
  upper: (value) => str(value).toUpperCase(),
  lower: (value) => str(value).toLowerCase(),
  capitalize: (value) => capitalize(str(value)),
  title: (value) => str(value).replace(/[^\s\-({[<]+/g, capitalize),
  trim: (value, { get }) => strip(str(value), get(0, 'chars'), true, true),
  list: (value) => new List(items(value)),
  first: (value) => items(value)[0] ?? new Undefined(),
  last: (value) => items(value).at(-1) ?? new Undefined(),
  items: (value) => generator(value instanceof Dict ? pairs(value) : items(value)),
  max: (value) => items(value).reduce((best, item) => (less(best, item) ? item : best)),
  min: (value) => items(value).reduce((best, item) => (less(item, best) ? item : best)),
  wordcount: (value) => str(value).match(/[\p{L}\p{N}_]+/gu)?.length ?? 0,
  format: (value, { rest }) => percent(str(value), rest),
};
export const FILTERS = new Map(Object.entries(filters));
