// Alternatives to a word: the model's probable subwords at its position, each with the resulting sentence.

import { post } from "./client.js";
import { answerOf, segmentAt, unitsOf, wordsOf } from "./spans.js";

// How many subwords are requested for a position. The translation's own subword may be one of them.
const NUM_ALTERNATIVES = 9;

/**
 * Where the word at an offset of a shown translation {answer, request, language} is: {index, segment, start, params}.
 * index: of the word's segment. segment, start, params: the arguments of `alternativesTo`.
 */
export function placeOf({ answer, request, language }, offset) {
  const index = segmentAt(answer, offset);
  const { source, target } = answer.segments[index];
  const segment = {
    sourceText: answer.sourceText.slice(source.start, source.end),
    text: answer.text.slice(target.start, target.end),
  };
  const { beam_size, glossary, alignment, attention } = request.body;
  const details = { ...(glossary ? { glossary } : {}), ...(alignment ? { alignment, attention } : {}) };
  const params = { source: answer.source, target: language, pivot: answer.pivot, options: { beam_size, ...details } };
  return { index, segment, start: offset - target.start, params };
}

/**
 * The alternatives to the word at `start` of a segment's translation, as {part, start, end, probability}.
 *
 * part: the segment's translation with the alternative, from `answerOf`. start, end: the span of the word or
 * punctuation mark in which the alternative begins, in the text of `part`.
 * probability: of the alternative's first subword, 0 to 1.
 * segment: {sourceText, text}. params: {source, target, pivot, options}, the languages and options of the translation.
 * Throws the errors of `post`.
 */
export async function alternativesTo(segment, start, params, signal) {
  const { sourceText, text } = segment;
  const pair = { source: params.source, target: params.target };
  const tokens = await tokensOf(segment, { ...pair, num_alternatives: NUM_ALTERNATIVES }, params.pivot, signal);
  const units = unitsOf(text);
  const token = tokens.find(({ target }) => units[target.end] > start);
  if (!token) return [];
  const before = text.slice(0, units[token.target.start]);
  const others = token.alternatives.filter((each) => each.text?.trim() && each.text !== token.text);
  if (!others.length) return [];
  const body = {
    text: others.map(() => sourceText),
    target_prefix: others.map((each) => (before + each.text).trimStart()),
    ...pair,
    ...params.options,
  };
  const found = (await post("v1/translate", body, signal)).translations;
  return distinct(
    found.map((translation, index) => ({
      part: answerOf(translation, sourceText),
      at: Math.min(before.trimEnd().length, translation.text.length),
      probability: Math.exp(others[index].log_probability),
      score: translation.segments.reduce((sum, each) => sum + each.score, 0),
    })),
    text,
    params.target,
  );
}

/**
 * The tokens of a segment's translation, each with alternatives. The server does not score a pivoted pair. So it
 * translates the segment of such a pair again, with the whole translation as the prefix.
 */
async function tokensOf({ sourceText, text }, fields, pivot, signal) {
  if (!pivot) {
    const scored = { text: sourceText, translation: text, ...fields };
    return (await post("v1/score", scored, signal)).scores[0].tokens;
  }
  const body = { text: sourceText, target_prefix: text, ...fields };
  return (await post("v1/translate", body, signal)).translations[0].segments.flatMap((each) => each.tokens);
}

/**
 * The results that differ from `text` and from each other, each with the span of the word or punctuation mark in which
 * the alternative subword begins. If that subword continues a word, this is the span of the whole word. The sentence
 * with the best score comes first.
 */
function distinct(found, text, language) {
  const seen = new Set([text]);
  const kept = [];
  const inOrder = found.toSorted((one, other) => other.score - one.score);
  for (const { part, at, probability } of inOrder) {
    if (seen.has(part.text)) continue;
    seen.add(part.text);
    const words = wordsOf(part.text, { start: 0, end: part.text.length }, language);
    const word = words.find(({ end }) => end > at) ?? { start: at, end: part.text.length };
    kept.push({ part, start: word.start, end: word.end, probability });
  }
  return kept;
}

