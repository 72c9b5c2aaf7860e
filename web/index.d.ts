/**
 * Runs a Llama-family GGUF model in this page or process.
 *
 *   const model = await load('model.gguf');
 *   for await (const { text } of model.generate('Once upon a time')) console.log(text);
 *   await model.close();
 *
 * Wrong arguments are a TypeError or RangeError, an abort rejects with signal.reason, everything else is
 * a ModelError.
 */

declare global {
  /** Older libs of TypeScript do not know it. */
  interface SymbolConstructor {
    readonly asyncDispose: unique symbol;
  }
}

/**
 * A URL (relative ones belong to the page); `hf:owner/repo/file.gguf`, or `hf:owner/repo@revision/file.gguf`, on
 * the model hub; in Node a path; a Blob, File or handle of one; its bytes (they are copied, never taken), or a
 * stream of them. A split model goes by the URL or path of its first file (`-00001-of-00003.gguf`), or as an
 * array of all its Files.
 */
export type Source =
  | string
  | URL
  | Blob
  | FileSystemFileHandle
  | readonly File[]
  | readonly FileSystemFileHandle[]
  | BufferSource
  | ReadableStream<BufferSource>;

/**
 * Loads a model. Nothing half-loaded is ever returned, and a load that fails leaves nothing behind.
 */
export function load(
  source: Source,
  options?: LoadOptions,
): Promise<Model>;

/**
 * What a model will need, before it is loaded: from the file's header alone, which is asked for in parts of
 * 1 MiB (a server that knows none is left when the header is there). Also of models that can't run here, for
 * whatever `reason`, as far as arithmetic goes.
 */
export function estimate(
  source: Source,
  options?: EstimateOptions,
): Promise<Estimate>;

export interface EstimateOptions extends Omit<LoadOptions, 'onProgress' | 'sha256'> {
  /** Bytes that may be used. Default: what WebAssembly addresses here: 4 GiB less a page, or 16 with 64-bit memory. */
  memoryLimit?: number;
}

export type KvType = 'q16' | 'f16' | 'f32' | 'q8_0' | 'q4_0';

export interface Estimate {
  readonly name?: string;
  readonly architecture: string;
  /** The type that most bytes of the weights have. */
  readonly quantisation: string;
  readonly parameters: number;
  /** Tokens of one conversation: as asked for, else as load() would choose. */
  readonly contextLength: number;
  /** The same as the file gives it. */
  readonly trainedContextLength?: number;
  readonly kvType: string;
  /** One conversation with a full context. Where the model can't run, weights as in the file and no scratch. */
  readonly bytes: {
    readonly file: number;
    readonly weights: number;
    readonly kvPerToken: number;
    /** Taken by 256 tokens at a time. */
    readonly kv: number;
    /** All that is neither weights nor cache. */
    readonly scratch: number;
    readonly total: number;
  };
  /** Bytes of the cache by its type: of one token, and of contextLength. */
  readonly kv: Readonly<Record<KvType, { readonly perToken: number; readonly context: number }>>;
  /** How many such conversations memoryLimit has room for, beside the weights. */
  readonly sessions: number;
  /** Whether this build knows all that the file asks for and can address the memory. */
  readonly runs: boolean;
  /** Whether it runs and this device gives the memory; else `reason` says why not, with the numbers. */
  readonly fits: boolean;
  readonly reason?: string;
}

