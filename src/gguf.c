/* gguf.c: see gguf.h for the format and the rules. */
#include "gguf.h"

enum { STAGE_START, STAGE_KEYS, STAGE_TENSORS, STAGE_WHOLE };
enum { NAME_MAX = 65535 };
/* A header beyond this is refused: the largest vocabularies need 20 MB. */
#define HEADER_MAX ((uint64_t)512 << 20)
#define KEY_LEAST 13    /* bytes of the smallest key record: length, type, one byte */
#define TENSOR_LEAST 32 /* and of the smallest tensor record, its name empty */

static const uint8_t type_bytes[N_GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
static const char *const type_names[N_GGUF_TYPES] = {"uint8",  "int8",    "uint16", "int16",  "uint32",
                                                     "int32",  "float32", "bool",   "string", "array",
                                                     "uint64", "int64",   "float64"};

/* Reads zeros after the end and remembers that it did: checked once per record. */
struct cursor {
  const uint8_t *start;
  uint64_t at, n;
  bool is_short;
};

static const uint8_t *cursor_skip(struct cursor *c, uint64_t n) {
  if (c->is_short || n > c->n - c->at) {
    c->is_short = true;
    return 0;
  }
  const uint8_t *p = c->start + c->at;
  c->at += n;
  return p;
}

static uint32_t cursor_u32(struct cursor *c) {
  const uint8_t *p = cursor_skip(c, 4);
  return p ? read_u32(p) : 0;
}

static uint64_t cursor_u64(struct cursor *c) {
  const uint8_t *p = cursor_skip(c, 8);
  return p ? read_u64(p) : 0;
}

/* What may still come: the rest of the file where its length is known. */
static uint64_t room(const struct gguf *g, uint64_t at) {
  const uint64_t most = g->file_bytes && g->file_bytes < HEADER_MAX ? g->file_bytes : HEADER_MAX;
  return at < most ? most - at : 0;
}

void gguf_open(struct gguf *g) { *g = (struct gguf){.alignment = 32}; }

static int read_start(struct gguf *g, struct cursor *c) {
  const uint8_t *magic = cursor_skip(c, 4);
  if (!magic) {
    for (uint64_t i = 0; i < c->n; i++)
      if (c->start[i] != (uint8_t)"GGUF"[i]) LM_FAIL(FORMAT, "not a GGUF file: it does not start with GGUF");
    return LM_MORE;
  }
  if (__builtin_memcmp(magic, "GGUF", 4)) LM_FAIL(FORMAT, "not a GGUF file: it does not start with GGUF");
  const uint32_t version = cursor_u32(c);
  if (!c->is_short) {
    if (version && !(version & 0xffff)) LM_FAIL(UNSUPPORTED, "big-endian GGUF is not supported");
    if (version == 1) LM_FAIL(UNSUPPORTED, "GGUF version 1 is not supported; versions 2 and 3 are");
    if (version != 2 && version != 3) LM_FAIL(UNSUPPORTED, "unknown GGUF version %u", (uint64_t)version);
  }
  g->n_tensors = cursor_u64(c);
  g->n_keys = cursor_u64(c);
  if (c->is_short) return LM_MORE;
  if (g->n_keys > room(g, c->at) / KEY_LEAST)
    LM_FAIL(FORMAT, "the header counts %u metadata keys, more than the file can hold", g->n_keys);
  if (g->n_tensors > room(g, c->at) / TENSOR_LEAST)
    LM_FAIL(FORMAT, "the header counts %u tensors, more than the file can hold", g->n_tensors);
  g->stage = STAGE_KEYS;
  return LM_OK;
}

/* A name of the file: key or tensor. */
static int read_name(const struct gguf *g, struct cursor *c, const char *what, struct text *name) {
  name->n = cursor_u64(c);
  if (c->is_short) return LM_MORE;
  if (name->n > NAME_MAX || name->n > room(g, c->at))
    LM_FAIL(FORMAT, "%s %u of the header has a name of %u bytes; %u is the most", what, g->seen, name->n,
            (uint64_t)NAME_MAX);
  name->bytes = (const char *)cursor_skip(c, name->n);
  return c->is_short ? LM_MORE : LM_OK;
}

/* Type and count of an array's elements, which follow. */
static int read_array(const struct gguf *g, struct cursor *c, const struct text *key, uint32_t *element,
                      uint64_t *count) {
  *element = cursor_u32(c);
  *count = cursor_u64(c);
  if (c->is_short) return LM_MORE;
  if (*element >= N_GGUF_TYPES) LM_FAIL(FORMAT, "key %t is an array of the unknown type %u", key, (uint64_t)*element);
  const uint32_t least = *element == GGUF_STRING ? 8 : *element == GGUF_ARRAY ? 12 : type_bytes[*element];
  if (*count > room(g, c->at) / least)
    LM_FAIL(FORMAT, "key %t has %u elements, more than the file can hold", key, *count);
  return LM_OK;
}

/* Reads key, type, and count; leaves the cursor at the value. */
static int read_key(const struct gguf *g, struct cursor *c, struct gguf_key *k) {
  const int named = read_name(g, c, "key", &k->name);
  if (named) return named;
  k->type = cursor_u32(c), k->element = 0, k->count = 1;
  if (c->is_short) return LM_MORE;
  if (k->type >= N_GGUF_TYPES) LM_FAIL(FORMAT, "key %t has the unknown type %u", &k->name, (uint64_t)k->type);
  const int got = k->type == GGUF_ARRAY ? read_array(g, c, &k->name, &k->element, &k->count) : LM_OK;
  k->value = c->start + c->at;
  return got;
}

/* Skips one string. */
static int skip_string(const struct gguf *g, struct cursor *c, const struct text *key) {
  const uint64_t n = cursor_u64(c);
  if (c->is_short) return LM_MORE;
  if (n > room(g, c->at)) LM_FAIL(FORMAT, "a string of %u bytes in key %t runs past the end", n, key);
  cursor_skip(c, n);
  return c->is_short ? LM_MORE : LM_OK;
}

static int open_array(struct gguf *g, uint32_t element, uint64_t count) {
  if (g->depth == GGUF_DEPTH)
    LM_FAIL(FORMAT, "key %t has arrays within arrays, more than %u deep", &g->array, (uint64_t)GGUF_DEPTH);
  g->nest[g->depth++] = (struct gguf_nest){element, count};
  return LM_OK;
}

/* The next record of the innermost open array: a string, an array's head, or all its numbers at once. */
static int next_element(struct gguf *g, struct cursor *c) {
  struct gguf_nest *n = &g->nest[g->depth - 1];
  if (!n->left) {
    g->depth--;
    return LM_OK;
  }
  int got;
  if (n->element == GGUF_STRING) got = skip_string(g, c, &g->array);
  else if (n->element == GGUF_ARRAY) {
    uint32_t element;
    uint64_t count;
    got = read_array(g, c, &g->array, &element, &count);
    if (!got) got = open_array(g, element, count);
  } else {
    got = cursor_skip(c, n->left * type_bytes[n->element]) ? LM_OK : LM_MORE;
    if (!got) n->left = 1;
  }
  if (!got) n->left--;
  return got;
}

/* Only a u32 power of two of at least 8 can be an alignment. */
static int take_alignment(struct gguf *g, const struct gguf_key *k) {
  if (k->type != GGUF_U32)
    LM_FAIL(FORMAT, "general.alignment is of type %s, not uint32", type_names[k->type]);
  g->alignment = read_u32(k->value);
  if (g->alignment < 8 || g->alignment > 1 << 20 || g->alignment & (g->alignment - 1))
    LM_FAIL(FORMAT, "general.alignment %u is no power of two between 8 and 1048576", g->alignment);
  return LM_OK;
}

static int next_key(struct gguf *g, struct cursor *c) {
  if (g->depth) {
    const int got = next_element(g, c);
    if (!got && !g->depth) g->seen++;
    return got;
  }
  struct gguf_key k;
  int got = read_key(g, c, &k);
  if (got) return got;
  if (k.type == GGUF_ARRAY) {
    if (text_equal(k.name, text_of("general.alignment"))) return take_alignment(g, &k);
    g->array = k.name;
    return open_array(g, k.element, k.count);
  }
  if (k.type == GGUF_STRING) got = skip_string(g, c, &k.name);
  else got = cursor_skip(c, type_bytes[k.type]) ? LM_OK : LM_MORE;
  if (got) return got;
  if (text_equal(k.name, text_of("general.alignment"))) LM_TRY(take_alignment(g, &k));
  g->seen++;
  return LM_OK;
}

static int read_tensor(const struct gguf *g, struct cursor *c, struct gguf_tensor *t) {
  const int named = read_name(g, c, "tensor", &t->name);
  if (named) return named;
  if (!t->name.n) LM_FAIL(FORMAT, "tensor %u has an empty name", g->seen);
  t->n_dims = cursor_u32(c);
  if (!c->is_short && (t->n_dims < 1 || t->n_dims > 4))
    LM_FAIL(FORMAT, "tensor %t has %u dimensions, not 1 to 4", &t->name, (uint64_t)t->n_dims);
  for (uint32_t i = 0; i < 4; i++) t->dims[i] = i < t->n_dims ? cursor_u64(c) : 1;
  const uint32_t type = cursor_u32(c);
  t->offset = cursor_u64(c);
  if (c->is_short) return LM_MORE;
  t->quant = quant_of_gguf(type);
  if (t->quant == N_QUANTS) LM_FAIL(UNSUPPORTED, "tensor %t has the unknown type %u", &t->name, (uint64_t)type);
  const struct quant *q = &quants[t->quant];
  uint64_t n = 1;
  for (int i = 0; i < 4; i++)
    if (!t->dims[i] || !mul_size(n, t->dims[i], &n) || n > (uint64_t)1 << 48)
      LM_FAIL(FORMAT, "tensor %t has the impossible dimensions %u x %u x %u x %u", &t->name, t->dims[0], t->dims[1],
              t->dims[2], t->dims[3]);
  if (t->dims[0] % q->items)
    LM_FAIL(FORMAT, "tensor %t has rows of %u, no multiple of the %u items of a %s block", &t->name, t->dims[0],
            (uint64_t)q->items, q->name);
  t->bytes = n / q->items * q->bytes;
  if (t->offset % g->alignment)
    LM_FAIL(FORMAT, "tensor %t starts at offset %u, no multiple of the alignment %u", &t->name, t->offset,
            g->alignment);
  if (t->offset > (uint64_t)1 << 52)
    LM_FAIL(FORMAT, "tensor %t starts at the impossible offset %u", &t->name, t->offset);
  return LM_OK;
}

static int next_tensor(struct gguf *g, struct cursor *c) {
  struct gguf_tensor t;
  const int got = read_tensor(g, c, &t);
  if (!got) g->seen++;
  return got;
}

int gguf_parse(struct gguf *g, const uint8_t *bytes, uint64_t n_bytes) {
  g->bytes = bytes, g->n_bytes = n_bytes;
  if (n_bytes > HEADER_MAX) LM_FAIL(FORMAT, "the header is longer than %u bytes", HEADER_MAX);
  struct cursor c = {bytes, g->at, n_bytes, false};
  for (;;) {
    int got = LM_OK;
    switch (g->stage) {
      case STAGE_START: got = read_start(g, &c); break;
      case STAGE_KEYS:
        if (g->seen < g->n_keys) got = next_key(g, &c);
        else g->stage = STAGE_TENSORS, g->seen = 0;
        break;
      case STAGE_TENSORS:
        if (g->seen < g->n_tensors) got = next_tensor(g, &c);
        else g->stage = STAGE_WHOLE;
        break;
      default: return LM_HEADER;
    }
    if (got) return got;
    g->at = c.at;
  }
}

/* Heap sort of 0 .. n - 1 by `before`: no memory, no bad case. */
typedef bool before_fn(const struct gguf *g, uint32_t i, uint32_t j);

static void heap_sink(const struct gguf *g, uint32_t *order, uint32_t i, uint32_t n, before_fn *before) {
  for (uint32_t child; (child = 2 * i + 1) < n; i = child) {
    if (child + 1 < n && before(g, order[child], order[child + 1])) child++;
    if (!before(g, order[i], order[child])) return;
    const uint32_t swap = order[i];
    order[i] = order[child], order[child] = swap;
  }
}

static void sort_by(const struct gguf *g, uint32_t *order, uint32_t n, before_fn *before) {
  for (uint32_t i = 0; i < n; i++) order[i] = i;
  for (uint32_t i = n / 2; i--;) heap_sink(g, order, i, n, before);
  for (uint32_t i = n; i-- > 1;) {
    const uint32_t swap = order[0];
    order[0] = order[i], order[i] = swap;
    heap_sink(g, order, 0, i, before);
  }
}

static int text_order(struct text a, struct text b) {
  const int order = __builtin_memcmp(a.bytes, b.bytes, (size_t)LM_MIN(a.n, b.n));
  return order ? order : a.n < b.n ? -1 : a.n > b.n;
}

static bool key_before(const struct gguf *g, uint32_t i, uint32_t j) {
  return text_order(g->keys[i].name, g->keys[j].name) < 0;
}
static bool name_before(const struct gguf *g, uint32_t i, uint32_t j) {
  return text_order(g->tensors[i].name, g->tensors[j].name) < 0;
}
static bool offset_before(const struct gguf *g, uint32_t i, uint32_t j) {
  return g->tensors[i].offset < g->tensors[j].offset;
}

/* The records a second time, now known to be whole, into the tables. */
static int fill_tables(struct gguf *g) {
  struct cursor c = {g->bytes, 24, g->at, false};
  for (g->seen = 0; g->seen < g->n_keys; g->seen++) {
    struct gguf_key *k = &g->keys[g->seen];
    LM_TRY(read_key(g, &c, k));
    if (k->type == GGUF_STRING) LM_TRY(skip_string(g, &c, &k->name));
    else if (k->type != GGUF_ARRAY) cursor_skip(&c, type_bytes[k->type]);
    else LM_TRY(open_array(g, k->element, k->count));
    while (g->depth) LM_TRY(next_element(g, &c));
  }
  for (g->seen = 0; g->seen < g->n_tensors; g->seen++) LM_TRY(read_tensor(g, &c, &g->tensors[g->seen]));
  return LM_OK;
}

static int check_order(struct gguf *g) {
  for (uint64_t i = 1; i < g->n_keys; i++) {
    const struct text *name = &g->keys[g->keys_by_name[i]].name;
    if (text_equal(*name, g->keys[g->keys_by_name[i - 1]].name)) LM_FAIL(FORMAT, "key %t stands twice", name);
  }
  for (uint64_t i = 1; i < g->n_tensors; i++) {
    const struct text *name = &g->tensors[g->tensors_by_name[i]].name;
    if (text_equal(*name, g->tensors[g->tensors_by_name[i - 1]].name)) LM_FAIL(FORMAT, "tensor %t stands twice", name);
    const struct gguf_tensor *a = &g->tensors[g->tensors_by_offset[i - 1]], *b = &g->tensors[g->tensors_by_offset[i]];
    if (b->offset < a->offset + a->bytes)
      LM_FAIL(FORMAT, "tensors %t and %t overlap: bytes %u to %u, and from %u", &a->name, &b->name, a->offset,
              a->offset + a->bytes, b->offset);
  }
  return LM_OK;
}

int gguf_index(struct gguf *g, struct arena *a) {
  g->keys = arena_take(a, g->n_keys * sizeof *g->keys);
  g->tensors = arena_take(a, g->n_tensors * sizeof *g->tensors);
  g->keys_by_name = arena_take(a, g->n_keys * sizeof(uint32_t));
  g->tensors_by_name = arena_take(a, g->n_tensors * sizeof(uint32_t));
  g->tensors_by_offset = arena_take(a, g->n_tensors * sizeof(uint32_t));
  if (!g->tensors_by_offset || !g->tensors_by_name || !g->keys_by_name || !g->tensors || !g->keys)
    LM_FAIL(MEMORY, "no memory for the tables of %u keys and %u tensors", g->n_keys, g->n_tensors);
  LM_TRY(fill_tables(g));
  g->data = align_up(g->at, g->alignment);
  g->end = g->at;
  for (uint64_t i = 0; i < g->n_tensors; i++) {
    struct gguf_tensor *t = &g->tensors[i];
    t->offset += g->data;
    g->end = LM_MAX(g->end, t->offset + t->bytes);
  }
  sort_by(g, g->keys_by_name, (uint32_t)g->n_keys, key_before);
  sort_by(g, g->tensors_by_name, (uint32_t)g->n_tensors, name_before);
  sort_by(g, g->tensors_by_offset, (uint32_t)g->n_tensors, offset_before);
  LM_TRY(check_order(g));
  return gguf_check_file(g);
}

int gguf_check_file(const struct gguf *g) {
  if (!g->file_bytes || g->stage != STAGE_WHOLE) return LM_OK;
  if (g->file_bytes < g->at) LM_FAIL(FORMAT, "the file has %u bytes, its header alone %u", g->file_bytes, g->at);
  for (uint64_t i = 0; g->tensors && i < g->n_tensors; i++) {
    const struct gguf_tensor *t = &g->tensors[i];
    if (t->offset + t->bytes > g->file_bytes)
      LM_FAIL(FORMAT, "tensor %t ends at byte %u, but the file has only %u", &t->name, t->offset + t->bytes,
              g->file_bytes);
  }
  return LM_OK;
}

const struct gguf_key *gguf_find(const struct gguf *g, struct text name) {
  uint64_t low = 0, high = g->n_keys;
  while (low < high) {
    const uint64_t middle = (low + high) / 2;
    const struct gguf_key *k = &g->keys[g->keys_by_name[middle]];
    const int order = text_order(name, k->name);
    if (!order) return k;
    if (order < 0) high = middle;
    else low = middle + 1;
  }
  return 0;
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, struct text name) {
  uint64_t low = 0, high = g->n_tensors;
  while (low < high) {
    const uint64_t middle = (low + high) / 2;
    const struct gguf_tensor *t = &g->tensors[g->tensors_by_name[middle]];
    const int order = text_order(name, t->name);
    if (!order) return t;
    if (order < 0) high = middle;
    else low = middle + 1;
  }
  return 0;
}

static int wrong_type(const char *name, const struct gguf_key *k, const char *wanted) {
  LM_FAIL(FORMAT, "key %s is of type %s, not %s", name, type_names[k->type], wanted);
}

int gguf_u32(const struct gguf *g, const char *name, uint32_t *out) {
  const struct gguf_key *k = gguf_find(g, text_of(name));
  if (!k) return 0;
  uint64_t v;
  bool negative = false;
  switch (k->type) {
    case GGUF_U8: v = *k->value; break;
    case GGUF_U16: v = read_u16(k->value); break;
    case GGUF_U32: v = read_u32(k->value); break;
    case GGUF_U64: v = read_u64(k->value); break;
    case GGUF_I8: v = *k->value, negative = v > INT8_MAX; break;
    case GGUF_I16: v = read_u16(k->value), negative = v > INT16_MAX; break;
    case GGUF_I32: v = read_u32(k->value), negative = v > INT32_MAX; break;
    case GGUF_I64: v = read_u64(k->value), negative = v > INT64_MAX; break;
    default: return wrong_type(name, k, "an integer");
  }
  if (negative) LM_FAIL(FORMAT, "key %s is negative", name);
  if (v > UINT32_MAX) LM_FAIL(FORMAT, "key %s is %u, which is too large", name, v);
  *out = (uint32_t)v;
  return 1;
}

int gguf_f32(const struct gguf *g, const char *name, float *out) {
  const struct gguf_key *k = gguf_find(g, text_of(name));
  if (!k) return 0;
  if (k->type == GGUF_F32) copy_bytes(out, k->value, sizeof *out);
  else if (k->type == GGUF_F64) {
    double v;
    copy_bytes(&v, k->value, sizeof v);
    *out = (float)v;
  } else return wrong_type(name, k, "a float");
  return 1;
}

int gguf_bool(const struct gguf *g, const char *name, bool *out) {
  const struct gguf_key *k = gguf_find(g, text_of(name));
  if (!k) return 0;
  if (k->type != GGUF_BOOL) return wrong_type(name, k, "a bool");
  *out = *k->value != 0;
  return 1;
}

int gguf_text(const struct gguf *g, const char *name, struct text *out) {
  const struct gguf_key *k = gguf_find(g, text_of(name));
  if (!k) return 0;
  if (k->type != GGUF_STRING) return wrong_type(name, k, "a string");
  *out = (struct text){(const char *)k->value + 8, read_u64(k->value)};
  return 1;
}
