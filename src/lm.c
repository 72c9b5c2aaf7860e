/* lm.c: implements lm.h: the order of calls, checks at the door, and the plan of the memory. */
#include "lm.h"

#include "arena.h"
#include "error.h"
#include "forward.h"
#include "gguf.h"
#include "kv.h"
#include "model.h"
#include "platform.h"
#include "sample.h"
#include "team.h"

enum stage { OPEN, HEADER_READ, BOUND, LOADING, READY, FAILED };
#define STACK_BYTES ((uint64_t)64 << 10) /* of a compute worker */
#define GUARD 0x5afe57ac /* lowest word of each worker's stack: overwritten means overflow */

static struct {
  enum stage stage;
  struct arena arena;
  struct gguf gguf;
  struct model model;
  struct kv kv;
  struct forward forward;
  struct intake intake;
  struct sampler samplers[KV_SEQS];
  struct sample_scratch scratch;
  uint8_t *stacks;       /* [n_threads - 1][STACK_BYTES] */
  uint64_t header_at;    /* in the arena */
  uint64_t tables_end;   /* arena.used after the tables of the header */
  double overrides[N_OVERRIDES];
  uint32_t n_threads;
  uint32_t n_kept;       /* rows of logits */
  double info[LM_INFO_BYTES_TOKEN + 1];
  struct lm_value value;
  struct lm_tensor_info tensor;
} lm;

static _Alignas(64) uint8_t window[LM_IO_BYTES + 64]; /* kernels read a little beyond a row */

/* Calls that may grow memory grow it each time in the always-grow build: a view of the host that
 * outlives its call is found at once. */
static void growing(void) {
#ifdef LM_ALWAYS_GROW
  platform_grow(platform_size() + 1);
#endif
}

static uint64_t address_of(const void *p) { return (uint64_t)(uintptr_t)p; }

uint32_t lm_abi(void) { return LM_ABI; }
void *lm_io(void) { return window; }
const char *lm_error(void) { return error_sentence(); }

void lm_open(void) {
  zero_bytes(&lm, sizeof lm);
  error_clear();
  for (uint32_t i = 0; i < N_OVERRIDES; i++) lm.overrides[i] = __builtin_nan("");
  arena_open(&lm.arena);
  gguf_open(&lm.gguf);
}

/* ---- loading ---- */

static int feed_header(uint32_t n) {
  struct gguf *g = &lm.gguf;
  uint8_t *header = lm.arena.base;
  const uint64_t had = lm.arena.used;
  if (!arena_extend(&lm.arena, n)) LM_FAIL(MEMORY, "no memory for a header of more than %u bytes", had);
  copy_bytes(header + had, window, n);
  const int got = gguf_parse(g, header, had + n);
  if (got != LM_HEADER) return got;
  arena_cut(&lm.arena, g->at);
  LM_TRY(gguf_index(g, &lm.arena));
  lm.tables_end = lm.arena.used;
  lm.info[LM_INFO_HEADER_BYTES] = (double)g->at;
  lm.info[LM_INFO_FILE_BYTES] = (double)g->end;
  lm.info[LM_INFO_N_META] = (double)g->n_keys;
  lm.info[LM_INFO_N_TENSORS] = (double)g->n_tensors;
  for (uint64_t i = 0; i < g->n_tensors; i++) {
    const uint64_t *d = g->tensors[i].dims;
    lm.info[LM_INFO_N_PARAMS] += (double)(d[0] * d[1] * d[2] * d[3]);
  }
  lm.stage = HEADER_READ;
  return LM_HEADER;
}

static int feed_tensors(uint32_t n) {
  const int got = intake_feed(&lm.intake, &lm.model, window, n);
  if (got != LM_DONE) return got;
  LM_TRY(model_scale_rope(&lm.model));
  lm.stage = READY;
  return LM_DONE;
}

