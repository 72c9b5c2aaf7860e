/**
 * Chat templates as Python's Jinja2 renders them: the lexer, parser and interpreter of @huggingface/jinja, with
 * everything in which that library differs from Python's semantics put right here, and with bounds, as
 * a template comes with a model from anywhere: MAX_MS of time, MAX_TEXT of text, MAX_RANGE of counting.
 *
 * The library lets a subclass in: Interpreter.evaluate(node, scope) is called for every node. Its value classes
 * are not exported; they are taken from values that it makes.
 */
import { Environment, Interpreter, Template } from '@huggingface/jinja';

const MAX_MS = 1000;
const MAX_TEXT = 4 << 20;
/** As Jinja2's own sandbox. */
const MAX_RANGE = 100_000;

/** @typedef {{ type: string, value: any, __bool__(): { value: boolean }, builtins: Map<string, any> }} Value */
/** @typedef {any} Node a node of the library's syntax tree */
/** @typedef {any} Scope */
/** @typedef {(index: number, name: string, otherwise?: any) => any} Arguments by place or name, as JS values */

const [Str, Int, Float, Bool, None, Undefined, List, Dict, Func] = ['', 1, 0.5, true, null, undefined, [], {}, () => 0].map(
  (value) => /** @type {any} */ (new Environment().set('value', value)).constructor,
);
class Markup extends Str {}
const Tuple = made('{% set value = (1, 2) %}');


/** @param {string} source sets `value` @returns {any} the class of it */
function made(source) {
  const scope = new Environment();
  scope.set('none', null);
  new Interpreter(scope).run(new Template(source).parsed);
  return scope.lookupVariable('value').constructor;
}

/** A template's own complaint, or a limit: `message` is meant for the user. */
export class TemplateError extends Error {}

/**
 * @param {string} source
 * @returns {(vars: Record<string, any>, now: Date) => string} throws whatever goes wrong
 */
export function compile(source) {
  const { parsed } = new Template(source);
  return (vars, now) => {
    const scope = new Environment();
    for (const [name, value] of Object.entries(globals(now))) scope.set(name, value);
    for (const [name, value] of Object.entries(vars)) scope.setVariable(name, new Environment().set('value', value));
    return new Python(scope).run(parsed).value;
  };
}

/** @param {Date} now */
function globals(now) {
  return {
    true: true, True: true, false: false, False: false, none: null, None: null,
    range,
    strftime_now: (/** @type {string} */ format) => strftime(now, format),
    raise_exception: (/** @type {any} */ message) => {
      throw new TemplateError(String(message));
    },
    dict: (/** @type {Map<string, Value>[]} */ ...maps) =>
      Object.fromEntries(maps.flatMap((map) => [...map].map(([key, value]) => [key, plain(value)]))),
  };
}

/** @param {number} start @param {number} [stop] @param {number} [step] */
function range(start, stop, step = 1) {
  const [from, to] = stop === undefined ? [0, start] : [start, stop];
  const n = Math.max(0, Math.ceil((to - from) / step));
  if (!(n <= MAX_RANGE)) throw new TemplateError(`a range of ${n} items is too long`);
  return Array.from({ length: n }, (_, i) => from + i * step);
}

const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
const MONTHS = ['January', 'February', 'March', 'April', 'May', 'June', 'July', 'August', 'September', 'October',
  'November', 'December'];

/** As Python in the C locale. @param {Date} date @param {string} format */
export function strftime(date, format) {
  const hour12 = date.getHours() % 12 || 12;
  const dayOfYear = Math.round((new Date(date).setHours(12, 0, 0, 0) - new Date(date.getFullYear(), 0, 0, 12).getTime()) / 864e5);
  /** @type {Record<string, string | number>} */
  const fields = {
    Y: date.getFullYear(), m: date.getMonth() + 1, d: date.getDate(), H: date.getHours(), I: hour12,
    M: date.getMinutes(), S: date.getSeconds(), y: date.getFullYear() % 100, j: dayOfYear, p: date.getHours() < 12 ? 'AM' : 'PM',
    A: DAYS[date.getDay()], a: DAYS[date.getDay()].slice(0, 3), B: MONTHS[date.getMonth()], b: MONTHS[date.getMonth()].slice(0, 3),
    '%': '%',
  };
  return format.replace(/%(-?)([A-Za-z%])/g, (whole, bare, letter) => {
    const field = fields[letter];
    if (field === undefined) return whole;
    return bare || typeof field === 'string' ? `${field}` : `${field}`.padStart(letter === 'j' ? 3 : 2, '0');
  });
}

