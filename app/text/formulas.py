"""In words with a tag inside, finds what is not translated: H<sub>2</sub>O, and the 1 of price<sup>1</sup>."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from app.text.alignment import words
from app.text.blocks import Block
from app.text.protected_spans import overlaps
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


class Run(NamedTuple):
    """A part of a word with a tag inside. is_mark: whether it may be a mark, such as the 1 of `price<sup>1</sup>`."""

    span: Span
    is_mark: bool


# A word with a tag inside, in which a run that is a mark and a run that is none alternate.
TaggedWord = Sequence[Run]


def tagged_words(block: Block) -> list[TaggedWord]:
    """Return the words with a tag inside that may be formulas or have marks, in order.

    Only words count that have a digit, or in which one of the tags is `sub` or `sup`. A mark is in `sub` or `sup`, or
    has no letter.
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

    found: list[TaggedWord] = []
    for word, group in groupby(range(len(block.tags)), word_around):
        indices = list(group)
        if word is None:
            continue
        text = spans[word].of(block.text)
        if any(map(str.isdigit, text)) or any(block.tags[index].name in _TAGS for index in indices):
            edges = [spans[word].start, *(block.tags[index].position for index in indices), spans[word].end]
            pieces = [Span(*edge) for edge in pairwise(edges) if edge[0] < edge[1]]
            found.append(_runs(block.text, pieces, raised))
    return found


def _runs(text: str, pieces: Sequence[Span], raised: Sequence[_Raised]) -> list[Run]:
    """Return the runs of a word. pieces: the word, divided at its tags."""

    def is_mark(piece: Span) -> bool:
        return _is_in(piece, raised) or not any(map(str.isalpha, piece.of(text)))

    groups = [(each, list(members)) for each, members in groupby(pieces, is_mark)]
    return [Run(Span(members[0].start, members[-1].end), each) for each, members in groups]


def mark_borders(tagged: Sequence[TaggedWord]) -> list[int]:
    """Return the positions inside words at which a mark begins or ends, in order."""
    return [run.span.start for word in tagged for run in word[1:]]


def find_formulas(text: str, tagged: Sequence[TaggedWord], protected: Sequence[Span] = ()) -> list[Span]:
    """Return the formulas and marks, in order.

    The rest of a word with a mark must have three letters or more, and no capital after the first, or overlap one of
    the `protected` spans. A word without such a rest is a formula as a whole. Letters of scripts without spaces end a
    formula: `10m<sup>2</sup>` is the formula in `10m<sup>2</sup>的`.
    tagged: the result of `tagged_words` for the text. protected: in order, without overlap.
    """
    formulas: list[Span] = []
    for word in tagged:
        rest = [run.span for run in word if not run.is_mark]
        if all(_is_word(span.of(text)) or overlaps(span, protected) for span in rest):
            formulas += (run.span for run in word if run.is_mark)
        else:
            formulas.append(Span(word[0].span.start, word[-1].span.end))
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


def _is_word(text: str) -> bool:
    """Whether a text has three letters or more, no capital after the first letter, no digit and no underscore."""
    letters = [character for character in text if character.isalpha()]
    return (
        len(letters) >= _MIN_LETTERS
        and not any(map(str.isupper, letters[1:]))
        and not any(character.isdigit() or character == "_" for character in text)
    )