int lm_feed(uint32_t n) {
  if (lm.stage == FAILED) return error_set(LM_ERR_STATE, "the file was refused: nothing more can be read");
  if (lm.stage != OPEN && lm.stage != LOADING) LM_FAIL(STATE, "lm_feed before lm_alloc, or after the last byte");
  if (!n || n > LM_IO_BYTES)
    LM_FAIL(ARGUMENT, "lm_feed takes 1 to %u bytes, not %u", (uint64_t)LM_IO_BYTES, (uint64_t)n);
  if (lm.stage == OPEN) growing();
  const int got = lm.stage == OPEN ? feed_header(n) : feed_tensors(n);
  if (got < 0) lm.stage = FAILED;
  return got;
}

int lm_file_bytes(double n_bytes) {
  if (!(n_bytes >= 0 && n_bytes <= 0x1p53)) LM_FAIL(ARGUMENT, "a file of %g bytes", n_bytes);
  if (lm.stage > BOUND) LM_FAIL(STATE, "lm_file_bytes after lm_alloc");
  lm.gguf.file_bytes = (uint64_t)n_bytes;
  return gguf_check_file(&lm.gguf);
}

/* Takes all memory of a bound model from a, in order of lifetime; or counts it. */
static void place(struct arena *a) {
  model_place(&lm.model, a);
  forward_place(&lm.forward, a);
  sample_place(&lm.scratch, a, lm.model.n_vocab);
  lm.intake.staging = arena_take(a, lm.model.staging_bytes);
  lm.stacks = arena_take(a, (lm.n_threads - 1) * STACK_BYTES);
  kv_place(&lm.kv, a);
}

static void tell_model(void) {
  const struct model *m = &lm.model;
  double *info = lm.info;
  info[LM_INFO_N_VOCAB] = m->n_vocab;
  info[LM_INFO_N_LAYERS] = m->n_layers;
  info[LM_INFO_D_MODEL] = m->d_model;
  info[LM_INFO_N_HEADS] = m->n_heads;
  info[LM_INFO_N_KV_HEADS] = m->n_kv_heads;
  info[LM_INFO_HEAD_DIM] = m->head_dim;
  info[LM_INFO_D_FF] = m->d_ff;
  info[LM_INFO_N_CTX] = m->n_ctx;
  info[LM_INFO_N_CTX_TRAIN] = m->n_ctx_train;
  info[LM_INFO_ROPE_DIM] = m->rope_dim;
  info[LM_INFO_ROPE_THETA] = m->rope_theta;
  info[LM_INFO_ROPE_SCALING] = m->scaling.kind;
  info[LM_INFO_ROPE_FACTOR] = m->scaling.factor;
  info[LM_INFO_ROPE_ORIGINAL] = m->scaling.original_context;
  info[LM_INFO_WINDOW] = m->window;
  info[LM_INFO_TIED] = m->tied;
  info[LM_INFO_MAX_BATCH] = lm.forward.max_batch;
  info[LM_INFO_MAX_ALL] = lm.forward.max_all;
  info[LM_INFO_MAX_SEQS] = KV_SEQS;
  info[LM_INFO_N_THREADS] = lm.n_threads;
  info[LM_INFO_CHUNK_TOKENS] = KV_CHUNK;
  info[LM_INFO_GIGA_OPS_TOKEN] = 2e-9 * (double)m->token_macs;
  info[LM_INFO_BYTES_TOKEN] = (double)m->token_bytes;
}

/* What the plan needs, in bytes of the whole memory. */
static int plan(void) {
  struct arena counted = lm.arena;
  counted.counting = true;
  place(&counted);
  const uint64_t before = platform_before(), page = 65536;
  const uint64_t now = align_up(before + counted.used, page);
  const uint64_t chunks = (uint64_t)KV_SEQS * lm.kv.max_chunks * (lm.kv.chunk_bytes + 64);
  const uint64_t logits = (uint64_t)lm.forward.max_all * lm.forward.vocab_stride * sizeof(float);
  const uint64_t most = now + align_up(chunks + logits, page);
  double *info = lm.info;
  info[LM_INFO_BYTES_WEIGHTS] = (double)lm.model.weight_bytes;
  info[LM_INFO_BYTES_KV_TOKEN] = (double)(lm.kv.chunk_bytes / KV_CHUNK);
  info[LM_INFO_BYTES_CHUNK] = (double)lm.kv.chunk_bytes;
  info[LM_INFO_BYTES_SCRATCH] = (double)(counted.used - lm.arena.used - lm.model.weight_bytes - lm.kv.chunk_bytes);
  info[LM_INFO_BYTES_NOW] = (double)now;
  info[LM_INFO_BYTES_MAX] = (double)LM_MIN(most, before + platform_limit());
  if (counted.used > platform_limit())
    LM_FAIL(MEMORY, "the model needs %u bytes of memory (weights %u), but only %u can be addressed", now,
            lm.model.weight_bytes, before + platform_limit());
  return LM_OK;
}

