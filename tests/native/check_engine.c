/* check_engine.c: the whole engine natively, under sanitizers: a model made here, loaded in pieces of
 * any size, run with 1 to 4 workers, in one batch and row by row, forked and rewound: always the
 * same bits. And what must be refused is refused, at every cut of the header. */
#include <string.h>

#include "host.h"

/* ---- a writer of GGUF ---- */

static uint8_t file[1 << 20];
static size_t n_file;

static void put(const void *p, size_t n) { memcpy(file + n_file, p, n), n_file += n; }
static void put_u32(uint32_t v) { put(&v, 4); }
static void put_u64(uint64_t v) { put(&v, 8); }
static void put_string(const char *s) { put_u64(strlen(s)), put(s, strlen(s)); }
static void put_key_u32(const char *key, uint32_t v) { put_string(key), put_u32(4), put_u32(v); }

enum { D = 64, HEADS = 4, KV_HEADS = 2, DIM = 16, FF = 96, LAYERS = 2, VOCAB = 80, TENSORS = 3 + 9 * LAYERS };
enum { F32 = 0, Q8_0 = 8 };

static struct {
  char name[40];
  uint64_t cols, rows;
  uint32_t type;
} tensors[TENSORS];
static int n_tensors;

static void tensor(const char *name, int layer, uint64_t cols, uint64_t rows, uint32_t type) {
  if (layer < 0) snprintf(tensors[n_tensors].name, 40, "%s.weight", name);
  else snprintf(tensors[n_tensors].name, 40, "blk.%d.%s.weight", layer, name);
  tensors[n_tensors].cols = cols, tensors[n_tensors].rows = rows, tensors[n_tensors].type = type;
  n_tensors++;
}

static uint64_t tensor_bytes(int i) {
  const uint64_t n = tensors[i].cols * tensors[i].rows;
  return tensors[i].type == F32 ? 4 * n : n / 32 * 34;
}

static uint32_t seed = 1;
static float next(void) { /* uniform in -1 .. 1 */
  seed = seed * 1664525 + 1013904223;
  return (float)(int32_t)seed * 0x1p-31f;
}

static void put_data(int i) {
  const uint64_t n = tensors[i].cols * tensors[i].rows;
  while (n_file % 32) file[n_file++] = 0;
  if (tensors[i].type == F32)
    for (uint64_t j = 0; j < n; j++) {
      const float v = tensors[i].rows == 1 ? 1 + 0.1f * next() : 0.2f * next();
      put(&v, 4);
    }
  else
    for (uint64_t j = 0; j < n / 32; j++) {
      const uint16_t scale = 0x1400 + (j & 63); /* about 1e-3 */
      put(&scale, 2);
      for (int k = 0; k < 32; k++) file[n_file++] = (uint8_t)(int8_t)(127 * next());
    }
}

static void make_model(uint32_t type) {
  n_file = 0, n_tensors = 0, seed = 1;
  tensor("token_embd", -1, D, VOCAB, type);
  for (int l = 0; l < LAYERS; l++) {
    tensor("attn_norm", l, D, 1, F32);
    tensor("attn_q", l, D, HEADS * DIM, type);
    tensor("attn_k", l, D, KV_HEADS * DIM, type);
    tensor("attn_v", l, D, KV_HEADS * DIM, type);
    tensor("attn_output", l, HEADS * DIM, D, type);
    tensor("ffn_norm", l, D, 1, F32);
    tensor("ffn_gate", l, D, FF, type);
    tensor("ffn_up", l, D, FF, type);
    tensor("ffn_down", l, FF, D, type);
  }
  tensor("output_norm", -1, D, 1, F32);
  put("GGUF", 4), put_u32(3), put_u64((uint64_t)n_tensors), put_u64(9);
  put_string("general.architecture"), put_u32(8), put_string("llama");
  put_key_u32("llama.block_count", LAYERS), put_key_u32("llama.embedding_length", D);
  put_key_u32("llama.feed_forward_length", FF), put_key_u32("llama.context_length", 600);
  put_key_u32("llama.attention.head_count", HEADS), put_key_u32("llama.attention.head_count_kv", KV_HEADS);
  const float eps = 1e-5f;
  put_string("llama.attention.layer_norm_rms_epsilon"), put_u32(6), put(&eps, 4);
  put_string("tokenizer.ggml.tokens"), put_u32(9), put_u32(8), put_u64(VOCAB);
  for (int i = 0; i < VOCAB; i++) put_string(&"abcdefgh"[i % 8]);
  uint64_t offset = 0;
  for (int i = 0; i < n_tensors; i++) {
    put_string(tensors[i].name);
    put_u32(tensors[i].rows == 1 ? 1 : 2), put_u64(tensors[i].cols);
    if (tensors[i].rows > 1) put_u64(tensors[i].rows);
    put_u32(tensors[i].type), put_u64(offset);
    offset += (tensor_bytes(i) + 31) / 32 * 32;
  }
  for (int i = 0; i < n_tensors; i++) put_data(i);
}

