/**
 * The one error class of this package. `code` is stable and meant for programs; `message` is a sentence
 * for people that names what is wrong.
 */

/**
 * FORMAT, UNSUPPORTED, MEMORY, ARGUMENT, STATE, TOKEN, CONTEXT, SEQ and LOGITS are those of src/error.def,
 * where each is explained; the others come from JS. index.d.ts lists them all.
 * @typedef {string} ErrorCode
 */

export class ModelError extends Error {
  /**
   * @param {ErrorCode} code
   * @param {string} message
   * @param {ErrorOptions} [options]
   */
  constructor(code, message, options) {
    super(message, options);
    this.name = 'ModelError';
    /** @readonly */
    this.code = code;
  }
}
