"""Plain text: one unit per line. Line endings, empty lines and white space at both ends of a line are kept."""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.files.encoding import decode
from app.files.unit import FileLimits, Slot, SlottedText, Unit, is_translatable

_LINE = re.compile(r"[^\r\n]+")


def read_plain(data: bytes, limits: FileLimits) -> SlottedText:
    """Parse a text file. Raises FileError."""
    decoded = decode(data)
    return SlottedText(decoded.text, limits.bounded(_slots(decoded.text)), decoded.encoder())


def _slots(text: str) -> Iterator[Slot]:
    for match in _LINE.finditer(text):
        body = match.group().strip()
        if is_translatable(body):
            start = match.start() + match.group().index(body)
            yield Slot(start, start + len(body), Unit(body), one_line)


def one_line(text: str) -> str:
    """The translation on one line, so that it never adds a line to the file."""
    return " ".join(text.splitlines()) if "\n" in text or "\r" in text else text