/* ---- values ---- */

/** @param {any} value of JS, or one of the library's already @returns {Value} */
const wrap = (value) => (value && typeof value.__bool__ === 'function' ? value : new Environment().set('value', value));
/** @param {Value} value */
const truth = (value) => value.__bool__().value;

/** @param {Value} value @returns {any} JS value */
function plain(value) {
  if (value instanceof List) return value.value.map(plain);
  if (value instanceof Dict) return Object.fromEntries([...value.value].map(([key, item]) => [key, plain(item)]));
  return value.value;
}

/** @param {Value} value str() */
function str(value) {
  return value instanceof Str ? value.value : value instanceof Undefined ? '' : repr(value);
}

/** @param {Value} value @returns {string} repr() */
function repr(value) {
  if (value instanceof Str) return quote(value.value);
  if (value instanceof Bool) return value.value ? 'True' : 'False';
  if (value instanceof None) return 'None';
  if (value instanceof Float) return floatText(value.value);
  if (value instanceof Tuple) return `(${value.value.map(repr).join(', ')}${value.value.length === 1 ? ',' : ''})`;
  if (value instanceof List) return `[${value.value.map(repr).join(', ')}]`;
  if (value.value instanceof Map) {
    return `{${[...value.value].map(([key, item]) => `${repr(keyValue(key))}: ${repr(item)}`).join(', ')}}`;
  }
  return String(value.value ?? '');
}

