"""Corrects spaces before placeholders and marks at the end of a translation, which models often change."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from app.text.spacing import closing_marks_start, follows_word, is_in_word

_MARKS = re.compile(r"[.!?\u2026]+")
# Marks that a model shortens or leaves out: `!!!`, `?!`, an ellipsis, `...?`.
_SHORTENED = re.compile(r"[!?]{2}|\.{3}|\u2026")
_ELLIPSES = frozenset(("...", "\u2026"))
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
    - If the source ends with `!!!`, `?!`, an ellipsis or the like, so does the translation.
    """
    return sorted((*_missing_spaces(source, placeholders, text), *_closing_run(source, text)))


def _missing_spaces(source: str, placeholders: Sequence[str], text: str) -> Iterator[Edit]:
    for placeholder in placeholders:
        position, before = text.find(placeholder), source[: source.find(placeholder)][-1:]
        is_apart = before.isspace() or before in _QUOTES
        if position > 0 and is_apart and text[position - 1].isalpha() and is_in_word(text[position - 1]):
            yield Edit(position, position, " ")


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