static int bind(uint32_t n_ctx, uint32_t kv_type, uint32_t precision, uint32_t n_threads) {
  if (kv_type >= N_KV_TYPES) LM_FAIL(ARGUMENT, "there is no KV type %u", (uint64_t)kv_type);
  if (precision > LM_HIGH) LM_FAIL(ARGUMENT, "there is no precision %u", (uint64_t)precision);
  if (!n_threads || n_threads > TEAM_MAX)
    LM_FAIL(ARGUMENT, "%u threads: 1 to %u can be had", (uint64_t)n_threads, (uint64_t)TEAM_MAX);
  arena_cut(&lm.arena, lm.tables_end);
  LM_TRY(model_bind(&lm.model, &lm.gguf, &lm.arena, n_ctx, precision, lm.overrides));
  const struct model *m = &lm.model;
  if (m->head_dim % kv_shapes[kv_type].items)
    LM_FAIL(UNSUPPORTED, "a cache of %s takes heads of whole blocks of %u values, this model's have %u",
            kv_shapes[kv_type].name, (uint64_t)kv_shapes[kv_type].items, (uint64_t)m->head_dim);
  lm.n_threads = n_threads;
  kv_open(&lm.kv, &lm.arena, kv_type, m->n_layers, m->n_kv_heads, m->head_dim, m->n_ctx);
  forward_open(&lm.forward, m, &lm.kv, n_threads);
  tell_model();
  return plan();
}

int lm_override(uint32_t id, double value) {
  if (lm.stage > BOUND) LM_FAIL(STATE, "lm_override after lm_alloc");
  LM_TRY(check_override(id, value));
  lm.overrides[id] = value;
  if (lm.stage == BOUND) lm.stage = HEADER_READ;
  return LM_OK;
}

int lm_bind(uint32_t n_ctx, uint32_t kv_type, uint32_t precision, uint32_t n_threads) {
  if (lm.stage != HEADER_READ && lm.stage != BOUND)
    LM_FAIL(STATE, "lm_bind before the header is read, or after lm_alloc");
  growing();
  lm.stage = HEADER_READ;
  LM_TRY(bind(n_ctx, kv_type, precision, n_threads));
  lm.stage = BOUND;
  return LM_OK;
}

int lm_alloc(void) {
  if (lm.stage != BOUND) LM_FAIL(STATE, "lm_alloc before lm_bind, or twice");
  growing();
  const uint64_t now = (uint64_t)lm.info[LM_INFO_BYTES_NOW] - platform_before();
  if (now > platform_size() && !platform_grow(now))
    LM_FAIL(MEMORY, "memory cannot grow to the %u bytes that the model needs (weights %u)", now + platform_before(),
            lm.model.weight_bytes);
  place(&lm.arena);
  for (uint32_t i = 1; i < lm.n_threads; i++) *(uint32_t *)(void *)(lm.stacks + (i - 1) * STACK_BYTES) = GUARD;
  team_open(lm.n_threads);
  lm.intake.at = lm.gguf.at;
  lm.stage = LOADING;
  return LM_OK;
}

/* ---- what is known ---- */

double lm_info(uint32_t id) {
  if (id >= LM_COUNT(lm.info)) return __builtin_nan("");
  if (id == LM_INFO_BYTES_KV_USED) return (double)lm.kv.n_used * (double)lm.kv.chunk_bytes;
  if (id == LM_INFO_BYTES_KV) return (double)lm.kv.n_chunks * (double)lm.kv.chunk_bytes;
  return lm.info[id];
}

const void *lm_header(void) { return lm.gguf.bytes; }

