// Connects the parts of the page: input, requests, results, alternatives. A text is never inserted as markup.

import { AlignmentPanel } from "./alignment.js";
import { Choices, alternativesTo, placeOf } from "./alternatives.js";
import { Announcer } from "./announcer.js";
import { DocumentCard } from "./card.js";
import { ServerError, get, storedKey, translateFile } from "./client.js";
import { copyAsPlain, copyText } from "./clipboard.js";
import { FileRefused, checkFile, offerFormats, readFile, refusalOf, takeFiles } from "./files.js";
import { keepFocus } from "./focus.js";
import { KEPT, keepChoices } from "./history-entry.js";
import { KeyForm } from "./key-form.js";
import { LatestRequest } from "./latest.js";
import { Languages } from "./languages.js";
import { Models } from "./models.js";
import { Options } from "./options.js";
import { Problem } from "./problem.js";
import { SourceText } from "./source-text.js";
import { answerOf, replaceSegment } from "./spans.js";
import { Target } from "./target.js";
import { chooseTheme } from "./theme-choice.js";
import { drawTiming } from "./timing.js";

const EXAMPLE = "Where is the station? It is late, and I would like to go home.";
const NOTHING = "The model returned an empty translation for this text. Try other words, or a whole sentence.";
const byId = (id) => document.getElementById(id);
const byIds = (...ids) => Object.fromEntries(ids.map((id) => [id, byId(id)]));
const source = byId("source");
const count = new Intl.NumberFormat("en");

let facts = null; // the server's settings, from assets/server.json; null until they are loaded
let models = new Models();
let shown = null; // the shown translation: {answer, request, language}; null for none
let opened = null; // the file in place of a text: {file, isDone (its translation is shown)}; null for none
let starting = new AbortController(); // aborts the requests of the last `begin`

const announcer = new Announcer(byId("spoken"));
const problem = new Problem({ box: byId("problem"), text: byId("problem-text"), button: byId("retry") });
const keyForm = new KeyForm({ form: byId("key-form"), field: byId("key") }, problem, () => begin());
const languages = new Languages(
  { from: byId("source-language"), to: byId("target-language"), swap: byId("swap"), reason: byId("swap-reason") },
  () => translate({ atOnce: true }),
);
const options = new Options(
  {
    ...byIds("beam", "format", "terms"),
    hint: byId("options-hint"),
    termsCount: byId("terms-count"),
    termsHint: byId("terms-hint"),
  },
  (when) => translate(when),
);
const sourceText = new SourceText(
  { area: source, length: byId("count"), ...byIds("clear", "undo") },
  () => translate({ atOnce: true }),
);
const card = new DocumentCard(
  {
    box: byId("document"),
    state: byId("document-state"),
    hint: byId("document-hint"),
    link: byId("download"),
    close: byId("document-close"),
  },
  removeInput,
);
const target = new Target(byId("target"), {
  onPoint: (start) => alignmentPanel.pointAtWord(start),
  onChoose: offerAlternatives,
});
const alignmentPanel = new AlignmentPanel(
  { box: byId("alignment"), ...byIds("map", "pager", "which", "previous", "next") },
  { source, mirror: byId("mirror"), target, announce: (text) => announcer.say(text) },
);
const choices = new Choices(byId("choices"), { onTake: takeAlternative, announce: (text) => announcer.say(text) });
const latest = new LatestRequest({
  draft: showDraft,
  progress: showProgress,
  done: showDone,
  problem: (error) => showProblem(error),
});

// ---- requests

/** Translate the text. atOnce: without waiting for a pause in typing. */
function translate({ atOnce = false } = {}) {
  const { text } = sourceText;
  const isEmpty = text.trim() === "";
  alignmentPanel.markSource([]);
  sourceText.showLength(facts?.max_characters);
  choices.close();
  if (!isEmpty) closeFile();
  keepSelected();
  if (!models.areKnown || opened) return; // when the models are known, `begin` calls this again; a file is not a text
  const isTooLong = [...text].length > facts.max_characters;
  if (isTooLong) {
    // Without the text's length: a screen reader would announce the message again after each key.
    const most = count.format(facts.max_characters);
    const advice = facts.file_suffixes.length ? "Shorten it, or open it as a file." : "Shorten it.";
    problem.show(`The text is longer than the ${most} characters that this server accepts. ${advice}`);
  } else problem.reset();
  if (isEmpty || isTooLong) {
    latest.supersede();
    clearTarget();
    return;
  }
  const request = {
    sourceText: text,
    body: {
      text,
      ...languages.pair,
      ...options.fields,
      ...(models.alignAll(languages) && !options.isMarkup ? { alignment: true, attention: true } : {}),
    },
  };
  for (const id of ["nothing", "empty"]) byId(id).hidden = true;
  byId("target").classList.add("stale");
  byId("target").setAttribute("aria-busy", "true");
  announcer.cancel();
  if (atOnce) latest.now(request);
  else latest.soon(request);
}

