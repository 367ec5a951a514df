// Connects the parts of the page: input, requests, results, alignment. A text is never inserted as markup.

import { Choices, alternativesTo } from "./alternatives.js";
import { DocumentCard } from "./card.js";
import { ServerError, get, keepKey, storedKey, translateFile } from "./client.js";
import { copyText } from "./clipboard.js";
import { FileRefused, offerFormats, readFile, refusalOf, takeFiles } from "./files.js";
import { LatestRequest } from "./latest.js";
import { drawHeatmap, highlightRow } from "./heatmap.js";
import { Languages } from "./languages.js";
import { Models } from "./models.js";
import { Options } from "./options.js";
import { Problem } from "./problem.js";
import { alignmentOf, answerOf, replaceSegment } from "./spans.js";
import { Target, rowAt } from "./target.js";
import { chooseTheme } from "./theme-choice.js";
import { drawTiming } from "./timing.js";

// Delay until a screen reader announces a translation, so that it does not announce each change while typing.
const SPEAK_AFTER_MS = 700;
const EXAMPLE = "Where is the station? It is late, and I would like to go home.";
const the = (id) => document.getElementById(id);
const source = the("source");
const count = new Intl.NumberFormat("en");

let facts = null;
let models = new Models();
let shown = null; // the shown translation: {answer, request, language, alignments, sentence}
let speaking = 0;

const problem = new Problem({ box: the("problem"), text: the("problem-text"), button: the("retry") });
const languages = new Languages(
  { from: the("source-language"), to: the("target-language"), swap: the("swap"), reason: the("swap-reason") },
  () => translate({ atOnce: true }),
);
const options = new Options(
  {
    beam: the("beam"),
    format: the("format"),
    hint: the("options-hint"),
    terms: the("terms"),
    termsCount: the("terms-count"),
    termsHint: the("terms-hint"),
  },
  (when) => translate(when),
);
const card = new DocumentCard(
  {
    box: the("document"),
    state: the("document-state"),
    hint: the("document-hint"),
    link: the("download"),
    close: the("document-close"),
  },
  () => {
    setText("");
    source.focus();
  },
);
const target = new Target(the("target"), { onPoint: pointAtWord, onChoose: offerAlternatives });
const choices = new Choices(the("choices"), takeAlternative);
const latest = new LatestRequest({ draft: showDraft, progress: showProgress, done: showDone, problem: (error) => showProblem(error) });

// ---- requests

/** Translate the text. atOnce: without waiting for a pause in typing. */
function translate({ atOnce = false } = {}) {
  const text = source.value.toWellFormed();
  showSourceLength(text);
  choices.close();
  problem.hide();
  if (!models.areKnown) return;
  const length = [...text].length;
  if (text.trim() === "" || length > facts.max_characters) {
    latest.supersede();
    clearTarget();
    if (length > facts.max_characters) {
      problem.show(`The text has ${count.format(length)} characters; this server accepts at most ${count.format(facts.max_characters)}.`);
    }
    return;
  }
  const request = {
    sourceText: text,
    body: {
      text,
      source: languages.source,
      target: languages.target,
      ...options.fields,
      ...(models.alignAll(languages) && !options.isMarkup ? { alignment: true, attention: true } : {}),
    },
  };
  the("nothing").hidden = true;
  card.hide();
  the("target").classList.add("stale");
  the("target").setAttribute("aria-busy", "true");
  clearTimeout(speaking);
  if (atOnce) latest.now(request);
  else latest.soon(request);
}

// ---- results

function showSourceLength(text) {
  markSource([]);
  the("count").textContent = facts ? `${count.format([...text].length)} / ${count.format(facts.max_characters)}` : "";
  the("clear").hidden = text === "";
}

function clearTarget() {
  shown = null;
  clearTimeout(speaking);
  target.showDraft("");
  languages.showDetected(null);
  for (const id of ["alignment", "timing", "copy", "progress", "nothing"]) the(id).hidden = true;
  card.hide();
  the("empty").hidden = false;
  the("spoken").textContent = "";
  endProgress();
}

function endProgress() {
  the("target").classList.remove("stale");
  the("target").setAttribute("aria-busy", "false");
  the("progress").hidden = true;
}

function showDraft(text) {
  the("empty").hidden = true;
  the("target").classList.remove("stale");
  the("target").lang = languages.target;
  target.showDraft(text);
}

function showProgress(numDone, numSegments) {
  the("progress").hidden = numSegments < 2;
  the("progress").textContent = `${count.format(numDone)} of ${count.format(numSegments)} sentences`;
}

