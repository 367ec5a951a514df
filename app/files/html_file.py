"""HTML: one unit per block of running text, as the text layer finds them. Everything between blocks is kept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

from app.files.encoding import decode
from app.files.unit import FileLimits, Slot, SlottedText, Unit, UnitFormat, is_translatable
from app.text.html_parts import html_parts

_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
# The part of a document that may declare its encoding (HTML standard, 4.2.5.4).
_HEAD_BYTES = 1024
_UNKNOWN_REFERENCE = re.compile(r"&[A-Za-z0-9]+;")


def read_html_file(data: bytes, limits: FileLimits) -> SlottedText:
    """Parse HTML. Raises FileError."""
    declared = _CHARSET.search(data[:_HEAD_BYTES])
    decoded = decode(data, declared[1].decode() if declared else None, is_html=True)
    slots = limits.bounded(html_slots(decoded.text, 0))
    return SlottedText(decoded.text, slots, decoded.encoder(errors="xmlcharrefreplace"))


def html_slots(text: str, start: int) -> Iterator[Slot]:
    """Yield the slots of HTML text that begins at `start`, in order."""
    block: list[str] = []
    has_letter = False
    for part in html_parts(text):
        if part.kind != "boundary":
            block.append(part.raw)
            has_letter = has_letter or (part.kind == "text" and _has_letter(part.raw))
            continue
        raw = "".join(block)
        yield from _slot(raw, start, has_letter=has_letter)
        start += len(raw) + len(part.raw)
        block.clear()
        has_letter = False
    yield from _slot("".join(block), start, has_letter=has_letter)


def _slot(raw: str, start: int, *, has_letter: bool) -> Iterator[Slot]:
    """Yield the slot of a block that begins at `start`, if it has text to translate."""
    body = raw.strip()
    if has_letter and is_translatable(body):
        offset = start + raw.index(body)
        yield Slot(offset, offset + len(body), Unit(body, UnitFormat.HTML), str)


def _has_letter(raw: str) -> bool:
    text = _UNKNOWN_REFERENCE.sub("", unescape(raw)) if "&" in raw else raw
    return any(map(str.isalpha, text))
