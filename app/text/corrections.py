"""Corrects what models often change: spaces before placeholders, dashes of ranges, marks at the end of a text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from app.text.spacing import closing_marks_start, follows_word, is_in_word

_MARKS = re.compile(r"[.!?\u2026]+")
# Marks that a model shortens or leaves out: `!!!`, `?!`, an ellipsis, `...?`.
_SHORTENED = re.compile(r"[!?]{2}|\.{3}|\u2026")
_ELLIPSES = frozenset(("...", "\u2026"))
# Two numbers with an en dash between them, and two with a mark that a model writes in its place.
_RANGE = re.compile(r"(?<!\d)(\d++)\u2013(?=(\d++))")
_CHANGED_RANGE = re.compile(r"(?<!\d)(\d++)([:\-])(?=(\d++))")
_QUOTES = frozenset("\"'\u2018\u201a\u201c\u201d\u201e\u00ab\u00bb")


class Edit(NamedTuple):
    """What replaces text[start:end]."""

    start: int
    end: int
    written: str

    def shift(self, position: int) -> int:
        """Return by how many characters a position moves. A position that the edit removes moves to its end."""
        if position >= self.end:
            return len(self.written) - (self.end - self.start)
        return min(0, self.start + len(self.written) - position)


def corrections(source: str, placeholders: Sequence[str], text: str) -> list[Edit]:
    """Return the edits that correct a translation, in order.

    - A placeholder that has a space or quotation mark before it in the source gets a space after a word.
    - A range of numbers gets its en dash in the place of a hyphen or colon (`_changed_dashes`).
    - If the source ends with `!!!`, `?!`, an ellipsis or the like, so does the translation.
    """
    spaces = _missing_spaces(source, placeholders, text)
    return sorted((*spaces, *_changed_dashes(source, text), *_closing_run(source, text)))


def _missing_spaces(source: str, placeholders: Sequence[str], text: str) -> Iterator[Edit]:
    for placeholder in placeholders:
        position, before = text.find(placeholder), source[: source.find(placeholder)][-1:]
        is_apart = before.isspace() or before in _QUOTES
        if position > 0 and is_apart and text[position - 1].isalpha() and is_in_word(text[position - 1]):
            yield Edit(position, position, " ")


def _changed_dashes(source: str, text: str) -> Iterator[Edit]:
    """Yield an edit for each range whose en dash is another mark in the translation.

    A colon stays if the first number is not the smaller one, because such numbers are the score of a game.
    """
    if "\u2013" not in source:
        return
    ranges = set(_RANGE.findall(source))
    known = set(_CHANGED_RANGE.findall(source))
    for match in _CHANGED_RANGE.finditer(text):
        first, mark, last = match.groups()
        if (first, last) not in ranges or match.groups() in known:
            continue
        if mark == "-" or _size(first) < _size(last):
            yield Edit(match.end() - 1, match.end(), "\u2013")


def _size(number: str) -> tuple[int, str]:
    """Return a key by which whole numbers compare by value."""
    digits = number.lstrip("0")
    return len(digits), digits


def _closing_run(source: str, text: str) -> Iterator[Edit]:
    run = _MARKS.search(source, closing_marks_start(source))
    start = closing_marks_start(text)
    if run is None or start == 0 or not _SHORTENED.search(run.group()):
        return
    marks = _MARKS.search(text, start)
    if marks is None:
        if not any(map(follows_word, text[start:])):
            yield Edit(start, start, run.group())
    elif marks.group() != run.group() and not _ELLIPSES.issuperset((marks.group(), run.group())):
        yield Edit(*marks.span(), run.group())


def moved_start(edits: Sequence[Edit], position: int) -> int:
    """Return the position after the edits of a part that starts at this position."""
    return position + sum(edit.shift(position) for edit in edits)


def moved_end(edits: Sequence[Edit], position: int) -> int:
    """Return the position after the edits of a part that ends at this position."""
    return position + sum(edit.shift(position) for edit in edits if edit.start < position)
