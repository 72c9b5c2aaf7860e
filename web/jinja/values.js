/**
 * The values of a template, with the meaning they have in Python. The library exports no class of them; they
 * are taken from values that it makes.
 */
import { Environment, Interpreter, Template } from '@huggingface/jinja';

/** @typedef {{ type: string, value: any, __bool__(): { value: boolean } }} Value */

/** A complaint of the template itself, of Python's rules, or of a limit: the message is meant for people. */
export class TemplateError extends Error {}

/** In a list; as in a range of Jinja2's own sandbox. */
export const MAX_ITEMS = 100_000;
/** @param {number} n */
export const tooMany = (n) => new TemplateError(`a list of ${n} items is too long`);

/** @param {any} value of JS @returns {any} of the library */
const convert = (value) => new Environment().set('value', value);

/** @param {any} value @returns {any} the class of the library's value for it */
const classOf = (value) => convert(value).constructor;

export const Str = classOf('');
export const Int = classOf(1);
export const Float = classOf(0.5);
export const Bool = classOf(true);
export const None = classOf(null);
export const Undefined = classOf(undefined);
export const List = classOf([]);
export const Dict = classOf({});
export const Func = classOf(() => null);
/** A List. */
export const Tuple = (() => {
  const scope = new Environment();
  new Interpreter(scope).run(new Template('{% set pair = (1, 2) %}').parsed);
  return /** @type {any} */ (scope.lookupVariable('pair')).constructor;
})();
/** A Str that `safe` or `escape` has made: what is added to it is escaped. */
export class Markup extends Str {
  /** @param {string} text */
  constructor(text) {
    super(text);
  }
}

/** @param {any} value of JS, or one of the library's already @returns {Value} */
export const wrap = (value) => (typeof value?.__bool__ === 'function' ? value : convert(value));

/** @param {Value} value @returns {any} of JS */
export function plain(value) {
  if (value instanceof List) return value.value.map(plain);
  if (value instanceof Dict) {
    return Object.fromEntries([...value.value].map(([key, item]) => [key, plain(item)]));
  }
  return value.value;
}

/** @param {string | number} key of a Dict or namespace, whose value is a Map */
export const keyValue = (key) => (typeof key === 'number' ? new Int(key) : new Str(key));

/** str() @param {Value} value @returns {string} */
export function str(value) {
  return value instanceof Str ? value.value : repr(value);
}

/** repr() @param {Value} value @returns {string} */
export function repr(value) {
  if (value instanceof Str) return quote(value.value);
  if (value instanceof Bool) return value.value ? 'True' : 'False';
  if (value instanceof None) return 'None';
  if (value instanceof Float) return floatText(value.value);
  if (value instanceof List) {
    const items = value.value.map(repr).join(', ');
    if (!(value instanceof Tuple)) return `[${items}]`;
    return value.value.length === 1 ? `(${items},)` : `(${items})`;
  }
  if (value.value instanceof Map) {
    const pairs = [...value.value].map(([key, item]) => `${repr(keyValue(key))}: ${repr(item)}`);
    return `{${pairs.join(', ')}}`;
  }
  return value instanceof Undefined ? '' : String(value.value);
}

/** @param {string} text */
function quote(text) {
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'";
  /** @type {Record<string, string>} */
  const escapes = { '\n': '\\n', '\r': '\\r', '\t': '\\t', '\\': '\\\\', [mark]: `\\${mark}` };
  return mark + text.replace(/[\n\r\t\\'"]/g, (char) => escapes[char] ?? char) + mark;
}

/** @param {number} value */
function floatText(value) {
  if (Number.isNaN(value)) return 'nan';
  if (!Number.isFinite(value)) return value < 0 ? '-inf' : 'inf';
  if (Number.isInteger(value) && Math.abs(value) < 1e16) return value.toFixed(1);
  return String(value).replace(/e([+-])(\d)$/, 'e$10$2');
}

/** What a loop runs over. @param {Value} value @returns {Value[]} */
export function items(value) {
  if (value instanceof List) return value.value;
  if (value instanceof Str) {
    if (value.value.length > MAX_ITEMS) throw tooMany(value.value.length);
    return Array.from(value.value, (char) => new Str(char));
  }
  if (value.value instanceof Map) return [...value.value.keys()].map(keyValue);
  // Python's filters are lazy: over None they fail only when something asks, which templates avoid.
  if (value instanceof Undefined || value instanceof None) return [];
  throw new TemplateError(`${value.type} cannot be iterated`);
}

/** @param {Value} value */
const comparable = ({ value }) => (typeof value === 'boolean' ? Number(value) : value);

/** @param {Value} a @param {Value} b @returns {boolean} */
export function equal(a, b) {
  if (a instanceof None || b instanceof None) return a instanceof None && b instanceof None;
  if (a instanceof List && b instanceof List) {
    const [as, bs] = [items(a), items(b)];
    return as.length === bs.length && as.every((item, i) => equal(item, bs[i]));
  }
  if (a instanceof Dict && b instanceof Dict) {
    const same = (/** @type {[any, Value]} */ [key, item]) =>
      b.value.has(key) && equal(item, b.value.get(key));
    return a.value.size === b.value.size && [...a.value].every(same);
  }
  return comparable(a) === comparable(b);
}

/** @param {Value} a @param {Value} b */
export function less(a, b) {
  const [x, y] = [comparable(a), comparable(b)];
  if (typeof x !== typeof y || (typeof x !== 'string' && typeof x !== 'number')) {
    throw new TemplateError(`${a.type} and ${b.type} have no order`);
  }
  return x < y;
}

/** @param {Value} item @param {string | number} path such as a.b.0 @returns {Value} */
export function attribute(item, path) {
  let at = item;
  for (const key of String(path).split('.')) {
    at = at instanceof List ? at.value[Number(key)] : at.value instanceof Map ? at.value.get(key) : undefined;
    if (at === undefined) return new Undefined();
  }
  return at;
}

/** @param {string} text */
export function escape(text) {
  /** @type {Record<string, string>} */
  const names = { '&': 'amp', '<': 'lt', '>': 'gt', '"': '#34', "'": '#39' };
  return text.replace(/[&<>"']/g, (char) => `&${names[char]};`);
}

/** `+` of two texts. @param {Value} a @param {Value} b */
export function concat(a, b) {
  if (!(a instanceof Markup || b instanceof Markup)) return new Str(str(a) + str(b));
  const parts = [a, b].map((part) => (part instanceof Markup ? part.value : escape(str(part))));
  return new Markup(parts.join(''));
}

/** %-formatting, the part of it that templates use. @param {string} format @param {Value[]} values */
export function percent(format, values) {
  let next = 0;
  return format.replace(/%(?:\.(\d+))?([sdifr%])/g, (_, digits, kind) => {
    if (kind === '%') return '%';
    const value = values[next++];
    if (!value) throw new TemplateError('not enough arguments for format string');
    if (kind === 's') return str(value);
    if (kind === 'r') return repr(value);
    return kind === 'f' ? Number(value.value).toFixed(digits ?? 6) : String(Math.trunc(value.value));
  });
}
