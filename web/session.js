/**
 * session.js: text on one side, the engine's tokens on the other.
 *
 *   prompt -> ids -> what the slot already holds is kept -> the rest is evaluated in batches ->
 *   draw a token -> end of turn? -> text -> stop string? -> send -> evaluate it -> draw ...
 *
 * A slot is a sequence of the engine and the ids that it holds: one per Chat, one for all calls of
 * generate(). It is a cache and nothing more: dropping one costs time, never changes an answer.
 */
import { ModelError } from './errors.js';
import { REPEAT_LAST_N, SAMPLERS } from './options.js';
import { Writer } from './writer.js';

/** A batch of the prompt takes no longer, so that a message (an abort) is seen in time. */
const BATCH_MS = 200;
/** What the first batch, when nothing has been measured, supposes of a slow device: weights used in a ms. */
const FIRST_PER_MS = 5e6;
/** Fewer cost nearly as much: the weights are read once for all of a batch. */
const LEAST_ROWS = 2;

const DEFAULTS = Object.fromEntries(Object.entries(SAMPLERS).map(([name, { otherwise }]) => [name, otherwise]));

/**
 * @typedef {Pick<import('./evaluator.js').Engine,
 *   'info' | 'seq' | 'drop' | 'rewind' | 'eval' | 'setSampler' | 'seed' | 'bias' | 'sample'>} Engine
 * @typedef {Pick<import('./tokenizer.js').Tokenizer, 'bos' | 'eogIds' | 'prompt' | 'stream'>} Tokenizer
 * @typedef {{ encode: (messages: any[]) => Promise<number[]> }} Template
 * @typedef {{ seq: number, ids: number[] }} Slot
 * @typedef {import('./index.js').Result} Result
 * @typedef {{ text: string } | { tokens: number[] } | { messages: any[] }} Prompt
 */

export class Session {
  #engine;
  #tokenizer;
  #template;
  /** Least recently used first. @type {Map<number, Slot>} */
  #slots = new Map();
  /** @type {Promise<unknown>} */
  #last = Promise.resolve();
  /** Measured at the latest batch of a prompt. */
  #rowsPerMs;

  /**
   * @param {Engine} engine
   * @param {Tokenizer} tokenizer
   * @param {Template} template
   */
  constructor(engine, tokenizer, template) {
    this.#engine = engine;
    this.#tokenizer = tokenizer;
    this.#template = template;
    this.#rowsPerMs = Math.max(LEAST_ROWS / BATCH_MS, FIRST_PER_MS / engine.info.nParams);
  }

  /**
   * One call after the other, in the order in which they come.
   * @param {number} name of the slot
   * @param {Prompt} prompt
   * @param {Record<string, any>} options checked
   * @param {import('./rpc.js').Job} job
   * @returns {Promise<Result>}
   */
  generate(name, prompt, options, job) {
    const result = this.#last.then(() => this.#generate(name, prompt, options, job));
    this.#last = result.catch(() => {}); // the caller has it; the next call does not depend on it
    return result;
  }

  /**
   * Gives a slot's memory back, once the calls before are done.
   * @param {number} name
   */
  forget(name) {
    const done = this.#last.then(() => this.#drop(name));
    this.#last = done.catch(() => {});
    return done;
  }

