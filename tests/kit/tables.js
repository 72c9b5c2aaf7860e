/** tables.js: the tables of src/NAME.def, so that tests walk them and repeat no list. */
import { readFileSync } from 'node:fs';

/**
 * Rows of one macro: its arguments, as written.
 * @param {string} name file, without .def
 * @param {string} macro
 * @returns {string[][]}
 */
export function table(name, macro) {
  const text = readFileSync(new URL(`../../src/${name}.def`, import.meta.url), 'utf8');
  return [...text.matchAll(new RegExp(`^${macro}\\((.*?)\\)`, 'gm'))].map(([, row]) =>
    row.split(',').map((argument) => argument.trim()),
  );
}
