/* gguf.h: the header of a GGUF file (versions 2 and 3, little-endian): metadata and tensor list.
 *
 *   "GGUF"  u32 version  u64 n_tensors  u64 n_keys
 *   n_keys    x { string key, u32 type, value }            string = { u64 length, bytes }
 *   n_tensors x { string name, u32 n_dims, u64 dims[n_dims], u32 type, u64 offset }
 *   padding to general.alignment (32 if absent), then tensor data; offsets count from there
 *
 * The reader is fed by pieces and resumes at the last whole record (a key, an element of an array
 * of strings or arrays, a tensor), so the work is linear in the bytes for any chunking. Nothing is believed:
 * each count is bounded by the bytes that stand behind it, each product is checked. */
#pragma once
#include "arena.h"
#include "error.h"
#include "quant.h"

enum gguf_type {
  GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL,
  GGUF_STRING, GGUF_ARRAY, GGUF_U64, GGUF_I64, GGUF_F64, N_GGUF_TYPES
};

enum { GGUF_DEPTH = 4 }; /* arrays of arrays, so deep at most */

struct gguf_key {
  struct text name;
  uint32_t type, element; /* element: type of an array's elements */
  uint64_t count;         /* of an array, else 1 */
  const uint8_t *value;   /* unaligned; a string's length, an array's first element */
};

struct gguf_tensor {
  struct text name;
  uint32_t quant; /* row of quants[] */
  uint32_t n_dims;
  uint64_t dims[4]; /* dims[0]: row length; 1 past n_dims */
  uint64_t offset;  /* from the file's first byte */
  uint64_t bytes;
};

struct gguf {
  const uint8_t *bytes; /* the header so far, in one piece */
  uint64_t n_bytes;
  uint64_t file_bytes;  /* 0: not known */
  uint64_t at;          /* end of the last whole record */
  int stage;
  uint64_t n_keys, n_tensors, seen; /* records of this stage behind us */
  struct gguf_nest {
    uint32_t element;
    uint64_t left;      /* elements still to come */
  } nest[GGUF_DEPTH];   /* arrays that are open: an array, in it an array ... */
  uint32_t depth;       /* how many */
  struct text array;    /* key of the outermost */
  uint64_t alignment;
  uint64_t data;        /* offset of the first tensor's data; set when the header is whole */
  uint64_t end;         /* offset of the last byte that a tensor needs, plus one */
  struct gguf_key *keys;
  struct gguf_tensor *tensors;
  uint32_t *keys_by_name, *tensors_by_name, *tensors_by_offset;
};

void gguf_open(struct gguf *g);
/* The bytes from `bytes` on are the header's, n_bytes of them so far. LM_MORE, LM_HEADER (at: its
 * length) or an error. */
int gguf_parse(struct gguf *g, const uint8_t *bytes, uint64_t n_bytes);
/* After LM_HEADER: makes the tables; refuses names that stand twice and tensors that overlap.
 * Takes memory from the arena. */
int gguf_index(struct gguf *g, struct arena *a);
/* What the length of the file rules out. Any time. */
int gguf_check_file(const struct gguf *g);

/* Null when there is none. */
const struct gguf_key *gguf_find(const struct gguf *g, struct text name);
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, struct text name);

/* Value of a key. Absent: *out stays and 0 is returned; found: 1; another type: LM_ERR_FORMAT.
 * Unsigned: any integer type whose value is in 0 .. 2^32 - 1. Float: f32 or f64. */
int gguf_u32(const struct gguf *g, const char *name, uint32_t *out);
int gguf_f32(const struct gguf *g, const char *name, float *out);
int gguf_bool(const struct gguf *g, const char *name, bool *out);
int gguf_text(const struct gguf *g, const char *name, struct text *out);