function showDone(request, result) {
  problem.reset();
  const answer = answerOf(result.body.translations[0], request.sourceText);
  if (request.body.source === "auto") languages.showDetected(answer.source);
  showAnswer(answer, request);
  the("timing").hidden = false;
  drawTiming({ bar: the("phases"), figures: the("figures"), total: the("total") }, result);
}

function showAnswer(answer, request) {
  const language = request.body.target;
  const isPlain = request.body.format === "html";
  const hasMap = answer.segments.some((segment) => segment.tokens.some((token) => token.source));
  shown = {
    answer,
    request,
    language,
    sentence: -1,
    alignments: hasMap ? answer.segments.map((_, index) => alignmentOf(answer, index, language)) : [],
  };
  endProgress();
  const isEmpty = answer.text.trim() === "";
  the("empty").hidden = true;
  the("nothing").hidden = !isEmpty;
  the("copy").hidden = isEmpty;
  source.lang = answer.source;
  the("target").lang = language;
  the("target").classList.toggle("markup", isPlain);
  target.show(answer, language, { isPlain });
  the("alignment").hidden = !hasMap || isEmpty;
  showSentence(0);
  if (isEmpty) speak(the("nothing").textContent, "en");
  else speak(answer.text, language);
}

function speak(text, language) {
  clearTimeout(speaking);
  speaking = setTimeout(() => {
    the("spoken").lang = language;
    the("spoken").textContent = text;
  }, SPEAK_AFTER_MS);
}

function showProblem(error, again = () => (models.areKnown ? translate({ atOnce: true }) : begin())) {
  const needsKey = error.status === 401 || error.status === 403;
  the("key-form").hidden = !(needsKey || facts?.needs_key);
  clearTarget();
  the("empty").hidden = true;
  if (needsKey) the("key").focus();
  problem.show(error.message, error.retryAfterS, again);
}

// ---- alignment and alternatives

function showSentence(index) {
  if (!shown?.alignments[index] || shown.sentence === index) return;
  shown.sentence = index;
  const { answer, alignments, language } = shown;
  drawHeatmap(the("map"), {
    answer,
    alignment: alignments[index],
    languages: { source: answer.source, target: language },
    onPoint: (row) => pointAtRow(row === null ? null : { segment: index, row }),
  });
  the("pager").hidden = alignments.length < 2;
  the("which").textContent = `${count.format(index + 1)} of ${count.format(alignments.length)}`;
  the("previous").disabled = index === 0;
  the("next").disabled = index === alignments.length - 1;
}

/** Point at the word at an offset of the translation; null for none. */
function pointAtWord(start) {
  const place = start === null || !shown ? null : rowAt(shown.answer, shown.alignments, start);
  if (place) showSentence(place.segment);
  pointAtRow(place);
}

/** Highlight a row of the attention map and its words. place: {segment, row}; null for none. */
function pointAtRow(place) {
  highlightRow(the("map"), place?.row ?? null);
  if (!place) {
    markSource([]);
    target.mark([]);
    return;
  }
  const { rows, columns, links } = shown.alignments[place.segment];
  markSource(columns.filter((_, column) => links[place.row].has(column)));
  target.mark([rows[place.row].start]);
}

/** Mark these words of the source text if it is still the translated one. */
function markSource(words) {
  const text = source.value;
  const pieces = document.createDocumentFragment();
  let at = 0;
  for (const { start, end } of text === shown?.answer.sourceText ? words : []) {
    const mark = document.createElement("mark");
    mark.textContent = text.slice(start, end);
    pieces.append(text.slice(at, start), mark);
    at = end;
  }
  // A final line break takes up a line only if something follows it.
  pieces.append(`${text.slice(at)}\n`);
  the("mirror").replaceChildren(pieces);
}

/** Mark the translation of the word at the caret. */
function pointAtCaret() {
  if (!shown || document.activeElement !== source) return;
  const at = source.selectionStart;
  for (const { rows, columns, links } of shown.alignments) {
    const column = columns.findIndex((word) => word.isWord && word.start <= at && at <= word.end);
    if (column >= 0) {
      target.mark(rows.filter((_, row) => links[row].has(column)).map((word) => word.start));
      return;
    }
  }
  target.mark([]);
}

