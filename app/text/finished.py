"""Writes the translation of a text: each segment with its tags, its casing and the contents of its placeholders."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from app.text.blocks import Block, escaped, references_of
from app.text.casing import Casing, restored
from app.text.model_input import ASCII_SPACES, INVISIBLE
from app.text.number_check import ChangedNumbers
from app.text.number_format import with_numbers_rewritten
from app.text.segmentation import Offsets, Span
from app.text.segments import Fallback, SegmentTranslation, SourceSegment, repair
from app.text.tags import Tag, place_tags
from app.text.template_code import is_control


class FinishedSegment(NamedTuple):
    """A segment in the finished text.

    source, target: start and end in the whole texts, in code points. is_part: as in `SourceSegment`. fallbacks: the
    repairs of the translation. token_offsets: offsets in the whole translation. keeps_source: as in
    `SegmentTranslation`.
    """

    source: Offsets
    target: Offsets
    is_part: bool
    fallbacks: tuple[Fallback, ...]
    changed_numbers: ChangedNumbers
    token_offsets: tuple[Offsets, ...] = ()
    keeps_source: bool = False


class FinishedText(NamedTuple):
    """A text's translation with its segments."""

    text: str
    segments: tuple[FinishedSegment, ...]


def source_markup(block: Block, span: Span, first: int, last: int) -> str:
    """Return a part of a block as in the document, with the block's tags first..last-1."""
    if first == last:
        return block.raw(*span)
    parts: list[str] = []
    done = span.start
    for tag in block.tags[first:last]:
        parts += (block.raw(done, tag.position), tag.markup)
        done = tag.position
    return "".join([*parts, block.raw(done, span.end)])


class Writer:
    """Writes the parts of a finished text in order."""

    def __init__(
        self,
        check: Callable[[SourceSegment, str], ChangedNumbers],
        rewritten: Callable[[SourceSegment], Mapping[str, str]],
        target_language: str,
        *,
        is_markup: bool,
        spellings: dict[int, dict[str, str]] | None = None,
    ) -> None:
        """check: compares the numbers of a segment and its translation. is_markup: whether text is escaped.

        rewritten: returns a segment's numbers that the target language writes differently, with that spelling.
        target_language: BCP 47 code.
        spellings: a cache of the spellings of characters, by block. Writers of the same document share it.
        """
        self._check = check
        self._rewritten = rewritten
        self._target_language = target_language
        self._is_markup = is_markup
        self._parts: list[str] = []
        self._segments: list[FinishedSegment] = []
        self._length = 0
        self._spelling_cache: dict[int, dict[str, str]] = {} if spellings is None else spellings

    @property
    def finished(self) -> FinishedText:
        """Return the text written so far."""
        return FinishedText("".join(self._parts), tuple(self._segments))

    def write(self, part: str) -> None:
        """Append text between segments."""
        self._parts.append(part)
        self._length += len(part)

    def write_segment(self, block: Block, segment: SourceSegment, translation: SegmentTranslation) -> None:
        """Append a segment's translation with its tags, its casing and the contents of placeholders.

        If the source replaces the translation, append it as in the document, with the translations of its terms.
        """
        repaired = repair(segment, translation)
        repaired = repaired._replace(text=self._with_control_in_order(block, segment, repaired.text))
        tags = _tags_in_source(block, segment)
        placement = place_tags(segment.source, tags, repaired.text, repaired.alignment)
        fallbacks = repaired.fallbacks + (Fallback.TAGS_UNSURE,) * (not placement.is_sure)
        start = self._length
        if translation.keeps_source and translation.text == segment.source:
            placed: Sequence[Tag] = ()
            rendered: Sequence[str] = [
                source_markup(block, segment.span, segment.tags.start, segment.tags.stop)
            ]
        else:
            placed = placement.tags
            rendered = self._rendered(block, segment, repaired.text, placed)
        self.write(rendered if isinstance(rendered, str) else "".join(rendered))
        self._segments.append(
            FinishedSegment(
                source=span_in_document(block, segment),
                target=(start, self._length),
                is_part=segment.is_part,
                fallbacks=fallbacks,
                changed_numbers=self._check(segment, repaired.text),
                token_offsets=_rendered_offsets(repaired.token_offsets, rendered, placed, start)
                if repaired.token_offsets
                else (),
                keeps_source=translation.keeps_source,
            )
        )

    def _with_control_in_order(self, block: Block, segment: SourceSegment, text: str) -> str:
        """Return a translation with the branches and loops of a template in the order of the source."""
        spellings = self._spellings(block, segment) if segment.placeholders else {}
        control = [each for each in segment.placeholders if is_control(spellings.get(each, ""))]
        if len(control) < 2:
            return text
        ordered = iter(control)
        return "".join(next(ordered, each) if each in control else each for each in text)

    def preview(self, block: Block, segment: SourceSegment, text: str) -> str:
        """Return a segment's translation without tags, with its casing and the contents of placeholders."""
        return "".join(self._characters(block, segment, text))

    def _rendered(
        self, block: Block, segment: SourceSegment, text: str, tags: Sequence[Tag]
    ) -> Sequence[str]:
        """Return a string for each character of the text and each tag, in order."""
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
        """Return the spelling of each character of a text, with numbers rewritten.

        The result may be one string instead of a list, because a string is a sequence of its characters.
        """
        spellings = self._spellings(block, segment)
        rewritten = self._rewritten(segment)
        is_copy = text == segment.written and not segment.numbers
        text = with_numbers_rewritten(text, rewritten)
        if segment.numbers:
            spellings = spellings | {
                placeholder: with_numbers_rewritten(number, rewritten)
                for placeholder, number in segment.numbers
            }
        shown: Sequence[str] = text
        if segment.casing is not Casing.PLAIN:
            shown = [restored(character, segment.casing, self._target_language) for character in text]
        if self._is_markup:
            shown = [escaped(character, spellings) for character in shown]
        elif spellings:
            shown = [spellings.get(character, character) for character in shown]
        if block.spaced:
            shown = [
                "" if character == " " and _is_helping_space(block, before, following) else spelling
                for before, character, following, spelling in zip(
                    ("", *text), text, (*text[1:], ""), shown, strict=False
                )
            ]
        return _with_unread(block, segment, shown) if is_copy else shown

    def _spellings(self, block: Block, segment: SourceSegment) -> dict[str, str]:
        """Return how the document writes characters: as references or, for placeholders, as their contents."""
        if segment.block not in self._spelling_cache:
            spellings = references_of(block) if self._is_markup else {}
            if block.placeholders:
                for character, raw in zip(block.text, block.raws, strict=True):
                    if character in block.placeholders:
                        spellings[character] = raw
            self._spelling_cache[segment.block] = spellings
        return self._spelling_cache[segment.block]


