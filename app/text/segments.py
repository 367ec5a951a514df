"""A segment and its translation: every stand-in of the source exactly once in it, and how it came there."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from app.text.alignment import Alignment, words
from app.text.blocks import PLACEHOLDER_RANGE, unused_placeholders
from app.text.casing import Casing
from app.text.glossary import GlossaryHit
from app.text.number_check import number_spans
from app.text.segmentation import Span, join, trimmed
from app.text.spacing import clamp_to_clause, closing_marks_start, kept_positions, without_strays
from app.text.tags import Tag, TagKind, place_tags

# Start and end in a text, in code points.
Offsets = tuple[int, int]


class Fallback(Enum):
    """What a segment's translation needed beyond the model's own doing.

    PLACEHOLDER_ALIGNED: one that the model lost, or an unknown character, was put where the alignment says.
    PLACEHOLDER_SPLIT: the parts around it were translated by themselves. PLACEHOLDER_AT_END: it was put at the end.
    PLACEHOLDER_REPEATED: one that came more than once was kept once. TAGS_UNSURE: inline tags stand at the end, or
    around no word. NUMBERS_CARRIED: the model changed a number, and was given all of them as placeholders.
    LENGTH_SPLIT: the model found no end, and was given the sentence in parts.
    """

    PLACEHOLDER_ALIGNED = "placeholder_aligned"
    PLACEHOLDER_SPLIT = "placeholder_split"
    PLACEHOLDER_AT_END = "placeholder_at_end"
    PLACEHOLDER_REPEATED = "placeholder_repeated"
    TAGS_UNSURE = "tags_unsure"
    NUMBERS_CARRIED = "numbers_carried"
    LENGTH_SPLIT = "length_split"


class SourceSegment(NamedTuple):
    """What is translated at once.

    source: what the model is given. stand_ins: those in `source`, each of them once. block: its number in the text;
    span: where it stands in that. is_part: of a sentence that is too long. tags: indices of the block's tags that go
    with it. positions: of the source's characters in the block. numbers: what those of its stand-ins stand for that
    `with_number_placeholders` put there. terms: those of a glossary that stand in `source` as words.
    """

    source: str
    placeholders: tuple[str, ...]
    casing: Casing
    block: int
    span: Span
    is_part: bool
    tags: range
    positions: Sequence[int]
    numbers: tuple[tuple[str, str], ...] = ()
    terms: tuple[GlossaryHit, ...] = ()

    def restore_numbers(self, text: str) -> str:
        """Its source or its translation with the numbers that were carried."""
        for placeholder, number in self.numbers:
            text = text.replace(placeholder, number)
        return text


class SegmentTranslation(NamedTuple):
    """text: as the tokenizer decoded it.

    alignment: between `Segment.source` and `text`. num_appended: runs of unknown characters that the model lost and
    that the tokenizer put at the end. fallbacks: what was done already. places: starts and ends in `text`, whose places
    in the finished text are wanted. keeps_source: whether any part of it is the source, of which nothing was said.
    """

    text: str
    alignment: Alignment | None = None
    num_appended: int = 0
    fallbacks: tuple[Fallback, ...] = ()
    places: Sequence[Offsets] = ()
    keeps_source: bool = False


class Repaired(NamedTuple):
    """A translation with every stand-in of its source once, and where its `places` stand now."""

    text: str
    alignment: Alignment | None
    fallbacks: tuple[Fallback, ...]
    places: Sequence[Offsets] = ()


def is_wordless(source: str, translation: str) -> bool:
    """Whether a source has letters or digits, and what was made of it has none."""
    return any(map(str.isalnum, source)) and not any(map(str.isalnum, translation))


def source_as_translation(source: str, num_places: int = 0) -> SegmentTranslation:
    """A part's source in the place of its translation, each word aligned to itself. num_places: that are wanted."""
    spans = tuple((word.start, word.end) for word in words(source))
    alignment = Alignment(spans, spans, np.eye(len(spans), dtype=np.float32))
    return SegmentTranslation(source, alignment, places=[(0, 0)] * num_places, keeps_source=True)


def lost_spans(segment: SourceSegment, translation: SegmentTranslation) -> list[str]:
    """The stand-ins and the runs of unknown characters that the model lost, in the order of the source."""
    return _lost(segment, translation)[1]


def has_lost_spans(segment: SourceSegment, translation: SegmentTranslation) -> bool:
    """Whether the model lost anything that it was to carry: a stand-in, or a run of unknown characters."""
    return bool(_lost(segment, translation)[1])


def spans_between_placeholders(segment: SourceSegment, translation: SegmentTranslation) -> list[Span]:
    """What to translate a second time: the parts of `segment.source` around its stand-ins, in order.

    None where no stand-in is missing, or where an alignment says where it goes.
    """
    written, _ = _written(translation)
    if translation.alignment is not None or all(
        placeholder in written for placeholder in segment.placeholders
    ):
        return []
    places = [segment.source.index(placeholder) for placeholder in segment.placeholders]
    edges = [-1, *sorted(places), len(segment.source)]
    parts = (trimmed(segment.source, start + 1, end) for start, end in pairwise(edges))
    return [part for part in parts if part is not None]


