/* The demo: a chat with a GGUF model in this tab, through the package's public interface alone.
 *
 * One model at a time, one Chat on it, one turn at a time. A question asked while a model loads waits
 * for it. Another model begins another conversation; the same one reloaded goes on with it. */
import { ModelError, load } from '../../dist/index.js';
import { createAnnouncer } from './announce.js';
import { togglePanel, wireControls } from './controls.js';
import { agreed } from './consent.js';
import { createConversation } from './conversation.js';
import * as say from './describe.js';
import { $, show } from './dom.js';
import { createShelf } from './shelf.js';

/** @typedef {string | URL | File} Source */
/** @typedef {import('../index.js').Result} Result */

const METER_MS = 250;

const conversation = createConversation($('conversation'));
const announcer = createAnnouncer($('announcer'));
const shelf = createShelf((kept) => choose(kept));

/** @type {import('../index.js').Model | null} */
let model = null;
/** @type {import('../index.js').Chat | null} null too where the model has no chat template */
let chat = null;
/** @type {Source} what the model is, or would have been, loaded from */
let source = say.SERVED.url;
/** @type {AbortController | null} the load that runs */
let loading = null;
/** @type {Promise<void>} the end of the latest load, good or bad */
let loaded = Promise.resolve();
/** @type {AbortController | null} the turn that runs; aborted by Stop */
let turn = null;
/** @type {Promise<void>} */
let turnEnded = Promise.resolve();

/* -- loading ---------------------------------------------------------------------------------------- */

/**
 * Loads a model in place of the one that is there.
 * @param {Source} from
 */
function open(from) {
  loading?.abort();
  turn?.abort();
  loading = new AbortController();
  loaded = replaceModel(from, loading);
}

/**
 * The same as the reader's choice, made in the panel: the page's own first load leaves that as it is.
 * @param {Source} from
 */
function choose(from) {
  togglePanel(false);
  open(from);
}

/**
 * @param {Source} from
 * @param {AbortController} mine
 */
async function replaceModel(from, mine) {
  const [messages, before] = [chat && from === source ? [...chat.messages] : [], source];
  const options = {
    precision: $('precision').value || undefined,
    threads: Number($('threads').value) || undefined,
    signal: mine.signal,
    cache: shelf.keeps(from),
  };
  source = from;
  show('problem', false);
  show('reload', false);
  $('needs').textContent = '';
  showProgress({ loaded: 0 });
  try {
    if (!(from instanceof File || shelf.has(from) || (await agreed(from, options)))) {
      source = before;
      return;
    }
    await turnEnded;
    await unload();
    if (messages.length === 0) clearConversation();
    const fresh = await load(from, {
      ...options,
      onProgress(progress) {
        if (loading === mine) showProgress(progress);
      },
    });
    if (loading !== mine) return void (await fresh.close());
    model = fresh;
    chat = fresh.info.hasTemplate ? fresh.chat({ messages }) : null;
    showModel();
  } catch (error) {
    if (loading === mine)
      showProblem(mine.signal.aborted ? 'Loading was cancelled.' : say.sentence(error, from));
  } finally {
    if (loading === mine) {
      loading = null;
      show('loading', false);
      await shelf.refresh();
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
  if (turn) return false;
  const mine = (turn = new AbortController());
  show('stop', true);
  show('send', false, 'stop');
  show('welcome', false, 'stop');
  show('problem', false, 'stop');
  $('new-chat').disabled = false;
  announcer.clear();
  turnEnded = answer(question, conversation.add(question), mine.signal).finally(() => {
    turn = null;
    show('send', true);
    show('stop', false);
  });
  return true;
}

/**
 * @param {string} question
 * @param {ReturnType<typeof conversation.add>} view
 * @param {AbortSignal} signal
 */
async function answer(question, view, signal) {
  try {
    if (!(await modelReady(signal))) return view.finish('', 'Stopped.');
    const generation = begin(question);
    signal.addEventListener('abort', () => generation.stop());
    const meter = createMeter();
    for await (const piece of generation) {
      view.append(piece.text);
      announcer.add(piece.text);
      meter.add(piece.tokens.length);
    }
    const result = await generation.result();
    const note = model ? say.ending(result, model.info) : '';
    announcer.end(note);
    view.finish(say.timings(result), note);
    showFacts(result);
  } catch (error) {
    view.fail(say.sentence(error, source), () => retry(question, error));
  }
}

/**
 * Waits for the load that runs, if one does; false if Stop came first.
 * @param {AbortSignal} signal
 */
async function modelReady(signal) {
  const stopped = new Promise((resolve) => signal.addEventListener('abort', resolve));
  await Promise.race([loaded, stopped]);
  if (signal.aborted) return false;
  if (!model) throw new Error('There is no model to answer. Load one first.');
  return true;
}

/**
 * A model that knows no turns goes on with the text instead.
 * @param {string} question
 */
function begin(question) {
  const options = {
    temperature: Number($('temperature').value),
    maxTokens: $('max-tokens').valueAsNumber || undefined,
  };
  return chat
    ? chat.send(question, options)
    : /** @type {NonNullable<typeof model>} */ (model).generate(question, options);
}

/**
 * Asks again after a failure; after a crash the instance is gone, and the model is loaded anew first.
 * @param {string} question
 * @param {unknown} error
 */
function retry(question, error) {
  const crashed = error instanceof ModelError && error.code === 'CRASHED';
  if (!loading && (!model || crashed)) open(source);
  ask(question);
  $('stop').focus();
}

/** Tokens per second while they come. */
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
      if (!model || now === first || now - told < METER_MS) return;
      told = now;
      $('status').textContent = say.status(model.info, ((tokens - 1) / (now - first)) * 1000);
    },
  };
}

async function startAnew() {
  turn?.abort();
  await turnEnded;
  clearConversation();
  if (!model || !chat) return;
  const old = chat;
  chat = model.chat();
  await old.close();
  showFacts();
}

/* -- what the page shows ---------------------------------------------------------------------------- */

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
  const label = `Loading ${say.fileName(source)}`;
  /* the same text set anew would be announced anew */
  if ($('loading-label').textContent !== label) $('loading-label').textContent = label;
  $('loading-numbers').textContent = say.megabytes(loaded) + (total ? ` of ${say.megabytes(total)}` : '');
  if (total) $('progress').value = loaded / total;
  else $('progress').removeAttribute('value');
  show('loading', true);
}

/** @param {string} sentence */
function showProblem(sentence) {
  $('problem-text').textContent = sentence;
  show('problem', true);
}

function showModel() {
  $('model-name').textContent = model ? say.title(model.info, source) : say.fileName(source);
  $('prompt').placeholder = model && !chat ? 'Begin a text, and the model goes on' : 'Write a message';
  showFacts();
}

/** @param {Result} [latest] */
function showFacts(latest) {
  const facts = model ? say.facts(model.info, source) : [];
  $('facts').replaceChildren(
    ...facts.flatMap(([name, value]) => {
      const [term, detail] = [document.createElement('dt'), document.createElement('dd')];
      term.textContent = name;
      detail.textContent = value;
      return [term, detail];
    }),
  );
  $('status').textContent = model ? say.status(model.info, latest?.timings.tokensPerSecond) : '';
}

wireControls({
  ask,
  stop: () => turn?.abort(),
  startAnew,
  open: choose,
  reload: () => choose(source),
  cancelLoading: () => loading?.abort(),
});
await shelf.refresh();
open(say.SERVED.url);