static const struct lm_value *tell_key(const struct gguf_key *k) {
  if (!k) return 0;
  lm.value =
      (struct lm_value){k->type, k->element, k->count, address_of(k->value), address_of(k->name.bytes), k->name.n};
  return &lm.value;
}

static bool header_known(void) { return lm.stage != OPEN && lm.gguf.keys; }

const struct lm_value *lm_meta(uint32_t length) {
  if (!header_known() || length > LM_IO_BYTES) return 0;
  return tell_key(gguf_find(&lm.gguf, (struct text){(const char *)window, length}));
}

const struct lm_value *lm_meta_at(uint32_t i) {
  return header_known() && i < lm.gguf.n_keys ? tell_key(&lm.gguf.keys[i]) : 0;
}

const struct lm_tensor_info *lm_tensor(uint32_t i) {
  if (!header_known() || i >= lm.gguf.n_tensors) return 0;
  const struct gguf_tensor *t = &lm.gguf.tensors[i];
  lm.tensor = (struct lm_tensor_info){.name = address_of(t->name.bytes), .name_length = t->name.n, .type = t->quant,
                                      .n_dims = t->n_dims, .offset = t->offset, .bytes = t->bytes};
  for (int d = 0; d < 4; d++) lm.tensor.dims[d] = t->dims[d];
  return &lm.tensor;
}

static const char *const error_names[] = {
#define LM_ERROR(name, number, sentence) [(number) - 1] = #name,
#include "error.def"
#undef LM_ERROR
};
static const char *const info_names[] = {
#define LM_INFO(id, name) name,
#include "info.def"
#undef LM_INFO
};
static const char *const precision_names[] = {[LM_FAST] = "fast", [LM_HIGH] = "high"};

const char *lm_name(uint32_t table, uint32_t i) {
  switch (table) {
    case LM_ERRORS: return i < LM_COUNT(error_names) ? error_names[i] : 0;
    case LM_QUANTS: return i < N_QUANTS ? quants[i].name : 0;
    case LM_KV_TYPES: return i < N_KV_TYPES ? kv_shapes[i].name : 0;
    case LM_ARCHS: return i < N_ARCHS ? archs[i].name : 0;
    case LM_SAMPLERS: return i < N_SAMPLERS ? sampler_rows[i].name : 0;
    case LM_INFOS: return i < LM_COUNT(info_names) ? info_names[i] : 0;
    case LM_OVERRIDES: return i < N_OVERRIDES ? override_rows[i].name : 0;
    case LM_ROPE_SCALINGS: return i < N_ROPE_SCALINGS ? rope_scaling_names[i] : 0;
    case LM_PRECISIONS: return i < LM_COUNT(precision_names) ? precision_names[i] : 0;
    default: return 0;
  }
}

/* ---- sequences ---- */

static int check_seq(int seq) {
  if (lm.stage != READY) LM_FAIL(STATE, "the model is not loaded");
  if (seq < 0 || seq >= KV_SEQS || !lm.kv.seqs[seq].used) LM_FAIL(SEQ, "there is no sequence %g", (double)seq);
  return LM_OK;
}

int lm_seq(void) {
  if (lm.stage != READY) LM_FAIL(STATE, "the model is not loaded");
  const int seq = kv_new(&lm.kv);
  if (seq < 0) LM_FAIL(SEQ, "all %u sequences are in use", (uint64_t)KV_SEQS);
  sampler_reset(&lm.samplers[seq]);
  return seq;
}

int lm_fork(int seq) {
  LM_TRY(check_seq(seq));
  const int copy = kv_fork(&lm.kv, (uint32_t)seq);
  if (copy < 0) LM_FAIL(SEQ, "all %u sequences are in use", (uint64_t)KV_SEQS);
  copy_bytes(&lm.samplers[copy], &lm.samplers[seq], sizeof lm.samplers[seq]);
  return copy;
}

int lm_drop(int seq) {
  LM_TRY(check_seq(seq));
  kv_drop(&lm.kv, (uint32_t)seq);
  return LM_OK;
}

int lm_pos(int seq) {
  LM_TRY(check_seq(seq));
  return (int)lm.kv.seqs[seq].pos;
}