export interface LoadOptions {
  /** Tokens of one conversation. Default: the model's own, at most 8192 and what fits. */
  contextLength?: number;
  /**
   * Type of the key/value cache. Default: 'q16', integers of 14 bits with one scale per head: as near as 'f16', which
   * takes 1 to 3 % less memory (heads of 64 and more) and more time. 'q8_0' takes 0.53 of its memory, 'q4_0' 0.28; both
   * take heads of whole blocks of 32 values.
   */
  kvType?: KvType;
  /** 8-bit ('fast') or 15-bit ('high') activations for quantised weights. Default: 'high' below 500 million parameters. */
  precision?: 'fast' | 'high';
  /**
   * In place of what the file says of positions, to try longer contexts; `info.rope` tells what is in force.
   * One that the model has no use for is an error.
   */
  rope?: {
    /** Base of the frequencies; layers with a window keep their own where the architecture gives them one. */
    base?: number;
    /** Replaces all that the file says of scaling; 'linear' and 'yarn' need a factor. */
    scaling?: 'none' | 'linear' | 'yarn';
    factor?: number;
    /** Tokens that the model was trained for before it was scaled: 'yarn' and the choice of factors look at it. */
    originalContext?: number;
    /** Tokens that layers with a window see. */
    window?: number;
  };
  /** Default: half of the logical cores, 1 to 8, where the page is cross-origin isolated; else 1. */
  threads?: number;
  /** 'simd', 'relaxed', 'relaxed-dot', the same with -mt, 'relaxed-m64' or 'relaxed-m64-mt'. Default: the best that runs here, -m64 only for models beyond 4 GiB. */
  variant?: string;
  /** For a model from a URL. */
  headers?: HeadersInit;
  /** Sent as `Authorization: Bearer` to the address of a model from a URL, not to where that redirects. */
  token?: string;
  /** Where `hf:` leads to. Default: https://huggingface.co. */
  hub?: string;
  /**
   * Keep a copy of a model from a URL, and use it instead of the network from then on: in the browser's file storage
   * (OPFS), in Node in the user's cache folder. A name makes a cache of its own. Copies stay until they are deleted
   * or, where storage runs out, make room for others, the longest unused first. Where none can be kept the model
   * loads all the same: see `info.cached` and `info.warnings`. Default: false.
   */
  cache?: boolean | string;
  /**
   * Of the whole file, in hexadecimal: compared while it loads, and no model is returned that has another. Of a
   * split model one for each file, in their order.
   */
  sha256?: string | readonly string[];
  signal?: AbortSignal;
  /** At most ten times a second, always a first and a last time. `total` is missing where nobody knows it. */
  onProgress?(progress: Progress): void;
  /** Where the package's files are served, if not beside index.js: `wasm` is the folder of the lm-*.wasm. */
  assets?: { worker?: string; thread?: string; template?: string; wasm?: string };
}

export interface Progress {
  /** Bytes; never more than total. */
  loaded: number;
  total?: number;
}

export interface Message {
  /** 'system', 'user', 'assistant', or what else the model's template knows. */
  role: string;
  content: string;
}

export interface Model {
  /** What it is and how it runs. `bytes.memory` is as of the latest answer. */
  readonly info: ModelInfo;
  /**
   * Token ids of a text; nothing is put in front.
   * @param options special: the texts of control tokens become these tokens. Default: they stay text.
   */
  tokenize(text: string, options?: { special?: boolean }): Promise<number[]>;
  /** Text of token ids; control tokens have none. */
  detokenize(ids: Iterable<number>): Promise<string>;
  /**
   * The conversation as the model's template writes it.
   * @param options addGenerationPrompt: with the beginning of an answer. Default: true.
   */
  render(messages: readonly Message[], options?: { addGenerationPrompt?: boolean; tools?: object[] }): Promise<string>;
  /**
   * Goes on from a prompt. A string is what the model reads: the text of a control token in it is that
   * token, and the vocabulary's first token is put in front where it wants one. What others have written
   * belongs in messages, where it stays text. Token ids are taken as they are.
   */
  generate(input: string | Iterable<number> | readonly Message[], options?: GenerateOptions): Generation;
  /** A conversation that remembers its messages. */
  chat(options?: { system?: string; messages?: readonly Message[] }): Chat;
  /** Ends its worker, and with it everything that still runs: the sure way to give memory back. */
  close(): Promise<void>;
  /** close(), where the platform has this symbol. */
  [Symbol.asyncDispose](): Promise<void>;
}

export interface ModelInfo {
  readonly name?: string;
  readonly license?: string;
  readonly architecture: string;
  /** The type that most bytes of the weights have. */
  readonly quantisation: string;
  readonly parameters: number;
  readonly nLayers: number;
  readonly dModel: number;
  readonly dFf: number;
  readonly nHeads: number;
  readonly nKvHeads: number;
  readonly headDim: number;
  readonly nVocab: number;
  /** Tokens of one conversation, as loaded. */
  readonly contextLength: number;
  /** The same as the file gives it. */
  readonly trainedContextLength: number;
  /** Rotary positions as in force; missing in models without. window: what layers with one see. */
  readonly rope?: {
    readonly base: number;
    /** 'factors': the frequencies are divided by a tensor of the file; 'longrope': by one of two. */
    readonly scaling: 'none' | 'linear' | 'yarn' | 'llama3' | 'longrope' | 'factors';
    readonly factor: number;
    readonly originalContext: number;
    readonly window?: number;
  };
  /** Sentences about what may disappoint: a context beyond the trained length. */
  readonly warnings: readonly string[];
  /** Whether a copy is kept, so that the next load needs no network. */
  readonly cached: boolean;
  /** The kind of tokenizer. */
  readonly tokenizer: string;
  /** Whether the file has a chat template, which messages need. */
  readonly hasTemplate: boolean;
  readonly kvType: string;
  readonly precision: string;
  readonly variant: string;
  readonly threads: number;
  /** Why not more threads, where there is a reason. */
  readonly threadsReason?: string;
  readonly bytes: {
    readonly file: number;
    readonly weights: number;
    readonly kvPerToken: number;
    /** All of the engine's memory. */
    readonly memory: number;
  };
}

