/* lm.h: the contract between the engine and whoever hosts it (web/engine.js, tests/native).
 *
 * File bytes and token ids go in, logits and token ids come out; text, network and caches never
 * enter. One instance holds one model, in one arena that only grows at its end; unloading is
 * dropping the instance. Nothing here is re-entrant: one host thread calls everything, except
 * lm_work and lm_fail, which the compute workers call.
 *
 * Life of an instance:
 *
 *   lm_open                                  once, first
 *   lm_feed ... -> LM_HEADER                 the header, in pieces of any size
 *   lm_bind                                  every tensor and key checked, memory planned
 *   (a header-only instance ends here: info, tokenizer, estimate)
 *   lm_alloc                                 memory taken; other workers may start (lm_work)
 *   lm_feed ... -> 0                         tensor bytes, packed as they arrive
 *   lm_seq, lm_eval, lm_logits, lm_sample    as often as wanted
 *
 * Results: 0 or positive is good; negative is an error of error.def, and lm_error() has its
 * sentence. "May grow": memory.buffer may be another object afterwards, so every view made before
 * is stale. Sizes are bytes unless said otherwise. Addresses are unsigned. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define LM_EXPORT __attribute__((visibility("default")))

enum { LM_ABI = 2 };

/* Error numbers: LM_ERR_FORMAT = -1 and so on, one row each in error.def. */
enum {
  LM_OK = 0,
#define LM_ERROR(name, number, sentence) LM_ERR_##name = -(number),
#include "error.def"
#undef LM_ERROR
};

enum { LM_IO_BYTES = 1 << 20 }; /* length of the window lm_io() */

/* What lm_feed says. */
enum { LM_DONE = 0, LM_MORE = 1, LM_HEADER = 2 };

/* Tables that lm_name spells. */
enum lm_table {
  LM_ERRORS, LM_QUANTS, LM_KV_TYPES, LM_ARCHS, LM_SAMPLERS, LM_INFOS, LM_PRECISIONS, LM_OVERRIDES, LM_ROPE_SCALINGS
};

/* Ids of lm_info, one row each in info.def: LM_INFO_N_VOCAB = 0 and so on. */
enum lm_info_id {
#define LM_INFO(id, name) LM_INFO_##id,
#include "info.def"
#undef LM_INFO
};

enum lm_precision { LM_FAST, LM_HIGH };   /* 8- or 15-bit activations for quantised weights */
enum lm_want { LM_NONE, LM_LAST, LM_ALL }; /* which logits lm_eval keeps */

/* A metadata value. The bytes are the file's own, little-endian and unaligned; a string is
 * {u64 length, bytes}. For a scalar `type` is its GGUF type and count 1 (a string's address is
 * that of its length); for an array type is 9, `element` the elements' type, count their number
 * and address the first element. */
struct lm_value {
  uint32_t type, element;
  uint64_t count;
  uint64_t address;
  uint64_t key, key_length; /* address and length of the key */
};

/* A tensor as the header lists it. dims[0] is the row length (contiguous). */
struct lm_tensor_info {
  uint64_t name, name_length; /* address and length */
  uint32_t type;              /* index into LM_QUANTS */
  uint32_t n_dims;
  uint64_t dims[4];           /* 1 past n_dims */
  uint64_t offset;            /* from the file's first byte */
  uint64_t bytes;             /* in the file */
};

/* One row of lm_eval, in the window. */
struct lm_row {
  int32_t token, seq;
};

/* Number of this interface. A host refuses a module with another one. */
LM_EXPORT uint32_t lm_abi(void);

/* Resets to empty. Once per instance, before anything else. */
LM_EXPORT void lm_open(void);

/* The window through which the host passes file bytes, rows, keys and ids: LM_IO_BYTES long,
 * 64-byte aligned, at one place for the life of the instance. */
LM_EXPORT void *lm_io(void);

