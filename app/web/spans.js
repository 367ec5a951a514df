// Places in texts, without a page: words, where they come from, and a sentence put in another's place.
// The server counts Unicode code points, JavaScript UTF-16 units; everything below and elsewhere counts units.

/**
 * A translation of the server's with its places in units. tokens: empty where none were asked for.
 * Each token's weights are for its sources: all subwords of its segment where they are told, else the one it looks at most.
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
  return { sourceText, text: translation.text, source: translation.source, segments };
}

function tokenOf(token, sources, inSource, inTarget) {
  const target = toUnits(token.target, inTarget);
  if (!token.source) return { target, source: null, sources: [], weights: [] };
  const source = toUnits(token.source, inSource);
  if (!token.weights) return { target, source, sources: [source], weights: [token.attention] };
  return { target, source, sources, weights: token.weights };
}

/** For each code point of a text, and for its end, where it begins in units. */
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

/** Words and punctuation within a span: {start, end, isWord}, white space left out. */
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
      segmenter = new Intl.Segmenter(undefined, { granularity: "word" }); // a code that is no BCP 47 tag
    }
    segmenters.set(language, segmenter);
  }
  return segmenters.get(language);
}

/**
 * One sentence's words and the attention between them.
 *
 * weights: a list for each target word, with a number of 0 to 1 for each source word: what all subwords of the one get
 * from a subword of the other, on average; a subword of white space alone is none of a target word's. What is left of 1
 * goes to the end of the sentence.
 * links: for each target word, the places in `columns` of those that its subwords look at most.
 */
export function alignmentOf(answer, index, targetLanguage) {
  const segment = answer.segments[index];
  const rows = wordsOf(answer.text, segment.target, targetLanguage);
  const columns = wordsOf(answer.sourceText, segment.source, answer.source);
  const sums = rows.map(() => columns.map(() => 0));
  const counts = rows.map(() => 0);
  const links = rows.map(() => new Set());
  const columnOf = (span) => overlapping(columns, wordSpan(answer.sourceText, span));
  const known = new Map(); // a list of sources -> the column of each: the tokens of a segment share it
  for (const { source, target, sources, weights } of segment.tokens) {
    const row = overlapping(rows, withoutLeadingSpace(answer.text, target));
    if (source === null || row < 0) continue;
    if (!known.has(sources)) known.set(sources, sources.map(columnOf));
    known.get(sources).forEach((column, index) => {
      if (column >= 0) sums[row][column] += weights[index];
    });
    counts[row] += 1;
    const most = columnOf(source);
    if (most >= 0) links[row].add(most);
  }
  return { rows, columns, links, weights: sums.map((line, row) => line.map((sum) => sum / Math.max(1, counts[row]))) };
}

/** A subword's letters; white space by itself belongs to what follows. */
function wordSpan(text, span) {
  const { start, end } = withoutLeadingSpace(text, span);
  return { start, end: span.start < span.end ? Math.max(end, start + 1) : end };
}

/** A span without the white space that a subword begins with. */
function withoutLeadingSpace(text, { start, end }) {
  const said = text.slice(start, end);
  return { start: start + said.length - said.trimStart().length, end };
}

function overlapping(words, span) {
  return words.findIndex((word) => word.start < span.end && span.start < word.end);
}

/** The segment that holds a place of the translation; -1 between segments. */
export function segmentAt(answer, at) {
  return answer.segments.findIndex(({ target }) => target.start <= at && at < target.end);
}

/**
 * The answer with another translation of one segment, of which `part` is the answer for that segment's source alone.
 */
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

/** A text whose segments are still being said: what stands between their sources, and so much as there is of each. */
export class Draft {
  /** spans: of the segments in the source, in code points. */
  constructor(sourceText, spans) {
    const units = unitsOf(sourceText);
    this.gaps = [];
    this.said = spans.map(() => "");
    this.last = -1;
    let end = 0;
    for (const span of spans) {
      this.gaps.push(sourceText.slice(end, units[span.start]));
      end = units[span.end];
    }
  }

  append(segment, text) {
    this.said[segment] += text;
    this.last = Math.max(this.last, segment);
  }

  replace(segment, text) {
    this.said[segment] = text;
    this.last = Math.max(this.last, segment);
  }

  /** Up to the last segment of which something was said. */
  get text() {
    return this.said
      .slice(0, this.last + 1)
      .map((said, segment) => this.gaps[segment] + said.trimStart())
      .join("");
  }
}
