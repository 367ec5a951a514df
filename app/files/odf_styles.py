"""The styles of text in an OpenDocument file: those of the spans and links around it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import unescape

from app.files.office_file import XmlEntry
from app.files.run_styles import RunStyle
from app.files.unit import FileError
from app.files.xml_tree import Node, elements

# The maximum number of characters in the tags around the texts of an entry. The tags of a span are repeated with each
# span in it. If larger, a small file takes more memory.
MAX_TAG_CHARACTERS = 30_000_000
_NAME = re.compile(r"""\stext:style-name\s*=\s*["']([^"']*)["']""")
_DEFINED_NAME = re.compile(r"""\sstyle:name\s*=\s*["']([^"']*)["']""")
_PARENT = re.compile(r"""\sstyle:parent-style-name\s*=\s*["'][^"']*["']""")
# Properties that do not affect the appearance: language, and LibreOffice's notes of when a text was changed.
_IGNORED = re.compile(
    r"\s(?:officeooo:(?:paragraph-)?rsid|(?:fo|style):(?:language|country|script|rfc-language-tag)(?:-\w+)?)"
    r"""\s*=\s*(?:"[^"]*"|'[^']*')"""
)
_EMPTY = re.compile(r"<style:text-properties\s*(?:/>|>\s*</style:text-properties\s*>)")
# Properties that show on blanks.
_ON_BLANKS = re.compile(
    r"""\s(?:style:text-(?:underline|line-through)-style|fo:background-color)\s*=\s*["'](?!none|transparent)[^"']*["']"""
)


@dataclass(frozen=True, slots=True)
class _Appearance:
    """What a style changes. key: equal for styles of the same appearance; empty if it changes nothing."""

    key: str
    on_blanks: tuple[str, ...]


class SpanStyles:
    """The styles of spans and links in an entry of the archive."""

    def __init__(self, entry: XmlEntry) -> None:
        self._entry = entry.name
        self._num_characters = 0
        # The styles that the entry defines for its own spans, by name.
        self._appearances: dict[str, _Appearance] = {}
        for parent in elements(entry.root):
            if parent.name == "office:automatic-styles":
                for node in parent.nodes:
                    name = _DEFINED_NAME.search(node.opening)
                    if node.name == "style:style" and name is not None:
                        self._appearances[unescape(name[1])] = _appearance(node)

    def of_span(self, node: Node, around: RunStyle) -> RunStyle:
        """The style of text in a span. around: the style around it. Raises FileError."""
        name = _NAME.search(node.opening)
        named = unescape(name[1]) if name else ""
        own = self._appearances.get(named, _Appearance(named, ()))
        return self._inside(around, node.opening, node.closing, own)

    def of_link(self, opening: str, closing: str, around: RunStyle) -> RunStyle:
        """The style of text in a link. opening, closing: its XML. around: the style around it. Raises FileError."""
        return self._inside(around, opening, closing, _Appearance(opening, ()))

    def _inside(self, around: RunStyle, opening: str, closing: str, own: _Appearance) -> RunStyle:
        """A style in another one. Raises FileError if the tags of all styles are too long."""
        self._num_characters += len(around.opening) + len(opening)
        if self._num_characters > MAX_TAG_CHARACTERS:
            raise FileError(
                f"{self._entry}: nested spans exceed the limit of {MAX_TAG_CHARACTERS} characters of tags"
            )
        return RunStyle(
            around.opening + opening,
            closing + around.closing,
            "|".join(filter(None, (around.key, own.key))),
            around.on_blanks + own.on_blanks,
        )


def _appearance(style: Node) -> _Appearance:
    """What a style changes. style: its definition."""
    properties = [_IGNORED.sub("", node.raw) for node in style.nodes if node.name == "style:text-properties"]
    parent = _PARENT.search(style.opening)
    parts = [parent[0] if parent else "", *(each for each in properties if not _EMPTY.fullmatch(each))]
    return _Appearance("".join(parts), tuple(_ON_BLANKS.findall("".join(properties))))
