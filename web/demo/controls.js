/* What the controls do: keys, clicks and drops become the demo's actions. */
import { support } from '../../dist/index.js';
import { SERVED } from './describe.js';
import { $, show } from './dom.js';

/**
 * @typedef {object} Actions
 * @property {(question: string) => boolean} ask false while an answer is being written
 * @property {() => void} stop
 * @property {() => void} startAnew
 * @property {(source: string | URL | File) => void} open
 * @property {() => void} reload
 * @property {() => void} cancelLoading
 */

/** @param {Actions} actions */
export function wireControls(actions) {
  wireComposer(actions);
  wireModelChoice(actions);
  wirePanel(actions);
  wireDrop(actions);
  offerThreads();
}

/** @param {Actions} actions */
function wireComposer({ ask, stop, startAnew }) {
  const prompt = $('prompt');
  /* as high as its text, up to what the style sheet allows */
  const fit = () => {
    prompt.style.height = 'auto';
    prompt.style.height = `${prompt.scrollHeight}px`;
  };
  const submit = () => {
    const question = prompt.value.trim();
    if (question === '' || !ask(question)) return;
    prompt.value = '';
    fit();
  };
  prompt.addEventListener('input', fit);
  prompt.addEventListener('keydown', (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit();
  });
  onSubmit('composer', submit);
  $('stop').addEventListener('click', stop);
  $('new-chat').addEventListener('click', startAnew);
  for (const button of $('suggestions').querySelectorAll('button')) {
    button.addEventListener('click', () => ask(button.textContent));
  }
}

/** @param {Actions} actions */
function wireModelChoice({ open, reload, cancelLoading }) {
  $('load-default').addEventListener('click', () => open(SERVED.url));
  $('file').addEventListener('change', () => {
    const [file] = $('file').files;
    $('file').value = '';
    if (file) open(file);
  });
  onSubmit('url-form', () => {
    const field = $('url');
    const text = field.value.trim();
    const url = URL.canParse(text, location.href) ? new URL(text, location.href) : null;
    if (text !== '' && (url?.protocol === 'https:' || url?.origin === location.origin)) return open(url);
    field.setCustomValidity('An https address of a GGUF file is needed here.');
    field.reportValidity();
  });
  $('url').addEventListener('input', () => $('url').setCustomValidity(''));
  $('reload').addEventListener('click', reload);
  $('retry').addEventListener('click', reload);
  $('cancel').addEventListener('click', cancelLoading);
}

/** @param {boolean} open */
export function togglePanel(open) {
  show('panel', open, 'panel-toggle');
  $('panel-toggle').setAttribute('aria-expanded', String(open));
}

/** @param {Actions} actions */
function wirePanel({ stop }) {
  $('panel-toggle').addEventListener('click', () => togglePanel($('panel').hidden));
  $('temperature').addEventListener('input', () => {
    $('temperature-value').textContent = Number($('temperature').value).toFixed(1);
  });
  for (const id of ['precision', 'threads']) $(id).addEventListener('change', () => show('reload', true));
  document.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape') return;
    if ($('panel').hidden) stop();
    else togglePanel(false);
  });
  document.addEventListener('pointerdown', (event) => {
    const inside = /** @type {Element} */ (event.target).closest('#panel, #panel-toggle');
    if (!inside) togglePanel(false);
  });
}

/** @param {Actions} actions */
function wireDrop({ open }) {
  const carriesFile = (/** @type {DragEvent} */ event) => event.dataTransfer?.types.includes('Files');
  document.addEventListener('dragover', (event) => {
    if (!carriesFile(event)) return;
    event.preventDefault();
    show('drop', true);
  });
  document.addEventListener('dragleave', (event) => {
    if (!event.relatedTarget) show('drop', false);
  });
  document.addEventListener('drop', (event) => {
    if (!carriesFile(event)) return;
    event.preventDefault();
    show('drop', false);
    const file = event.dataTransfer?.files[0];
    if (file) open(file);
  });
}

function offerThreads() {
  const most = support().threads ? navigator.hardwareConcurrency : 1;
  for (let n = 1; n <= most; n++) $('threads').append(new Option(String(n)));
}

/**
 * @param {string} id of a form
 * @param {() => void} action
 */
function onSubmit(id, action) {
  $(id).addEventListener('submit', (/** @type {Event} */ event) => {
    event.preventDefault();
    action();
  });
}