/** @param {string} text */
function quote(text) {
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'";
  const escapes = /** @type {Record<string, string>} */ ({ '\n': '\\n', '\r': '\\r', '\t': '\\t', '\\': '\\\\', [mark]: `\\${mark}` });
  return mark + text.replace(/[\n\r\t\\'"]/g, (char) => escapes[char] ?? char) + mark;
}

/** @param {number} value */
function floatText(value) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? 'nan' : value < 0 ? '-inf' : 'inf';
  const text = Number.isInteger(value) && Math.abs(value) < 1e16 ? value.toFixed(1) : String(value);
  return text.replace(/e([+-])(\d)$/, 'e$10$2');
}

/** @param {string | number} key of a dict */
const keyValue = (key) => (typeof key === 'number' ? new Int(key) : new Str(key));

/** @param {Value} value @returns {Value[]} what a loop runs over */
function items(value) {
  if (value instanceof List) return value.value;
  if (value instanceof Str) return Array.from(value.value, (char) => new Str(char));
  if (value.value instanceof Map) return [...value.value.keys()].map(keyValue);
  // Python's filters on lists are lazy: over None they fail only when something asks, which templates avoid.
  if (value instanceof Undefined || value instanceof None) return [];
  throw new TemplateError(`${value.type} cannot be iterated`);
}

/** @param {Value} a @param {Value} b @returns {boolean} */
function equal(a, b) {
  if (a instanceof List && b instanceof List) {
    return a.value.length === b.value.length && a.value.every((/** @type {Value} */ item, /** @type {number} */ i) => equal(item, b.value[i]));
  }
  if (a instanceof Dict && b instanceof Dict) {
    return a.value.size === b.value.size && [...a.value].every(([key, item]) => b.value.has(key) && equal(item, b.value.get(key)));
  }
  if (a instanceof None || b instanceof None) return a instanceof None && b instanceof None;
  const number = (/** @type {Value} */ v) => (v instanceof Int || v instanceof Float || v instanceof Bool ? Number(v.value) : v.value);
  return number(a) === number(b);
}

/** @param {Value} a @param {Value} b */
function less(a, b) {
  if (a instanceof Str !== b instanceof Str) throw new TemplateError(`${a.type} and ${b.type} have no order`);
  return a.value < b.value;
}

/** @param {Value} item @param {string | number} path a.b.0 */
function attribute(item, path) {
  return String(path).split('.').reduce((at, key) =>
    (at instanceof List ? at.value[Number(key)] : at.value instanceof Map ? at.value.get(key) : undefined) ?? new Undefined(), item);
}

/** Results of filters that are generators in Python: no JSON can be made of them. @type {WeakSet<object>} */
const generators = new WeakSet();
/** @param {Value[]} values */
function generator(values) {
  const list = new List(values);
  generators.add(list);
  return list;
}

/** @param {string} format @param {Value[]} values %-formatting, the part of it that templates use */
function percent(format, values) {
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

/* ---- methods, tests, filters: what the library lacks or does otherwise ---- */

/** @param {string} text */
const escape = (text) =>
  text.replace(/[&<>"']/g, (char) => `&${{ '&': 'amp', '<': 'lt', '>': 'gt', '"': '#34', "'": '#39' }[char]};`);

/** `+`: what `safe` has marked stays so, and what is added to it is escaped. @param {Value} a @param {Value} b */
function concat(a, b) {
  if (!(a instanceof Markup || b instanceof Markup)) return new Str(str(a) + str(b));
  return new Markup([a, b].map((part) => (part instanceof Markup ? part.value : escape(str(part)))).join(''));
}

/** @param {string} text */
const capitalize = (text) => text.charAt(0).toUpperCase() + text.slice(1).toLowerCase();

/** @param {string} text @param {string | null | undefined} chars @param {boolean} left @param {boolean} right */
function strip(text, chars, left, right) {
  const drop = chars == null ? (/** @type {string} */ char) => /\s/.test(char) : (/** @type {string} */ char) => chars.includes(char);
  let [from, to] = [0, text.length];
  while (left && from < to && drop(text[from])) from++;
  while (right && to > from && drop(text[to - 1])) to--;
  return text.slice(from, to);
}

/** @param {string} text @param {any[]} args str.format with places, without names and widths */
function braces(text, args) {
  let next = 0;
  return text.replace(/\{\{|\}\}|\{(\d*)\}/g, (whole, place) => {
    if (place === undefined) return whole[0];
    const value = args[place === '' ? next++ : Number(place)];
    if (value === undefined) throw new TemplateError('not enough arguments for format()');
    return str(wrap(value));
  });
}

/** @type {Map<string, (text: string, ...args: any[]) => any>} */
const STRING_METHODS = new Map(Object.entries({
  capitalize,
  strip: (text, chars) => strip(text, chars, true, true),
  lstrip: (text, chars) => strip(text, chars, true, false),
  rstrip: (text, chars) => strip(text, chars, false, true),
  find: (text, part) => text.indexOf(part),
  rfind: (text, part) => text.lastIndexOf(part),
  count: (text, part) => text.split(part).length - 1,
  splitlines: (text) => text.replace(/\r?\n$/, '').split(/\r?\n/),
  zfill: (text, width) => (/^[+-]/.test(text) ? text[0] + text.slice(1).padStart(width - 1, '0') : text.padStart(width, '0')),
  removeprefix: (text, part) => (text.startsWith(part) ? text.slice(part.length) : text),
  removesuffix: (text, part) => (part && text.endsWith(part) ? text.slice(0, -part.length) : text),
  format: (text, ...args) => braces(text, args),
  isdigit: (text) => /^\p{Nd}+$/u.test(text),
  isalpha: (text) => /^\p{L}+$/u.test(text),
  isspace: (text) => /^\s+$/.test(text),
  rsplit(text, separator, most = -1) {
    const parts = separator == null ? text.trim().split(/\s+/) : text.split(separator);
    const kept = most < 0 ? 0 : Math.max(0, parts.length - most);
    return kept > 1 ? [parts.slice(0, kept).join(separator ?? ' '), ...parts.slice(kept)] : parts;
  },
}));

/** @type {Map<string, (value: any, ...args: Value[]) => Value>} */
const DICT_METHODS = new Map(Object.entries({
  get: (dict, key, otherwise = new None()) => dict.value.get(key.value) ?? otherwise,
  keys: (dict) => new List(items(dict)),
  values: (dict) => new List([...dict.value.values()]),
  items: (dict) => new List([...dict.value].map(([key, item]) => new Tuple([keyValue(key), item]))),
}));

/** @type {Map<string, (value: Value, arg: Value) => boolean>} */
const TESTS = new Map(Object.entries({
  equalto: equal, eq: equal, '==': equal,
  ne: (a, b) => !equal(a, b), '!=': (a, b) => !equal(a, b),
  lt: less, gt: (a, b) => less(b, a), le: (a, b) => !less(b, a), ge: (a, b) => !less(a, b),
  in: (a, b) => items(b).some((item) => equal(a, item)),
  float: (a) => a instanceof Float,
  iterable: (a) => a instanceof List || a instanceof Str || a.value instanceof Map,
  mapping: (a) => a.value instanceof Map,
}));

/** @type {Map<string, (value: any, args: Arguments, filter: (name: string, value: Value, args: Value[]) => Value, test: (name: string, value: Value, arg: Value) => boolean, rest: Value[]) => any>} */
const FILTERS = new Map(Object.entries({
  default: (value, args) => (value instanceof Undefined || (args(1, 'boolean', false) && !truth(value)) ? args(0, 'default_value', '') : value),
  upper: (value) => str(value).toUpperCase(),
  lower: (value) => str(value).toLowerCase(),
  capitalize: (value) => capitalize(str(value)),
  title: (value) => str(value).replace(/[^\s\-({[<]+/g, capitalize),
  trim: (value, args) => strip(str(value), args(0, 'chars', null), true, true),
  string: (value) => str(value),
  length: (value) => items(value).length,
  list: (value) => new List(items(value)),
  first: (value) => items(value)[0] ?? new Undefined(),
  last: (value) => items(value).at(-1) ?? new Undefined(),
  reverse: (value) => (value instanceof Str ? Array.from(value.value).reverse().join('') : generator(items(value).slice().reverse())),
  items: (value) => (value instanceof Undefined ? generator([]) : generator(/** @type {any} */ (DICT_METHODS.get('items'))(value).value)),
  dictsort(value, args) {
    const at = args(1, 'by', 'key') === 'value' ? 1 : 0;
    const key = (/** @type {Value} */ { value: pair }) => {
      const part = pair[at].value;
      return typeof part === 'string' && !args(0, 'case_sensitive', false) ? part.toLowerCase() : part;
    };
    const sorted = items(/** @type {any} */ (DICT_METHODS.get('items'))(value))
      .sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0));
    return new List(args(2, 'reverse', false) ? sorted.reverse() : sorted);
  },
  join(value, args) {
    const [separator, path] = [args(0, 'd', ''), args(1, 'attribute')];
    return items(value).map((item) => str(path === undefined ? item : attribute(item, path))).join(separator);
  },
  sum(value, args) {
    const path = args(0, 'attribute');
    return items(value).reduce((sum, item) => sum + (path == null ? item : attribute(item, path)).value, args(1, 'start', 0));
  },
  max: (value) => items(value).reduce((best, item) => (less(best, item) ? item : best)),
  min: (value) => items(value).reduce((best, item) => (less(item, best) ? item : best)),
  map(value, args, filter, test, [name, ...rest]) {
    const path = args(-1, 'attribute');
    if (path === undefined) return generator(items(value).map((item) => filter(name.value, item, rest)));
    const otherwise = args(-1, 'default');
    return generator(items(value).map((item) => {
      const found = attribute(item, path);
      return found instanceof Undefined && otherwise !== undefined ? wrap(otherwise) : found;
    }));
  },
  select: (value, args, filter, test, rest) => generator(items(value).filter((item) => chosen(item, test, rest))),
  reject: (value, args, filter, test, rest) => generator(items(value).filter((item) => !chosen(item, test, rest))),
  selectattr: (value, args, filter, test, [path, ...rest]) =>
    generator(items(value).filter((item) => chosen(attribute(item, path.value), test, rest))),
  rejectattr: (value, args, filter, test, [path, ...rest]) =>
    generator(items(value).filter((item) => !chosen(attribute(item, path.value), test, rest))),
  unique(value) {
    const same = (/** @type {Value} */ v) => (v instanceof Str ? v.value.toLowerCase() : v.value);
    return generator(items(value).filter((item, i, all) => all.findIndex((other) => same(other) === same(item)) === i));
  },
  round: (value, args) => new Float(Number(`${Math.round(Number(`${value.value}e${args(0, 'precision', 0)}`))}e-${args(0, 'precision', 0)}`)),
  int(value, args) {
    const n = value instanceof Str ? (/^\s*[+-]?\d+\s*$/.test(value.value) ? parseInt(value.value, 10) : parseFloat(value.value)) : Number(value.value);
    return Number.isFinite(n) ? new Int(Math.trunc(n)) : args(0, 'default', 0);
  },
  escape: (value) => (value instanceof Markup ? value : new Markup(escape(str(value)))),
  safe: (value) => new Markup(str(value)),
  wordcount: (value) => str(value).match(/[\p{L}\p{N}_]+/gu)?.length ?? 0,
  center(value, args) {
    const space = Math.max(0, Math.min(args(0, 'width', 80), MAX_TEXT) - str(value).length);
    return ' '.repeat(space >> 1) + str(value) + ' '.repeat(space - (space >> 1));
  },
  format: (value, args, filter, test, rest) => percent(str(value), rest),
  batch(value, args) {
    const [all, n] = [items(value), Math.max(1, args(0, 'linecount'))];
    return generator(Array.from({ length: Math.ceil(all.length / n) }, (_, i) => new List(all.slice(i * n, i * n + n))));
  },
  slice(value, args) {
    const [all, n] = [items(value), Math.min(Math.max(1, args(0, 'slices')), MAX_RANGE)];
    const [size, longer] = [Math.floor(all.length / n), all.length % n];
    return generator(Array.from({ length: n }, (_, i) => {
      const from = i * size + Math.min(i, longer);
      return new List(all.slice(from, from + size + (i < longer ? 1 : 0)));
    }));
  },
}));
for (const [name, alias] of [['default', 'd'], ['escape', 'e'], ['length', 'count']]) {
  FILTERS.set(alias, /** @type {any} */ (FILTERS.get(name)));
}

/** @param {Value} value @param {(name: string, value: Value, arg: Value) => boolean} test @param {Value[]} rest name of a test, its argument */
const chosen = (value, test, [name, arg]) => (name === undefined ? truth(value) : test(name.value, value, arg));

/* ---- the interpreter ---- */

const Base = /** @type {new (scope: Scope) => any} */ (/** @type {unknown} */ (Interpreter));
/** Statements that print nothing, whatever they evaluate to. */
const SILENT = new Set(['Set', 'Macro', 'Comment']);

class Python extends Base {
  #end = performance.now() + MAX_MS;
  #steps = 0;

  /** @param {Node} node @param {Scope} scope @returns {Value} */
  evaluate(node, scope) {
    if (++this.#steps % 256 === 0 && performance.now() > this.#end) {
      throw new TemplateError(`it takes longer than ${MAX_MS} ms`);
    }
    const value = this.#evaluate(node, scope);
    if ((value instanceof Str || value instanceof List) && value.value.length > MAX_TEXT) {
      throw new TemplateError(`it makes more than ${MAX_TEXT} characters`);
    }
    return value;
  }

  /** @param {Node} node @param {Scope} scope @returns {Value} */
  #evaluate(node, scope) {
    switch (node?.type) {
      case 'Iterable': return new List(items(this.evaluate(node.of, scope)).map((item) => (item instanceof Tuple ? new List(item.value) : item)));
      case 'Given': return node.value;
      case 'ObjectLiteral': return new Dict(new Map([...node.value].map(([key, item]) => [this.evaluate(key, scope).value, this.evaluate(item, scope)])));
      default: return super.evaluate(node, scope);
    }
  }

  /** @param {Node[]} nodes @param {Scope} scope */
  evaluateBlock(nodes, scope) {
    let text = '';
    for (const node of nodes) {
      const value = this.evaluate(node, scope);
      if (!SILENT.has(node.type)) text += str(value);
      if (text.length > MAX_TEXT) throw new TemplateError(`it makes more than ${MAX_TEXT} characters`);
    }
    return new Str(text);
  }

  /** Over all that Python can iterate. @param {Node} node @param {Scope} scope */
  evaluateFor(node, scope) {
    const { iterable } = node;
    const of = (/** @type {Node} */ expression) => ({ type: 'Iterable', of: expression });
    return super.evaluateFor({ ...node, iterable: iterable.type === 'SelectExpression' ? { ...iterable, lhs: of(iterable.lhs) } : of(iterable) }, scope);
  }

  /** @param {Node} node @param {Scope} scope @returns {Value} */
  evaluateBinaryExpression(node, scope) {
    const { value: operator } = node.operator;
    if (operator === 'and' || operator === 'or') return super.evaluateBinaryExpression(node, scope);
    const [a, b] = [this.evaluate(node.left, scope), this.evaluate(node.right, scope)];
    const [aText, bText] = [a instanceof Str, b instanceof Str];
    switch (operator) {
      case '==': return new Bool(equal(a, b));
      case '!=': return new Bool(!equal(a, b));
      case '~': return new Str(str(a) + str(b));
      case '+':
        if (aText !== bText) throw new TemplateError(`cannot add ${a.type} and ${b.type}`);
        if (aText) return concat(a, b);
        break;
      case '*':
        if (aText && b instanceof Int) return new Str(a.value.repeat(Math.max(0, Math.min(b.value, MAX_TEXT / Math.max(1, a.value.length) + 1))));
        break;
      case '%':
        if (aText) return new Str(percent(a.value, b instanceof Tuple ? b.value : [b]));
        if (a instanceof Int && b instanceof Int) return new Int(a.value - b.value * Math.floor(a.value / b.value));
        break;
      case '<': case '>': case '<=': case '>=':
        if (aText && bText) return new Bool(operator === '<' ? a.value < b.value : operator === '>' ? a.value > b.value : operator === '<=' ? a.value <= b.value : a.value >= b.value);
        break;
      case 'in': case 'not in':
        if (b instanceof List) return new Bool(b.value.some((/** @type {Value} */ item) => equal(a, item)) === (operator === 'in'));
        if (b.value instanceof Map) return new Bool(b.value.has(a.value) === (operator === 'in'));
    }
    const given = (/** @type {Value} */ value) => ({ type: 'Given', value });
    return super.evaluateBinaryExpression({ ...node, left: given(a), right: given(b) }, scope);
  }

  /** @param {Node} node @param {Scope} scope @returns {Value} */
  evaluateMemberExpression(node, scope) {
    const object = this.evaluate(node.object, scope);
    const given = { ...node, object: { type: 'Given', value: object } };
    if (node.computed && node.property.type === 'SliceExpression') return super.evaluateMemberExpression(given, scope);
    const key = node.computed ? this.evaluate(node.property, scope) : new Str(node.property.value);
    if (object instanceof Undefined) throw new TemplateError(`${nameOf(node.object)} is undefined, and so has no '${key.value}'`);
    if (object instanceof None) return new Undefined();
    if (object.value instanceof Map) {
      return object.value.get(key.value) ?? this.#method(DICT_METHODS, object, key, (value) => value) ?? super.evaluateMemberExpression(given, scope);
    }
    if (object instanceof Str) {
      if (key instanceof Int) return wrap(Array.from(object.value).at(key.value));
      const method = this.#method(STRING_METHODS, object.value, key, plain);
      if (method) return method;
    }
    if (object instanceof List && key.value === 'index') {
      return new Func((/** @type {Value[]} */ [wanted]) => new Int(object.value.findIndex((/** @type {Value} */ item) => equal(item, wanted))));
    }
    return super.evaluateMemberExpression(given, scope);
  }

  /** @param {Map<string, Function>} methods @param {any} object @param {Value} key @param {(value: Value) => any} argument */
  #method(methods, object, key, argument) {
    const method = methods.get(key.value);
    return method && new Func((/** @type {Value[]} */ args) => wrap(method(object, ...args.map(argument))));
  }

  /** @param {Node} node @param {Scope} scope */
  evaluateTestExpression(node, scope) {
    const passed = this.#test(node.test.value, this.evaluate(node.operand, scope), new Undefined(), scope);
    return new Bool(passed !== node.negate);
  }

  /** @param {string} name @param {Value} value @param {Value} arg @param {Scope} scope @returns {boolean} */
  #test(name, value, arg, scope) {
    const test = TESTS.get(name) ?? scope.tests.get(name);
    if (!test) throw new TemplateError(`there is no test '${name}'`);
    return test(value, arg);
  }

  /** @param {Value} value @param {Node} node of the filter @param {Scope} scope @returns {Value} */
  applyFilter(value, node, scope) {
    const call = node.type === 'CallExpression';
    const name = call ? node.callee.value : node.value;
    const filter = FILTERS.get(name);
    if (name === 'tojson' && generators.has(value)) throw new TemplateError('a generator has no JSON');
    if (!filter) return super.applyFilter(value instanceof Undefined && name !== 'tojson' ? new Str('') : value, node, scope);
    const [positional, named] = call ? this.evaluateArguments(node.args, scope) : [[], new Map()];
    /** @type {Arguments} */
    const args = (index, key, otherwise) => {
      const found = positional[index] ?? named.get(key);
      return found === undefined ? otherwise : plain(found);
    };
    return wrap(filter(
      value, args,
      (other, item, rest) => this.applyFilter(item, { type: 'CallExpression', callee: { type: 'Identifier', value: other }, args: rest.map((given) => ({ type: 'Given', value: given })) }, scope),
      (test, item, arg) => this.#test(test, item, arg ?? new Undefined(), scope),
      positional,
    ));
  }
}

/** @param {Node} node @returns {string} */
const nameOf = (node) =>
  node.type === 'Identifier' ? `'${node.value}'` : node.type === 'MemberExpression' && !node.computed ? `'${node.property.value}'` : 'a value';
