// The box of the translation. It shows streamed text first, then words that can be focused, marked and replaced.

import { segmentAt, wordsOf } from "./spans.js";

export class Target {
  /**
   * onPoint(start | null): called with the offset of the word that is under the pointer or has the focus; null if there
   * is no such word.
   * onChoose(start, element): called when a word is clicked, or activated by keyboard.
   */
  constructor(box, { onPoint, onChoose }) {
    this.box = box;
    this.words = new Map(); // offset -> element
    box.addEventListener("pointerover", (event) => onPoint(startOf(event.target)));
    box.addEventListener("pointerleave", () => onPoint(startOf(document.activeElement)));
    box.addEventListener("focusin", (event) => onPoint(startOf(event.target)));
    box.addEventListener("focusout", () => onPoint(null));
    box.addEventListener("click", (event) => {
      const start = startOf(event.target);
      if (start !== null && document.getSelection().isCollapsed) onChoose(start, event.target);
    });
    box.addEventListener("keydown", (event) => this.#key(event, onChoose));
  }

  /** Show an incomplete translation. */
  showDraft(text) {
    this.words.clear();
    this.box.textContent = text;
  }

  /** Show a complete translation. isPlain: its words cannot be focused. */
  show(answer, language, { isPlain = false } = {}) {
    this.words.clear();
    const pieces = document.createDocumentFragment();
    let at = 0;
    for (const { target } of isPlain ? [] : answer.segments) {
      for (const word of wordsOf(answer.text, target, language).filter(({ isWord }) => isWord)) {
        pieces.append(answer.text.slice(at, word.start), this.#word(answer.text, word));
        at = word.end;
      }
    }
    pieces.append(answer.text.slice(at));
    this.box.replaceChildren(pieces);
    const first = this.words.values().next().value;
    if (first) first.tabIndex = 0;
  }

  /** Focus the last word that begins at an offset or before it; without one, the first word. */
  focus(start) {
    const words = [...this.words];
    const [, word] = words.findLast(([begin]) => begin <= start) ?? words[0] ?? [];
    if (word) this.#enter(word);
  }

  /** Mark the words at these offsets, and no others. */
  mark(starts) {
    const wanted = new Set(starts);
    for (const [start, element] of this.words) element.classList.toggle("marked", wanted.has(start));
  }

  #word(text, { start, end }) {
    const element = document.createElement("span");
    element.className = "word";
    element.textContent = text.slice(start, end);
    element.dataset.start = start;
    element.tabIndex = -1;
    element.setAttribute("role", "button");
    element.setAttribute("aria-haspopup", "listbox");
    this.words.set(start, element);
    return element;
  }

  #key(event, onChoose) {
    const start = startOf(event.target);
    if (start === null || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "Enter" || event.key === " ") onChoose(start, event.target);
    else if (!this.#move(event.target, event.key)) return;
    event.preventDefault();
  }

  #move(from, key) {
    const words = [...this.words.values()];
    const isRightToLeft = getComputedStyle(this.box).direction === "rtl";
    const forward = isRightToLeft ? "ArrowLeft" : "ArrowRight";
    const backward = isRightToLeft ? "ArrowRight" : "ArrowLeft";
    const at = words.indexOf(from);
    const goals = { [forward]: at + 1, [backward]: at - 1, Home: 0, End: words.length - 1 };
    const to = words[goals[key]] ?? (key in goals ? from : null);
    if (!to) return false;
    this.#enter(to);
    return true;
  }

  /** Focus a word and make it the only one that the Tab key reaches. */
  #enter(word) {
    for (const other of this.words.values()) other.tabIndex = other === word ? 0 : -1;
    word.focus();
  }
}

/** The offset of a word's element in the translation; null for another element. */
function startOf(element) {
  const start = element?.dataset?.start;
  return element?.classList?.contains("word") && start !== undefined ? Number(start) : null;
}

/**
 * The segment whose word begins at an offset of the translation, and the word's row in the segment's attention map;
 * null if no word begins there.
 */
export function rowAt(answer, alignments, start) {
  const segment = segmentAt(answer, start);
  const row = alignments[segment]?.rows.findIndex((word) => word.start === start) ?? -1;
  return row < 0 ? null : { segment, row };
}