def join_parts(
    segment: SourceSegment,
    parts: Sequence[Span],
    translations: Sequence[SegmentTranslation],
    reason: Fallback = Fallback.PLACEHOLDER_SPLIT,
) -> SegmentTranslation:
    """The segment's translation, made of those of parts of its source, one each. reason: why they are parts."""
    joined = join(segment.source, parts, [translation.text for translation in translations])
    alignments = [each.alignment for each in translations if each.alignment is not None]
    is_aligned = bool(alignments) and len(alignments) == len(parts)
    starts = [start for start, _ in joined.spans]
    return SegmentTranslation(
        joined.text,
        _joined(alignments, [part.start for part in parts], starts) if is_aligned else None,
        fallbacks=(reason,),
        places=[
            place
            for translation, start in zip(translations, starts, strict=True)
            for place in _shifted(translation.places, start)
        ],
        keeps_source=any(translation.keeps_source for translation in translations),
    )


def _joined(alignments: Sequence[Alignment], sources: Sequence[int], targets: Sequence[int]) -> Alignment:
    """Of texts one behind another. sources, targets: where each begins in the whole."""
    shapes = np.array([alignment.weights.shape for alignment in alignments])
    weights = np.zeros(shapes.sum(axis=0))
    row = column = 0
    for alignment, (num_rows, num_columns) in zip(alignments, shapes, strict=True):
        weights[row : row + num_rows, column : column + num_columns] = alignment.weights
        row, column = row + num_rows, column + num_columns
    parts = list(zip(alignments, sources, targets, strict=True))
    return Alignment(
        tuple(place for alignment, start, _ in parts for place in _shifted(alignment.source, start)),
        tuple(place for alignment, _, start in parts for place in _shifted(alignment.target, start)),
        weights,
    )


def _shifted(places: Sequence[Offsets], distance: int) -> list[Offsets]:
    return [(start + distance, end + distance) for start, end in places]


def moved(places: Sequence[int], distance: int) -> Sequence[int]:
    """The same places of a text that begins so much earlier; of a range another one, however long it is."""
    if isinstance(places, range):
        return range(places.start + distance, places.stop + distance)
    return [distance + place for place in places]


def with_number_placeholders(
    segment: SourceSegment, used: str, only: Collection[str] | None = None
) -> SourceSegment:
    """The segment with a stand-in for every number, for a model that changes them.

    used: text whose characters no stand-in may be; that of the segment's block. only: the numbers that are carried.
    """
    free = unused_placeholders(used)
    source: list[str] = []
    positions: list[int] = []
    numbers: list[tuple[str, str]] = []
    done = 0
    for span in number_spans(segment.source, only):
        numbers.append((next(free), span.of(segment.source)))
        source += (segment.source[done : span.start], numbers[-1][0])
        positions += segment.positions[done : span.start + 1]
        done = span.end
    source.append(segment.source[done:])
    verbatim_spans = "".join(source)
    known = {*segment.placeholders, *(placeholder for placeholder, _ in numbers)}
    return segment._replace(
        source=verbatim_spans,
        placeholders=tuple(character for character in verbatim_spans if character in known),
        positions=[*positions, *segment.positions[done:]],
        numbers=tuple(numbers),
    )


def repair(segment: SourceSegment, translation: SegmentTranslation) -> Repaired:
    """Every stand-in once: put in where it is missing, taken out where it is too often."""
    text, lost = _lost(segment, translation)
    repaired = _without_repeated(segment, translation if not lost else translation._replace(text=text))
    if lost or segment.numbers:
        repaired = _with_lost(segment, repaired, lost)
    kept = kept_positions(segment.source, repaired.text)
    if kept is None:
        return repaired
    return _placed(
        repaired._replace(text="".join(repaired.text[place] for place in kept)),
        lambda start, end: (bisect_left(kept, start), bisect_left(kept, end)),
    )


def _with_lost(segment: SourceSegment, repaired: Repaired, lost: Sequence[str]) -> Repaired:
    """With what the model lost: where attention says, inside the clause, and else at its end."""
    fallbacks = [*repaired.fallbacks]
    fallbacks += [Fallback.NUMBERS_CARRIED] * bool(segment.numbers)
    if lost and repaired.alignment is not None and repaired.text.strip():
        tags = [Tag(max(segment.source.find(run), 0), run, TagKind.POINT) for run in lost]
        for tag in reversed(place_tags(segment.source, tags, repaired.text, repaired.alignment).tags):
            position = clamp_to_clause(segment.source, tag.markup, repaired.text, tag.position)
            repaired = _inserted(segment.source, repaired, replace(tag, position=position))
        fallbacks.append(Fallback.PLACEHOLDER_ALIGNED)
    elif lost:
        repaired = _with_lost_at_end(segment.source, repaired, lost)
        fallbacks.append(Fallback.PLACEHOLDER_AT_END)
    return repaired._replace(fallbacks=tuple(fallbacks))


