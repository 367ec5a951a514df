"""Tells which spaces separate columns of plain text.

After the options of a command at the start of a line, two spaces separate columns: `-a, --all  show all files`.
Elsewhere, three spaces or more do. They separate no columns, but are a gap in running text, such as text from a PDF
file, if all of these hold:

- There are three or four of them, and the line has no other such run of spaces between words.
- A small letter or a comma is before them, and a small letter after them.
- Two words or more are on each side.
- No column of the line before or after begins at the same place. If the text has a single line, it ends with one of
  `.!?`. Blank lines do not count.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_GAP = re.compile(r"(?<=\S) {3,}(?=\S)")
# Maximum number of spaces of a gap in running text. If larger, the columns of more tables are read as one sentence. If
# smaller, more sentences are divided.
_MAX_GAP = 4
_END_MARKS = (".", "!", "?")
# An option at the start of a line, or a placeholder for options, and two spaces.
_OPTION = re.compile("^ *(-\\w|[\U000f0000-\U0010fffd])  (?=[^ ])", re.MULTILINE)


class _Line(NamedTuple):
    """A line with text. start: its position in the text. columns: where its text and its cells begin."""

    text: str
    start: int
    gaps: list[tuple[int, int]]
    columns: frozenset[int]


def with_tabs_after_options(text: str, raws: Sequence[str]) -> str:
    """Return the text with a tab for the first of two spaces that follow the options at the start of a line.

    raws: what each character stands for, which is more than the character for a placeholder.
    """
    return _OPTION.sub(
        lambda found: found.group()[:-2] + "\t " if raws[found.start(1)].startswith("-") else found.group(),
        text,
    )


def running_gaps(text: str) -> frozenset[int]:
    """Return the positions at which the gaps in running text begin."""
    if "   " not in text:
        return frozenset()
    lines = _lines(text)
    found = set()
    for index, line in enumerate(lines):
        if len(line.gaps) == 1 and _is_in_sentence(line.text, *line.gaps[0]):
            start, end = line.gaps[0]
            neighbours = lines[max(index - 1, 0) : index] + lines[index + 1 : index + 2]
            is_row = any(end in near.columns for near in neighbours)
            if not is_row and (neighbours or line.text.rstrip().endswith(_END_MARKS)):
                found.add(line.start + start)
    return frozenset(found)


def _lines(text: str) -> list[_Line]:
    """Return the lines that are not blank."""
    lines, start = [], 0
    for line in text.splitlines(keepends=True):
        if line.strip():
            gaps = [found.span() for found in _GAP.finditer(line)]
            indentation = len(line) - len(line.lstrip(" "))
            lines.append(_Line(line, start, gaps, frozenset([indentation, *(end for _, end in gaps)])))
        start += len(line)
    return lines


def _is_in_sentence(line: str, start: int, end: int) -> bool:
    """Whether the words on both sides of the spaces line[start:end] can belong to one sentence."""
    before, after = line[start - 1], line[end]
    return (
        end - start <= _MAX_GAP
        and (before.islower() or before == ",")
        and after.islower()
        and min(len(line[:start].split()), len(line[end:].split())) > 1
    )