export interface GenerateOptions {
  /** Default: until the model ends its turn or the context is full. 0 reads the prompt and says nothing. */
  maxTokens?: number;
  /** The answer ends before the first of these. */
  stop?: string | string[];
  /** An integer from 0. Default: a random one, which the result tells. */
  seed?: number;
  /** 0 always takes the most likely token. Default: 0.8. */
  temperature?: number;
  /** Only so many of the most likely tokens; 0: all. Default: 40. */
  topK?: number;
  /** Only the most likely tokens that together have this probability; 1: all. Default: 0.95. */
  topP?: number;
  /** Only tokens with this part of the most likely one's probability; 0: all. Default: 0.05. */
  minP?: number;
  /** Divides the logits of recent tokens. Default: 1, off. */
  repeatPenalty?: number;
  /** How many tokens the penalties look back at, at most 4096. Default: 64. */
  repeatLastN?: number;
  /** Taken off a logit for each time the token came. Default: 0. */
  frequencyPenalty?: number;
  /** Taken off a logit if the token came at all. Default: 0. */
  presencePenalty?: number;
  /** Added to the logits of single tokens; -Infinity forbids one. At most 1024. */
  logitBias?: Record<number, number> | Map<number, number>;
  /** Rejects with signal.reason; what was computed is dropped, and a Chat is as before the call. */
  signal?: AbortSignal;
}

/**
 * An answer that is being written. It starts when it is first looped over, or asked for its text or
 * result; calls on one model wait for each other in that order. A loop that is left stops it.
 */
export interface Generation extends AsyncIterable<Piece> {
  text(): Promise<string>;
  result(): Promise<Result>;
  /** Ends it early and keeps what is there. */
  stop(): void;
}

/** New text and new token ids. One of the two may be empty: text waits for whole characters, and as long as it may begin a stop string. */
export interface Piece {
  text: string;
  tokens: number[];
}

export interface Result {
  text: string;
  /** What was drawn, without the token that ended the turn. */
  tokens: number[];
  /** The model or a stop string ended it; maxTokens; the context is full; stop() or a loop that was left. */
  reason: 'stop' | 'length' | 'context' | 'stopped';
  /** The stop string that ended it. */
  stopSequence?: string;
  /** cachedTokens of the prompt were still there from an earlier call. */
  usage: { promptTokens: number; cachedTokens: number; completionTokens: number };
  timings: Timings;
  seed: number;
}

export interface Timings {
  prefillMs: number;
  decodeMs: number;
  /** Of the prompt tokens that were not cached. */
  prefillTokensPerSecond: number;
  /** Of the tokens that were evaluated for the answer: the first one is drawn from the prompt's. */
  tokensPerSecond: number;
}

export interface Chat {
  /** The turns so far; a new list after each. */
  readonly messages: readonly Readonly<Message>[];
  /** A user's message; the answer. Both are kept when it ends well or is stopped, neither when it fails. */
  send(text: string, options?: GenerateOptions): Generation;
  /** Gives its part of the memory back. */
  close(): Promise<void>;
}

/** What runs here, and why not more. dot: the machine has one instruction for relaxed SIMD's int8 dot product. */
export function support(): { simd: boolean; relaxed: boolean; dot: boolean; threads: boolean; memory64: boolean; reasons: string[] };

/** The models that are kept, the last used first; a name as for `cache`. ModelError STORAGE where there is no storage. */
export function models(options?: { cache?: boolean | string }): Promise<StoredModel[]>;

export interface StoredModel {
  readonly url: string;
  /** As stored, also of one that is not complete yet. */
  readonly bytes: number;
  readonly complete: boolean;
  readonly used: Date;
  /** False if it is being written elsewhere. */
  delete(): Promise<boolean>;
}

/** Asks the browser not to clear the page's storage by itself; whether it agrees. */
export function persist(): Promise<boolean>;

/** What went wrong, as a code for programs and a sentence for people. */
export class ModelError extends Error {
  constructor(code: string, message: string, options?: ErrorOptions);
  /**
   * FORMAT the file is broken; UNSUPPORTED it asks for what this build does not do; TEMPLATE it has no chat
   * template, or that failed; NETWORK, FILE its bytes could not be had; HASH it is not the file whose sha256 was given; STORAGE; MEMORY; CONTEXT the prompt is too long;
   * LOGITS nothing can be drawn; WORKER, THREADS a worker did not start; MISMATCH files of different versions;
   * CRASHED the engine has failed: load the model again; CLOSED the model or chat was closed; ARGUMENT,
   * STATE, TOKEN, SEQ a wrong call of the engine.
   */
  readonly code: string;
}