  /**
   * @param {number} name
   * @param {Prompt} prompt
   * @param {Record<string, any>} options
   * @param {import('./rpc.js').Job} job
   */
  async #generate(name, prompt, options, job) {
    job.signal.throwIfAborted();
    const ids = await this.#idsOf(prompt);
    job.signal.throwIfAborted();
    const slot = this.#slot(name);
    const cached = this.#keepPrefix(slot, ids);
    const pause = new Pause();
    try {
      return await this.#answer(slot, ids, cached, options, job, pause);
    } catch (error) {
      if (job.signal.aborted) this.#rewind(slot, cached);
      throw error;
    } finally {
      pause.end();
    }
  }

  /**
   * @param {Prompt} prompt
   * @returns {Promise<number[]>}
   */
  async #idsOf(prompt) {
    const ids =
      'text' in prompt ? this.#tokenizer.prompt(prompt.text, { special: true })
      : 'messages' in prompt ? await this.#template.encode(prompt.messages)
      : prompt.tokens;
    if (ids.length === 0) {
      const { bos } = this.#tokenizer;
      if (bos === undefined) throw new RangeError('the prompt is empty, and this vocabulary has no token to begin with');
      ids.push(bos);
    }
    const { nCtx } = this.#engine.info;
    if (ids.length > nCtx) {
      throw new ModelError('CONTEXT', `the prompt has ${ids.length} tokens, the context holds ${nCtx}`);
    }
    return ids;
  }

  /**
   * @param {Slot} slot
   * @param {number[]} ids of the prompt
   * @param {number} cached how many of them the slot holds
   * @param {Record<string, any>} options
   * @param {import('./rpc.js').Job} job
   * @param {Pause} pause
   * @returns {Promise<Result>}
   */
  async #answer(slot, ids, cached, options, job, pause) {
    const { seed = randomSeed(), maxTokens = Infinity, stop = [], repeatLastN = REPEAT_LAST_N } = options;
    const { nCtx } = this.#engine.info;
    this.#setSampler(slot, options, seed);
    const writer = new Writer(this.#tokenizer.stream(ids), stop, job.send);
    const start = performance.now();
    await this.#prefill(slot, ids, job, pause);
    const prefilled = performance.now();
    /** @type {Result['reason'] | undefined} */
    let reason;
    while (!reason) {
      if (job.stop.aborted) reason = 'stopped';
      else if (writer.tokens.length >= maxTokens) reason = 'length';
      else if (slot.ids.length + 1 === ids.length + writer.tokens.length) {
        // The latest token is drawn and shown, but not yet evaluated.
        if (slot.ids.length === nCtx) reason = 'context';
        else this.#append(slot, writer.tokens.slice(-1), 'last');
      } else {
        const id = this.#engine.sample(slot.seq, 0, repeatLastN ? slot.ids.slice(-repeatLastN) : []);
        if (this.#tokenizer.eogIds.has(id) || writer.take(id)) reason = 'stop';
        await pause.round();
        job.signal.throwIfAborted();
      }
    }
    writer.end();
    const usage = { promptTokens: ids.length, cachedTokens: cached, completionTokens: writer.tokens.length };
    const prefill = Math.min(slot.ids.length, ids.length) - cached;
    const rows = { prefill, decode: slot.ids.length - cached - prefill };
    const timings = timingsOf(rows, prefilled - start, performance.now() - prefilled);
    const { text, tokens, stopSequence } = writer;
    return { text, tokens, reason, ...(stopSequence !== undefined && { stopSequence }), usage, timings, seed };
  }

  /**
   * @param {Slot} slot
   * @param {Record<string, any>} options
   * @param {number} seed
   */
  #setSampler({ seq }, options, seed) {
    const given = Object.entries(options).filter(([name]) => name in DEFAULTS);
    this.#engine.setSampler(seq, { ...DEFAULTS, ...Object.fromEntries(given) });
    this.#engine.bias(seq, new Map(options.logitBias ?? []));
    this.#engine.seed(seq, seed);
  }

  /**
   * Evaluates what the slot lacks of the prompt; ends early, and well, when stopped.
   * @param {Slot} slot
   * @param {number[]} ids
   * @param {import('./rpc.js').Job} job
   * @param {Pause} pause
   */
  async #prefill(slot, ids, job, pause) {
    while (slot.ids.length < ids.length && !job.stop.aborted) {
      const at = slot.ids.length;
      const rows = Math.max(1, Math.min(this.#engine.info.maxBatch, Math.floor(this.#rowsPerMs * BATCH_MS)));
      const batch = ids.slice(at, at + rows);
      const start = performance.now();
      this.#append(slot, batch, at + batch.length === ids.length ? 'last' : 'none');
      const ms = Math.max(performance.now() - start, 0.1);
      // A batch that is short because the prompt ends tells little: the fewer the rows, the dearer each.
      if (batch.length === rows || ms > BATCH_MS) this.#rowsPerMs = Math.min(batch.length / ms, 4 * this.#rowsPerMs);
      await pause.round();
      job.signal.throwIfAborted();
    }
  }

  /* ---- slots ---- */

  /** @param {number} name */
  #slot(name) {
    const slot = this.#slots.get(name) ?? { seq: this.#retry('SEQ', () => this.#engine.seq()), ids: [] };
    this.#slots.delete(name);
    this.#slots.set(name, slot);
    return slot;
  }

  /** @param {number} name */
  #drop(name) {
    const slot = this.#slots.get(name);
    if (!slot) return;
    this.#slots.delete(name);
    this.#engine.drop(slot.seq);
  }

  /**
   * Does what may fail for want of sequences or memory, dropping the slots that were not used for longest.
   * @template T
   * @param {string} code
   * @param {() => T} act
   * @param {Slot} [mine] is in use
   * @returns {T}
   */
  #retry(code, act, mine) {
    for (;;) {
      try {
        return act();
      } catch (error) {
        const [oldest] = [...this.#slots].filter(([, slot]) => slot !== mine);
        if (!(error instanceof ModelError && error.code === code && oldest)) throw error;
        this.#drop(oldest[0]);
      }
    }
  }

  /**
   * Forgets what the slot holds beyond the longest common prefix. The last id of a prompt is always
   * evaluated anew: its logits are wanted.
   * @param {Slot} slot
   * @param {number[]} ids
   */
  #keepPrefix(slot, ids) {
    const most = Math.min(slot.ids.length, ids.length - 1);
    let n = 0;
    while (n < most && slot.ids[n] === ids[n]) n++;
    this.#rewind(slot, n);
    return n;
  }

  /**
   * @param {Slot} slot
   * @param {number} n
   */
  #rewind(slot, n) {
    this.#engine.rewind(slot.seq, n);
    slot.ids.length = n;
  }

  /**
   * @param {Slot} slot
   * @param {number[]} ids
   * @param {'none' | 'last'} want
   */
  #append(slot, ids, want) {
    this.#retry('MEMORY', () => this.#engine.eval({ tokens: ids, seq: slot.seq }, want), slot);
    for (const id of ids) slot.ids.push(id);
  }
}

