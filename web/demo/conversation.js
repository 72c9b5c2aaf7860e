/* The conversation as the page shows it: questions, and answers that grow. */
import { createFormatter } from './format.js';

const COPIED_MS = 1500;

/**
 * @param {HTMLOListElement} list
 */
export function createConversation(list) {
  return {
    clear: () => list.replaceChildren(),

    /**
     * Shows a question with an answer that is being written below it.
     * @param {string} question
     */
    add(question) {
      const asked = element('li', 'question', question);
      asked.prepend(element('span', 'unseen', 'You: '));
      const item = element('li', 'answer writing');
      item.append(element('span', 'unseen', 'Answer: '));
      const body = element('div', 'answer-text');
      const text = createFormatter(body);
      item.append(body);
      list.append(asked, item);
      follow(true);
      return {
        /** @param {string} piece */
        append(piece) {
          const atEnd = isAtEnd();
          text.add(piece);
          follow(atEnd);
        },
        /**
         * @param {string} facts what it took, in one line
         * @param {string} note why it ended, where that needs saying
         */
        finish(facts, note) {
          const atEnd = isAtEnd();
          text.end();
          item.classList.remove('writing');
          if (note) item.append(element('p', 'note', note));
          const foot = element('div', 'answer-foot numbers');
          if (text.raw() !== '' && navigator.clipboard) foot.append(copyButton(text.raw()));
          foot.append(element('span', '', facts));
          item.append(foot);
          follow(atEnd);
        },
        /**
         * @param {string} message
         * @param {() => void} retry
         */
        fail(message, retry) {
          text.end();
          item.classList.remove('writing');
          const notice = element('div', 'notice');
          notice.setAttribute('role', 'alert');
          const again = button('Retry', () => {
            asked.remove();
            item.remove();
            retry();
          });
          notice.append(element('p', '', message), again);
          item.append(notice);
          follow(true);
        },
      };
    },
  };
}

/** @param {string} text */
function copyButton(text) {
  const copy = button('Copy', async () => {
    try {
      await navigator.clipboard.writeText(text);
      copy.textContent = 'Copied';
    } catch {
      copy.textContent = 'Not allowed to copy';
    }
    setTimeout(() => (copy.textContent = 'Copy'), COPIED_MS);
  });
  copy.className = 'quiet';
  return copy;
}

/**
 * @param {string} label
 * @param {() => void} action
 */
function button(label, action) {
  const made = document.createElement('button');
  made.type = 'button';
  made.textContent = label;
  made.addEventListener('click', action);
  return made;
}

/**
 * @param {string} name
 * @param {string} className
 * @param {string} [text]
 */
function element(name, className, text = '') {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.textContent = text;
  return made;
}

/** A reader who has scrolled up is left in peace. */
function isAtEnd() {
  const { scrollHeight } = document.documentElement;
  return scrollHeight - window.innerHeight - window.scrollY < 64;
}

/** @param {boolean} wanted */
function follow(wanted) {
  if (wanted) window.scrollTo({ top: document.documentElement.scrollHeight });
}
