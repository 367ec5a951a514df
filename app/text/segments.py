"""Segments and their translations. Repairs a translation so that it has each placeholder of its source once."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from enum import Enum
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from app.text.alignment import Alignment, join_alignments, shifted, words
from app.text.blocks import unused_placeholders
from app.text.casing import Casing
from app.text.corrections import Edit, corrections, moved_end, moved_start
from app.text.glossary import GlossaryHit
from app.text.model_input import with_written_characters
from app.text.number_check import number_spans
from app.text.protected_spans import PLACEHOLDER_CODE_POINTS
from app.text.segmentation import Offsets, Span, join, trimmed
from app.text.spacing import (
    appended,
    clamp_to_clause,
    closing_marks_start,
    kept_positions,
    needs_space,
    without_strays,
)
from app.text.tags import Tag, TagKind, place_tags


class Fallback(Enum):
    """A repair that a segment's translation needed. The values are part of the HTTP API.

    PLACEHOLDER_ALIGNED: the model lost a placeholder or unknown character, and the alignment gave its place.
    PLACEHOLDER_SPLIT: the parts around the placeholders were translated separately.
    PLACEHOLDER_AT_END: a lost placeholder was appended.
    PLACEHOLDER_REPEATED: a placeholder was removed, because it was repeated or the source does not have it.
    TAGS_UNSURE: an inline element that has words in the source encloses no word of the translation, or all tags are at
        the segment's end.
    NUMBERS_CARRIED: the model changed a number, and the segment was translated again with placeholders for numbers.
    LENGTH_SPLIT: the output reached the length limit, or the text of a pivot language is too long for the second model,
        and the segment was translated in parts.
    DIGITS_SUPPRESSED: the translation had a number, the segment has none, and the segment was translated again without
        digits.
    """

    PLACEHOLDER_ALIGNED = "placeholder_aligned"
    PLACEHOLDER_SPLIT = "placeholder_split"
    PLACEHOLDER_AT_END = "placeholder_at_end"
    PLACEHOLDER_REPEATED = "placeholder_repeated"
    TAGS_UNSURE = "tags_unsure"
    NUMBERS_CARRIED = "numbers_carried"
    LENGTH_SPLIT = "length_split"
    DIGITS_SUPPRESSED = "digits_suppressed"


class SourceSegment(NamedTuple):
    """A sentence, or a part of an over-long one, as input of the model.

    source: the model's input. placeholders: the placeholders in `source`, each once.
    block: the block's index in the text. span: the segment's span in the block.
    is_part: whether it is a part of an over-long sentence. tags: indices of its tags in the block.
    positions: the position in the block of each character of `source`.
    written: `source` with the wide spaces and hyphens of the text (`app.text.model_input`), of the same length.
    numbers: pairs of a placeholder and its number.
    terms: glossary terms that `source` has as words, not as placeholders.
    """

    source: str
    placeholders: tuple[str, ...]
    casing: Casing
    block: int
    span: Span
    is_part: bool
    tags: range
    positions: Sequence[int]
    written: str
    numbers: tuple[tuple[str, str], ...] = ()
    terms: tuple[GlossaryHit, ...] = ()

    def with_written_characters(self, text: str) -> str:
        """Return a translation of `source` with the wide spaces and hyphens of the text (`app.text.model_input`)."""
        return with_written_characters(self.source, self.written, text)

    def restore_numbers(self, text: str) -> str:
        """Return the text with the numbers in the place of their placeholders."""
        for placeholder, number in self.numbers:
            text = text.replace(placeholder, number)
        return text


class SegmentTranslation(NamedTuple):
    """A translation as the tokenizer decoded it.

    alignment: of `SourceSegment.source` and `text`. num_appended: how many verbatim spans (`app.text.tokenizer`) the
    model lost and the tokenizer appended. fallbacks: repairs so far. token_offsets: offsets in `text`, later mapped to
    the finished text. keeps_source: whether `text`, or a part of it, is the source itself, because the model returned
    no words. prefix_end: the end in `text` of the `target_prefix`, 0 without one.
    """

    text: str
    alignment: Alignment | None = None
    num_appended: int = 0
    fallbacks: tuple[Fallback, ...] = ()
    token_offsets: Sequence[Offsets] = ()
    keeps_source: bool = False
    prefix_end: int = 0


class Repaired(NamedTuple):
    """A translation under repair; at the end it has every placeholder of its source exactly once.

    token_offsets: offsets in `text`. prefix_end: as in `SegmentTranslation`.
    """

    text: str
    alignment: Alignment | None
    fallbacks: tuple[Fallback, ...]
    token_offsets: Sequence[Offsets] = ()
    prefix_end: int = 0

    @property
    def first_gap(self) -> int:
        """Return the first position at which a lost span may be inserted.

        It is the end of the prefix, or of the word that the prefix begins.
        """
        end = self.prefix_end
        return next((word.end for word in words(self.text) if word.start < end < word.end), end) if end else 0


def source_as_translation(source: str, num_tokens: int = 0) -> SegmentTranslation:
    """Return the source as its own translation, each word aligned to itself. num_tokens: length of `token_offsets`."""
    spans = tuple((word.start, word.end) for word in words(source))
    alignment = Alignment(spans, spans, np.eye(len(spans), dtype=np.float32))
    return SegmentTranslation(source, alignment, token_offsets=[(0, 0)] * num_tokens, keeps_source=True)


def lost_spans(segment: SourceSegment, translation: SegmentTranslation) -> list[str]:
    """Return the placeholders and unknown characters that the model lost, in the order of the source."""
    return _lost(segment, translation)[1]


def spans_between_placeholders(segment: SourceSegment, translation: SegmentTranslation) -> list[Span]:
    """Return the parts of `segment.source` between its placeholders, to be translated separately.

    Empty if no placeholder is lost, or if there is an alignment, which gives the place of a lost one.
    """
    output, _ = _split_appended(translation)
    if translation.alignment is not None or all(
        placeholder in output for placeholder in segment.placeholders
    ):
        return []
    positions = sorted(segment.source.index(placeholder) for placeholder in segment.placeholders)
    edges = [-1, *positions, len(segment.source)]
    parts = (trimmed(segment.source, start + 1, end) for start, end in pairwise(edges))
    return [part for part in parts if part is not None]


def join_parts(
    segment: SourceSegment,
    parts: Sequence[Span],
    translations: Sequence[SegmentTranslation],
    separator: str = "",
) -> SegmentTranslation:
    """Return the segment's translation, joined from those of its parts. separator: as in `join`."""
    joined = join(segment.source, parts, [each.text for each in translations], separator)
    alignments = [each.alignment for each in translations if each.alignment is not None]
    is_aligned = bool(alignments) and len(alignments) == len(parts)
    starts = [start for start, _ in joined.spans]
    return SegmentTranslation(
        joined.text,
        join_alignments(alignments, [part.start for part in parts], starts) if is_aligned else None,
        fallbacks=(Fallback.PLACEHOLDER_SPLIT,),
        token_offsets=[
            offsets
            for translation, start in zip(translations, starts, strict=True)
            for offsets in shifted(translation.token_offsets, start)
        ],
        keeps_source=any(translation.keeps_source for translation in translations),
        prefix_end=translations[0].prefix_end and starts[0] + translations[0].prefix_end,
    )


