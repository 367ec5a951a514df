"""Corrects what models often change: spaces before placeholders, dashes of ranges, marks at the end of a segment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from app.text.spacing import closing_marks_start, follows_word, is_in_word

_MARKS = re.compile(r"[.!?\u2026]+")
# Marks that a model may shorten or leave out: `!!!`, `?!`, an ellipsis, `...?`.
_SHORTENED = re.compile(r"[!?]{2}|\.{3}|\u2026")
_ELLIPSES = frozenset(("...", "\u2026"))
_EN_DASH = "\u2013"
# A range: two numbers with an en dash, or with a mark that a model writes in its place. Ranges such as the two of
# `1:2-3` share a number.
_RANGE = re.compile(rf"(?<!\d)(\d++)([{_EN_DASH}:\-])(?=(\d++))")
_QUOTES = frozenset("\"'\u2018\u201a\u201c\u201d\u201e\u00ab\u00bb")


class Edit(NamedTuple):
    """What replaces text[start:end]."""

    start: int
    end: int
    written: str

    def shift(self, position: int) -> int:
        """Return by how many characters the edit moves a position.

        A position inside text[start:end] moves back to the end of `written`, if it is after that end.
        """
        if position >= self.end:
            return len(self.written) - (self.end - self.start)
        return min(0, self.start + len(self.written) - position)


def corrections(source: str, placeholders: Sequence[str], text: str) -> list[Edit]:
    """Return the edits that correct a translation, in order.

    - A placeholder that has a space or quotation mark before it in the source gets a space after a word.
    - A range of numbers gets its en dash in the place of a hyphen or colon (`_changed_dashes`).
    - If the source ends with `!!!`, `?!`, an ellipsis or the like, so does the translation (`_changed_closing_marks`).
    """
    spaces = _missing_spaces(source, placeholders, text)
    return sorted((*spaces, *_changed_dashes(source, text), *_changed_closing_marks(source, text)))


def _missing_spaces(source: str, placeholders: Sequence[str], text: str) -> Iterator[Edit]:
    for placeholder in placeholders:
        position, before = text.find(placeholder), source[: source.find(placeholder)][-1:]
        is_apart = before.isspace() or before in _QUOTES
        if position > 0 and is_apart and text[position - 1].isalpha() and is_in_word(text[position - 1]):
            yield Edit(position, position, " ")


def _changed_dashes(source: str, text: str) -> Iterator[Edit]:
    """Yield an edit for each range whose en dash is another mark in the translation.

    A mark stays if the source has it between the same two numbers. A colon also stays if the first number is not the
    smaller one, because such numbers may be the score of a game.
    """
    if _EN_DASH not in source:
        return
    ranges = set(_RANGE.findall(source))
    for match in _RANGE.finditer(text):
        first, mark, last = match.groups()
        is_changed = (first, _EN_DASH, last) in ranges and (first, mark, last) not in ranges
        if is_changed and (mark == "-" or _size(first) < _size(last)):
            yield Edit(*match.span(2), _EN_DASH)


def _size(number: str) -> tuple[int, str]:
    """Return a key by which whole numbers compare by value. `int` refuses numbers of more than 4300 digits."""
    digits = number.lstrip("0")
    return len(digits), digits


def _changed_closing_marks(source: str, text: str) -> Iterator[Edit]:
    """Yield an edit if the source ends with marks of _SHORTENED, and the translation with other marks or none.

    A translation that has only marks beyond _MARKS after its last word, such as a comma or a wide mark, keeps these.
    """
    wanted = _MARKS.search(source, closing_marks_start(source))
    start = closing_marks_start(text)
    if wanted is None or start == 0 or not _SHORTENED.search(wanted.group()):
        return
    found = _MARKS.search(text, start)
    if found is None:
        if not any(map(follows_word, text[start:])):
            yield Edit(start, start, wanted.group())
    elif found.group() != wanted.group() and not _ELLIPSES.issuperset((found.group(), wanted.group())):
        yield Edit(*found.span(), wanted.group())


def moved_start(edits: Sequence[Edit], position: int) -> int:
    """Return where a part that starts at this position starts after the edits."""
    return position + sum(edit.shift(position) for edit in edits)


def moved_end(edits: Sequence[Edit], position: int) -> int:
    """Return where a part that ends at this position ends after the edits."""
    return position + sum(edit.shift(position) for edit in edits if edit.start < position)