int lm_rewind(int seq, uint32_t pos) {
  LM_TRY(check_seq(seq));
  if (pos > lm.kv.seqs[seq].pos)
    LM_FAIL(ARGUMENT, "sequence %u cannot go back to %u: it holds %u tokens", (uint64_t)seq, (uint64_t)pos,
            (uint64_t)lm.kv.seqs[seq].pos);
  kv_rewind(&lm.kv, (uint32_t)seq, pos);
  return LM_OK;
}

/* ---- evaluation ---- */

/* Copies the rows from the window, checked, with their positions. */
static int take_rows(uint32_t n) {
  const struct lm_row *in = (const struct lm_row *)(void *)window;
  struct row *rows = lm.forward.rows;
  uint32_t seen = 0; /* one bit per sequence */
  _Static_assert(KV_SEQS <= 32, "a bit each");
  for (uint32_t i = 0; i < n; i++) {
    LM_TRY(check_seq(in[i].seq));
    if (in[i].token < 0 || (uint32_t)in[i].token >= lm.model.n_vocab)
      LM_FAIL(TOKEN, "token %g of row %u is not in the vocabulary of %u", (double)in[i].token, (uint64_t)i,
              (uint64_t)lm.model.n_vocab);
    const uint32_t seq = (uint32_t)in[i].seq;
    const bool next = i && rows[i - 1].seq == seq;
    if (!next && seen & 1u << seq) LM_FAIL(ARGUMENT, "the rows of sequence %u do not stand together", (uint64_t)seq);
    seen |= 1u << seq;
    rows[i] = (struct row){in[i].token, seq, next ? rows[i - 1].pos + 1 : lm.kv.seqs[seq].pos};
    if (rows[i].pos >= lm.model.n_ctx)
      LM_FAIL(CONTEXT, "the context of %u tokens is full: sequence %u holds %u", (uint64_t)lm.model.n_ctx,
              (uint64_t)seq, (uint64_t)lm.kv.seqs[seq].pos);
  }
  return LM_OK;
}

/* Which rows' logits to keep. */
static int choose_kept(uint32_t n, uint32_t want) {
  struct forward *f = &lm.forward;
  f->n_keep = 0;
  for (uint32_t i = 0; want != LM_NONE && i < n; i++) {
    const bool last = i + 1 == n || f->rows[i + 1].seq != f->rows[i].seq;
    if (want == LM_LAST && !last) continue;
    if (f->n_keep == f->max_all)
      LM_FAIL(ARGUMENT, "logits of more than %u rows: %u are the most", (uint64_t)f->max_all, (uint64_t)f->max_all);
    f->keep[f->n_keep++] = i;
  }
  return LM_OK;
}

/* Room in the cache for rows i .. of one sequence; returns how many rows that are. */
static int reserve(uint32_t i, uint32_t n) {
  const struct row *rows = lm.forward.rows;
  uint32_t count = 1;
  while (i + count < n && rows[i + count].seq == rows[i].seq) count++;
  if (!kv_reserve(&lm.kv, rows[i].seq, count))
    LM_FAIL(MEMORY, "the cache cannot grow: a chunk of %u tokens needs %u bytes, and memory has %u", (uint64_t)KV_CHUNK,
            lm.kv.chunk_bytes, platform_before() + platform_size());
  return (int)count;
}

/* Gives back what reserve took beyond the tokens that sequences hold. */
static void unreserve(uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    const uint32_t seq = lm.forward.rows[i].seq;
    kv_rewind(&lm.kv, seq, lm.kv.seqs[seq].pos);
  }
}

static void check_stacks(void) {
  for (uint32_t i = 1; i < lm.n_threads; i++)
    if (*(const uint32_t *)(const void *)(lm.stacks + (i - 1) * STACK_BYTES) != GUARD) __builtin_trap();
}

