/* The page's elements by their ids. */

/** @param {string} id @returns {any} */
export const $ = (id) => document.getElementById(id);

/**
 * Shows or hides. Focus never falls into nothing: what is hidden leaves it to its heir.
 * @param {string} id
 * @param {boolean} shown
 */
export function show(id, shown, heir = 'prompt') {
  const element = $(id);
  const hasFocus = element.contains(document.activeElement);
  element.hidden = !shown;
  if (hasFocus && !shown) $(heir).focus();
}
