"""Parses a text into segments for the model, and assembles the translated text from the segments' translations.

    parsed_text = parse_text(text, options)
    segments = parsed_text.segments(fits)              # fits(source): whether the model takes the source at once
    ... translate segment.source of each ...
    finished = parsed_text.finish(segments, translations)

A part that must not change, such as a variable, a URL or a formula, is replaced by a placeholder. A placeholder is one
private-use character. The tokenizer copies it like any character outside its vocabulary.

Glossary terms are words in the model's first input, except terms that have a tag inside or a digit in the term or its
replacement. `missing_terms` returns the terms that a translation lacks, and `with_term_placeholders` replaces them by
placeholders for a second decoding.

If a translation has lost a placeholder and there is no alignment, `app.text.segments.spans_between_placeholders`
returns the parts to translate separately, and `join_parts` of that module joins their translations.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from app.text.blocks import Block, Document
from app.text.casing import Casing, casing_of, lowered, no_word, restored
from app.text.columns import with_tabs_after_options
from app.text.expanded_terms import ExpandedTerm, expand_terms, find_expandable_terms
from app.text.finished import FinishedText, Writer, source_markup, span_in_document
from app.text.formulas import mark_borders, tagged_words
from app.text.glossary import Glossary, GlossaryHit, missing_terms
from app.text.html_reader import read_html
from app.text.language_codes import separator
from app.text.model_input import ModelInput, model_input, with_common_quotes, without_spaces_around_tags
from app.text.number_check import ChangedNumbers, changed_numbers
from app.text.number_format import rewritten_numbers
from app.text.protected_spans import closed_shortcodes
from app.text.protection import protect_spans
from app.text.segmentation import Offsets, Span, fitting_pieces, sentence_spans, trimmed
from app.text.segments import SegmentTranslation, SourceSegment, shift_positions, with_number_placeholders
from app.text.tags import Tag, partners
from app.text.xml_reader import XmlRules, read_xml

_BREAKS = re.compile(r"[\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
# Lines. A line has no line break and no control character but tabs.
_LINES = re.compile(r"[^\x00-\x08\n-\x1f\x7f-\x9f\u2028\u2029]+")


class TextFormat(Enum):
    """The format of a text."""

    PLAIN = "text"
    HTML = "html"
    XML = "xml"


class Splitting(Enum):
    """Where sentences end.

    SENTENCES: also at line breaks, except in HTML. NO_NEWLINES: not at line breaks. LINES: at line breaks only.
    """

    SENTENCES = "sentences"
    NO_NEWLINES = "no_newlines"
    LINES = "lines"


class ParseOptions(NamedTuple):
    """How a text is parsed. Languages are BCP 47 codes. Of `xml`, only `ignored` applies to HTML too."""

    source_language: str
    target_language: str
    text_format: TextFormat = TextFormat.PLAIN
    splitting: Splitting = Splitting.SENTENCES
    xml: XmlRules = XmlRules()
    glossary: Glossary | None = None

    def find_terms(self, text: str, borders: Sequence[int]) -> list[GlossaryHit]:
        """Return the glossary's terms in a text. borders: as in `Glossary.hits`."""
        return [] if self.glossary is None else list(self.glossary.hits(text, self.target_language, borders))


def parse_text(text: str, options: ParseOptions) -> ParsedText:
    """Parse a text. Raises MarkupError for malformed XML."""
    if options.text_format is TextFormat.HTML:
        document = read_html(text, options.xml.ignored)
    elif options.text_format is TextFormat.XML:
        document = read_xml(text, options.xml)
    else:
        document = Document.of(text)
    hits: list[GlossaryHit] = []
    parts: list[str | Block] = []
    expanded_terms: list[Mapping[str, ExpandedTerm]] = []
    texts = (part.text for part in document.parts if isinstance(part, Block))
    closed = frozenset[str]().union(*map(closed_shortcodes, texts))
    for part in document.parts:
        if isinstance(part, Block):
            tagged = tagged_words(part)
            candidates = options.find_terms(part.text, mark_borders(tagged))
            protected, replaced = protect_spans(
                part, candidates, tagged, closed, is_markup=document.is_markup
            )
            expanded_terms.append(
                find_expandable_terms(part, protected, candidates, replaced) if replaced else {}
            )
            part = protected
            hits += replaced
        parts.append(part)
    return ParsedText(Document(tuple(parts), document.is_markup), options, tuple(hits), tuple(expanded_terms))


