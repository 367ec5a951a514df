"""In words with a tag inside, finds what is not translated: H<sub>2</sub>O, and the 1 of price<sup>1</sup>."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from app.text.alignment import words
from app.text.blocks import Block
from app.text.scripts import UNSPACED
from app.text.segmentation import Span
from app.text.tags import partners

_TAGS = frozenset({"sub", "sup"})
_SPACED = re.compile(f"[^{UNSPACED}]++")
# Minimum number of letters of a word from which a mark is separated. Most symbols and units are shorter.
_MIN_LETTERS = 3


class _Raised(NamedTuple):
    """An element `sub` or `sup` that is in no other `sub` or `sup`. has_word: whether a word in it is translated."""

    start: int
    end: int
    has_word: bool


def find_formulas(block: Block) -> list[Span]:
    """Return the formulas and marks of the words with a tag inside, in order.

    Only words count that have a digit, or in which one of the tags is `sub` or `sup`. A mark is a piece of such a word
    that is in `sub` or `sup` or has no letter, such as the 1 of `price<sup>1</sup>`. The rest of the word must have
    three letters or more, and no capital after the first. A word without such a rest is a formula as a whole. Letters
    of scripts without spaces end a formula: `10m<sup>2</sup>` is the formula in `10m<sup>2</sup>的`.
    """
    if not block.tags:
        return []
    raised = _raised(block)
    spans = _words(block, raised)
    starts = [span.start for span in spans]

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
            formulas += _formulas(block.text, pieces, [_is_in(piece, raised) for piece in pieces])
    return formulas


def _words(block: Block, raised: Sequence[_Raised]) -> list[Span]:
    """Return the words of a block.

    A `sub` or `sup` that begins inside a word belongs to the word as a whole: `costs<sup>1)</sup>`. So does a `sub` or
    `sup` that directly follows a word and has no word of its own: `price<sup>[1]</sup>`.
    """
    found: list[Span] = []
    for word in words(block.text):
        for part in _SPACED.finditer(block.text, word.start, word.end):
            start, end = part.span()
            if found and end <= found[-1].end:
                continue
            end = _end_of_word(block.text, start, end, raised)
            if found and start < found[-1].end:
                start = found.pop().start
            found.append(Span(start, end))
    return found


def _end_of_word(text: str, start: int, end: int, raised: Sequence[_Raised]) -> int:
    """Return where the word text[start:end] ends with the elements of `raised` that belong to it."""
    next_element = bisect_right(raised, start, key=lambda element: element.start)
    can_be_followed = text[end - 1].isalnum()
    while next_element < len(raised):
        element = raised[next_element]
        is_part = element.start == end and can_be_followed and not element.has_word
        if not (element.start < end or is_part):
            break
        end = max(end, element.end)
        next_element += 1
    return end


def _raised(block: Block) -> list[_Raised]:
    """Return the elements `sub` and `sup` with text, in order. Nested ones are left out."""
    closing = partners(block.tags)
    found: list[_Raised] = []
    done = 0
    for index, tag in enumerate(block.tags):
        if tag.name in _TAGS and index in closing and tag.position >= done:
            done = block.tags[closing[index]].position
            inner = block.text[tag.position : done]
            if inner.strip():
                has_word = any(_is_word(word.of(inner)) for word in words(inner))
                found.append(_Raised(tag.position, done, has_word))
    return found


def _is_in(piece: Span, raised: Sequence[_Raised]) -> bool:
    """Whether a piece is in `sub` or `sup`."""
    element = bisect_right(raised, piece.start, key=lambda element: element.start) - 1
    return element >= 0 and piece.end <= raised[element].end


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