/** The pop-up list of alternatives below a word. */
export class Choices {
  /** onTake(choice): called when an alternative is selected. announce(text): announces a text to screen readers. */
  constructor(box, { onTake, announce }) {
    this.box = box;
    this.anchor = null;
    this.controller = null;
    this.choices = [];
    this.onTake = onTake;
    this.announce = announce;
    box.addEventListener("keydown", (event) => this.#key(event));
    box.addEventListener("click", (event) => this.#take(event.target.closest("[role=option]")));
    box.addEventListener("beforetoggle", (event) => {
      if (event.newState === "closed") this.#closing();
    });
    window.addEventListener("resize", () => {
      if (box.matches(":popover-open")) this.#place();
    });
  }

  /**
   * Open below a word with a message until there are alternatives. Close if the user leaves the word before that.
   * Returns a signal that is aborted when the list closes.
   */
  open(anchor, message) {
    this.close();
    this.anchor = anchor;
    this.controller = new AbortController();
    const { signal } = this.controller;
    anchor.setAttribute("aria-expanded", "true");
    const leave = () => {
      // If the whole window loses the focus, the word remains the active element, and the list stays open.
      if (!this.choices.length && document.activeElement !== anchor) this.close();
    };
    anchor.addEventListener("blur", leave, { signal });
    this.box.showPopover();
    this.say(message);
    return signal;
  }

  /** Show a message instead of alternatives. */
  say(message) {
    this.choices = [];
    const line = document.createElement("p");
    line.className = "hint";
    line.textContent = message;
    this.box.replaceChildren(line);
    this.announce(message);
    this.#place();
  }

  /** Show alternatives, from `alternativesTo`. */
  offer(choices, language) {
    this.choices = choices;
    const list = document.createElement("div");
    list.setAttribute("role", "listbox");
    list.setAttribute("aria-label", "Alternatives");
    list.append(...choices.map((choice, index) => optionOf(choice, index, language)));
    this.box.replaceChildren(list);
    this.#place();
    list.firstElementChild.focus();
  }

  /** Hide the list, if it is open. */
  close() {
    if (this.box.matches(":popover-open")) this.box.hidePopover();
  }

  /** Abort the search for alternatives, and return the focus to the word before the list is hidden. */
  #closing() {
    const hadFocus = this.box.contains(document.activeElement);
    this.controller.abort();
    this.announce(""); // the search is over
    this.anchor.removeAttribute("aria-expanded");
    if (hadFocus) this.anchor.focus();
    this.choices = [];
  }

  #key(event) {
    const options = [...this.box.querySelectorAll("[role=option]")];
    const at = options.indexOf(document.activeElement);
    const goals = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: options.length - 1 };
    if (event.key in goals) options[(goals[event.key] + options.length) % options.length]?.focus();
    else if (event.key === "Enter" || event.key === " ") this.#take(document.activeElement);
    else if (event.key === "Tab") this.close();
    else return;
    event.preventDefault();
  }

  #take(option) {
    const choice = this.choices[Number(option?.dataset?.index)];
    if (!choice) return;
    this.close();
    this.onTake(choice);
  }

  /** Place the list within the window, below the word or, if there is no room, above it. */
  #place() {
    const word = this.anchor.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = this.box;
    const room = document.documentElement;
    const left = Math.max(12, Math.min(word.left - 8, room.clientWidth - width - 12));
    const below = word.bottom + 6;
    const top = below + height > room.clientHeight && word.top > height + 6 ? word.top - height - 6 : below;
    this.box.style.setProperty("left", `${left + window.scrollX}px`);
    this.box.style.setProperty("top", `${top + window.scrollY}px`);
  }
}

function optionOf({ part, start, end, probability }, index, language) {
  const option = document.createElement("div");
  option.className = "choice";
  option.setAttribute("role", "option");
  option.tabIndex = index === 0 ? 0 : -1;
  option.dataset.index = index;
  const word = document.createElement("b");
  word.textContent = part.text.slice(start, end);
  const share = document.createElement("span");
  share.className = "share";
  const percent = probability * 100;
  share.textContent = percent < 0.1 ? "<0.1 %" : `${percent < 10 ? percent.toFixed(1) : Math.round(percent)} %`;
  const sentence = document.createElement("span");
  sentence.className = "sentence";
  sentence.textContent = part.text;
  for (const element of [word, sentence]) {
    element.lang = language;
    element.dir = "auto";
  }
  option.append(word, share, sentence);
  return option;
}
