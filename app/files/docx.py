"""Word documents (.docx): paragraphs of the body, headers, footers, footnotes and endnotes, in tables and boxes too.

The archive's other entries, and every paragraph whose text comes back as it was, stay as they are.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from io import BytesIO
from zipfile import BadZipFile, ZipFile, ZipInfo

from app.files.docx_paragraph import Paragraph, Raw, read_paragraph
from app.files.tagged import Piece
from app.files.unit import FileError, FileLimits, Unit, check_count
from app.files.xml_tree import Node, read_tree

_PARTS = re.compile(r"word/(?:document|header\d*|footer\d*|footnotes|endnotes)\.xml")
_BODY = "word/document.xml"
# What a damaged or encrypted archive raises.
_BROKEN = (BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, ValueError, OSError)


_Changed = tuple[Paragraph, list[Piece[Raw]]]


@dataclass(frozen=True)
class _Part:
    """paragraphs: those with something to translate, in reading order."""

    root: Node
    encoding: str
    paragraphs: tuple[Paragraph, ...]


@dataclass(frozen=True)
class DocxFile:
    """A document that was read. entries: all of the archive's, in order."""

    data: bytes
    entries: tuple[tuple[ZipInfo, bytes], ...]
    parts: Mapping[str, _Part]

    @property
    def units(self) -> tuple[Unit, ...]:
        """One a paragraph."""
        return tuple(each.unit for part in self.parts.values() for each in part.paragraphs)

    def write(self, translations: Sequence[str]) -> bytes:
        """The document with the translations in its paragraphs. Raises ValueError."""
        units = self.units
        check_count(translations, len(units))
        if all(unit.text == text for unit, text in zip(units, translations, strict=True)):
            return self.data
        waiting = iter(translations)
        written = {}
        for name, part in self.parts.items():
            changed = {}
            for paragraph in part.paragraphs:
                translation = next(waiting)
                if translation != paragraph.unit.text:
                    changed[id(paragraph.node)] = (paragraph, paragraph.tagged.read(translation))
            if changed:
                written[name] = _rendered(part.root, changed).encode(part.encoding)
        archive = BytesIO()
        with ZipFile(archive, "w") as new:
            for info, content in self.entries:
                new.writestr(
                    copy(info), written.get(info.filename, content), compress_type=info.compress_type
                )
        return archive.getvalue()


def read_docx(data: bytes, limits: FileLimits) -> DocxFile:
    """Raises FileError."""
    entries = tuple(_entries(data, limits))
    contents = {info.filename: content for info, content in entries}
    if _BODY not in contents:
        raise FileError(f"not a Word document: it has no {_BODY}")
    parts = {}
    for name in sorted(contents, key=lambda name: (name != _BODY, name)):
        if _PARTS.fullmatch(name):
            root, encoding = read_tree(contents[name], name)
            found = (read_paragraph(node) for node in _paragraphs(root))
            parts[name] = _Part(root, encoding, tuple(each for each in found if each is not None))
    return DocxFile(data, entries, parts)


def _entries(data: bytes, limits: FileLimits) -> Iterator[tuple[ZipInfo, bytes]]:
    try:
        with ZipFile(BytesIO(data)) as archive:
            infos = archive.infolist()
            if len(infos) > limits.max_parts:
                raise FileError(f"the archive has {len(infos)} entries, and {limits.max_parts} are allowed")
            if len({info.filename for info in infos}) < len(infos):
                raise FileError("the archive has two entries of the same name")
            # An entry is never unpacked beyond the size that it declares.
            if sum(info.file_size for info in infos) > limits.max_part_bytes:
                raise FileError(f"the archive unpacks to more than the {limits.max_part_bytes} bytes allowed")
            for info in infos:
                yield info, archive.read(info)
    except FileError:
        raise
    except _BROKEN as error:
        raise FileError(f"not a readable .docx archive ({type(error).__name__})") from error


def _paragraphs(root: Node) -> Iterator[Node]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.name == "w:p":
            yield node
        waiting += reversed(node.nodes)


def _rendered(node: Node, changed: Mapping[int, _Changed]) -> str:
    """A node as it stands, but for the paragraphs that are changed, at any depth. Depth is bounded by `read_tree`."""
    if id(node) in changed:
        paragraph, pieces = changed[id(node)]
        return paragraph.written(pieces, lambda inner: _rendered(inner, changed))
    inner = [child if isinstance(child, str) else _rendered(child, changed) for child in node.children]
    return "".join([node.opening, *inner, node.closing])
