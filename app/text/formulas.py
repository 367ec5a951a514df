"""Finds parts of words with a tag inside that are not translated: H<sub>2</sub>O, and the 1 of price<sup>1</sup>."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, groupby, pairwise

from app.text.alignment import words
from app.text.blocks import Block
from app.text.scripts import UNSPACED
from app.text.segmentation import Span
from app.text.tags import Tag, TagKind, partners

_TAGS = frozenset({"sub", "sup"})
_SPACED = re.compile(f"[^{UNSPACED}]++")
# Letters of the shortest word whose mark is separated from it. Most symbols and units are shorter.
_MIN_LETTERS = 3


def find_formulas(block: Block) -> list[Span]:
    """Return the formulas and marks, in order. Each is in a word with a tag inside that has a digit, `sub` or `sup`.

    A mark is what is in `sub` or `sup`, or has no letter, if the rest of the word is a word in lower case, as in
    `price<sup>1</sup>`. A word without such a rest is a formula as a whole. Letters of scripts without spaces end a
    formula: `10m<sup>2</sup>` is the formula in `10m<sup>2</sup>的`.
    """
    if not block.tags:
        return []
    spans = _words(block)
    starts = [span.start for span in spans]
    depths = list(accumulate(block.tags, _depth, initial=0))

    def word_around(index: int) -> int | None:
        """Return which word the tag is inside of."""
        position = block.tags[index].position
        word = bisect_left(starts, position) - 1
        return word if word >= 0 and spans[word].start < position < spans[word].end else None

    formulas: list[Span] = []
    for word, group in groupby(range(len(block.tags)), word_around):
        indices = list(group)
        if word is None:
            continue
        text = spans[word].of(block.text)
        if any(map(str.isdigit, text)) or any(block.tags[index].name in _TAGS for index in indices):
            edges = [spans[word].start, *(block.tags[index].position for index in indices), spans[word].end]
            pieces = [Span(*edge) for edge in pairwise(edges)]
            are_raised = [depths[index] > 0 for index in (indices[0], *(index + 1 for index in indices))]
            formulas += _formulas(block.text, pieces, are_raised)
    return formulas


def _words(block: Block) -> list[Span]:
    """Return the words of a block.

    If a `sub` or `sup` begins inside a word and has no word in it, the word has all of it: `costs<sup>1)</sup>`.
    """
    raised = _raised(block)
    found: list[Span] = []
    for word in words(block.text):
        for part in _SPACED.finditer(block.text, word.start, word.end):
            start, end = part.span()
            if found and start < found[-1].end:
                continue
            first = bisect_right(raised, start, key=lambda span: span.start)
            last = bisect_left(raised, end, key=lambda span: span.start)
            found.append(Span(start, max(end, raised[last - 1].end if first < last else end)))
    return found


def _raised(block: Block) -> list[Span]:
    """Return the elements `sub` and `sup` without a word, in order. Nested ones are left out."""
    closing = partners(block.tags)
    found: list[Span] = []
    done = 0
    for index, tag in enumerate(block.tags):
        if tag.name in _TAGS and index in closing and tag.position >= done:
            span = Span(tag.position, block.tags[closing[index]].position)
            inner = span.of(block.text)
            if not any(_is_word(word.of(inner)) for word in words(inner)):
                found.append(span)
            done = span.end
    return found


def _depth(depth: int, tag: Tag) -> int:
    """The number of open `sub` and `sup` after a tag. depth: before it."""
    if tag.name not in _TAGS or tag.kind is TagKind.POINT:
        return depth
    return depth + 1 if tag.kind is TagKind.OPEN else max(depth - 1, 0)


def _formulas(text: str, pieces: Sequence[Span], are_raised: Sequence[bool]) -> list[Span]:
    """Return the marks of a word, or the whole word. pieces: the word, divided at its tags.

    are_raised: whether each piece is in `sub` or `sup`.
    """
    marks: list[Span] = []
    are_marks = [
        (piece, is_raised or not any(map(str.isalpha, piece.of(text))))
        for piece, is_raised in zip(pieces, are_raised, strict=True)
        if piece.start < piece.end
    ]
    for is_mark, group in groupby(are_marks, lambda item: item[1]):
        members = [piece for piece, _ in group]
        run = Span(members[0].start, members[-1].end)
        if is_mark:
            marks.append(run)
        elif not _is_word(run.of(text)):
            return [Span(pieces[0].start, pieces[-1].end)]
    return marks


def _is_word(text: str) -> bool:
    """Whether a text has three letters or more, no capital after the first letter, no digit and no underscore."""
    letters = [character for character in text if character.isalpha()]
    return (
        len(letters) >= _MIN_LETTERS
        and not any(map(str.isupper, letters[1:]))
        and not any(character.isdigit() or character == "_" for character in text)
    )
