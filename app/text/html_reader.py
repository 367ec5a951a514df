"""Reads HTML into blocks. All markup is copied from the text, so that it stays the same byte for byte."""

from __future__ import annotations

from collections.abc import Collection

from app.text.blocks import BlockBuilder, Document
from app.text.html_parts import html_parts
from app.text.tags import TagKind


def read_html(text: str, ignore_tags: Collection[str] = ()) -> Document:
    """Read a page or a fragment. Malformed HTML is no error.

    ignore_tags: names of elements, in lower case, whose content is not translated.
    """
    builder = BlockBuilder()
    for part in html_parts(text, ignore_tags):
        if part.kind == "text":
            builder.text(part.raw)
        elif part.kind == "boundary":
            builder.boundary(part.raw)
        elif part.kind == "untouched":
            builder.untouched(part.raw)
        else:
            builder.tag(part.raw, TagKind(part.kind), part.name)
    return Document(builder.finish(), is_markup=True)
