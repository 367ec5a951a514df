"""Places the inline tags of a sentence in its translation, by the alignment.

An element encloses the run of target words that is aligned to the words of the element in the source. The content of an
element stays within the element. Sibling elements stay separate and may change order. A tag whose partner is in another
sentence, or missing, separates the words before it from the words after it. The tags of well-formed text therefore stay
well formed, and every tag appears exactly once, unchanged.

A point, or another element without words, keeps a space at each side where the source has one, but gets none before a
mark such as a comma. What is before the closing marks of the source stays before those of the translation.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import NamedTuple

from app.text.alignment import Alignment, WordAlignment, words
from app.text.scripts import is_unspaced
from app.text.segmentation import Span
from app.text.spacing import (
    closing_marks_start,
    follows_word,
    is_in_word,
    needs_space_after,
    needs_space_before,
)

# In a sentence with this many nested elements or more, the tags are appended. If larger, the recursion may exceed
# Python's stack.
MAX_DEPTH = 60
# The maximum number of tags of one sentence. In a sentence with more, the tags are appended. If larger, placing takes
# more time, which grows with tags times words.
MAX_TAGS = 200


class TagKind(Enum):
    """The kind of a tag. A POINT is markup that encloses no text: `<img>`, `<x/>`, a comment."""

    OPEN = "open"
    CLOSE = "close"
    POINT = "point"


@dataclass(frozen=True)
class Tag:
    """An inline tag.

    position: code points of the text before the tag. markup: as written. name: equal for both tags of an element.
    spaces: the document's spaces after the tag, if the text lacks them, because it has a space before the tag.
    is_before_spaces: whether there are such spaces after the tag, or after the tags directly after it.
    """

    position: int
    markup: str
    kind: TagKind
    name: str = ""
    spaces: str = ""
    is_before_spaces: bool = False

    @property
    def is_span(self) -> bool:
        """Whether the tag is a protected span that encloses words. Its name is a number, which no element has."""
        return self.name.isdecimal()


class Placement(NamedTuple):
    """Tags with their positions in the target text, in the order in which they are written.

    The markup of a tag has the spaces that the target text lacks before and after it. is_sure: whether every element
    with text in the source got words of its own.
    """

    tags: tuple[Tag, ...]
    is_sure: bool


def partners(tags: Sequence[Tag]) -> dict[int, int]:
    """Map the index of each opening tag to the index of its closing tag. Pairs are nested and never overlap."""
    partners: dict[int, int] = {}
    opened: list[int] = []
    by_name: dict[str, int] = {}
    num_elements = 0  # elements of the document that are open
    # `num_elements` at the start of each pair of protected spans.
    depths: dict[str, int] = {}
    for index, tag in enumerate(tags):
        if tag.kind is TagKind.OPEN:
            opened.append(index)
            if tag.is_span:
                depths[tag.name] = num_elements
            else:
                num_elements += 1
            by_name[tag.name] = by_name.get(tag.name, 0) + 1
        elif tag.kind is TagKind.CLOSE and by_name.get(tag.name):
            if depths.get(tag.name, num_elements) != num_elements:
                continue  # between two protected spans, every element is whole
            start = -1
            while start < 0 or tags[start].name != tag.name:
                start = opened.pop()
                by_name[tags[start].name] -= 1
                num_elements -= not tags[start].is_span
            partners[start] = index
    return partners


@dataclass
class _Element:
    """An element or a point, whose tags stay together. start, end: its span in the source, in code points.

    open, close: its tags; None for a point and for the whole sentence. items: its elements, and tags without a partner.
    """

    start: int
    end: int
    open: Tag | None = None
    close: Tag | None = None
    items: list[_Element | Tag] = field(default_factory=list)

    def tags(self) -> Iterator[Tag]:
        """Yield all tags in source order."""
        if self.open is not None:
            yield self.open
        for item in self.items:
            if isinstance(item, Tag):
                yield item
            else:
                yield from item.tags()
        if self.close is not None:
            yield self.close


class _TooDeep(Exception):
    """MAX_DEPTH nested elements or more."""


def _tree(tags: Sequence[Tag], length: int) -> _Element:
    """Return a sentence of this length as an element that contains the tags. Raises _TooDeep."""
    root = _Element(0, length)
    stack = [root]
    closing = partners(tags)
    ends = set(closing.values())
    for index, tag in enumerate(tags):
        if index in closing:
            element = _Element(tag.position, tags[closing[index]].position, open=tag)
            stack[-1].items.append(element)
            stack.append(element)
            if len(stack) > MAX_DEPTH:
                raise _TooDeep
        elif index in ends:
            stack.pop().close = tag
        elif tag.kind is TagKind.POINT:
            stack[-1].items.append(_Element(tag.position, tag.position, items=[tag]))
        else:
            stack[-1].items.append(tag)
    return root


class _Placer:
    """Places the tags of one sentence in its translation. Gap g is the place before word g of the target."""

    def __init__(self, source: str, target: str, alignment: Alignment) -> None:
        self.source = source
        self.target = target
        self.aligned = WordAlignment(target, alignment)
        self.source_words = words(source)
        self.source_starts = [word.start for word in self.source_words]
        self.source_closing = _first_closing(source, self.source_words)
        self.num_closing = len(self.aligned.words) - _first_closing(target, self.aligned.words)
        self.placed: list[Tag] = []
        self.is_sure = True
        # The index in `placed` of a tag that got the space which the document has after a later tag.
        self.with_later_space: int | None = None

    def fill(self, items: Sequence[_Element | Tag], first: int, last: int) -> None:
        """Place the items of an element among the target words first..last-1.

        Elements do not change places with a tag that has no partner.
        """
        siblings: list[_Element] = []
        for item in items:
            if isinstance(item, _Element):
                siblings.append(item)
                continue
            cut = self._cut(item.position, first, last)
            self._place_siblings(siblings, first, cut)
            siblings = []
            self._write(item, cut)
            first = cut
        self._place_siblings(siblings, first, last)

    def _place_siblings(self, elements: Sequence[_Element], first: int, last: int) -> None:
        """Place sibling elements among the target words first..last-1. They may change order."""
        occupied: list[tuple[int, int, int]] = []  # first word, gap after the last, index of the element
        points: list[int] = []
        for index, element in enumerate(elements):
            has_words = self._has_words(element)
            run = self._run(element, first, last, occupied) if has_words else None
            if run is None:
                points.append(index)
                self.is_sure = self.is_sure and not has_words
            else:
                occupied.append((*run, index))
        runs = sorted(occupied)
        for index in points:
            gap = self._gap(elements[index], first, last)
            for start, end, _ in runs:
                if start < gap < end:
                    gap = start if gap - start < end - gap else end
            occupied.append((gap, gap, index))
        for (start, end), group in groupby(sorted(occupied), key=itemgetter(0, 1)):
            placed = [elements[index] for _, _, index in group]
            if start == end:
                self._write_into_gap(placed, start)
            else:
                self._place(placed[0], start, end)

    def _has_words(self, element: _Element) -> bool:
        return bool(self.source[element.start : element.end].strip())

    def _last_gap(self, position: int, first: int, last: int) -> int:
        """Return the last gap in first..last before as many closing marks as the source has after a position."""
        following = max(bisect_left(self.source_starts, position), self.source_closing)
        num_closing = min(len(self.source_words) - following, self.num_closing)
        return max(first, min(last, len(self.aligned.words) - num_closing))

    def _cut(self, position: int, first: int, last: int) -> int:
        """Return the gap at which a position of the source divides the words first..last-1 of the target."""
        return self.aligned.cut(position, first, self._last_gap(position, first, last))

    def _run(
        self, element: _Element, first: int, last: int, occupied: Sequence[tuple[int, int, int]]
    ) -> tuple[int, int] | None:
        """Return the run of words for an element, outside of the occupied runs; None if no word is left."""
        best: tuple[float, int, int] | None = None
        begin = first
        last = self._last_gap(element.end, first, last)
        for stop, after in [(start, end) for start, end, _ in sorted(occupied)] + [(last, last)]:
            if begin < min(stop, last):
                start, end, gain = self.aligned.best_run(element.start, element.end, begin, min(stop, last))
                if best is None or gain > best[0]:
                    best = (gain, start, end)
            begin = after
        return None if best is None else (best[1], best[2])

    def _gap(self, element: _Element, first: int, last: int) -> int:
        """Return the gap between target words for a point, or for an element without words.

        It is next to the translation of the word that the point touches in the source. If the point touches no word, or
        the alignment does not show that word's translation, the gap separates the translation of the words before the
        point from that of the words after it. A point that touches no word is not put inside `e-mail`.
        """
        tags = list(element.tags())
        gap = self._cut(element.start, first, last)
        before, after = self._before(tags[0]), self._after(tags[-1])[:1]
        for neighbour, index in ((before, element.start - 1), (after, element.end)):
            if first < last and _is_visible(neighbour):
                word = self.source_words[bisect_right(self.source_starts, index) - 1]
                start, end, gain = self.aligned.best_run(word.start, word.end, first, last)
                touched = end if index < element.start else start
                return min(touched, self._last_gap(element.end, first, last)) if gain > 0 else gap
        while first < gap < last and self._is_inside(gap):
            gap -= 1
        return gap

    def _is_inside(self, gap: int) -> bool:
        """Whether a gap is inside characters without a space, such as `e-mail` or `(so`, and not before a comma."""
        start = self.aligned.words[gap].start
        if self.target[start - 1].isspace() or follows_word(self.target[start]):
            return False
        return not (is_unspaced(self.target[start - 1]) or is_unspaced(self.target[start]))

    def _place(self, element: _Element, start: int, end: int) -> None:
        """Write an element and its content around the target words start..end-1."""
        if element.open is not None:
            self._write(element.open, start)
        self.fill(element.items, start, end)
        if element.close is not None:
            self._write(element.close, end)

    def _write_into_gap(self, elements: Sequence[_Element], gap: int) -> None:
        """Write elements into a gap.

        Where they had a space beside them in the source, they get one, unless they have or touch a word there.
        """
        tags = [tag for element in elements for tag in element.tags()]
        has_words = any(map(self._has_words, elements)) or any(map(self._touches_word, tags))
        space = "" if has_words else " "
        for index, (tag, following) in enumerate(zip_longest(tags, tags[1:])):
            position = self._position(tag, gap, is_point=True)
            before = "" if index else space * needs_space_before(self._before(tag), self.target, position)
            if following is not None and self._position(following, gap, is_point=True) <= position:
                after = tag.spaces
            else:
                after = (tag.spaces or space) * needs_space_after(self._after(tag), self.target, position)
            self._append(tag, position, before, after)
            if after and not tag.spaces:
                self.with_later_space = len(self.placed) - 1

    def _write(self, tag: Tag, gap: int) -> None:
        """Write a tag into a gap, next to the word that it touched in the source."""
        position = self._position(tag, gap)
        is_apart = needs_space_after(self._after(tag), self.target, position)
        self._append(tag, position, "", tag.spaces * is_apart)

    def _append(self, tag: Tag, position: int, before: str, after: str) -> None:
        if tag.spaces and self.with_later_space is not None:
            earlier = self.placed[self.with_later_space]
            if earlier.position == position:
                self.placed[self.with_later_space] = replace(earlier, markup=earlier.markup[:-1])
            self.with_later_space = None
        self.placed.append(Tag(position, before + tag.markup + after, tag.kind, tag.name))

    def _before(self, tag: Tag) -> str:
        """Return the character before a tag in the source; "" for none."""
        return self.source[max(tag.position - 1, 0) : tag.position]

    def _after(self, tag: Tag) -> str:
        """Return the next character that the source has after a tag, with a space before it if the document has one."""
        return " " * tag.is_before_spaces + self.source[tag.position : tag.position + 1]

    def _touches_word(self, tag: Tag) -> bool:
        return is_in_word(self._before(tag)) or is_in_word(self._after(tag)[:1])

    def _position(self, tag: Tag, gap: int, *, is_point: bool = False) -> int:
        """Return where a tag in a gap is written: next to the word that it touches in the source."""
        targets = self.aligned.words
        left = targets[gap - 1].end if gap > 0 else 0
        right = targets[gap].start if gap < len(targets) else len(self.target)
        sides = [(self._before(tag), left), (self._after(tag)[:1], right)]
        if tag.kind is TagKind.OPEN and not is_point:
            sides.reverse()
        before = self.source[: tag.position]
        between = min(left + len(before) - len(before.rstrip()), right)
        position = next((side for neighbour, side in sides if _is_visible(neighbour)), between)
        return max(position, self.placed[-1].position if self.placed else 0)


def _first_closing(text: str, text_words: Sequence[Span]) -> int:
    """Return the index of the first of the closing marks at the end of a text, among its words."""
    return bisect_left(text_words, closing_marks_start(text), key=lambda word: word.start)


def _is_visible(character: str) -> bool:
    """Whether there is a character, and it is no space."""
    return character != "" and not character.isspace()


def place_tags(source: str, tags: Sequence[Tag], target: str, alignment: Alignment | None) -> Placement:
    """Place the tags of `source` in `target`.

    tags: in the order of `source`, with positions from 0 to len(source). All tags are appended in their order, and the
    placement is not sure, if there is no alignment or no target word, if there are more than MAX_TAGS tags, or if there
    are MAX_DEPTH nested elements or more.
    """
    if not tags:
        return Placement((), is_sure=True)
    if alignment is not None and target.strip() and len(tags) <= MAX_TAGS:
        placer = _Placer(source, target, alignment)
        try:
            placer.fill(_tree(tags, len(source)).items, 0, len(placer.aligned.words))
        except _TooDeep:
            pass
        else:
            return Placement(tuple(placer.placed), placer.is_sure)
    at_end = tuple(Tag(len(target), tag.markup, tag.kind, tag.name) for tag in tags)
    return Placement(at_end, is_sure=False)
