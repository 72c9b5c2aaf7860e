/**
 * make-vocabulary.js: vocabularies of any size for models that tests make, as GGUF metadata. 'spm': unknown,
 * BOS, EOS, 256 bytes, then pieces with scores. 'bpe': three control tokens, 256 byte characters, then
 * merges of two earlier pieces. They encode any text; their pieces are letters, not language.
 */

const LETTERS = [...'etaoinshrdlucmfwygpbvkxjqz'];

/** aa, ab, ... zz, aaa, ...: each with the shorter piece and the letter that it is made of. */
function* combinations() {
  let stems = LETTERS;
  for (;;) {
    const longer = [];
    for (const stem of stems) {
      for (const letter of LETTERS) {
        longer.push(stem + letter);
        yield [stem, letter];
      }
    }
    stems = longer;
  }
}

function spm(size) {
  const tokens = ['<unk>', '<s>', '</s>'];
  for (let b = 0; b < 256; b++) tokens.push(`<0x${b.toString(16).toUpperCase().padStart(2, '0')}>`);
  const nFixed = tokens.length;
  const pieces = combinations();
  tokens.push('\u2581', ...LETTERS);
  while (tokens.length < size) {
    const [stem, letter] = pieces.next().value;
    tokens.push(stem + letter, '\u2581' + stem + letter);
  }
  tokens.length = size;
  return {
    'tokenizer.ggml.model': ['string', 'llama'],
    'tokenizer.ggml.tokens': ['array', ['string', tokens]],
    'tokenizer.ggml.scores': ['array', ['f32', tokens.map((_, i) => (i < nFixed ? 0 : nFixed - i))]],
    'tokenizer.ggml.token_type': [
      'array',
      ['i32', tokens.map((_, i) => (i === 0 ? 2 : i < 3 ? 3 : i < nFixed ? 6 : 1))],
    ],
    'tokenizer.ggml.bos_token_id': ['u32', 1],
    'tokenizer.ggml.eos_token_id': ['u32', 2],
    'tokenizer.ggml.unknown_token_id': ['u32', 0],
    'tokenizer.ggml.add_bos_token': ['bool', true],
  };
}

/** The printable character that byte-level BPE writes for a byte. */
function byteCharacters() {
  let next = 256;
  return Array.from({ length: 256 }, (_, b) => {
    const printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    return String.fromCodePoint(printable ? b : next++);
  });
}

function bpe(size) {
  const bytes = byteCharacters();
  const tokens = ['<|endoftext|>', '<|im_start|>', '<|im_end|>', ...bytes];
  const merges = [];
  const add = (left, right) => {
    merges.push(`${left} ${right}`);
    tokens.push(left + right);
  };
  const space = bytes[32];
  for (const letter of LETTERS) add(space, letter);
  for (const [stem, letter] of combinations()) {
    if (tokens.length >= size) break;
    add(stem, letter);
    add(space + stem, letter);
  }
  merges.length -= tokens.length - size;
  tokens.length = size;
  return {
    'tokenizer.ggml.model': ['string', 'gpt2'],
    'tokenizer.ggml.pre': ['string', 'smollm'],
    'tokenizer.ggml.tokens': ['array', ['string', tokens]],
    'tokenizer.ggml.token_type': ['array', ['i32', tokens.map((_, i) => (i < 3 ? 3 : 1))]],
    'tokenizer.ggml.merges': ['array', ['string', merges]],
    'tokenizer.ggml.bos_token_id': ['u32', 1],
    'tokenizer.ggml.eos_token_id': ['u32', 2],
    'tokenizer.ggml.add_bos_token': ['bool', false],
  };
}

/** Metadata of a vocabulary of `size` tokens (at least 290); kind null: none. */
export function vocabulary(kind, size) {
  if (!kind) return {};
  if (size < 290) throw new RangeError(`a vocabulary of ${size} tokens: at least 290 are needed`);
  return kind === 'spm' ? spm(size) : bpe(size);
}
