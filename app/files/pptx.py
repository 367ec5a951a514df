"""PowerPoint presentations (.pptx): paragraphs of slides and notes, also in tables, SmartArt and titles of charts.

The text that layouts and masters show on slides is translated, too, but not the prompts of their placeholders. Other
entries of the archive, and paragraphs whose text is unchanged, are copied unchanged.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence, Set

from app.files.office_archive import DocumentKind, check_others, opened
from app.files.office_file import EntryReader, OfficeFile, XmlEntry, read_office_file
from app.files.office_package import (
    BODY_RELATIONSHIPS,
    Relationship,
    missing_body,
    read_relationships,
    relationships_entry,
)
from app.files.pptx_paragraph import read_paragraph
from app.files.styled_paragraph import Paragraph
from app.files.unit import FileError, FileLimits
from app.files.xml_tree import Node, elements

_KIND = DocumentKind("a PowerPoint presentation", "PowerPoint presentations", ".pptx", ".ppt")
# The usual name of the presentation's own entry, which lists the slides. It counts if the archive names no entry.
_BODY = "ppt/presentation.xml"
_PRESENTATION = "officeDocument"
# SmartArt has its texts twice: in its data, and in the drawing that programs show.
_DRAWN = ("chart", "chartEx", "diagramData", "diagramDrawing")
# For each kind of entry, the kinds of entries that belong to it and are read, in reading order.
_RELATED = {
    _PRESENTATION: ("slide",),
    "slide": (*_DRAWN, "notesSlide", "slideLayout"),
    "notesSlide": _DRAWN,
    "slideLayout": (*_DRAWN, "slideMaster"),
    "slideMaster": _DRAWN,
    "chart": ("chartUserShapes",),
}
# Entries that are read after all others.
_BACKGROUNDS = frozenset({"slideLayout", "slideMaster"})
# The root elements of the entries, with the prefixes that PowerPoint writes.
_ROOTS = frozenset(
    {"p:presentation", "p:sld", "p:notes", "p:sldLayout", "p:sldMaster", "c:chartSpace", "c:userShapes",
     "cx:chartSpace", "dgm:dataModel", "dsp:drawing"}
)  # fmt: skip
# The declaration of the prefix of paragraphs and their text.
_TEXT_PREFIX = re.compile(
    r"""\sxmlns(?::([^\s=]+))?\s*=\s*["']http://"""
    r"""(?:schemas\.openxmlformats\.org/drawingml/2006|purl\.oclc\.org/ooxml/drawingml)/main["']"""
)
_SLIDE_ID = re.compile(r"""\sr:id\s*=\s*["']([^"']*)["']""")


def read_pptx(data: bytes, limits: FileLimits) -> OfficeFile:
    """Parse a presentation. Raises FileError."""
    return read_office_file(data, _KIND, limits, _text_entries(data, limits), _paragraphs)


def _paragraphs(entry: XmlEntry) -> Iterator[Paragraph]:
    """Yield the paragraphs with text to translate, in reading order."""
    is_background = entry.root.nodes[0].name in {"p:sldLayout", "p:sldMaster"}
    for node in elements(entry.root, _is_placeholder if is_background else None):
        if node.name == "a:p":
            paragraph = read_paragraph(node)
            if paragraph is not None:
                yield paragraph


def _is_placeholder(shape: Node) -> bool:
    """Whether a shape is a placeholder. In a layout or a master, its text is a prompt, which no slide shows."""
    if shape.name != "p:sp":
        return False
    properties = [child for child in shape.nodes if child.name == "p:nvSpPr"]
    return any(each.name == "p:ph" for node in properties for each in elements(node))


def _text_entries(data: bytes, limits: FileLimits) -> Iterator[XmlEntry]:
    """Check the archive. Yield the entries that may have text: each slide with what belongs to it, then backgrounds.

    Raises FileError.
    """
    with opened(data, _KIND, limits) as archive:
        names = frozenset(archive.namelist())
        reader = EntryReader(archive, limits)
        pending = [Relationship("", _PRESENTATION, _body(names, reader))]
        backgrounds: deque[Relationship] = deque()
        seen: set[str] = set()
        while pending or backgrounds:
            found = pending.pop() if pending else backgrounds.popleft()
            if found.target not in seen:
                seen.add(found.target)
                entry = _checked(reader.read(found.target))
                yield entry
                related = _related(entry, found.kind, names, reader)
                backgrounds += [each for each in related if each.kind in _BACKGROUNDS]
                pending += [each for each in reversed(related) if each.kind not in _BACKGROUNDS]
        check_others(archive, seen)


def _body(names: Set[str], reader: EntryReader) -> str:
    """The name of the presentation's own entry. names: of all entries. Raises FileError."""
    related: Sequence[Relationship] = ()
    if BODY_RELATIONSHIPS in names:
        related = read_relationships(reader.read(BODY_RELATIONSHIPS).root, "")
    body = next((each.target for each in related if each.kind == _PRESENTATION), _BODY)
    if body not in names:
        raise missing_body(_KIND, body, _BODY)
    return body


def _related(entry: XmlEntry, kind: str, names: Set[str], reader: EntryReader) -> list[Relationship]:
    """The entries that belong to an entry and may have text, in reading order; slides in the order of the show.

    names: of all entries. Raises FileError.
    """
    kinds, named = _RELATED.get(kind, ()), relationships_entry(entry.name)
    if not kinds or named not in names:
        return []
    found = read_relationships(reader.read(named).root, entry.name)
    found = [each for each in found if each.kind in kinds and each.target in names]
    ids = (_SLIDE_ID.search(node.opening) for node in elements(entry.root) if node.name == "p:sldId")
    place = {match[1]: at for at, match in enumerate(ids) if match is not None}
    return sorted(found, key=lambda each: (kinds.index(each.kind), place.get(each.id, len(place))))


def _checked(entry: XmlEntry) -> XmlEntry:
    """The entry. Raises FileError if its elements have other prefixes than PowerPoint writes."""
    nodes = list(elements(entry.root))
    prefixes = {
        prefix
        for node in nodes
        if "drawingml" in node.opening
        for prefix in _TEXT_PREFIX.findall(node.opening)
    }
    others = {f"{prefix}:p" if prefix else "p" for prefix in prefixes - {"a"}}
    if nodes[0].name not in _ROOTS or any(node.name in others for node in nodes):
        raise FileError(
            f"{entry.name}: its root element is not p:presentation or another one that PowerPoint writes, or its "
            "paragraphs are not a:p; save the presentation with PowerPoint"
        )
    return entry