/**
 * Lets messages in. Timers wait 4 ms at least and microtasks let none through, so a browser's worker posts
 * itself one; Node hands out up to a thousand of one port before it looks at another, but has setImmediate.
 */
class Pause {
  #channel = typeof setImmediate === 'function' ? undefined : new MessageChannel();

  /** @returns {Promise<void>} */
  round() {
    return new Promise((resolve) => {
      if (!this.#channel) return void setImmediate(resolve);
      this.#channel.port1.onmessage = () => resolve();
      this.#channel.port2.postMessage(null);
    });
  }

  end() {
    this.#channel?.port1.close();
  }
}

/** Not by `crypto`: Node takes 10 ms to load it, and nothing is kept secret by a seed. */
const randomSeed = () => Math.floor(Math.random() * 2 ** 32);

/**
 * @param {{ prefill: number, decode: number }} rows evaluated
 * @param {number} prefillMs
 * @param {number} decodeMs
 * @returns {import('./index.js').Timings}
 */
function timingsOf({ prefill, decode }, prefillMs, decodeMs) {
  const rate = (/** @type {number} */ rows, /** @type {number} */ ms) => (ms > 0 ? (rows / ms) * 1000 : 0);
  return {
    prefillMs,
    decodeMs,
    prefillTokensPerSecond: rate(prefill, prefillMs),
    tokensPerSecond: rate(decode, decodeMs),
  };
}