int lm_eval(uint32_t n, uint32_t want) {
  struct forward *f = &lm.forward;
  if (lm.stage != READY) LM_FAIL(STATE, "the model is not loaded");
  if (!n || n > f->max_batch) LM_FAIL(ARGUMENT, "a batch of %u rows: 1 to %u", (uint64_t)n, (uint64_t)f->max_batch);
  if (want > LM_ALL) LM_FAIL(ARGUMENT, "want is %u, not 0 to 2", (uint64_t)want);
  LM_TRY(take_rows(n));
  LM_TRY(choose_kept(n, want));
  growing();
  for (uint32_t i = 0; i < n;) {
    const int count = reserve(i, n);
    if (count < 0) {
      unreserve(n);
      return count;
    }
    i += (uint32_t)count;
  }
  if (!forward_reserve(f, &lm.arena, f->n_keep)) {
    unreserve(n);
    LM_FAIL(MEMORY, "no memory for the logits of %u rows: it has %u bytes", (uint64_t)f->max_all,
            platform_before() + platform_size());
  }
  f->n = n;
  forward_run(f);
  check_stacks();
  for (uint32_t i = 0; i < n; i++) lm.kv.seqs[f->rows[i].seq].pos = f->rows[i].pos + 1;
  lm.n_kept = f->n_keep;
  return (int)f->n_keep;
}

const float *lm_logits(uint32_t i) {
  return i < lm.n_kept ? lm.forward.logits + (size_t)i * lm.forward.vocab_stride : 0;
}

/* ---- sampling ---- */

int lm_sample_set(int seq, uint32_t id, double value) {
  LM_TRY(check_seq(seq));
  return sampler_set(&lm.samplers[seq], id, value);
}

int lm_seed(int seq, uint32_t lo, uint32_t hi) {
  LM_TRY(check_seq(seq));
  sampler_seed(&lm.samplers[seq], (uint64_t)hi << 32 | lo);
  return LM_OK;
}

int lm_bias(int seq, uint32_t n) {
  LM_TRY(check_seq(seq));
  if (n > BIAS_MAX) LM_FAIL(ARGUMENT, "%u logit biases: at most %u", (uint64_t)n, (uint64_t)BIAS_MAX);
  const struct bias *in = (const struct bias *)(void *)window;
  for (uint32_t i = 0; i < n; i++) {
    if (in[i].token < 0 || (uint32_t)in[i].token >= lm.model.n_vocab)
      LM_FAIL(TOKEN, "logit bias for token %g, which is not in the vocabulary of %u", (double)in[i].token,
              (uint64_t)lm.model.n_vocab);
    if (!(in[i].value < __builtin_inff()))
      LM_FAIL(ARGUMENT, "the logit bias of token %u is no number below infinity", (uint64_t)in[i].token);
  }
  struct sampler *s = &lm.samplers[seq];
  copy_bytes(s->bias, in, n * sizeof *in);
  s->n_bias = n;
  return LM_OK;
}

int lm_sample(int seq, uint32_t i, uint32_t n_last) {
  LM_TRY(check_seq(seq));
  if (i >= lm.n_kept)
    LM_FAIL(ARGUMENT, "logits of row %u were not kept: there are %u", (uint64_t)i, (uint64_t)lm.n_kept);
  if (n_last > LAST_MAX)
    LM_FAIL(ARGUMENT, "the penalties look at %u tokens: at most %u", (uint64_t)n_last, (uint64_t)LAST_MAX);
  const int32_t *last = (const int32_t *)(void *)window;
  for (uint32_t j = 0; j < n_last; j++)
    if (last[j] < 0 || (uint32_t)last[j] >= lm.model.n_vocab)
      LM_FAIL(TOKEN, "token %g among the last ones is not in the vocabulary of %u", (double)last[j],
              (uint64_t)lm.model.n_vocab);
  return sample(&lm.samplers[seq], &lm.scratch, lm_logits(i), lm.model.n_vocab, last, n_last);
}

/* ---- workers ---- */

int lm_threads(uint32_t n) {
  if (lm.stage < LOADING || lm.stage == FAILED) LM_FAIL(STATE, "lm_threads before lm_alloc");
  if (!n || n > lm.n_threads)
    LM_FAIL(ARGUMENT, "%u threads: 1 to %u have been started", (uint64_t)n, (uint64_t)lm.n_threads);
  team_use(n);
  return LM_OK;
}

void *lm_stack(uint32_t i) { return lm.stacks + i * STACK_BYTES; }
void lm_work(uint32_t i) { team_work(i); }
void lm_stop(void) { team_stop(); }
void lm_fail(void) { team_fail(); }