def shift_positions(positions: Sequence[int], distance: int) -> Sequence[int]:
    """Return positions plus `distance`. A range gives a range, in constant time."""
    if isinstance(positions, range):
        return range(positions.start + distance, positions.stop + distance)
    return [distance + position for position in positions]


def with_number_placeholders(
    segment: SourceSegment, block_text: str, only: Collection[str] | None = None
) -> SourceSegment:
    """Return the segment with a placeholder for every number, or for those in `only`.

    block_text: the text of the segment's block. A new placeholder is a character that it does not contain.
    """
    free = unused_placeholders(block_text)
    spans = number_spans(segment.source, only)
    numbers = {next(free): span.of(segment.written) for span in spans}
    edges = [0, *(edge for span in spans for edge in span), len(segment.source)]
    gaps = list(zip(edges[::2], edges[1::2], strict=True))

    def replaced(text: str) -> str:
        parts = zip(gaps, [*numbers, ""], strict=True)
        return "".join(text[start:end] + placeholder for (start, end), placeholder in parts)

    source = replaced(segment.source)
    return segment._replace(
        source=source,
        placeholders=tuple(each for each in source if each in segment.placeholders or each in numbers),
        positions=[each for start, end in gaps for each in segment.positions[start : end + 1]],
        written=replaced(segment.written),
        numbers=tuple(numbers.items()),
    )