/** Offer alternatives to the word at `start`. element: the word's element. */
async function offerAlternatives(start, element) {
  const { answer, request, language } = shown;
  const index = answer.segments.findIndex((segment) => segment.target.start <= start && start < segment.target.end);
  const segment = answer.segments[index];
  const part = {
    sourceText: answer.sourceText.slice(segment.source.start, segment.source.end),
    text: answer.text.slice(segment.target.start, segment.target.end),
  };
  const { beam_size, glossary, alignment, attention } = request.body;
  const details = { ...(glossary ? { glossary } : {}), ...(alignment ? { alignment, attention } : {}) };
  const { source, pivot } = answer;
  const params = { source, target: language, pivot, options: { beam_size, ...details } };
  const signal = choices.open(element, "Looking for alternatives…");
  try {
    const found = await alternativesTo(part, start - segment.target.start, params, signal);
    if (signal.aborted) return;
    if (found.length) choices.offer(found.map((choice) => ({ ...choice, index })), language);
    else choices.say("There are no alternatives here.");
  } catch (error) {
    if (signal.aborted) return;
    if (!(error instanceof ServerError)) throw error;
    choices.say(error.message);
  }
}

/** Show the translation with an alternative. index: of its segment. part, start: as in `alternativesTo`. */
function takeAlternative({ index, part, start }) {
  const { answer, request } = shown;
  const at = answer.segments[index].target.start + start;
  showAnswer(replaceSegment(answer, index, part), request);
  showSentence(index);
  target.focus(at);
}

// ---- start

/** Load the server's facts and models, then translate the text that the page already has. */
async function begin() {
  try {
    facts ??= await get("assets/server.json");
    the("key-form").hidden = !facts.needs_key;
    offerFormats(the("file"), facts);
    the("docs").hidden = !facts.has_docs || facts.needs_key;
    if (facts.needs_key && !storedKey()) {
      the("key").focus();
      return;
    }
    const served = await get("v1/models");
    models = new Models(served.models, served.pivoted_pairs);
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    showProblem(error);
    return;
  }
  problem.reset();
  the("model").textContent = models.label;
  languages.serve(models.pairs);
  options.serve(models.list[0], facts.max_beam_size);
  the("example").hidden = !models.pairs.some((pair) => pair.source === "en");
  translate({ atOnce: true });
}

function setText(text) {
  source.value = text;
  translate({ atOnce: true });
}

async function takeFile(file) {
  if (!facts || !models.areKnown) return;
  try {
    const text = await readFile(file, facts);
    if (text === null) await takeDocument(file);
    else {
      options.isMarkup = text.isMarkup;
      setText(text.text);
    }
  } catch (error) {
    if (!(error instanceof FileRefused)) throw error;
    refuseFile(error.message);
  }
}

/** Show why a file is not translated. The text is cleared, because it would look like the file's. */
function refuseFile(message) {
  setText("");
  problem.show(message);
}

/** Send a file to the server to translate it. New input cancels that. */
async function takeDocument(file) {
  const languagesNow = { source: languages.source, target: languages.target };
  setText("");
  const { signal } = latest.controller;
  the("empty").hidden = true;
  card.showWork(file, languagesNow.target);
  try {
    const blob = await translateFile(file, languagesNow, signal);
    if (signal.aborted) return;
    problem.reset();
    the("spoken").lang = "en";
    the("spoken").textContent = card.showDone(file, languagesNow.target, { blob, hasTerms: options.hasTerms });
  } catch (error) {
    if (signal.aborted) return;
    if (!(error instanceof ServerError)) throw error;
    const canRetry = error.retryAfterS !== null || error.status === 401 || error.status === 403;
    if (canRetry) showProblem(error, () => takeDocument(file));
    else refuseFile(refusalOf(file, error, languagesNow));
  }
}

function swap() {
  // An outdated translation must not replace the text that is being typed.
  const isCurrent = shown?.answer.sourceText === source.value.toWellFormed();
  const text = isCurrent ? shown.answer.text : source.value;
  if (!languages.swap()) return;
  options.swapTerms();
  setText(text);
}

function listen() {
  source.addEventListener("input", () => translate());
  source.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) translate({ atOnce: true });
  });
  document.addEventListener("selectionchange", pointAtCaret);
  the("swap").addEventListener("click", swap);
  the("clear").addEventListener("click", () => {
    setText("");
    source.focus();
  });
  the("example").addEventListener("click", () => {
    setText(EXAMPLE);
    source.focus();
  });
  the("copy").addEventListener("click", () => copyText(shown.answer.text, { box: the("target"), button: the("copy") }));
  the("previous").addEventListener("click", () => showSentence(shown.sentence - 1));
  the("next").addEventListener("click", () => showSentence(shown.sentence + 1));
  the("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    keepKey(the("key").value.trim());
    problem.hide();
    begin();
  });
  takeFiles({ veil: the("veil"), input: the("file"), button: the("open-file") }, takeFile);
  chooseTheme(the("theme"));
}

listen();
begin();