def _is_helping_space(block: Block, before: str, following: str) -> bool:
    """Whether a space between these characters of a translation is one that only the model reads (`Block.spaced`)."""
    if before not in block.spaced:
        return False
    return following.isalnum() or following == block.text[block.text.index(before) + 2]


def _rendered_offsets(
    offsets: Sequence[Offsets], rendered: Sequence[str], tags: Sequence[Tag], start: int
) -> tuple[Offsets, ...]:
    """Map offsets in a segment's text to the whole translation. A span excludes the tags at its edges.

    rendered: the strings of the segment's characters and tags. start: its offset in the whole translation.
    """
    ends = list(accumulate(map(len, rendered), initial=start))
    positions = [tag.position + index for index, tag in enumerate(tags)]  # in `rendered`
    is_tag = [False] * (len(ends) - 1)
    for position in positions:
        is_tag[position] = True
    characters = [index for index, each in enumerate(is_tag) if not each]

    def moved(first: int, last: int) -> Offsets:
        if first < last:
            return ends[characters[first]], ends[characters[last - 1] + 1]
        offset = ends[characters[first]] if first < len(characters) else ends[-1]
        return offset, offset

    return tuple(moved(*each) for each in offsets)


def span_in_document(block: Block, segment: SourceSegment) -> Offsets:
    """Return the segment's start and end in the document, with the tags that it contains."""
    start, end = block.offsets[segment.span.start], block.end(segment.span.end - 1)
    if segment.tags:
        first, last = segment.tags[0], segment.tags[-1]
        start = min(start, block.tag_offset(first))
        end = max(end, block.tag_offset(last) + len(block.tags[last].markup))
    return start, end


def _tags_in_source(block: Block, segment: SourceSegment) -> list[Tag]:
    """Return a segment's tags by position in `segment.source`.

    `Tag.spaces` are the document's spaces after it that `segment.source` lacks.
    """
    tags: list[Tag] = []
    is_before_spaces = False
    for index in reversed(segment.tags):
        tag = block.tags[index]
        position = bisect_left(segment.positions, tag.position)
        following = segment.positions[position] if position < len(segment.positions) else tag.position
        next_position = block.tags[index + 1].position if index + 1 < segment.tags.stop else following
        following = min(following, next_position)
        spaces = "".join(
            block.raws[place]
            for place in range(tag.position, following)
            if block.text[place] not in INVISIBLE
        )
        is_before_spaces = bool(spaces) or (is_before_spaces and next_position == tag.position)
        tags.append(Tag(position, tag.markup, tag.kind, tag.name, spaces, is_before_spaces))
    return tags[::-1]


def _with_unread(block: Block, segment: SourceSegment, shown: Sequence[str]) -> Sequence[str]:
    """Return the spellings of the characters of `segment.source`, each followed by what was dropped after it.

    `app.text.model_input` drops invisible characters and spaces. Dropped spaces after a tag are left out, because
    `_tags_in_source` adds them to the tag. A run of ASCII white space stays one space.
    """
    if isinstance(segment.positions, range):  # `segment.source` lacks no character of the document.
        return shown
    tags = [block.tags[index].position for index in segment.tags]
    spellings = []
    ends = (*segment.positions[1:], segment.span.end)
    for spelling, position, end in zip(shown, segment.positions, ends, strict=True):
        if end > position + 1 and block.text[position:end].strip(ASCII_SPACES):
            tag = bisect_right(tags, position)
            edge = min([end, *tags[tag : tag + 1]])
            spelling += "".join(
                block.raws[place]
                for place in range(position + 1, end)
                if place < edge or block.text[place] in INVISIBLE
            )
        spellings.append(spelling)
    return spellings
