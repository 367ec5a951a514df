// Announces messages to screen readers. Its element is on the page from the start: many screen readers leave out the
// first message of a new element.

// Delay until a translation is announced, so that not each change is announced while the user types.
const SOON_MS = 700;

export class Announcer {
  /** box: an element with the role "status". */
  constructor(box) {
    this.box = box;
    this.timer = 0;
  }

  /** Announce a text now. */
  say(text, language = "en") {
    this.cancel();
    this.box.lang = language;
    this.box.textContent = text;
  }

  /** Announce a text after a delay, unless another text or `cancel` comes first. */
  saySoon(text, language = "en") {
    this.cancel();
    this.timer = setTimeout(() => this.say(text, language), SOON_MS);
  }

  /** Do not announce the text of `saySoon`. */
  cancel() {
    clearTimeout(this.timer);
  }
}

/**
 * Write a text into an element with the role "status". Does nothing if the element has this text already, because
 * screen readers would announce it again.
 */
export function write(box, text) {
  if (box.textContent !== text) box.textContent = text;
}
