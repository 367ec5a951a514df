// The text to translate: its length, the button that removes it, and the button that brings back a replaced text.

const count = new Intl.NumberFormat("en");

export class SourceText {
  /**
   * parts: the elements {area, length, clear, undo}: the text area, the text's length, and two buttons. onUndo():
   * called when the user has brought back a text.
   */
  constructor(parts, onUndo) {
    this.parts = parts;
    this.onUndo = onUndo;
    this.replaced = null; // the text that the page, not the user, has replaced: {text, undo}; null for none
    parts.area.addEventListener("input", () => this.#keep(null));
    parts.area.addEventListener("keydown", (event) => {
      // The browser's own undo does not know of texts that a script has replaced.
      const isUndo = (event.ctrlKey || event.metaKey) && !event.shiftKey && event.key === "z";
      if (!isUndo || !this.replaced) return;
      event.preventDefault();
      this.#undo();
    });
    parts.undo.addEventListener("click", () => this.#undo());
  }

  /** The text, without surrogates that have no partner. */
  get text() {
    return this.parts.area.value.toWellFormed();
  }

  /**
   * Replace the text. If it is not empty, the user can bring it back until the next input. undo(): undoes what else
   * changes with the text.
   */
  replace(text, undo = () => {}) {
    const { area } = this.parts;
    if (area.value.trim() !== "") this.#keep({ text: area.value, undo });
    area.value = text;
  }

  /** Show the length of the text beside the server's limit; nothing if the limit is not known yet. */
  showLength(maxCharacters) {
    const { length, clear } = this.parts;
    const { text } = this;
    length.textContent = maxCharacters ? `${count.format([...text].length)} / ${count.format(maxCharacters)}` : "";
    clear.hidden = text === "";
  }

  #keep(replaced) {
    this.replaced = replaced;
    this.parts.undo.hidden = replaced === null;
  }

  #undo() {
    const { text, undo } = this.replaced;
    this.#keep(null);
    this.parts.area.value = text;
    undo();
    this.onUndo();
  }
}
