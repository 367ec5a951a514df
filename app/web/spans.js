// Offsets in texts, independent of the page: words, their alignment, and the replacement of a sentence.
// The server counts Unicode code points, JavaScript UTF-16 code units. All offsets here are in code units.

/**
 * Convert a translation of the server to {sourceText, text, source, pivot, segments}, with offsets in code units.
 *
 * A segment is {source, target, tokens}; tokens is empty unless the request sets `alignment`. A token is {target,
 * source, sources, weights}. source: the source subword with the most attention, of those that have characters; null
 * for the end token. weights: the attention to each of `sources`. If the request sets `attention`, `sources` has all
 * source subwords of the segment, else only `source`. The end token has no sources.
 */
export function answerOf(translation, sourceText) {
  const inSource = unitsOf(sourceText);
  const inTarget = unitsOf(translation.text);
  const segments = translation.segments.map((segment) => {
    const sources = (segment.source_tokens ?? []).map((span) => toUnits(span, inSource));
    return {
      source: toUnits(segment.source, inSource),
      target: toUnits(segment.target, inTarget),
      tokens: (segment.tokens ?? []).map((token) => tokenOf(token, sources, inSource, inTarget)),
    };
  });
  const { text, source, pivot } = translation;
  return { sourceText, text, source, pivot, segments };
}

function tokenOf(token, sources, inSource, inTarget) {
  const target = toUnits(token.target, inTarget);
  if (!token.source) return { target, source: null, sources: [], weights: [] };
  const source = toUnits(token.source, inSource);
  if (!token.weights) return { target, source, sources: [source], weights: [token.attention] };
  return { target, source, sources, weights: token.weights };
}

/** The offset in code units of each code point of a text, and of its end. */
export function unitsOf(text) {
  const starts = [];
  let at = 0;
  for (const character of text) {
    starts.push(at);
    at += character.length;
  }
  starts.push(at);
  return starts;
}

function toUnits(span, units) {
  return { start: units[span.start], end: units[span.end] };
}

/** The words and punctuation within a span as {start, end, isWord}, without white space. */
export function wordsOf(text, span, language) {
  const found = [];
  for (const { segment, index, isWordLike } of segmenterOf(language).segment(text.slice(span.start, span.end))) {
    if (segment.trim() === "") continue;
    const start = span.start + index;
    found.push({ start, end: start + segment.length, isWord: Boolean(isWordLike) });
  }
  return found;
}

const segmenters = new Map();

function segmenterOf(language) {
  if (!segmenters.has(language)) {
    let segmenter;
    try {
      segmenter = new Intl.Segmenter(language, { granularity: "word" });
    } catch {
      segmenter = new Intl.Segmenter(undefined, { granularity: "word" }); // not a BCP 47 tag
    }
    segmenters.set(language, segmenter);
  }
  return segmenters.get(language);
}

/**
 * The words of one sentence, and the attention between them.
 *
 * rows, columns: the target words and the source words, from `wordsOf`.
 * weights: for each target word a list with a weight of 0 to 1 for each source word. A weight is summed over the source
 * word's subwords and averaged over the target word's subwords. Target subwords of white space do not count. The
 * remainder to 1 is the attention to subwords that belong to no word, such as the end token, and to subwords whose
 * weights the response does not have.
 * rests: for each target word this remainder; 0 if it has no subword, because a subword counts for its first word only.
 * links: for each target word, the set of the indices in `columns` of the words to which its subwords attend most.
 */
export function alignmentOf(answer, index, targetLanguage) {
  const segment = answer.segments[index];
  const rows = wordsOf(answer.text, segment.target, targetLanguage);
  const columns = wordsOf(answer.sourceText, segment.source, answer.source);
  const sums = rows.map(() => columns.map(() => 0));
  const counts = rows.map(() => 0);
  const links = rows.map(() => new Set());
  const columnOf = (span) => overlapping(columns, wordSpan(answer.sourceText, span));
  const columnsOf = new Map(); // list of sources -> their columns; tokens from the server share the list
  for (const { source, target, sources, weights } of segment.tokens) {
    const row = overlapping(rows, withoutLeadingSpace(answer.text, target));
    if (source === null || row < 0) continue;
    if (!columnsOf.has(sources)) columnsOf.set(sources, sources.map(columnOf));
    columnsOf.get(sources).forEach((column, index) => {
      if (column >= 0) sums[row][column] += weights[index];
    });
    counts[row] += 1;
    const most = columnOf(source);
    if (most >= 0) links[row].add(most);
  }
  const weights = sums.map((line, row) => line.map((sum) => sum / Math.max(1, counts[row])));
  const rests = weights.map((line, row) => (counts[row] ? 1 - line.reduce((sum, weight) => sum + weight, 0) : 0));
  return { rows, columns, links, weights, rests };
}

/** The part of a source subword that is in a word. A subword of white space counts as a part of the following word. */
function wordSpan(text, span) {
  const { start, end } = withoutLeadingSpace(text, span);
  return { start, end: span.start < span.end ? Math.max(end, start + 1) : end };
}

/** A span without its leading white space. */
function withoutLeadingSpace(text, { start, end }) {
  const part = text.slice(start, end);
  return { start: start + part.length - part.trimStart().length, end };
}

function overlapping(words, span) {
  return words.findIndex((word) => word.start < span.end && span.start < word.end);
}

/** The index of the segment at an offset in the translation; -1 between segments. */
export function segmentAt(answer, at) {
  return answer.segments.findIndex(({ target }) => target.start <= at && at < target.end);
}

/** An answer with another translation of one segment. part: the translation of the segment alone, from `answerOf`. */
export function replaceSegment(answer, index, part) {
  const old = answer.segments[index];
  const growth = part.text.length - (old.target.end - old.target.start);
  const text = answer.text.slice(0, old.target.start) + part.text + answer.text.slice(old.target.end);
  const tokens = part.segments
    .flatMap((segment) => segment.tokens)
    .map((token) => ({
      ...token,
      target: moved(token.target, old.target.start),
      source: token.source && moved(token.source, old.source.start),
      sources: token.sources.map((span) => moved(span, old.source.start)),
    }));
  const target = { start: old.target.start, end: old.target.start + part.text.length };
  const segments = answer.segments.map((segment, other) => {
    if (other < index) return segment;
    if (other === index) return { ...segment, target, tokens };
    return {
      ...segment,
      target: moved(segment.target, growth),
      tokens: segment.tokens.map((token) => ({ ...token, target: moved(token.target, growth) })),
    };
  });
  return { ...answer, text, segments };
}

function moved({ start, end }, by) {
  return { start: start + by, end: end + by };
}

/** An incomplete translation: the text received for each segment, with the source's text between the segments. */
export class Draft {
  /** spans: the segments in the source, in code points. */
  constructor(sourceText, spans) {
    const units = unitsOf(sourceText);
    this.gaps = [];
    this.texts = spans.map(() => "");
    this.last = -1;
    let end = 0;
    for (const span of spans) {
      this.gaps.push(sourceText.slice(end, units[span.start]));
      end = units[span.end];
    }
  }

  append(segment, text) {
    this.texts[segment] += text;
    this.last = Math.max(this.last, segment);
  }

  replace(segment, text) {
    this.texts[segment] = text;
    this.last = Math.max(this.last, segment);
  }

  /** The text up to the last segment that has text. */
  get text() {
    return this.texts
      .slice(0, this.last + 1)
      .map((text, segment) => this.gaps[segment] + text.trimStart())
      .join("");
  }
}
