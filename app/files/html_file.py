"""HTML: one unit per block of running text, as the text layer finds them. Everything between blocks is kept."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import unescape

from app.files.encoding import decode
from app.files.unit import FileLimits, Slot, SlottedText, Unit, UnitFormat, is_translatable
from app.text.html_parts import Part, html_parts
from app.text.html_scanner import CODE_OR_MARKUP, scan_html

# The encoding in the `content` of a `meta` element.
_CHARSET = re.compile(r"charset\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s;\"'][^\s;]*))", re.IGNORECASE)
# The encoding in an XML declaration.
_XML_ENCODING = re.compile(
    r"<\?xml[^>]*?encoding[\x00-\x20]*=[\x00-\x20]*(?:\"([^\"\x00-\x20>]+)\"|'([^'\x00-\x20>]+)')"
)
# The part of a document that may declare its encoding (HTML standard, 4.2.5.4).
_HEAD_BYTES = 1024
_UNKNOWN_REFERENCE = re.compile(r"&[A-Za-z0-9]+;")


def read_html_file(data: bytes, limits: FileLimits) -> SlottedText:
    """Parse HTML. Raises FileError."""
    decoded = decode(data, _declared_encoding(data), is_html=True)
    slots = limits.bounded(html_slots(decoded.text, 0))
    return SlottedText(decoded.text, slots, decoded.encoder(errors="xmlcharrefreplace"))


def _declared_encoding(data: bytes) -> str | None:
    """The encoding that a document declares, as browsers find it (HTML standard, 13.2.3.2); None if it declares none.

    A `meta` element has precedence over the XML declaration.
    """
    head = data[:_HEAD_BYTES].decode("latin-1")
    for event in scan_html(head):
        if event.name != "meta":
            continue
        name = event.attributes.get("charset")
        if name is None and event.attributes.get("http-equiv", "").lower() == "content-type":
            match = _CHARSET.search(event.attributes.get("content", ""))
            name = match[match.lastindex or 0] if match else None
        if name and name.strip():
            return name.strip()
    declaration = _XML_ENCODING.match(head)
    return declaration[declaration.lastindex or 0] if declaration else None


def html_slots(text: str, start: int) -> Iterator[Slot]:
    """Yield the slots of HTML text, in order. start: the offset of the text's beginning."""
    block: list[Part] = []
    for part in html_parts(text):
        if part.kind != "boundary":
            block.append(part)
            continue
        yield from _slot(block, start)
        start += sum(len(each.raw) for each in (*block, part))
        block.clear()
    yield from _slot(block, start)


def _slot(block: Sequence[Part], start: int) -> Iterator[Slot]:
    """Yield the slot of a block, if it has text to translate. start: the offset of the block's beginning."""
    raw = "".join(part.raw for part in block)
    body = raw.strip()
    if any(part.kind == "text" and _has_letter(part.raw) for part in block) and is_translatable(body):
        offset = start + raw.index(body)
        text = "".join(_as_fragment(part) for part in block).strip()
        yield Slot(offset, offset + len(body), Unit(text, UnitFormat.HTML), str)


def _as_fragment(part: Part) -> str:
    """A part as it is written outside of its element.

    In a title `<b>` is text, and its `<` becomes a reference. Elsewhere `<b>` would be markup.
    """
    if part.kind != "text" or "<" not in part.raw:
        return part.raw
    return CODE_OR_MARKUP.sub(lambda found: found["code"] or "&lt;", part.raw)


def _has_letter(raw: str) -> bool:
    text = _UNKNOWN_REFERENCE.sub("", unescape(raw)) if "&" in raw else raw
    return any(map(str.isalpha, text))
