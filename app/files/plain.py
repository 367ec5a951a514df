"""Plain text: one unit a line. White space at both ends of a line, line endings and empty lines stay."""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.files.encoding import decode
from app.files.unit import FileLimits, Slot, SlottedText, Unit, is_translatable

_LINE = re.compile(r"[^\r\n]+")


def read_plain(data: bytes, limits: FileLimits) -> SlottedText:
    """Raises FileError."""
    decoded = decode(data)
    return SlottedText(decoded.text, limits.bounded(_slots(decoded.text)), decoded.encoder())


def _slots(text: str) -> Iterator[Slot]:
    for match in _LINE.finditer(text):
        body = match.group().strip()
        if is_translatable(body):
            start = match.start() + match.group().index(body)
            yield Slot(start, start + len(body), Unit(body), one_line)


def one_line(text: str) -> str:
    """A translation never adds a line."""
    return " ".join(text.splitlines()) if "\n" in text or "\r" in text else text