/** Keep the selected languages and the beam width for the next load of this page. */
function keepSelected() {
  if (!models.areKnown) return;
  keepChoices({ ...languages.pair, beam: byId("beam").value });
}

// ---- results

function clearTarget() {
  choices.close();
  shown = null;
  target.showDraft("");
  languages.showDetected(null);
  alignmentPanel.clear();
  for (const id of ["timing", "copy", "progress", "nothing"]) byId(id).hidden = true;
  card.hide();
  byId("empty").hidden = false;
  announcer.say("");
  endProgress();
}

function endProgress() {
  byId("target").classList.remove("stale");
  byId("target").setAttribute("aria-busy", "false");
  byId("progress").hidden = true;
}

function showDraft(text) {
  for (const id of ["copy", "empty"]) byId(id).hidden = true;
  byId("target").classList.remove("stale");
  byId("target").lang = languages.target;
  target.showDraft(text);
}

function showProgress(numDone, numSegments) {
  byId("progress").hidden = numSegments < 2;
  byId("progress").textContent = `${count.format(numDone)} of ${count.format(numSegments)} sentences`;
}

function showDone(request, result) {
  problem.reset();
  const answer = answerOf(result.body.translations[0], request.sourceText);
  if (request.body.source === "auto") languages.showDetected(answer.source);
  showAnswer(answer, request);
  byId("timing").hidden = answer.source === request.body.target;
  drawTiming({ bar: byId("phases"), figures: byId("figures"), total: byId("total") }, result);
}

function showAnswer(answer, request) {
  const language = request.body.target;
  const isMarkup = request.body.format === "html";
  shown = { answer, request, language };
  endProgress();
  const reason = reasonForNone(answer, language);
  byId("empty").hidden = true;
  byId("nothing").textContent = reason;
  byId("nothing").hidden = reason === "";
  byId("copy").hidden = reason !== "";
  source.lang = byId("mirror").lang = answer.source; // the language decides where lines break
  byId("target").lang = language;
  byId("target").classList.toggle("markup", isMarkup);
  alignmentPanel.show(answer, language);
  if (reason) target.showDraft("");
  else target.show(answer, language, { isPlain: isMarkup });
  if (reason) announcer.saySoon(reason);
  else announcer.saySoon(answer.text, language);
}

/** Why there is no translation to show; "" if there is one. The server returns a text in the target language as is. */
function reasonForNone(answer, language) {
  if (answer.source === language) return languages.inTarget;
  return answer.text.trim() === "" ? NOTHING : "";
}

function showProblem(error, again = () => translate({ atOnce: true })) {
  clearTarget();
  byId("empty").hidden = true;
  if (opened && !opened.isDone) announcer.say(card.showWait(opened.file));
  if (error.status === 401 || error.status === 403) keyForm.ask();
  else keyForm.isShown = facts?.needs_key;
  problem.show(error.message, error.retryAfterS, again);
}

// ---- alternatives

/** Offer alternatives to the word at `start`, unless the translation is outdated. element: the word's element. */
async function offerAlternatives(start, element) {
  if (byId("target").classList.contains("stale")) return;
  const { index, segment, start: startInSegment, params } = placeOf(shown, start);
  const signal = choices.open(element, "Looking for alternatives…");
  try {
    const found = await alternativesTo(segment, startInSegment, params, signal);
    if (signal.aborted) return;
    if (found.length) choices.offer(found.map((choice) => ({ ...choice, index })), params.target);
    else choices.say("There are no alternatives here.");
  } catch (error) {
    if (signal.aborted) return;
    if (!(error instanceof ServerError)) throw error;
    choices.say(error.message);
  }
}

/** Show the translation with an alternative. index: of the segment. part, start: as in `alternativesTo`. */
function takeAlternative({ index, part, start }) {
  const { answer, request } = shown;
  const at = answer.segments[index].target.start + start;
  showAnswer(replaceSegment(answer, index, part), request);
  alignmentPanel.showSentence(index);
  target.focus(at);
}

// ---- start

