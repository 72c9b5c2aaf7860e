/* The models that are kept in this browser: whether new ones are, and a list to open and delete them. */
import { models, persist } from '../../dist/index.js';
import * as say from './describe.js';
import { $, show } from './dom.js';

/** @typedef {import('../index.js').StoredModel} StoredModel */
/** @typedef {{ url: string, bytes: number, complete: boolean, parts: StoredModel[] }} Kept a model of one file or several */

/** Where the choice is kept, in words: a box that was unticked stays so. */
const CHOICE = 'keep';

/** @param {(source: URL) => void} open */
export function createShelf(open) {
  /** @type {Kept[]} */
  let all = [];
  let [possible, persisted] = [true, false];

  const refresh = async () => {
    try {
      all = joined(await models());
      persisted = await navigator.storage.persisted();
      $('keep').checked = localStorage.getItem(CHOICE) !== 'no';
      $('keep-hint').textContent = 'A model from an address is stored here, and needs no network the next time.';
    } catch (error) {
      possible = false;
      $('keep').checked = false;
      $('keep').disabled = true;
      $('keep-hint').textContent = `Impossible here: ${say.sentence(error, say.SERVED.url)}`;
    }
    showAll();
  };

  const showAll = () => {
    const list = $('kept');
    const focused = [...list.querySelectorAll('button')].indexOf(document.activeElement);
    list.replaceChildren(...all.map(item));
    const buttons = [...list.querySelectorAll('button')];
    if (focused >= 0) (buttons[Math.min(focused, buttons.length - 1)] ?? $('keep')).focus();
    show('persist', all.length > 0 && !persisted, 'keep');
  };

  /** @param {Kept} model */
  const item = (model) => {
    const made = document.createElement('li');
    const name = say.fileName(sourceOf(model));
    const size = document.createElement('span');
    size.className = 'numbers';
    size.textContent = say.megabytes(model.bytes) + (model.complete ? '' : ' so far');
    made.append(
      button('open', name, `Open ${name}`, () => open(sourceOf(model))),
      size,
      button('', 'Delete', `Delete ${name}`, () => remove(model, name)),
    );
    return made;
  };

  /** @param {Kept} model @param {string} name */
  const remove = async (model, name) => {
    const gone = await Promise.all(model.parts.map((part) => part.delete()));
    $('kept-note').textContent = gone.every(Boolean) ? `${name} is deleted.` : `${name} is being stored at the moment.`;
    await refresh();
  };

  $('keep').addEventListener('change', () => localStorage.setItem(CHOICE, $('keep').checked ? 'yes' : 'no'));
  $('persist').addEventListener('click', async () => {
    const agreed = await persist();
    $('kept-note').textContent = agreed
      ? 'The browser will not clear them by itself.'
      : 'The browser did not agree: where space is short it may clear them.';
    await refresh();
  });

  return {
    refresh,
    /** Whether a whole copy is here, so that nothing is downloaded. @param {string | URL | File} source */
    has: (source) => all.some(({ url, complete }) => complete && url === String(source)),
    /** Whether one is used, and made where there is none. @param {string | URL | File} source */
    keeps: (source) => possible && ($('keep').checked || all.some(({ url }) => url === String(source))),
  };
}

/**
 * The parts of a split model as one, by the address of the first.
 * @param {StoredModel[]} stored
 * @returns {Kept[]}
 */
function joined(stored) {
  /** @type {Map<string, StoredModel[]>} */
  const byFirst = new Map();
  for (const one of stored) {
    const first = one.url.replace(/-\d{5}(?=-of-\d{5}\.gguf)/, '-00001');
    byFirst.set(first, [...(byFirst.get(first) ?? []), one]);
  }
  return [...byFirst].map(([url, parts]) => ({
    url,
    bytes: parts.reduce((sum, { bytes }) => sum + bytes, 0),
    complete: parts.length === Number(/-00001-of-(\d{5})\.gguf/.exec(url)?.[1] ?? 1) && parts.every(({ complete }) => complete),
    parts,
  }));
}

/** @param {Kept} model */
const sourceOf = ({ url }) => (url === say.SERVED.url.href ? say.SERVED.url : new URL(url));

/**
 * @param {string} kind
 * @param {string} text
 * @param {string} label
 * @param {() => void} action
 */
function button(kind, text, label, action) {
  const made = document.createElement('button');
  made.type = 'button';
  made.className = `quiet ${kind}`;
  made.setAttribute('aria-label', label);
  const inner = made.appendChild(document.createElement('span'));
  inner.className = 'clip';
  inner.textContent = text;
  made.addEventListener('click', action);
  return made;
}
