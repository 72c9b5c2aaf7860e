/**
 * Chat templates as Python's Jinja2 renders them: the lexer, parser and interpreter of @huggingface/jinja,
 * with Python's rules where the library has its own, and with bounds of what it makes, as a template comes with
 * a model from anywhere: MAX_TEXT of text, MAX_ITEMS in a list, looked at after every node of the tree. Time is
 * bounded from outside, by renderer.js.
 */
import { Environment, Interpreter, Template } from '@huggingface/jinja';
import { DICT_METHODS, FILTERS, STRING_METHODS, TESTS, isGenerator } from './filters.js';
import {
  Bool, Dict, Func, Int, List, None, Str, TemplateError, Tuple, Undefined,
  MAX_ITEMS, concat, equal, items, less, percent, plain, str, tooMany, wrap,
} from './values.js';

/** @typedef {import('./values.js').Value} Value */
/** @typedef {any} Node a node of the library's syntax tree */
/** @typedef {any} Scope the library's Environment */

const MAX_TEXT = 4 << 20;
/**
 * @param {string} source
 * @returns {(vars: Record<string, any>, now: Date) => string} throws whatever goes wrong
 */
export function compile(source) {
  const { parsed } = new Template(source);
  return (vars, now) => {
    const scope = new Environment();
    for (const [name, value] of Object.entries({ ...globals(now), ...vars })) {
      scope.setVariable(name, /** @type {any} */ (wrap(value)));
    }
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
  if (!(n <= MAX_ITEMS)) throw tooMany(n);
  return Array.from({ length: n }, (_, i) => from + i * step);
}

const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
const MONTHS = ['January', 'February', 'March', 'April', 'May', 'June', 'July', 'August', 'September',
  'October', 'November', 'December'];

/**
 * As Python in the C locale; %-d and the like are not padded.
 * @param {Date} date
 * @param {string} format
 */
function strftime(date, format) {
  const [day, month, hour] = [DAYS[date.getDay()], MONTHS[date.getMonth()], date.getHours()];
  const noon = (/** @type {[number, number, number]} */ ...ymd) => new Date(...ymd, 12).getTime();
  const today = noon(date.getFullYear(), date.getMonth(), date.getDate());
  const dayOfYear = Math.round((today - noon(date.getFullYear(), 0, 0)) / 86_400_000);
  /** @type {Record<string, string | number>} */
  const fields = {
    Y: date.getFullYear(), y: date.getFullYear() % 100, m: date.getMonth() + 1, d: date.getDate(),
    j: dayOfYear, H: hour, I: hour % 12 || 12, M: date.getMinutes(), S: date.getSeconds(),
    p: hour < 12 ? 'AM' : 'PM', A: day, a: day.slice(0, 3), B: month, b: month.slice(0, 3), '%': '%',
  };
  return format.replace(/%(-?)([A-Za-z%])/g, (whole, bare, letter) => {
    const field = fields[letter];
    if (typeof field !== 'number') return field ?? whole;
    return String(field).padStart(bare ? 0 : letter === 'j' ? 3 : 2, '0');
  });
}

const Base = /** @type {new (scope: Scope) => any} */ (/** @type {unknown} */ (Interpreter));
/** Statements that print nothing, whatever they evaluate to. */
const SILENT = new Set(['Set', 'Macro', 'Comment']);
/** Nodes of our own: a value that is known already, and what a loop runs over. */
const GIVEN = 'Given';
const ITERABLE = 'Iterable';
/** The library unpacks no tuples. @param {Value} item */
const unpackable = (item) => (item instanceof Tuple ? new List(item.value) : item);
/** @param {Value} value @returns {Node} */
const given = (value) => ({ type: GIVEN, value });

class Python extends Base {
  /** @param {Node} node @param {Scope} scope @returns {Value} */
  evaluate(node, scope) {
    const value = this.#evaluate(node, scope);
    if (value instanceof Str && value.value.length > MAX_TEXT) throw tooLong();
    if (value instanceof List && value.value.length > MAX_ITEMS) throw tooMany(value.value.length);
    return value;
  }

  /** @param {Node} node @param {Scope} scope @returns {Value} */
  #evaluate(node, scope) {
    switch (node?.type) {
      case GIVEN:
        return node.value;
      case ITERABLE:
        return new List(items(this.evaluate(node.of, scope)).map(unpackable));
      case 'ObjectLiteral': {
        const pair = (/** @type {[Node, Node]} */ [key, item]) =>
          /** @type {const} */ ([this.evaluate(key, scope).value, this.evaluate(item, scope)]);
        return new Dict(new Map([...node.value].map(pair)));
      }
      default:
        return super.evaluate(node, scope);
    }
  }

  /** @param {Node[]} nodes @param {Scope} scope */
  evaluateBlock(nodes, scope) {
    let text = '';
    for (const node of nodes) {
      const value = this.evaluate(node, scope);
      if (!SILENT.has(node.type)) text += str(value);
      if (text.length > MAX_TEXT) throw tooLong();
    }
    return new Str(text);
  }

  /** @param {Node} node @param {Scope} scope */
  evaluateFor(node, scope) {
    const { iterable } = node;
    const of = (/** @type {Node} */ expression) => ({ type: ITERABLE, of: expression });
    const over = iterable.type === 'SelectExpression' ? { ...iterable, lhs: of(iterable.lhs) } : of(iterable);
    return super.evaluateFor({ ...node, iterable: over }, scope);
  }

  /** @param {Node} node @param {Scope} scope @returns {Value} */
  evaluateBinaryExpression(node, scope) {
    const { value: operator } = node.operator;
    if (operator === 'and' || operator === 'or') return super.evaluateBinaryExpression(node, scope);
    const [a, b] = [this.evaluate(node.left, scope), this.evaluate(node.right, scope)];
    return pythonic(operator, a, b)
      ?? super.evaluateBinaryExpression({ ...node, left: given(a), right: given(b) }, scope);
  }

  /** @param {Node} node @param {Scope} scope @returns {Value} */
  evaluateMemberExpression(node, scope) {
    const object = this.evaluate(node.object, scope);
    const rest = () => super.evaluateMemberExpression({ ...node, object: given(object) }, scope);
    if (node.computed && node.property.type === 'SliceExpression') return rest();
    const key = node.computed ? this.evaluate(node.property, scope) : new Str(node.property.value);
    if (object instanceof Undefined) {
      throw new TemplateError(`${nameOf(node.object)} is undefined, and so has no '${key.value}'`);
    }
    if (object instanceof None) return new Undefined();
    if (object.value instanceof Map) {
      return object.value.get(key.value) ?? method(DICT_METHODS, object, key, (value) => value) ?? rest();
    }
    if (object instanceof Str) {
      if (key instanceof Int) return wrap(Array.from(object.value).at(key.value));
      return method(STRING_METHODS, object.value, key, plain) ?? rest();
    }
    if (object instanceof List && key.value === 'index') {
      const index = (/** @type {Value} */ wanted) => items(object).findIndex((item) => equal(item, wanted));
      return new Func((/** @type {Value[]} */ [wanted]) => new Int(index(wanted)));
    }
    return rest();
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
    const called = node.type === 'CallExpression';
    const name = called ? node.callee.value : node.value;
    if (name === 'tojson' && isGenerator(value)) throw new TemplateError('a generator has no JSON');
    const filter = FILTERS.get(name);
    const empty = value instanceof Undefined && name !== 'tojson';
    if (!filter) return super.applyFilter(empty ? new Str('') : value, node, scope);
    const [rest, named] = called ? this.evaluateArguments(node.args, scope) : [[], new Map()];
    return wrap(filter(value, {
      rest,
      get(index, key, otherwise) {
        const found = rest[index] ?? named.get(key);
        return found === undefined ? otherwise : plain(found);
      },
      filter: (other, item, args) => {
        const callee = { type: 'Identifier', value: other };
        return this.applyFilter(item, { type: 'CallExpression', callee, args: args.map(given) }, scope);
      },
      test: (test, item, arg) => this.#test(test, item, arg, scope),
    }));
  }
}

