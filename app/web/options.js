// The options of a translation: beam width, format, and the glossary's terms.

import { write } from "./announcer.js";
import { parseTerms, swappedTerms } from "./terms.js";

const WIDTHS = [1, 2, 4, 8, 16];
// The maximum number of invalid lines of the glossary whose line numbers are shown.
const MAX_NUMBERS = 10;
const count = new Intl.NumberFormat("en");

export class Options {
  /**
   * parts: the elements {beam, format, hint, terms, termsCount, termsHint}. onChange({atOnce}): called when an option
   * changes; atOnce: whether to translate without a wait for more typing.
   */
  constructor(parts, onChange) {
    this.parts = parts;
    parts.beam.addEventListener("change", () => {
      this.#explainBeam();
      onChange({ atOnce: true });
    });
    parts.format.addEventListener("change", () => onChange({ atOnce: true }));
    parts.terms.addEventListener("input", () => {
      this.#explainTerms();
      onChange({ atOnce: false });
    });
  }

  /**
   * Show the beam widths for a model, within the server's limit maxBeamSize. Keep the chosen width; at first, select
   * the model's default.
   */
  setModel(model, maxBeamSize) {
    const { beam } = this.parts;
    const chosen = Number(beam.value);
    const standard = Math.min(model.defaults.beam_size, maxBeamSize);
    const widths = [...new Set([...WIDTHS, standard])].filter((width) => width <= maxBeamSize);
    widths.sort((one, other) => one - other);
    beam.replaceChildren(...widths.map((width) => new Option(width === 1 ? "1 (greedy)" : width, width)));
    beam.value = widths.includes(chosen) ? chosen : standard;
    this.#explainBeam();
    this.#explainTerms();
  }

  get isMarkup() {
    return this.parts.format.value === "html";
  }

  set isMarkup(isHtml) {
    this.parts.format.value = isHtml ? "html" : "text";
  }

  /** Whether the glossary has terms. */
  get hasTerms() {
    return Object.keys(parseTerms(this.parts.terms.value).terms).length > 0;
  }

  /** The selected options as fields of POST /v1/translate. */
  get fields() {
    const { terms } = parseTerms(this.parts.terms.value);
    return {
      beam_size: Number(this.parts.beam.value),
      ...(this.isMarkup ? { format: "html" } : {}),
      ...(Object.keys(terms).length ? { glossary: { terms } } : {}),
    };
  }

  /** Exchange terms and translations, for the other direction. */
  swapTerms() {
    this.parts.terms.value = swappedTerms(this.parts.terms.value);
    this.#explainTerms();
  }

  #explainBeam() {
    const isGreedy = this.parts.beam.value === "1";
    this.parts.hint.textContent = isGreedy
      ? "Fastest: words appear as they are decoded."
      : "Sentences appear as they are finished.";
  }

  #explainTerms() {
    const { terms, wrongLines } = parseTerms(this.parts.terms.value);
    const num = Object.keys(terms).length;
    this.parts.termsCount.textContent = num ? `(${num})` : "";
    const hint = wrongLines.length
      ? `Ignored lines: ${listOf(wrongLines)}. Write each line as “term = translation”.`
      : "The terms are kept until you close this page. They do not apply to files that the server translates.";
    write(this.parts.termsHint, hint);
  }
}

/** The first of these numbers, and how many more there are. */
function listOf(numbers) {
  const first = numbers.slice(0, MAX_NUMBERS).join(", ");
  const numMore = numbers.length - MAX_NUMBERS;
  return numMore > 0 ? `${first} and ${count.format(numMore)} more` : first;
}
