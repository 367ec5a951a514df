// The alignment of text and translation: a sentence's attention map, and marks on the words that belong together.

import { drawHeatmap, highlightRow } from "./heatmap.js";
import { alignmentOf } from "./spans.js";
import { rowAt } from "./target.js";

const count = new Intl.NumberFormat("en");

export class AlignmentPanel {
  /**
   * parts: {box, map, pager, which, previous, next}, the elements of the panel. source: the text area. mirror: the
   * element behind it, which marks words of the text. target: the Target of the translation. announce(text): tells
   * screen readers which sentence a button shows.
   */
  constructor(parts, { source, mirror, target, announce }) {
    Object.assign(this, { parts, source, mirror, target, announce });
    this.clear();
    parts.previous.addEventListener("click", () => this.#turn(-1));
    parts.next.addEventListener("click", () => this.#turn(1));
    document.addEventListener("selectionchange", () => this.#pointAtCaret());
  }

  /** Hide the panel, and remove the marks from the text. */
  clear() {
    this.answer = null;
    this.alignments = []; // one for each segment; empty if the answer has no alignment
    this.sentence = -1; // the segment whose attention is shown
    this.parts.box.hidden = true;
    this.markSource([]);
  }

  /** Show the alignment of a translation, if it has one. */
  show(answer, language) {
    this.clear();
    this.answer = answer;
    this.language = language;
    if (!answer.segments.some((segment) => segment.tokens.some((token) => token.source))) return;
    this.alignments = answer.segments.map((_, index) => alignmentOf(answer, index, language));
    this.parts.box.hidden = answer.text.trim() === "";
    this.showSentence(0);
  }

  /** Show the map of one sentence. */
  showSentence(index) {
    if (!this.alignments[index] || this.sentence === index) return;
    this.sentence = index;
    const { map, pager, which, previous, next } = this.parts;
    drawHeatmap(map, {
      answer: this.answer,
      alignment: this.alignments[index],
      languages: { source: this.answer.source, target: this.language },
      onPoint: (row) => this.#pointAtRow(row === null ? null : { segment: index, row }),
    });
    pager.hidden = this.alignments.length < 2;
    which.textContent = `${count.format(index + 1)} of ${count.format(this.alignments.length)}`;
    // A button with `disabled` would lose the focus.
    previous.setAttribute("aria-disabled", index === 0);
    next.setAttribute("aria-disabled", index === this.alignments.length - 1);
  }

  /** Show the map of the sentence before (step -1) or after (1), and announce its number. */
  #turn(step) {
    if (!this.alignments[this.sentence + step]) return;
    this.showSentence(this.sentence + step);
    this.announce(`Sentence ${this.parts.which.textContent}`);
  }

  /** Point at the word at an offset of the translation; null for none. */
  pointAtWord(start) {
    const place = start === null || !this.answer ? null : rowAt(this.answer, this.alignments, start);
    if (place) this.showSentence(place.segment);
    this.#pointAtRow(place);
  }

  /** Mark these words of the text, if the text is still the one that was translated. */
  markSource(words) {
    const text = this.source.value;
    const pieces = document.createDocumentFragment();
    let at = 0;
    for (const { start, end } of text === this.answer?.sourceText ? words : []) {
      const mark = document.createElement("mark");
      mark.textContent = text.slice(start, end);
      pieces.append(text.slice(at, start), mark);
      at = end;
    }
    // A final line break takes up a line only if something follows it.
    pieces.append(`${text.slice(at)}\n`);
    this.mirror.replaceChildren(pieces);
  }

  /** Highlight a row of the attention map and its words. place: {segment, row}; null for none. */
  #pointAtRow(place) {
    highlightRow(this.parts.map, place?.row ?? null);
    if (!place) {
      this.markSource([]);
      this.target.mark([]);
      return;
    }
    const { rows, columns, links } = this.alignments[place.segment];
    this.markSource(columns.filter((_, column) => links[place.row].has(column)));
    this.target.mark([rows[place.row].start]);
  }

  /** Mark the translation of the word at the caret. */
  #pointAtCaret() {
    if (!this.answer || document.activeElement !== this.source) return;
    const at = this.source.selectionStart;
    const isTranslated = this.source.value === this.answer.sourceText; // else the offsets are those of another text
    for (const { rows, columns, links } of isTranslated ? this.alignments : []) {
      const column = columns.findIndex((word) => word.isWord && word.start <= at && at <= word.end);
      if (column >= 0) {
        this.target.mark(rows.filter((_, row) => links[row].has(column)).map((word) => word.start));
        return;
      }
    }
    this.target.mark([]);
  }
}
