"""HTML: one unit per block of running text, as the text layer finds them. Everything between blocks is kept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

from app.files.encoding import decode
from app.files.unit import FileLimits, Slot, SlottedText, Unit, UnitFormat, is_translatable
from app.text.html_parts import html_parts
from app.text.html_scanner import scan_html

# The encoding in the `content` of a `meta` element.
_CHARSET = re.compile(r"charset\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s;\"'][^\s;]*))", re.IGNORECASE)
# The part of a document that may declare its encoding (HTML standard, 4.2.5.4).
_HEAD_BYTES = 1024
_UNKNOWN_REFERENCE = re.compile(r"&[A-Za-z0-9]+;")


def read_html_file(data: bytes, limits: FileLimits) -> SlottedText:
    """Parse HTML. Raises FileError."""
    decoded = decode(data, _declared_encoding(data), is_html=True)
    slots = limits.bounded(html_slots(decoded.text, 0))
    return SlottedText(decoded.text, slots, decoded.encoder(errors="xmlcharrefreplace"))


def _declared_encoding(data: bytes) -> str | None:
    """The encoding that a `meta` element declares, as browsers find it (HTML standard, 13.2.3.2); None if none does."""
    for event in scan_html(data[:_HEAD_BYTES].decode("latin-1")):
        if event.name != "meta":
            continue
        name = event.attributes.get("charset")
        if name is None and event.attributes.get("http-equiv", "").lower() == "content-type":
            match = _CHARSET.search(event.attributes.get("content", ""))
            name = match[match.lastindex or 0] if match else None
        if name and name.strip():
            return name.strip()
    return None


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
