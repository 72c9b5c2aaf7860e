/* The little Markdown that models write, as it streams: a line is shown as it comes and set once it is
 * whole. Strong, emphasis, code, headings, bullets and fenced blocks; everything else stays as written.
 * Only text nodes and a few bare elements are made, so nothing in an answer can become markup. */

const INLINE = /\*\*(?=\S)(.+?)(?<=\S)\*\*|(?<![\w*])\*(?=\S)([^*]+?)(?<=\S)\*(?![\w*])|`([^`]+)`/g;
const NAMES = ['strong', 'em', 'code'];
const FENCE = /^\s*```/;
const HEADING = /^#{1,6}\s+(.*)$/;
const BULLET = /^(\s*)[*+-]\s+/;

/**
 * Sets streamed text into an element.
 * @param {HTMLElement} body
 */
export function createFormatter(body) {
  let raw = '';
  let line = document.createTextNode('');
  /** @type {HTMLElement | null} the fenced block that is open */
  let block = null;
  body.append(line);

  /** @param {string} newline */
  const endLine = (newline) => {
    const text = line.data;
    if (FENCE.test(text)) {
      line.remove();
      block = block ? null : body.appendChild(document.createElement('pre'));
    } else if (block) line.appendData(newline);
    else line.replaceWith(...formatted(text), newline);
    line = document.createTextNode('');
    (block ?? body).append(line);
  };

  return {
    /** All that was added, as the model wrote it. */
    raw: () => raw,
    /** @param {string} piece */
    add(piece) {
      raw += piece;
      const [first, ...rest] = piece.split('\n');
      line.appendData(first);
      for (const part of rest) {
        endLine('\n');
        line.appendData(part);
      }
    },
    end: () => endLine(''),
  };
}

/** @param {string} text a line outside of blocks */
function formatted(text) {
  const heading = HEADING.exec(text);
  if (heading) return [element('strong', inline(heading[1]))];
  return inline(text.replace(BULLET, '$1• '));
}

/** @param {string} text */
function inline(text) {
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(INLINE)) {
    const kind = match.slice(1).findIndex((inner) => inner !== undefined);
    nodes.push(text.slice(end, match.index), element(NAMES[kind], [match[kind + 1]]));
    end = match.index + match[0].length;
  }
  return [...nodes, text.slice(end)];
}

/** @param {string} name @param {(string | Node)[]} content */
function element(name, content) {
  const made = document.createElement(name);
  made.append(...content);
  return made;
}