@dataclass(eq=False)
class ParsedText:
    """A parsed text. Immutable except for its cache of spellings.

    glossary_hits: the glossary's terms in the text. expanded_terms: for each block, the terms that may be words in the
    model's input, by placeholder.
    _spellings: a cache of character spellings by block. All writers share it, so that a long text is scanned once.
    """

    document: Document
    options: ParseOptions
    glossary_hits: tuple[GlossaryHit, ...]
    expanded_terms: tuple[Mapping[str, ExpandedTerm], ...]

    def __post_init__(self) -> None:
        self._blocks = [part for part in self.document.parts if isinstance(part, Block)]
        self._spellings: dict[int, dict[str, str]] = {}

    def _writer(self) -> Writer:
        check, language, markup = self.changed_numbers, self.options.target_language, self.document.is_markup
        return Writer(check, self.number_spellings, language, is_markup=markup, spellings=self._spellings)

    def number_spellings(self, segment: SourceSegment) -> dict[str, str]:
        """Return the segment's numbers that the target language writes differently, with that spelling."""
        options, source = self.options, segment.restore_numbers(segment.written)
        return rewritten_numbers(source, options.source_language, options.target_language)

    @property
    def prose(self) -> str:
        """Return the text to translate without markup and protected spans, for language detection."""
        return "\n".join(
            "".join(" " if character in block.placeholders else character for character in block.text)
            for block in self._blocks
        )

    def segments(
        self, fits: Callable[[str], bool], is_word: Callable[[str], bool] = no_word
    ) -> list[SourceSegment]:
        """Return the segments to translate, in order.

        fits: whether the model takes a source at once. is_word: whether a short word in capitals is a word, not an
        acronym.
        """
        segments: list[SourceSegment] = []
        for index, block in enumerate(self._blocks):
            read = self._text_to_read(block)
            closing = partners(block.tags)
            terms = self.expanded_terms[index]
            for sentence in self._sentences(block):
                whole = self._source(sentence.of(read), Casing.PLAIN, terms).source
                casing = casing_of(whole, self.options.source_language, is_word)

                def fits_either_way(
                    part: str, casing: Casing = casing, terms: Mapping[str, ExpandedTerm] = terms
                ) -> bool:
                    return fits(self._source(part, casing, terms).source) and (
                        not terms
                        or terms.keys().isdisjoint(part)
                        or fits(self._source(part, casing, {}).source)
                    )

                for piece in fitting_pieces(read, sentence, fits_either_way):
                    span = piece.span
                    source, written, positions = self._source(span.of(read), casing, terms)
                    hits = tuple(terms[each].hit for each in span.of(read) if each in terms) if terms else ()
                    segments.append(
                        SourceSegment(
                            source=source,
                            placeholders=block.placeholders_in(source),
                            casing=casing,
                            block=index,
                            span=span,
                            is_part=piece.is_part,
                            tags=_tags_of(block.tags, closing, span),
                            positions=shift_positions(positions, span.start),
                            written=written,
                            terms=hits,
                        )
                    )
        return segments

    @property
    def _ignores_line_breaks(self) -> bool:
        """Whether line breaks and tabs count as spaces."""
        return (
            self.options.splitting is Splitting.NO_NEWLINES or self.options.text_format is TextFormat.HTML
        ) and self.options.splitting is not Splitting.LINES

    def _without_line_breaks(self, block: Block) -> str:
        return _BREAKS.sub(" ", block.text) if self._ignores_line_breaks else block.text

    def _text_to_read(self, block: Block) -> str:
        positions = (tag.position for tag in block.tags)
        return without_spaces_around_tags(self._without_line_breaks(block), positions)

    def _sentences(self, block: Block) -> list[Span]:
        flat = self._without_line_breaks(block)
        if self.options.splitting is Splitting.LINES:
            lines = (trimmed(flat, *match.span()) for match in _LINES.finditer(flat))
            return [line for line in lines if line is not None]
        has_columns = self.options.text_format is TextFormat.PLAIN and not self._ignores_line_breaks
        if has_columns:
            flat = with_tabs_after_options(flat, block.raws)
        return list(sentence_spans(flat, self.options.source_language, has_columns=has_columns))

    def _source(self, part: str, casing: Casing, terms: Mapping[str, ExpandedTerm]) -> ModelInput:
        """Return the model's input for a part of a block, with these terms as words, and positions in the part."""
        text, positions = expand_terms(part, terms)
        source, written, kept = model_input(text, collapses_spaces=self._ignores_line_breaks)
        if len(kept) < len(text):
            positions = [positions[index] for index in kept]
        cased = self._cased(source, casing)
        return ModelInput(cased, cased if written == source else self._cased(written, casing), positions)

    def _cased(self, text: str, casing: Casing) -> str:
        """Return a text with the case and the quotation marks that the model reads."""
        language = self.options.source_language
        return with_common_quotes(lowered(text, casing, language), language)

    def enclosing_spans(self, segment: SourceSegment) -> list[str]:
        """Return the protected spans that are tags of a segment or around it, in order."""
        tags, span = self._blocks[segment.block].tags, segment.span
        return [tag.markup for tag in tags if tag.is_span and span.start <= tag.position <= span.end]

    def missing_terms(self, segment: SourceSegment, text: str) -> list[GlossaryHit]:
        """Return the terms in the segment's `source` that the model's translation does not contain."""
        written = restored(text, segment.casing, self.options.target_language) if segment.terms else ""
        return missing_terms(segment.terms, written, self.options.target_language)

    def with_term_placeholders(
        self, segment: SourceSegment, only: Collection[GlossaryHit] | None = None
    ) -> SourceSegment:
        """Return the segment with placeholders for the terms in `only`, or for all of its terms if `only` is None.

        If the model takes the segment at once, it also takes the result for None. With some of the terms, the result
        may be too long, because a placeholder can have more subwords than a short term.
        """
        if not segment.terms:
            return segment
        block, terms = self._blocks[segment.block], self.expanded_terms[segment.block]
        as_words = [hit for hit in segment.terms if only is not None and hit not in only]
        expanded_terms = {placeholder: term for placeholder, term in terms.items() if term.hit in as_words}
        source, written, positions = self._source(
            segment.span.of(self._text_to_read(block)), segment.casing, expanded_terms
        )
        return segment._replace(
            source=source,
            placeholders=block.placeholders_in(source),
            positions=shift_positions(positions, segment.span.start),
            written=written,
            terms=tuple(as_words),
        )

    def number_retries(
        self, segment: SourceSegment, translation: SegmentTranslation, fits: Callable[[str], bool]
    ) -> list[SourceSegment]:
        """Return versions of a segment with placeholders for numbers, to decode if its translation changed a number.

        The first version has placeholders for the numbers that the translation lacks, the second for all numbers. Terms
        are placeholders too. A version that the model cannot take at once is left out.
        """
        if segment.numbers or not (changed := self.changed_numbers(segment, translation.text)):
            return []
        without_terms, block_text = self.with_term_placeholders(segment), self._blocks[segment.block].text
        versions = [
            with_number_placeholders(without_terms, block_text, only) for only in (changed.missing, None)
        ]
        different = {version.source: version for version in versions}.values()
        return [version for version in different if version.numbers and fits(version.source)]

    def changed_numbers(self, segment: SourceSegment, text: str) -> ChangedNumbers:
        """Return the numbers that differ between a segment and its translation."""
        return changed_numbers(
            segment.restore_numbers(segment.source),
            segment.restore_numbers(text),
            self.options.source_language,
            self.options.target_language,
        )

    def finish(
        self, segments: Sequence[SourceSegment], translations: Sequence[SegmentTranslation]
    ) -> FinishedText:
        """Return the text with its segments replaced by translations. Raises ValueError if the counts differ.

        Segments that nothing separates get the `separator` of the languages.
        """
        if len(segments) != len(translations):
            raise ValueError(f"{len(translations)} translations for {len(segments)} segments")
        writer = self._writer()
        pending = list(zip(segments, translations, strict=True))[::-1]
        gap = separator(self.options.source_language, self.options.target_language)
        index = -1
        for part in self.document.parts:
            if isinstance(part, str):
                writer.write(part)
                continue
            index += 1
            done = next_tag = 0
            while pending and pending[-1][0].block == index:
                segment, translation = pending.pop()
                if 0 < done == segment.span.start:
                    writer.write(gap)
                writer.write(
                    source_markup(part, Span(done, segment.span.start), next_tag, segment.tags.start)
                )
                writer.write_segment(part, segment, translation)
                done, next_tag = segment.span.end, segment.tags.stop
            writer.write(source_markup(part, Span(done, len(part.text)), next_tag, len(part.tags)))
        return writer.finished

    def render(self, segment: SourceSegment, translation: SegmentTranslation) -> str:
        """Return a segment's translation as it will stand in the finished text."""
        writer = self._writer()
        writer.write_segment(self._blocks[segment.block], segment, translation)
        return writer.finished.text

    def preview(self, segment: SourceSegment, text: str) -> str:
        """Return an unfinished translation with its final casing and the contents of placeholders."""
        text = segment.with_written_characters(text)
        return self._writer().preview(self._blocks[segment.block], segment, text)

    def source_range(self, segment: SourceSegment, start: int, end: int) -> Offsets:
        """Return the offsets in the whole text of characters start..end-1 of a segment's source, in code points."""
        if start >= len(segment.positions):
            return (self._blocks[segment.block].end(segment.span.end - 1),) * 2
        first, _ = self._character_range(segment, start)
        return (first, self._character_range(segment, end - 1)[1]) if start < end else (first, first)

    def _character_range(self, segment: SourceSegment, index: int) -> Offsets:
        """Return the offsets in the whole text of one character of a segment's source."""
        block, position = self._blocks[segment.block], segment.positions[index]
        term = self.expanded_terms[segment.block].get(block.text[position])
        if term is None or term.hit not in segment.terms:
            length = len(segment.restore_numbers(segment.source[index]))
            return block.offsets[position], block.end(position + length - 1)
        return term.offsets[index - bisect_left(segment.positions, position)]

    def span(self, segment: SourceSegment) -> Offsets:
        """Return the offsets of a segment in the whole text, in code points, with the tags that it contains."""
        return span_in_document(self._blocks[segment.block], segment)


def _tags_of(tags: Sequence[Tag], closing: dict[int, int], span: Span) -> range:
    """Return the indices of a segment's tags.

    These are the tags inside it, and both tags of each element that lies within it and does not contain all its words.
    Tags around the whole segment are left out. Any other tag at its edges is included only if it is between two that
    are included.
    """
    if not tags:
        return range(0)
    first = bisect_left(tags, span.start, key=lambda tag: tag.position)
    last = bisect_right(tags, span.end, key=lambda tag: tag.position)
    inside = []
    for index in range(first, last):
        position = tags[index].position
        end = tags[closing[index]].position if index in closing else position
        if span.start < position < span.end:
            inside.append(index)
        if position < end <= span.end and (position, end) != (span.start, span.end):
            inside += (index, closing[index])
    if inside:
        return range(min(inside), max(inside) + 1)
    at_start = bisect_right(tags, span.start, key=lambda tag: tag.position)
    return range(at_start, at_start)