/* The next n bytes of the file (1 .. LM_IO_BYTES) stand in the window.
 * Returns LM_MORE; LM_HEADER once, when the header is whole: metadata and tensor list can be read.
 *   What the window holds beyond the header is not consumed: go on from LM_INFO_HEADER_BYTES.
 *   After lm_alloc the bytes from there on are tensor data: LM_MORE, then LM_DONE with the last
 *   byte that is needed. Feeding anything between LM_HEADER and lm_alloc is LM_ERR_STATE.
 * Linear in the bytes for any chunking, one at a time too.
 * LM_ERR_FORMAT: not GGUF, or broken; the sentence names the key or tensor. LM_ERR_UNSUPPORTED:
 *   a version or byte order that is not read. After an error the instance stays failed.
 * May grow memory (while the header comes in; never after lm_alloc). */
LM_EXPORT int lm_feed(uint32_t n);

/* Tells that the file ends here; n_bytes is its whole length. Optional, before lm_alloc: tensors
 * that reach past the end are refused at once (LM_ERR_FORMAT) instead of when the bytes run out. */
LM_EXPORT int lm_file_bytes(double n_bytes);

/* Sets something in place of the file's keys; id: index into LM_OVERRIDES, whose rows (override.def) give
 * the range; NaN takes it back. Before lm_bind, which refuses what the model has no use for
 * (LM_ERR_ARGUMENT, with the row's name). */
LM_EXPORT int lm_override(uint32_t id, double value);

/* Finds and checks every tensor and key of the architecture and plans the memory; allocates
 * nothing that stays and may be called again with other values until lm_alloc.
 *   n_ctx      positions per sequence; 0: the model's own, at most 8192
 *   kv_type    index into LM_KV_TYPES
 *   precision  LM_FAST | LM_HIGH
 *   n_threads  1 .. 64
 * Returns 0. LM_ERR_UNSUPPORTED: architecture, type without a kernel, unknown rope scaling, a
 * tensor that nothing uses. LM_ERR_FORMAT: missing or misshapen tensor, contradictory keys.
 * LM_ERR_MEMORY: more than this build can address. LM_ERR_ARGUMENT: a value out of range.
 * Fills LM_INFO_BYTES_*, with LM_ERR_MEMORY too. May grow memory (by the tables of layers). */
LM_EXPORT int lm_bind(uint32_t n_ctx, uint32_t kv_type, uint32_t precision, uint32_t n_threads);

/* Takes weights, scratch, worker stacks and the first KV chunk. Once, after lm_bind.
 * LM_ERR_MEMORY: memory cannot grow that far. May grow memory; not at all if it has
 * LM_INFO_BYTES_NOW. */
LM_EXPORT int lm_alloc(void);

/* A number about the model or the engine, by id of info.def; NaN for an unknown id. What is not
 * known yet (sizes before lm_bind) is 0. */
LM_EXPORT double lm_info(uint32_t id);

/* The file's header as it was fed, LM_INFO_HEADER_BYTES long. Valid for the life of the instance,
 * but may move until LM_HEADER. */
LM_EXPORT const void *lm_header(void);

/* The metadata value of the key whose `length` bytes stand in the window; 0 if there is none.
 * The record lives until the next call of lm_meta or lm_meta_at. lm_meta_at: the i-th in file
 * order, 0 past the end. */
LM_EXPORT const struct lm_value *lm_meta(uint32_t length);
LM_EXPORT const struct lm_value *lm_meta_at(uint32_t i);

/* The i-th tensor in file order, 0 past the end. The record lives until the next call. */
LM_EXPORT const struct lm_tensor_info *lm_tensor(uint32_t i);

/* The i-th name of a table, NUL-terminated; 0 past the end. A quant type that the file format
 * knows but this build has no kernel for is spelled all the same. Error names come in the order of
 * their numbers: LM_ERRORS, i is the error -(i + 1). */
LM_EXPORT const char *lm_name(uint32_t table, uint32_t i);

