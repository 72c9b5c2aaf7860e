/**
 * rope.js: rotary positions and the length of the context: what a user sets in place of the file's word, and
 * what is in force.
 */

/** @typedef {NonNullable<import('./index.js').LoadOptions['rope']>} RopeOptions */

/** Scalings that a user may ask for: the others need more of the file than numbers. */
export const SCALINGS = ['none', 'linear', 'yarn'];

/**
 * The user's numbers, by the names of src/override.def.
 * @param {RopeOptions} [rope]
 * @returns {[name: string, value: number][]}
 */
export function overridesOf(rope = {}) {
  const given = Object.entries(rope).filter(([, value]) => value !== undefined);
  return given.map(([key, value]) => {
    const name = `rope.${key}`;
    if (key === 'scaling') {
      const i = SCALINGS.indexOf(String(value));
      if (i < 0) throw new RangeError(`${name} is '${value}', must be one of ${SCALINGS.join(', ')}`);
      return [name, i];
    }
    if (typeof value !== 'number' || Number.isNaN(value)) throw new TypeError(`${name} is ${value}, must be a number`);
    return [name, value];
  });
}

/**
 * What is in force; undefined in a model without rotary positions.
 * @param {Record<string, number>} info  of lm_info
 * @param {string[]} scalings  their names
 * @returns {import('./index.js').ModelInfo['rope']}
 */
export function ropeOf({ ropeTheta, ropeScaling, ropeFactor, ropeOriginalContext, window }, scalings) {
  if (!ropeTheta) return undefined;
  const scaling = /** @type {any} */ (scalings[ropeScaling]);
  const rope = { base: ropeTheta, scaling, factor: ropeFactor, originalContext: ropeOriginalContext };
  return window ? { ...rope, window } : rope;
}

/**
 * What a user should know of a model that does run.
 * @param {Record<string, number>} info  of lm_info
 * @returns {string[]}
 */
export function warningsOf({ nCtx, nCtxTrain }) {
  if (nCtx <= nCtxTrain) return [];
  return [`a context of ${nCtx} tokens, but the model was trained for ${nCtxTrain}: beyond them answers may be worse`];
}