def with_numbers_restored(segment: SourceSegment, repaired: Repaired) -> Repaired:
    """Return the translation with the numbers in the place of their placeholders."""
    if not segment.numbers:
        return repaired
    numbers = dict(segment.numbers)
    ends = [0, *accumulate(len(numbers.get(character, character)) for character in repaired.text)]
    restored = repaired._replace(text=segment.restore_numbers(repaired.text))
    return _with_moved_offsets(restored, lambda start, end: (ends[start], ends[end]))


def repair(segment: SourceSegment, translation: SegmentTranslation) -> Repaired:
    """Return the translation with each placeholder once, the `corrections`, and the text's wide spaces and hyphens."""
    text, lost = _lost(segment, translation)
    repaired = _remove_repeated(segment, translation if not lost else translation._replace(text=text))
    if lost or segment.numbers:
        repaired = _insert_lost(segment, repaired, lost)
    kept = kept_positions(segment.source, repaired.text)
    if kept is not None:
        repaired = _with_moved_offsets(
            repaired._replace(text="".join(repaired.text[index] for index in kept)),
            lambda start, end: (bisect_left(kept, start), bisect_left(kept, end)),
        )
    edits = corrections(segment.source, segment.placeholders, repaired.text)
    repaired = _edited(repaired, [edit for edit in edits if edit.start >= repaired.prefix_end])
    return repaired._replace(text=segment.with_written_characters(repaired.text))


def _edited(repaired: Repaired, edits: Sequence[Edit]) -> Repaired:
    """Return the translation with these edits, which are in order."""
    if not edits:
        return repaired
    text = repaired.text
    for edit in reversed(edits):
        text = text[: edit.start] + edit.written + text[edit.end :]
    return _with_moved_offsets(
        repaired._replace(text=text),
        lambda start, end: (moved_start(edits, start), max(moved_start(edits, start), moved_end(edits, end))),
    )


def _insert_lost(segment: SourceSegment, repaired: Repaired, lost: Sequence[str]) -> Repaired:
    """Insert lost spans behind the prefix: by the alignment, or at the end if there is none or the text is blank."""
    source, text, first = segment.source, repaired.text, repaired.first_gap
    fallbacks = [*repaired.fallbacks, *[Fallback.NUMBERS_CARRIED] * bool(segment.numbers)]
    if lost and repaired.alignment is not None and text.strip():
        # The name is the span, because `place_tags` may add spaces to the markup.
        tags = [Tag(max(source.find(span), 0), span, TagKind.POINT, span) for span in lost]
        placed = [
            (max(first, clamp_to_clause(source, tag.name, text, tag.position)), tag.name)
            for tag in place_tags(source, tags, text, repaired.alignment).tags
        ]
        for position, span in sorted(placed, key=lambda each: each[0])[::-1]:
            repaired = _insert(source, repaired, span, position)
        fallbacks.append(Fallback.PLACEHOLDER_ALIGNED)
    elif lost:
        repaired = _insert_at_end(source, repaired, lost)
        fallbacks.append(Fallback.PLACEHOLDER_AT_END)
    return repaired._replace(fallbacks=tuple(fallbacks))


def _insert_at_end(source: str, repaired: Repaired, lost: Sequence[str]) -> Repaired:
    """Append each lost span: after the closing mark if the source has it there, else before the closing mark."""
    text = repaired.text
    last = len(text)
    outside = [span for span in lost if clamp_to_clause(source, span, text, last) == last]
    inside = [span for span in lost if span not in outside]
    edge = max(closing_marks_start(text), repaired.first_gap)
    head, tail = text[:edge], text[edge:]
    if inside:
        head = appended(head, inside)
    shift = len(head) + len(tail) - last
    text = appended(head + tail, outside) if outside else head + tail
    if not tail:
        return repaired._replace(text=text)
    return _with_moved_offsets(
        repaired._replace(text=text),
        lambda start, end: (start + shift * (start >= edge), end + shift * (max(start, end - 1) >= edge)),
    )


