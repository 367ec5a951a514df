// The box of the translation. It shows streamed text first, then words that can be focused, marked and replaced.

import { segmentAt, wordsOf } from "./spans.js";

// Characters that give a paragraph its direction: letters and direction marks. Characters that are written from right
// to left are in Unicode blocks of their own.
const STRONG = /[\p{L}\u200e\u200f]/u;
const RIGHT_TO_LEFT = /[\u0590-\u08ff\u200f\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;

export class Target {
  /**
   * onPoint(start | null): called with the offset of the word that is under the pointer or has the focus; null if there
   * is no such word.
   * onChoose(start, element): called when a word is clicked, or activated by keyboard.
   */
  constructor(box, { onPoint, onChoose }) {
    this.box = box;
    this.words = new Map(); // offset -> element
    this.focusedAt = 0; // the offset of the word that had the focus before a draft
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
    const hadFocus = this.#noteFocus();
    this.words.clear();
    this.box.textContent = text;
    if (hadFocus) this.#focusBox();
  }

  /** Show a complete translation. isPlain: whether to show only text, without words that can be focused. */
  show(answer, language, { isPlain = false } = {}) {
    const hadFocus = this.#noteFocus();
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
    if (hadFocus && first) this.focus(this.focusedAt, { preventScroll: true });
    else if (hadFocus) this.#focusBox();
    if (document.activeElement !== this.box) this.box.removeAttribute("tabindex");
  }

  /** Focus the last word that begins at an offset or before it; without one, the first word. options: for `HTMLElement.focus()`. */
  focus(start, options = {}) {
    const words = [...this.words];
    const [, word] = words.findLast(([begin]) => begin <= start) ?? words[0] ?? [];
    if (word) this.#enter(word, options);
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
    const isRightToLeft = this.#isRightToLeft(startOf(from));
    const forward = isRightToLeft ? "ArrowLeft" : "ArrowRight";
    const backward = isRightToLeft ? "ArrowRight" : "ArrowLeft";
    const at = words.indexOf(from);
    const goals = { [forward]: at + 1, [backward]: at - 1, Home: 0, End: words.length - 1 };
    const to = words[goals[key]] ?? (key in goals ? from : null);
    if (!to) return false;
    this.#enter(to);
    return true;
  }

  /** Whether the paragraph of the word at an offset is written from right to left. */
  #isRightToLeft(start) {
    const text = this.box.textContent;
    const [paragraph] = /.*/.exec(text.slice(text.lastIndexOf("\n", start) + 1));
    const letter = STRONG.exec(paragraph)?.[0];
    return letter ? RIGHT_TO_LEFT.test(letter) : getComputedStyle(this.box).direction === "rtl";
  }

  /** Focus a word and make it the only one that the Tab key reaches. options: for `HTMLElement.focus()`. */
  #enter(word, options = {}) {
    for (const other of this.words.values()) other.tabIndex = other === word ? 0 : -1;
    word.focus(options);
  }

  /** Remember the offset of the word that has the focus, if one has it. Returns whether the box contains the focus. */
  #noteFocus() {
    const focused = document.activeElement;
    this.focusedAt = startOf(focused) ?? this.focusedAt;
    return this.box.contains(focused);
  }

  /** Focus the box while it has no words. Otherwise the focus would go to the start of the page. */
  #focusBox() {
    this.box.tabIndex = -1;
    this.box.focus({ preventScroll: true });
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