const tooLong = () => new TemplateError(`it makes more than ${MAX_TEXT} characters`);

/**
 * What the library does otherwise than Python, or undefined.
 * @param {string} operator @param {Value} a @param {Value} b @returns {Value | undefined}
 */
function pythonic(operator, a, b) {
  const [aText, bText] = [a instanceof Str, b instanceof Str];
  switch (operator) {
    case '==': return new Bool(equal(a, b));
    case '!=': return new Bool(!equal(a, b));
    case '~': return new Str(str(a) + str(b));
    case '+':
      if (aText !== bText) throw new TemplateError(`cannot add ${a.type} and ${b.type}`);
      return aText ? concat(a, b) : undefined;
    case '*': return aText && b instanceof Int ? new Str(repeat(a.value, b.value)) : undefined;
    case '%':
      if (aText) return new Str(percent(a.value, b instanceof Tuple ? b.value : [b]));
      if (!(a instanceof Int && b instanceof Int)) return undefined;
      return new Int(a.value - b.value * Math.floor(a.value / b.value));
    case '<': return aText && bText ? new Bool(less(a, b)) : undefined;
    case '>': return aText && bText ? new Bool(less(b, a)) : undefined;
    case '<=': return aText && bText ? new Bool(!less(b, a)) : undefined;
    case '>=': return aText && bText ? new Bool(!less(a, b)) : undefined;
    case 'in': case 'not in': {
      const holds = b instanceof List ? items(b).some((item) => equal(a, item))
        : b.value instanceof Map ? b.value.has(a.value) : undefined;
      return holds === undefined ? undefined : new Bool(holds === (operator === 'in'));
    }
  }
}

/** @param {string} text @param {number} times */
function repeat(text, times) {
  if (text.length * times > MAX_TEXT) throw tooLong();
  return text.repeat(Math.max(0, times));
}

/**
 * @param {Map<string, Function>} methods
 * @param {any} object
 * @param {Value} key
 * @param {(value: Value) => any} argument how the method takes its arguments
 */
function method(methods, object, key, argument) {
  const found = methods.get(key.value);
  return found && new Func((/** @type {Value[]} */ args) => wrap(found(object, ...args.map(argument))));
}

/** @param {Node} node @returns {string} */
function nameOf(node) {
  if (node.type === 'Identifier') return `'${node.value}'`;
  return node.type === 'MemberExpression' && !node.computed ? `'${node.property.value}'` : 'a value';
}
