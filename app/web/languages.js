// The two language selectors: the served pairs, the detected language, and the swap button.

const AUTO = "auto";
const names = new Intl.DisplayNames(["en"], { type: "language", fallback: "code" });

/** The English name of a language; its code if there is no name. */
export function languageName(code) {
  try {
    return names.of(code);
  } catch {
    return code; // not a BCP 47 tag
  }
}

export class Languages {
  /** from, to: selects. swap: the button. reason: its description. onChange(): the user has selected a language. */
  constructor({ from, to, swap, reason }, onChange) {
    this.from = from;
    this.to = to;
    this.swapper = swap;
    this.reason = reason;
    this.pairs = [];
    this.detected = null;
    from.addEventListener("change", () => {
      this.select(from.value);
      onChange();
    });
    to.addEventListener("change", () => {
      this.#offerSwap();
      onChange();
    });
  }

  /**
   * Offer the served pairs, and keep the chosen languages if they are served. pairs: [{source, target}]. source,
   * target: the languages to choose the first time.
   */
  serve(pairs, { source, target } = {}) {
    this.pairs = pairs;
    const chosen = this.from.value || source;
    const sources = inOrder(pairs.map((pair) => pair.source));
    this.from.replaceChildren(new Option("Detect language", AUTO), ...sources.map(optionOf));
    if (sources.includes(chosen)) this.from.value = chosen;
    this.#offerTargets(this.to.value || target);
  }

  /** Select a source language. The target stays if the language is translated into it. */
  select(source) {
    this.from.value = source;
    this.#offerTargets();
    this.showDetected(null);
  }

  /** Select both languages, from `pair`. */
  choose({ source, target }) {
    this.from.value = source;
    this.#offerTargets(target);
    this.showDetected(null);
  }

  /** Select languages for a text in `source`. If "Detect language" is selected, it stays selected. */
  selectFor(source) {
    if (!this.isDetecting) {
      this.select(source);
      return;
    }
    if (!this.#has(source, this.target)) this.to.value = this.pairs.find((pair) => pair.source === source).target;
    this.showDetected(null);
  }

  get source() {
    return this.from.value || AUTO;
  }

  get target() {
    return this.to.value;
  }

  /** The selected languages, {source, target}. */
  get pair() {
    return { source: this.source, target: this.target };
  }

  get isDetecting() {
    return this.source === AUTO;
  }

  /** The message about a text that is in the target language. */
  get inTarget() {
    const advice = this.to.options.length > 1 ? " Choose another target language." : "";
    return `The text is already in ${languageName(this.target)}.${advice}`;
  }

  /** Show the detected language; null for none. */
  showDetected(code) {
    this.detected = code;
    const auto = this.from.options[0];
    if (auto) auto.text = this.isDetecting && code ? `Detected: ${languageName(code)}` : "Detect language";
    this.#offerSwap();
  }

  /** Exchange the languages. Returns false if that pair is not served. */
  swap() {
    const [source, target] = [this.to.value, this.#knownSource()];
    if (!this.#has(source, target)) return false;
    this.from.value = source;
    this.#offerTargets();
    this.to.value = target;
    this.showDetected(null);
    return true;
  }

  #knownSource() {
    return this.isDetecting ? this.detected : this.source;
  }

  #has(source, target) {
    return this.pairs.some((pair) => pair.source === source && pair.target === target);
  }

  /** Offer the targets of the source. Choose the target of the first pair if `chosen` is not offered. */
  #offerTargets(chosen = this.to.value) {
    const pairs = this.isDetecting ? this.pairs : this.pairs.filter((pair) => pair.source === this.source);
    const targets = inOrder(pairs.map((pair) => pair.target));
    this.to.replaceChildren(...targets.map(optionOf));
    this.to.value = targets.includes(chosen) ? chosen : pairs[0].target;
    this.#offerSwap();
  }

  #offerSwap() {
    const source = this.#knownSource();
    const can = source !== null && this.#has(this.to.value, source);
    this.swapper.disabled = !can;
    this.swapper.title = this.#swapReason(source, can);
    this.reason.textContent = this.swapper.title;
  }

  #swapReason(source, can) {
    if (can) return "Swap languages, and translate the translation back";
    if (source === null) return "Languages can be swapped when the language of the text is known.";
    return `This server does not translate from ${languageName(this.to.value)} to ${languageName(source)}.`;
  }
}

function inOrder(codes) {
  return [...new Set(codes)].sort((one, other) => languageName(one).localeCompare(languageName(other), "en"));
}

function optionOf(code) {
  return new Option(languageName(code), code);
}
