"""HTML: the blocks of running text that the text layer finds. Everything between them stays, malformed or not."""

from __future__ import annotations

import re

from app.files.encoding import decode
from app.files.unit import Slot, SlottedText, Unit, UnitFormat, is_translatable
from app.text.blocks import Block
from app.text.html_reader import read_html

_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
# Where a document names its encoding (HTML standard, 4.2.5.4).
_HEAD_BYTES = 1024


def read_html_file(data: bytes) -> SlottedText:
    """Raises FileError."""
    declared = _CHARSET.search(data[:_HEAD_BYTES])
    decoded = decode(data, declared[1].decode() if declared else None)
    return SlottedText(
        decoded.text, tuple(html_slots(decoded.text, 0)), decoded.encoder(errors="xmlcharrefreplace")
    )


def html_slots(text: str, start: int) -> list[Slot]:
    """The slots of a text in HTML that stands at `start`."""
    found = []
    for part in read_html(text).parts:
        raw = _raw(part) if isinstance(part, Block) else part
        body = raw.strip()
        if isinstance(part, Block) and is_translatable(body):
            place = start + raw.index(body)
            found.append(Slot(place, place + len(body), Unit(body, UnitFormat.HTML), str))
        start += len(raw)
    return found


def _raw(block: Block) -> str:
    """The block as it stands in the document."""
    parts: list[str] = []
    done = 0
    for tag in block.tags:
        parts += (block.raw(done, tag.position), tag.markup)
        done = tag.position
    return "".join([*parts, block.raw(done, len(block.text))])
