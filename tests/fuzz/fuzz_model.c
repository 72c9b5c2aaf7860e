/* fuzz_model.c: any bytes as a whole model: what loads within 32 MiB runs: a prompt, a fork, a rewind, a
 * token, draws. Hostile shapes, types and numbers meet the whole forward pass. */
#include "fuzz.h"

enum { MEMORY = 32 << 20, CONTEXT = 300 };

static int load(const uint8_t *data, size_t n, size_t step) {
  lm_open();
  lm_file_bytes((double)n);
  int got = LM_MORE;
  for (size_t at = 0; at < n && got != LM_DONE;) {
    const size_t take = n - at < step ? n - at : step;
    fuzz_copy(lm_io(), data + at, take);
    got = lm_feed((uint32_t)take);
    at += take;
    if (got == LM_HEADER) {
      at = (size_t)lm_info(LM_INFO_HEADER_BYTES);
      if (lm_bind(CONTEXT, n % 2, n / 2 % 2, 1) < 0 || lm_info(LM_INFO_BYTES_NOW) > MEMORY || lm_alloc() < 0) return -1;
      got = LM_MORE;
    }
    if (got < 0) return got;
  }
  return got == LM_DONE ? 0 : -1;
}

static int evaluate(int seq, uint32_t n, uint32_t want) {
  struct lm_row *rows = lm_io();
  const uint32_t n_vocab = (uint32_t)lm_info(LM_INFO_N_VOCAB);
  for (uint32_t i = 0; i < n; i++) rows[i] = (struct lm_row){(int32_t)((i * 7 + 1) % n_vocab), seq};
  return lm_eval(n, want);
}

static void draw(int seq) {
  int32_t *last = lm_io();
  last[0] = last[1] = 0;
  lm_sample_set(seq, 0, 1.3);
  const int id = lm_sample(seq, 0, 2);
  FUZZ_CHECK(id < (int)lm_info(LM_INFO_N_VOCAB));
  if (id < 0) FUZZ_CHECK(lm_error()[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  if (!n) return 0;
  const size_t step = data[0] ? (size_t)data[0] * 97 : LM_IO_BYTES;
  if (load(data + 1, n - 1, step)) return 0;
  const int seq = lm_seq();
  if (evaluate(seq, 5, LM_ALL) < 0) return 0;
  const int fork = lm_fork(seq);
  FUZZ_CHECK(fork >= 0 && evaluate(fork, 1, LM_LAST) == 1);
  draw(fork);
  FUZZ_CHECK(!lm_rewind(seq, 2) && lm_pos(seq) == 2);
  FUZZ_CHECK(evaluate(seq, 3, LM_LAST) == 1);
  draw(seq);
  return 0;
}
