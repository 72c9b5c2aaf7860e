/* The page's elements by their ids. */

/** @param {string} id @returns {any} */
export const $ = (id) => document.getElementById(id);

/** @param {string} id @param {boolean} shown */
export const show = (id, shown) => ($(id).hidden = !shown);
