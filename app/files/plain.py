"""Plain text: one unit a line. White space at both ends of a line, line endings and empty lines stay."""

from __future__ import annotations

import re

from app.files.encoding import decode
from app.files.unit import Slot, SlottedText, Unit, is_translatable

_LINE = re.compile(r"[^\r\n]+")


def read_plain(data: bytes) -> SlottedText:
    """Raises FileError."""
    decoded = decode(data)
    slots = []
    for match in _LINE.finditer(decoded.text):
        body = match.group().strip()
        if is_translatable(body):
            start = match.start() + match.group().index(body)
            slots.append(Slot(start, start + len(body), Unit(body), one_line))
    return SlottedText(decoded.text, tuple(slots), decoded.encoder())


def one_line(text: str) -> str:
    """A translation never adds a line."""
    return " ".join(text.splitlines()) if "\n" in text or "\r" in text else text
