// The error message, with an automatic retry for errors that may pass.

import { write } from "./announcer.js";

// Longest wait before an automatic retry. If the server says that a retry cannot succeed earlier than this, such as
// after a day's limit of an API key, only the button retries.
const MAX_WAIT_S = 60;

export class Problem {
  /**
   * box: the element of the whole message. text: the element of its words. button: retries at once; its child counts
   * the seconds, and is not in the button's name.
   */
  constructor({ box, text, button }) {
    this.box = box;
    this.text = text;
    this.button = button;
    this.countdown = button.firstElementChild;
    this.timer = 0;
    this.numRetries = 0; // since the last success or new input
    this.again = () => {};
    button.addEventListener("click", () => this.#tryAgain());
  }

  /**
   * Show a message. again(): the retry, called after retryAfterS seconds, or only by the button if that is more than
   * MAX_WAIT_S. Each retry that fails doubles the delay, up to MAX_WAIT_S. If retryAfterS is null, there is no retry.
   * A screen reader announces the message, but not again while the same message without a retry is shown.
   */
  show(message, retryAfterS = null, again = () => {}) {
    const isShown = !this.box.hidden && this.button.hidden && this.text.textContent === message;
    if (isShown && retryAfterS === null) return;
    this.#hide();
    this.box.hidden = false;
    this.again = again;
    this.button.hidden = retryAfterS === null;
    write(this.countdown, "");
    if (retryAfterS === null || retryAfterS > MAX_WAIT_S) {
      this.text.textContent = message;
      return;
    }
    const waitS = Math.min(MAX_WAIT_S, Math.max(1, retryAfterS) * 2 ** this.numRetries);
    this.text.textContent = `${message} Trying again in ${Math.ceil(waitS)} s.`;
    const due = performance.now() + waitS * 1000;
    this.timer = setInterval(() => {
      const leftS = (due - performance.now()) / 1000;
      write(this.countdown, `(${Math.max(0, Math.ceil(leftS))})`);
      if (leftS <= 0) this.#tryAgain();
    }, 200);
  }

  /** Show a message without a retry. A scheduled retry stays scheduled. */
  note(message) {
    if (this.box.hidden) this.show(message);
    else this.text.textContent = message;
  }

  /** Hide the message after a success or new input, and reset the retry delay. */
  reset() {
    this.#hide();
    this.numRetries = 0;
  }

  #hide() {
    clearInterval(this.timer);
    this.box.hidden = true;
    this.text.textContent = "";
  }

  #tryAgain() {
    const numRetries = this.numRetries + 1;
    this.#hide();
    this.again();
    this.numRetries = numRetries; // `again` may call `reset`
  }
}