def _with_lost_at_end(source: str, repaired: Repaired, lost: Sequence[str]) -> Repaired:
    """With what the model lost before the closing mark, and behind it what stands there in the source."""
    text = repaired.text
    last = len(text)
    outside = [run for run in lost if clamp_to_clause(source, run, text, last) == last]
    inside = [run for run in lost if run not in outside]
    head, tail = text[: closing_marks_start(text)], text[closing_marks_start(text) :]
    if inside:
        head = " ".join([head.rstrip(), *inside]).lstrip()
    shift, edge = len(head) + len(tail) - last, last - len(tail)
    text = " ".join([(head + tail).rstrip(), *outside]).lstrip() if outside else head + tail
    if not tail:
        return repaired._replace(text=text)
    return _placed(
        repaired._replace(text=text),
        lambda start, end: (start + shift * (start >= edge), end + shift * (max(start, end - 1) >= edge)),
    )


def _lost(segment: SourceSegment, translation: SegmentTranslation) -> tuple[str, list[str]]:
    """What the model wrote, and the runs and stand-ins that are not in it, in the order of the source.

    Stand-ins that it wrote behind the closing mark are none that it placed.
    """
    text, runs = _written(translation)
    if not runs and not segment.placeholders:
        return text, []
    text = without_strays(segment.source, segment.placeholders, text)
    known = text + "".join(runs)
    runs += [placeholder for placeholder in segment.placeholders if placeholder not in known]
    return text, sorted(runs, key=segment.source.find)


def _written(translation: SegmentTranslation) -> tuple[str, list[str]]:
    """What the model wrote, and the runs that the tokenizer put behind it."""
    if not translation.num_appended:
        return translation.text, []
    # A run has no space in it.
    chunks = translation.text.split(" ")
    return " ".join(chunks[: -translation.num_appended]), chunks[-translation.num_appended :]


def _without_repeated(segment: SourceSegment, translation: SegmentTranslation) -> Repaired:
    """The translation with the first of each of its source's stand-ins, and no other."""
    text, fallbacks = translation.text, translation.fallbacks
    if not text or ord(max(text)) < PLACEHOLDER_RANGE.start:
        return _clipped(Repaired(text, translation.alignment, fallbacks, translation.places))
    waiting = set(segment.placeholders)
    kept: list[str] = []
    moved = [0]  # by position in the translation: how many characters before it are kept
    for character in text:
        if ord(character) not in PLACEHOLDER_RANGE or character in segment.source:
            is_kept = character not in segment.placeholders or character in waiting
            waiting.discard(character)
        else:
            is_kept = False
        kept += [character] * is_kept
        moved.append(len(kept))
    last = len(text)

    def place(start: int, end: int) -> Offsets:
        return moved[min(start, last)], moved[min(end, last)]

    is_repeated = len(kept) < last
    repaired = Repaired(
        "".join(kept),
        translation.alignment,
        (*fallbacks, *((Fallback.PLACEHOLDER_REPEATED,) * is_repeated)),
        translation.places,
    )
    return _placed(repaired, place)


def _clipped(repaired: Repaired) -> Repaired:
    """With nothing that lies behind the end of its text."""
    if repaired.alignment is None and not repaired.places:
        return repaired
    last = len(repaired.text)
    return _placed(repaired, lambda start, end: (min(start, last), min(end, last)))


def _placed(repaired: Repaired, place: Callable[[int, int], Offsets]) -> Repaired:
    """With the places that its characters have now."""
    alignment = repaired.alignment
    if alignment is not None:
        alignment = replace(alignment, target=tuple(place(*each) for each in alignment.target))
    return repaired._replace(alignment=alignment, places=[place(*each) for each in repaired.places])


def _inserted(source: str, repaired: Repaired, tag: Tag) -> Repaired:
    """With a stand-in at `tag.position`, apart from its neighbours as in the source, and from words anyway."""
    text, place, position = repaired.text, max(source.find(tag.markup), 0), tag.position
    behind = place + len(tag.markup)
    left = " " * _are_apart(source[:place][-1:], text[:position][-1:])
    right = " " * _are_apart(source[behind : behind + 1], text[position : position + 1])
    inserted = left + tag.markup + right
    shift = len(inserted)
    repaired = repaired._replace(text=text[:position] + inserted + text[position:])
    return _placed(
        repaired, lambda start, end: (start + shift * (start >= position), end + shift * (end > position))
    )


def _are_apart(before: str, now: str) -> bool:
    """Whether a space goes between a stand-in and its neighbour `now`; `before`: its neighbour in the source."""
    if not now or now.isspace():
        return False
    return before.isspace() or (_is_in_word(now) and not _is_in_word(before))


def _is_in_word(character: str) -> bool:
    """Whether it is a letter, a digit or a stand-in."""
    return character.isalnum() or (character != "" and ord(character) in PLACEHOLDER_RANGE)
