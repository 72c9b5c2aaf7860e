/* Reads a streamed answer to screen readers: whole sentences, one by one, into a polite live region.
 * The visible answer is no live region: it changes with every token. */

const sentences = new Intl.Segmenter(undefined, { granularity: 'sentence' });

/** @param {HTMLElement} region */
export function createAnnouncer(region) {
  let pending = '';

  /** @param {string} text */
  const say = (text) => {
    if (text.trim() === '') return;
    const line = document.createElement('span');
    line.textContent = `${text.trim()} `;
    region.append(line);
  };

  return {
    /** Forgets what was said: a new answer begins. */
    clear() {
      pending = '';
      region.replaceChildren();
    },
    /** Takes the next piece of an answer; a sentence is said once the next one has begun. */
    add(/** @type {string} */ text) {
      pending += text;
      const parts = [...sentences.segment(pending)];
      const last = parts.pop();
      for (const part of parts) say(part.segment);
      pending = last?.segment ?? '';
    },
    /** Says what is left of the answer, and a remark on it. */
    end(remark = '') {
      say(pending);
      say(remark);
      pending = '';
    },
  };
}
