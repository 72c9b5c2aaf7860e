/* The demo: a chat with a GGUF model in this tab, through the package's public interface alone.
 *
 * One model at a time, one Chat on it, one turn at a time. A question asked while a model loads waits
 * for it. Another model begins another conversation; the same one reloaded goes on with it. */
import { load, support } from '../../dist/index.js';
import { createAnnouncer } from './announce.js';
import { createConversation } from './conversation.js';
import {
  SERVED,
  endNote,
  factsOf,
  megabytes,
  nameOf,
  sentenceOf,
  speedOf,
  statusOf,
  timingsOf,
  titleOf,
} from './describe.js';

/** @param {string} id @returns {any} */
const $ = (id) => document.getElementById(id);

const conversation = createConversation($('conversation'));
const announcer = createAnnouncer($('announcer'));

/** @type {import('../index.js').Model | null} */
let model = null;
/** @type {import('../index.js').Chat | null} */
let chat = null;
/** @type {string | URL | File} what the model is, or would have been, loaded from */
let source = SERVED.url;
/** @type {AbortController | null} the load that runs */
let loading = null;
/** @type {Promise<boolean>} whether the latest load gave a model */
let ready = Promise.resolve(false);
/** @type {AbortController | null} the turn that runs; aborted by Stop */
let turn = null;
let turnEnded = Promise.resolve();

/* -- loading ---------------------------------------------------------------------------------------- */

/**
 * Loads a model in place of the one that is there.
 * @param {string | URL | File} from
 */
function open(from) {
  loading?.abort();
  const mine = (loading = new AbortController());
  ready = replaceModel(from, mine);
  return ready;
}

/**
 * @param {string | URL | File} from
 * @param {AbortController} mine
 */
async function replaceModel(from, mine) {
  turn?.abort();
  const messages = chat && from === source ? chat.messages : [];
  source = from;
  show('problem', false);
  showProgress({ loaded: 0 });
  $('reload').hidden = true;
  try {
    await turnEnded;
    await unload();
    if (messages.length === 0) clearConversation();
    const loaded = await load(from, {
      precision: $('precision').value || undefined,
      threads: Number($('threads').value) || undefined,
      signal: mine.signal,
      onProgress(/** @type {{ loaded: number, total?: number }} */ progress) {
        if (loading === mine) showProgress(progress);
      },
    });
    if (loading !== mine) {
      await loaded.close();
      return false;
    }
    model = loaded;
    chat = model.chat({ messages });
    showModel();
    return true;
  } catch (error) {
    if (loading === mine) showProblem(mine.signal.aborted ? 'Loading was cancelled.' : sentenceOf(error, from));
    return false;
  } finally {
    if (loading === mine) {
      loading = null;
      show('loading', false);
    }
  }
}

/** Gives the memory back before another model takes its own. */
async function unload() {
  const old = model;
  model = chat = null;
  showModel();
  await old?.close();
}

/* -- a turn ----------------------------------------------------------------------------------------- */

/** @param {string} question */
function ask(question) {
  const mine = (turn = new AbortController());
  show('welcome', false);
  show('problem', false);
  show('stop', true);
  show('send', false);
  $('new-chat').disabled = false;
  announcer.clear();
  turnEnded = answer(question, conversation.add(question), mine).finally(() => {
    if (turn !== mine) return;
    turn = null;
    show('send', true);
    if (document.activeElement === $('stop')) $('prompt').focus();
    show('stop', false);
  });
}

/**
 * @param {string} question
 * @param {ReturnType<typeof conversation.add>} view
 * @param {AbortController} mine
 */
async function answer(question, view, mine) {
  try {
    const current = await chatFor(mine.signal);
    if (!current) return view.finish('', 'Stopped.');
    const generation = current.send(question, {
      temperature: Number($('temperature').value),
      maxTokens: $('max-tokens').valueAsNumber || undefined,
    });
    mine.signal.addEventListener('abort', () => generation.stop());
    const meter = createMeter();
    for await (const piece of generation) {
      view.append(piece.text);
      announcer.add(piece.text);
      meter.add(piece.tokens.length);
    }
    const result = await generation.result();
    const note = endNote(result, model?.info);
    announcer.end(note);
    view.finish(timingsOf(result), note);
    showStatus(result);
  } catch (error) {
    view.fail(sentenceOf(error, source), () => retry(question, error));
  }
}

/**
 * The chat to speak to: at once, when the load that runs is done, or never because of Stop (null).
 * @param {AbortSignal} signal
 */
async function chatFor(signal) {
  const stopped = new Promise((resolve) => signal.addEventListener('abort', () => resolve('stopped')));
  const outcome = await Promise.race([ready, stopped]);
  if (outcome === 'stopped' || signal.aborted) return null;
  if (!chat) throw new Error('There is no model to answer. Load one first.');
  return chat;
}

/**
 * Asks again after a failure; after a crash the instance is gone, and the model is loaded anew first.
 * @param {string} question
 * @param {unknown} error
 */
function retry(question, error) {
  if (turn) return;
  if (!model || /** @type {any} */ (error).code === 'CRASHED') if (!loading) open(source);
  ask(question);
}

/** Tokens per second while they come, told a few times a second. */
function createMeter() {
  let first = 0;
  let told = 0;
  let tokens = 0;
  return {
    /** @param {number} count */
    add(count) {
      const now = performance.now();
      first ||= now;
      tokens += count;
      if (now - told < 250 || now === first) return;
      told = now;
      if (model) $('status').textContent = statusOf(model.info, ((tokens - 1) / (now - first)) * 1000);
    },
  };
}

