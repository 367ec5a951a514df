"""Finds rows of HTML elements, such as the links of a menu, that a page shows apart from each other.

A row has elements of one name that follow each other with nothing but white space between them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from app.text.word_borders import may_end_word

# The elements of a row are apart even within a sentence if there are at least this many. Two elements may be parts of
# one word: `We use <span>Git</span><span>Hub</span>`.
_MIN_ELEMENTS = 3


@dataclass
class _Row:
    """starts: the indices of the opening tags. num_texts: number of texts with a word in the elements."""

    name: str
    starts: list[int]
    num_elements: int = 0
    num_texts: int = 0


class _Open(NamedTuple):
    """An element that has not ended. num_before: number of texts with a word before it. row: None if it has none."""

    name: str
    num_before: int
    row: _Row | None


class ElementRows:
    """The rows of a block. Its tags and texts are added in order."""

    def __init__(self) -> None:
        self._rows: list[_Row] = []
        self._opened: list[_Open] = []
        self._num_opened: Counter[str] = Counter()
        # For the block and each open element, the row that the next element in it may continue.
        self._last: list[_Row | None] = [None]
        self._num_texts = 0

    def open(self, index: int, name: str) -> None:
        """Add an opening tag."""
        row = self._last[-1]
        if row is None or row.name != name:
            row = self._new_row(name)
        if row is not None:
            row.starts.append(index)
        self._last[-1] = row
        self._last.append(None)
        self._opened.append(_Open(name, self._num_texts, row))
        self._num_opened[name] += 1

    def close(self, name: str) -> None:
        """Add a closing tag."""
        if self._num_opened[name]:
            while self._end_element() != name:
                pass
        elif not self._opened:  # The element began before the block.
            row = self._new_row(name)
            if row is not None:
                row.num_elements, row.num_texts = 1, self._num_texts
            self._last[-1] = row

    def text(self, *, has_word: bool) -> None:
        """Add a text that is not white space."""
        self._num_texts += has_word
        self._last[-1] = None

    def starts_apart(self) -> set[int]:
        """End the block. Return the indices of the opening tags before which a word may end.

        They are in a row of at least _MIN_ELEMENTS, or in a row that has all words of the block.
        """
        while self._opened:
            self._end_element()
        return {
            start
            for row in self._rows
            if row.num_elements >= _MIN_ELEMENTS or row.num_texts == self._num_texts
            for start in row.starts
        }

    def _new_row(self, name: str) -> _Row | None:
        if not may_end_word(name):
            return None
        self._rows.append(_Row(name, []))
        return self._rows[-1]

    def _end_element(self) -> str:
        name, num_before, row = self._opened.pop()
        self._last.pop()
        self._num_opened[name] -= 1
        if row is not None:
            row.num_elements += 1
            row.num_texts += self._num_texts - num_before
        return name