/* ---- what must be the same ---- */

enum { PROMPT = 300 }; /* two chunks of the cache */
static uint64_t hash;

static void add_logits(uint32_t i) {
  const uint8_t *bytes = (const uint8_t *)lm_logits(i);
  for (size_t j = 0; j < VOCAB * sizeof(float); j++) hash = (hash ^ bytes[j]) * 1099511628211u;
}

static int token_at(int i) { return (i * 7 + i / 5) % VOCAB; }

/* Evaluates tokens from .. to - 1 in batches, each by another number of threads; every row's logits go into the hash. */
static void evaluate(int seq, int from, int to, int batch) {
  struct lm_row *rows = lm_io();
  for (int i = from; i < to; i += batch) {
    const int n = to - i < batch ? to - i : batch;
    const uint32_t n_threads = (uint32_t)lm_info(LM_INFO_N_THREADS);
    CHECK(!lm_threads(n_threads - (uint32_t)(i / batch) % n_threads), "threads, row %d", i);
    for (int j = 0; j < n; j++) rows[j] = (struct lm_row){token_at(i + j), seq};
    CHECK(lm_eval((uint32_t)n, LM_ALL) == n, "rows %d", i);
    for (int j = 0; j < n; j++) add_logits((uint32_t)j);
  }
}

static uint64_t run(struct options o, int batch) {
  CHECK(!host_load(file, n_file, o), "load by %u", o.step);
  hash = 14695981039346656037u;
  const int seq = lm_seq();
  evaluate(seq, 0, PROMPT, batch);
  const int fork = lm_fork(seq);
  evaluate(fork, PROMPT, PROMPT + 5, 5);     /* copies the shared chunk */
  evaluate(seq, PROMPT, PROMPT + 20, batch);
  CHECK(!lm_rewind(seq, PROMPT - 60), "rewind");
  evaluate(seq, PROMPT - 60, PROMPT + 20, batch);
  CHECK(lm_pos(seq) == PROMPT + 20 && lm_pos(fork) == PROMPT + 5, "positions");
  CHECK(lm_threads(0) == LM_ERR_ARGUMENT && lm_threads(o.n_threads + 1) == LM_ERR_ARGUMENT, "threads");
  host_stop();
  return hash;
}

static void check_bits(uint32_t type) {
  make_model(type);
  for (uint32_t precision = LM_FAST; precision <= LM_HIGH; precision++) {
    const uint64_t expected = run((struct options){0, 0, precision, 1, LM_IO_BYTES}, 1);
    for (uint32_t threads = 1; threads <= 4; threads++)
      for (int batch = 7; batch <= 40; batch += 33) {
        const uint64_t got = run((struct options){0, 0, precision, threads, threads == 1 ? 997 : 65536}, batch);
        CHECK(got == expected, "type %u, precision %u, %u threads, batches of %d", type, precision, threads, batch);
      }
  }
}

/* ---- what must be refused ---- */

static void check_cuts(void) {
  make_model(F32);
  lm_open();
  size_t header = 0;
  for (; header < n_file; header++) { /* a byte at a time */
    *(uint8_t *)lm_io() = file[header];
    const int got = lm_feed(1);
    if (got == LM_HEADER) break;
    CHECK(got == LM_MORE, "byte %zu", header);
  }
  CHECK(lm_info(LM_INFO_HEADER_BYTES) == (double)(header + 1), "header of %zu", header + 1);
  for (size_t n = 1; n <= header; n++) { /* a file that ends inside the header */
    const int got = host_load(file, n, (struct options){0, 0, 0, 1, LM_IO_BYTES});
    CHECK(got < 0, "cut at %zu", n);
  }
  CHECK(host_load(file, n_file - 1, (struct options){0, 0, 0, 1, 1000}) == LM_ERR_FORMAT, "last byte missing");
}

/* Any byte of the header changed: loads or is refused; where it loads, it runs. */
static void check_flips(void) {
  make_model(Q8_0);
  CHECK(!host_load(file, n_file, (struct options){0, 0, 0, 1, LM_IO_BYTES}), "unchanged");
  const size_t header = (size_t)lm_info(LM_INFO_HEADER_BYTES);
  for (size_t i = 0; i < header; i++) {
    const uint8_t old = file[i];
    file[i] ^= (uint8_t)(1u << (i * 5 + i / 8) % 8);
    if (!host_load(file, n_file, (struct options){64, 0, 0, 1, LM_IO_BYTES})) {
      const int seq = lm_seq();
      ((struct lm_row *)lm_io())[0] = (struct lm_row){3, seq};
      const int kept = lm_eval(1, LM_LAST);
      if (kept == 1) lm_sample(seq, 0, 0);
    } else CHECK(lm_error()[0], "byte %zu: an error without a sentence", i);
    file[i] = old;
  }
}

int main(void) {
  check_bits(F32);
  check_bits(Q8_0);
  check_cuts();
  check_flips();
  puts("engine: the same bits for every split; nothing broken loads");
  return 0;
}