async function startAnew() {
  turn?.abort();
  await turnEnded;
  if (!model) return clearConversation();
  await chat?.close();
  chat = model.chat();
  clearConversation();
  showStatus();
}

/* -- what the page shows ---------------------------------------------------------------------------- */

/** @param {string} id @param {boolean} shown */
const show = (id, shown) => ($(id).hidden = !shown);

function clearConversation() {
  conversation.clear();
  announcer.clear();
  show('problem', false);
  show('welcome', true);
  $('new-chat').disabled = true;
  $('prompt').focus();
}

/** @param {{ loaded: number, total?: number }} progress */
function showProgress({ loaded, total }) {
  const label = `Loading ${nameOf(source)}`;
  if ($('loading-label').textContent !== label) $('loading-label').textContent = label;
  $('loading-numbers').textContent = total ? `${megabytes(loaded)} of ${megabytes(total)}` : megabytes(loaded);
  const bar = $('progress');
  if (total) bar.value = loaded / total;
  else bar.removeAttribute('value');
  show('loading', true);
}

/** @param {string} sentence */
function showProblem(sentence) {
  $('problem-text').textContent = sentence;
  show('problem', true);
}

function showModel() {
  $('model-name').textContent = model ? titleOf(model.info, source) : nameOf(source);
  $('facts').replaceChildren(
    ...(model ? factsOf(model.info, source) : []).flatMap(([name, value]) => {
      const [term, detail] = [document.createElement('dt'), document.createElement('dd')];
      term.textContent = name;
      detail.textContent = value;
      return [term, detail];
    }),
  );
  showStatus();
}

/** @param {any} [result] of the latest turn */
function showStatus(result) {
  $('status').textContent = model ? statusOf(model.info, result && speedOf(result)) : '';
}

/* -- controls --------------------------------------------------------------------------------------- */

/** @param {boolean} open */
function togglePanel(open) {
  show('panel', open);
  $('panel-toggle').setAttribute('aria-expanded', String(open));
}

/** @param {string | URL | File} from */
function choose(from) {
  togglePanel(false);
  open(from);
}

function submitPrompt() {
  const text = $('prompt').value.trim();
  if (text === '' || turn) return;
  $('prompt').value = '';
  fitPrompt();
  ask(text);
}

/** As high as its text, up to what the style sheet allows. */
function fitPrompt() {
  const prompt = $('prompt');
  prompt.style.height = 'auto';
  prompt.style.height = `${prompt.scrollHeight}px`;
}

function submitUrl() {
  const text = $('url').value.trim();
  if (text === '') return $('url').focus();
  const url = URL.canParse(text, location.href) ? new URL(text, location.href) : null;
  togglePanel(false);
  if (url?.protocol === 'https:' || url?.origin === location.origin) choose(url);
  else showProblem(`${text} is not an https address, and this page reads no other.`);
}

function wireComposer() {
  $('composer').addEventListener('submit', (/** @type {Event} */ event) => {
    event.preventDefault();
    submitPrompt();
  });
  $('prompt').addEventListener('input', fitPrompt);
  $('prompt').addEventListener('keydown', (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submitPrompt();
  });
  $('stop').addEventListener('click', () => turn?.abort());
  $('new-chat').addEventListener('click', startAnew);
  for (const button of $('suggestions').querySelectorAll('button')) {
    button.addEventListener('click', () => turn || ask(button.textContent));
  }
}

function wirePanel() {
  $('panel-toggle').addEventListener('click', () => togglePanel($('panel').hidden));
  $('load-default').addEventListener('click', () => choose(SERVED.url));
  $('file').addEventListener('change', () => {
    const [file] = $('file').files;
    $('file').value = '';
    if (file) choose(file);
  });
  $('url-form').addEventListener('submit', (/** @type {Event} */ event) => {
    event.preventDefault();
    submitUrl();
  });
  $('temperature').addEventListener('input', () => {
    $('temperature-value').textContent = Number($('temperature').value).toFixed(1);
  });
  for (const id of ['precision', 'threads']) $(id).addEventListener('change', () => show('reload', true));
  $('reload').addEventListener('click', () => choose(source));
  $('cancel').addEventListener('click', () => loading?.abort());
  $('retry').addEventListener('click', () => open(source));
  document.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape') return;
    if (!$('panel').hidden) {
      togglePanel(false);
      $('panel-toggle').focus();
    } else turn?.abort();
  });
  document.addEventListener('pointerdown', (event) => {
    const inside = /** @type {Element} */ (event.target).closest('#panel, #panel-toggle');
    if (!inside) togglePanel(false);
  });
}

function wireDrop() {
  const hasFile = (/** @type {DragEvent} */ event) => event.dataTransfer?.types.includes('Files');
  document.addEventListener('dragover', (event) => {
    if (!hasFile(event)) return;
    event.preventDefault();
    show('drop', true);
  });
  document.addEventListener('dragleave', (event) => event.relatedTarget || show('drop', false));
  document.addEventListener('drop', (event) => {
    if (!hasFile(event)) return;
    event.preventDefault();
    show('drop', false);
    const file = event.dataTransfer?.files[0];
    if (file) choose(file);
  });
}

function offerThreads() {
  const { threads, reasons } = support();
  const most = threads ? navigator.hardwareConcurrency : 1;
  for (let n = 1; n <= most; n++) $('threads').append(new Option(String(n)));
  $('threads-why').textContent = threads ? '' : reasons.join('; ');
}

wireComposer();
wirePanel();
wireDrop();
offerThreads();
open(SERVED.url);