/* A new empty sequence: a context of its own in the same model. Returns its id, 0 ..
 * LM_INFO_MAX_SEQS - 1, or LM_ERR_SEQ when all are in use. Sampler parameters start at their
 * defaults. Costs no KV memory until rows are appended. */
LM_EXPORT int lm_seq(void);

/* A new sequence that holds what `seq` holds, sharing its chunks; the first that writes to a shared
 * chunk copies it. Sampler parameters and random state are copied. Errors as lm_seq. */
LM_EXPORT int lm_fork(int seq);

/* Ends a sequence; its chunks go back to the pool. */
LM_EXPORT int lm_drop(int seq);

/* Tokens now in the sequence, or LM_ERR_SEQ. */
LM_EXPORT int lm_pos(int seq);

/* Forgets everything from position pos on (pos <= lm_pos). O(chunks), always possible. */
LM_EXPORT int lm_rewind(int seq, uint32_t pos);

/* Appends n rows, each to its sequence at its current position, and computes.
 *   rows    struct lm_row[n] in the window; rows of one sequence adjacent and in order
 *   n       1 .. LM_INFO_MAX_BATCH
 *   want    LM_NONE | LM_LAST: the last row of each sequence, kept in order of appearance |
 *           LM_ALL: every row, n <= LM_INFO_MAX_ALL
 * Returns the number of rows whose logits were kept. On error nothing has changed: LM_ERR_TOKEN
 * (outside the vocabulary), LM_ERR_CONTEXT (n_ctx would be passed), LM_ERR_SEQ, LM_ERR_ARGUMENT,
 * LM_ERR_MEMORY (the cache cannot grow). May grow memory. */
LM_EXPORT int lm_eval(uint32_t n, uint32_t want);

/* f32[n_vocab] of the i-th kept row of the last lm_eval; 0 if there is none. Not modified by the
 * engine; valid until the next lm_eval. */
LM_EXPORT const float *lm_logits(uint32_t i);

/* One sampler parameter of a sequence; id: index into LM_SAMPLERS, whose rows (sample.def) give
 * range and default. LM_ERR_ARGUMENT names the parameter and its range. */
LM_EXPORT int lm_sample_set(int seq, uint32_t id, double value);

/* Seeds the sequence's generator (PCG-XSH-RR 64/32, see sample.c) with hi * 2^32 + lo. */
LM_EXPORT int lm_seed(int seq, uint32_t lo, uint32_t hi);

/* Logit biases of a sequence: n pairs {i32 id, f32 bias} in the window, n <= 1024, replace all
 * earlier ones. -inf forbids a token. */
LM_EXPORT int lm_bias(int seq, uint32_t n);

/* Draws the next id from kept row i with the sequence's parameters. The window holds the last
 * n_last ids (i32, oldest first, at most 4096): what the penalties look at. Returns the id.
 * LM_ERR_LOGITS: a logit is NaN, or all are -inf. */
LM_EXPORT int lm_sample(int seq, uint32_t i, uint32_t n_last);

/* UTF-8 sentence for the last error, NUL-terminated; names the key, tensor or option with both
 * numbers. Empty before the first error. */
LM_EXPORT const char *lm_error(void);

/* Threads (-mt modules; elsewhere n_threads is 1 and these are not called). After lm_alloc the host
 * starts worker i in 1 .. n_threads - 1: instantiate the same module on the same memory, set its
 * __stack_pointer to lm_stack(i), say "ready", call lm_work(i). It returns after lm_stop. lm_fail:
 * a worker has trapped; whoever waits for it traps as well instead of waiting for ever.
 * lm_threads: how many, 1 .. n_threads, the next lm_eval calls use; at first all. With 1 nobody is woken. Results
 * are the same. LM_ERR_STATE: before lm_alloc. LM_ERR_ARGUMENT: another number. */
LM_EXPORT int lm_threads(uint32_t n);
LM_EXPORT void *lm_stack(uint32_t i);
LM_EXPORT void lm_work(uint32_t i);
LM_EXPORT void lm_stop(void);
LM_EXPORT void lm_fail(void);
