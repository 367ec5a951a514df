"""A text's translation put together: segments in their places, their tags, their casing, what was protected."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from app.text.blocks import Block, escaped, references_of
from app.text.casing import Casing, restored
from app.text.number_check import ChangedNumbers
from app.text.number_format import with_numbers_rewritten
from app.text.segmentation import Span
from app.text.segments import Fallback, Offsets, SegmentTranslation, SourceSegment, repair
from app.text.tags import Tag, place_tags


class FinishedSegment(NamedTuple):
    """source, target: start and end in the whole texts, in code points. places: those asked for, in `target`.

    keeps_source: whether a part of the source stands in it, of which nothing was said.
    """

    source: Offsets
    target: Offsets
    is_part: bool
    fallbacks: tuple[Fallback, ...]
    changed_numbers: ChangedNumbers
    places: tuple[Offsets, ...] = ()
    keeps_source: bool = False


class FinishedText(NamedTuple):
    """A text's translation, and how it came about."""

    text: str
    segments: tuple[FinishedSegment, ...]


def untouched(block: Block, span: Span, first: int, last: int) -> str:
    """A part of a block as it stands in the document, with tags first..last-1."""
    if first == last:
        return block.raw(*span)
    parts: list[str] = []
    done = span.start
    for tag in block.tags[first:last]:
        place = min(max(tag.position, done), span.end)
        parts += (block.raw(done, place), tag.markup)
        done = place
    return "".join([*parts, block.raw(done, span.end)])


class Writer:
    """Puts a finished text together."""

    def __init__(
        self,
        check: Callable[[SourceSegment, str], ChangedNumbers],
        rewritten: Callable[[SourceSegment], Mapping[str, str]],
        *,
        is_markup: bool,
        found: dict[int, dict[str, str]] | None = None,
    ) -> None:
        """check: of the numbers of a segment and its translation. rewritten: how its source's numbers are written
        in the translation's language, where that is otherwise. is_markup: whether text is escaped.

        found: by block, what writers of the same document have found of its characters' spellings; grows.
        """
        self._check = check
        self._rewritten = rewritten
        self._is_markup = is_markup
        self._parts: list[str] = []
        self._segments: list[FinishedSegment] = []
        self._length = 0
        self._found: dict[int, dict[str, str]] = {} if found is None else found

    @property
    def finished(self) -> FinishedText:
        """What was written."""
        return FinishedText("".join(self._parts), tuple(self._segments))

    def write(self, part: str) -> None:
        """What stands between segments."""
        self._parts.append(part)
        self._length += len(part)

    def write_segment(self, block: Block, segment: SourceSegment, translation: SegmentTranslation) -> None:
        """A segment's translation, with its tags, in its casing, with all that was protected."""
        repaired = repair(segment, translation)
        tags = _tags_in_source(block, segment)
        placement = place_tags(segment.source, tags, repaired.text, repaired.alignment)
        fallbacks = repaired.fallbacks + (Fallback.TAGS_UNSURE,) * (not placement.is_sure)
        start = self._length
        rendered = self._rendered(block, segment, repaired.text, placement.tags)
        self.write(rendered if isinstance(rendered, str) else "".join(rendered))
        self._segments.append(
            FinishedSegment(
                source=(block.offsets[segment.span.start], block.offsets[segment.span.end]),
                target=(start, self._length),
                is_part=segment.is_part,
                fallbacks=fallbacks,
                changed_numbers=self._check(segment, repaired.text),
                places=_places(repaired.places, rendered, placement.tags, start) if repaired.places else (),
                keeps_source=translation.keeps_source,
            )
        )

    def preview(self, block: Block, segment: SourceSegment, text: str) -> str:
        """The words without their tags."""
        return "".join(self._characters(block, segment, text))

    def _rendered(
        self, block: Block, segment: SourceSegment, text: str, tags: Sequence[Tag]
    ) -> Sequence[str]:
        """A string for each character of the text and for each tag behind so many of them, in order."""
        shown = self._characters(block, segment, text)
        if not tags:
            return shown
        parts: list[str] = []
        done = 0
        for tag in tags:
            parts += shown[done : tag.position]
            parts.append(tag.markup)
            done = tag.position
        return [*parts, *shown[done:]]

    def _characters(self, block: Block, segment: SourceSegment, text: str) -> Sequence[str]:
        """What is written for each character; the text itself where that is they."""
        spellings = self._spellings(block, segment)
        rewritten = self._rewritten(segment)
        text = with_numbers_rewritten(text, rewritten)
        if segment.numbers:
            spellings = spellings | {
                placeholder: with_numbers_rewritten(number, rewritten)
                for placeholder, number in segment.numbers
            }
        shown: Sequence[str] = text
        if segment.casing is not Casing.PLAIN:
            shown = [restored(character, segment.casing) for character in text]
        if self._is_markup:
            return [escaped(character, spellings) for character in shown]
        return [spellings.get(character, character) for character in shown] if spellings else shown

    def _spellings(self, block: Block, segment: SourceSegment) -> dict[str, str]:
        """Character -> what the document has for it: references, and what stand-ins stand for."""
        if segment.block not in self._found:
            found = references_of(block) if self._is_markup else {}
            if block.placeholders:
                for character, raw in zip(block.text, block.raws, strict=True):
                    if character in block.placeholders:
                        found[character] = raw
            self._found[segment.block] = found
        return self._found[segment.block]


def _places(
    places: Sequence[Offsets], rendered: Sequence[str], tags: Sequence[Tag], start: int
) -> tuple[Offsets, ...]:
    """Starts and ends in a text as those of what was rendered of it from `start` on; tags at an edge stay outside."""
    ends = list(accumulate(map(len, rendered), initial=start))
    positions = [tag.position + index for index, tag in enumerate(tags)]  # in `rendered`
    is_tag = [False] * (len(ends) - 1)
    for position in positions:
        is_tag[position] = True
    characters = [index for index, each in enumerate(is_tag) if not each]

    def place(first: int, last: int) -> Offsets:
        if first < last:
            return ends[characters[first]], ends[characters[last - 1] + 1]
        at = ends[characters[first]] if first < len(characters) else ends[-1]
        return at, at

    return tuple(place(*each) for each in places)


def _tags_in_source(block: Block, segment: SourceSegment) -> list[Tag]:
    """A segment's tags by position in its source; spaces behind one that the source does not have go with it."""
    found: list[Tag] = []
    for index in segment.tags:
        tag = block.tags[index]
        place = bisect_left(segment.positions, tag.position)
        following = segment.positions[place] if place < len(segment.positions) else tag.position
        if index + 1 < segment.tags.stop:
            following = min(following, block.tags[index + 1].position)
        spaces = block.raw(tag.position, following)
        found.append(Tag(place, tag.markup + spaces, tag.kind, tag.name))
    return found