def _lost(segment: SourceSegment, translation: SegmentTranslation) -> tuple[str, list[str]]:
    """Return the model's output, and the verbatim spans and placeholders that it lacks, in the order of the source.

    The placeholders that `without_strays` removes after the closing mark count as lost. Those of the prefix stay.
    """
    text, spans = _split_appended(translation)
    if not spans and not segment.placeholders:
        return text, []
    kept = without_strays(segment.source, segment.placeholders, text)
    text = kept if len(kept) >= translation.prefix_end else text
    known = text + "".join(spans)
    spans += [placeholder for placeholder in segment.placeholders if placeholder not in known]
    return text, sorted(spans, key=segment.source.find)


def _split_appended(translation: SegmentTranslation) -> tuple[str, list[str]]:
    """Return the model's output, and the verbatim spans that the tokenizer appended to it."""
    if not translation.num_appended:
        return translation.text, []
    # A verbatim span has no space in it.
    chunks = translation.text.split(" ")
    return " ".join(chunks[: -translation.num_appended]), chunks[-translation.num_appended :]


def _remove_repeated(segment: SourceSegment, translation: SegmentTranslation) -> Repaired:
    """Return the translation with each placeholder of its source at most once, and with no other placeholder."""
    text = translation.text
    repaired = Repaired(
        text,
        translation.alignment,
        translation.fallbacks,
        translation.token_offsets,
        translation.prefix_end,
    )
    if not text or ord(max(text)) < PLACEHOLDER_CODE_POINTS.start:
        return _clip_offsets(repaired)
    remaining = set(segment.placeholders)
    kept: list[str] = []
    moved = [0]  # how many characters are kept before each position of the translation
    for character in text:
        if ord(character) not in PLACEHOLDER_CODE_POINTS or character in segment.source:
            is_kept = character not in segment.placeholders or character in remaining
            remaining.discard(character)
        else:
            is_kept = False
        kept += [character] * is_kept
        moved.append(len(kept))
    last = len(text)

    def map_offsets(start: int, end: int) -> Offsets:
        return moved[min(start, last)], moved[min(end, last)]

    is_repeated = len(kept) < last
    fallbacks = repaired.fallbacks + (Fallback.PLACEHOLDER_REPEATED,) * is_repeated
    return _with_moved_offsets(repaired._replace(text="".join(kept), fallbacks=fallbacks), map_offsets)


def _clip_offsets(repaired: Repaired) -> Repaired:
    """Return the translation with all offsets within its text."""
    if repaired.alignment is None and not repaired.token_offsets:
        return repaired
    last = len(repaired.text)
    return _with_moved_offsets(repaired, lambda start, end: (min(start, last), min(end, last)))


def _with_moved_offsets(repaired: Repaired, map_offsets: Callable[[int, int], Offsets]) -> Repaired:
    """Return the translation with all its offsets mapped by `map_offsets`."""
    alignment = repaired.alignment
    if alignment is not None:
        alignment = replace(alignment, target=tuple(map_offsets(*each) for each in alignment.target))
    return repaired._replace(
        alignment=alignment,
        token_offsets=[map_offsets(*each) for each in repaired.token_offsets],
        prefix_end=repaired.prefix_end and map_offsets(0, repaired.prefix_end)[1],
    )


def _insert(source: str, repaired: Repaired, span: str, position: int) -> Repaired:
    """Insert a placeholder, or another span of the source, at a position.

    It gets spaces as in the source. It also gets a space beside a word, unless it touches a word there in the source.
    """
    text, start = repaired.text, max(source.find(span), 0)
    space_before = " " * needs_space(source[:start][-1:], text[:position][-1:])
    space_after = " " * needs_space(source[start + len(span) :][:1], text[position:][:1])
    inserted = space_before + span + space_after
    shift = len(inserted)
    repaired = repaired._replace(text=text[:position] + inserted + text[position:])
    return _with_moved_offsets(
        repaired, lambda start, end: (start + shift * (start >= position), end + shift * (end > position))
    )