/** Load the server's facts and models, then translate the text or the file that the page already has. */
async function begin() {
  starting.abort(); // a late answer to an older key would replace the translation by an error
  starting = new AbortController();
  const { signal } = starting;
  try {
    facts ??= await get("assets/server.json", { needsKey: false, signal });
    if (facts.needs_key) keyForm.isShown = true;
    offerFormats(byId("file"), facts);
    byId("docs").hidden = !facts.has_docs || facts.needs_key;
    if (facts.needs_key && !storedKey()) {
      problem.reset();
      keyForm.ask();
      return;
    }
    const served = await get("v1/models", { signal });
    models = new Models(served.models, served.pivoted_pairs);
  } catch (error) {
    if (signal.aborted) return;
    if (!(error instanceof ServerError)) throw error;
    // Without the models the page is of no use: every error but a missing or wrong key shows at least the retry button.
    if (error.code !== "unauthorized" && error.code !== "forbidden") error.retryAfterS ??= Infinity;
    showProblem(error, begin);
    return;
  }
  problem.reset();
  keyForm.isShown = facts.needs_key;
  keyForm.leave(source);
  byId("model").textContent = models.label;
  languages.serve(models.pairs, KEPT);
  if (KEPT.beam && !byId("beam").value) byId("beam").replaceChildren(new Option(KEPT.beam)); // `setModel` keeps it
  options.setModel(models.list[0], facts.max_beam_size);
  byId("example").hidden = !models.pairs.some((pair) => pair.source === "en");
  if (opened && !opened.isDone) translateOpened(opened);
  else translate({ atOnce: true });
}

/** Replace the text or the file by a text. */
function setText(text) {
  closeFile();
  sourceText.replace(text);
  translate({ atOnce: true });
}

/** Remove the text or the file. */
function removeInput() {
  setText("");
  source.focus();
}

function closeFile() {
  if (!opened) return;
  opened = null;
  card.hide();
  byId("empty").hidden = false;
}

/**
 * Replace the text by a file. Before the models are known the file waits for `begin`. A file that is refused unread
 * replaces nothing.
 */
async function takeFile(file) {
  const reason = facts ? checkFile(file, facts) : "";
  if (reason) return problem.note(reason);
  setText("");
  opened = { file, isDone: false };
  byId("empty").hidden = true;
  if (models.areKnown) await translateOpened(opened);
  else announcer.say(card.showWait(file));
}

/**
 * Translate the opened file, or try it again. The text of a short file is shown; the server translates other files. New
 * input cancels this.
 */
async function translateOpened(work) {
  latest.supersede();
  try {
    const { text, isMarkup, copy } = await readFile(work.file, facts);
    if (opened !== work) return;
    if (copy) {
      work.file = copy;
      await sendFile(work);
    } else {
      options.isMarkup = isMarkup;
      setText(text);
    }
  } catch (error) {
    if (!(error instanceof FileRefused)) throw error;
    if (opened === work) refuseFile(error.message);
  }
}

/** Show why an opened file is not translated. */
function refuseFile(message) {
  setText("");
  problem.note(message);
}

/** Send the opened file to the server to translate it. */
async function sendFile(work) {
  const { file } = work;
  const { pair } = languages;
  const { signal } = latest.controller;
  announcer.say(card.showWork(file, pair.target));
  try {
    const blob = await translateFile(file, pair, signal);
    if (signal.aborted) return;
    problem.reset();
    work.isDone = true;
    announcer.say(card.showDone(file, pair.target, { blob, hasTerms: options.hasTerms }));
  } catch (error) {
    if (signal.aborted) return;
    if (!(error instanceof ServerError)) throw error;
    // A proxy's 504 would follow each time: the file takes longer than the proxy waits.
    const mayPass = error.retryAfterS !== null && error.status !== 504;
    if (mayPass || error.status === 401 || error.status === 403) showProblem(error, () => translateOpened(work));
    else refuseFile(refusalOf(file, error, pair));
  }
}

function swap() {
  // A translation of another text, or from or into another language, must not become the text.
  const isCurrent =
    shown?.answer.sourceText === sourceText.text &&
    shown.request.body.source === languages.source &&
    shown.language === languages.target;
  const { pair } = languages;
  if (!languages.swap()) return;
  options.swapTerms();
  sourceText.replace(isCurrent ? shown.answer.text : source.value, () => {
    languages.choose(pair);
    options.swapTerms();
  });
  translate({ atOnce: true });
}

function listen() {
  source.addEventListener("input", () => translate());
  source.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) translate({ atOnce: true });
  });
  byId("swap").addEventListener("click", swap);
  byId("clear").addEventListener("click", removeInput);
  byId("example").addEventListener("click", () => {
    languages.selectFor("en");
    setText(EXAMPLE);
    source.focus();
  });
  byId("copy").addEventListener("click", () => {
    copyText(shown.answer.text, { box: byId("target"), button: byId("copy"), announce: (text) => announcer.say(text) });
  });
  window.addEventListener("hashchange", keepSelected); // the link to the text makes an entry of the history
  const parts = { veil: byId("veil"), input: byId("file"), button: byId("open-file") };
  takeFiles(parts, takeFile, (message) => problem.note(message));
  chooseTheme(byId("theme"));
  copyAsPlain(byId("target"));
  keepFocus(source);
}

listen();
begin();
