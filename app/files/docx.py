"""Word documents (.docx): paragraphs of body, headers, footers, footnotes and endnotes, also in tables and text boxes.

Other entries of the archive, and paragraphs whose text is unchanged, are copied unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from zipfile import ZipFile

from app.files.docx_drop_caps import is_drop_cap, with_drop_cap
from app.files.docx_paragraph import read_paragraph
from app.files.office_archive import DocumentKind, check_others, check_size, opened
from app.files.office_file import EntryReader, OfficeFile, XmlEntry, read_office_file
from app.files.office_package import (
    BODY_RELATIONSHIPS,
    Relationship,
    missing_body,
    read_relationships,
    relationships_entry,
)
from app.files.styled_paragraph import Paragraph
from app.files.unit import FileError, FileLimits
from app.files.xml_tree import elements, preserves_space

_KIND = DocumentKind("a Word document", "Word documents", ".docx", ".doc")
# The body, if the archive does not name it.
_BODY = "word/document.xml"
_HEADERS_AND_NOTES = frozenset({"header", "footer", "footnotes", "endnotes"})
# The usual names of headers, footers and notes. They are used if the archive has no relationships of the body.
_TEXT_ENTRIES = re.compile(r"word/(?:header|footer|footnotes|endnotes)\d*\.xml")
# The root elements of entries with text, with the prefix that Word writes.
_ROOTS = frozenset({"w:document", "w:hdr", "w:ftr", "w:footnotes", "w:endnotes"})


def read_docx(data: bytes, limits: FileLimits) -> OfficeFile:
    """Parse a document. Raises FileError."""
    return read_office_file(data, _KIND, limits, _text_entries(data, limits), _paragraphs)


def _paragraphs(entry: XmlEntry) -> Iterator[Paragraph]:
    """Yield the paragraphs with text to translate, in reading order. Raises FileError."""
    if entry.root.nodes[0].name not in _ROOTS:
        raise FileError(
            f"{entry.name}: its root element is not w:document or another one that Word writes; "
            "save the document with Word"
        )
    preserved = preserves_space(entry.root.nodes[0], default=False)
    drop_cap: Paragraph | None = None
    for node in elements(entry.root):
        if drop_cap is not None and node.name == "w:tc":
            # A drop cap at the end of a cell does not belong to the next cell.
            yield drop_cap
            drop_cap = None
        if node.name != "w:p":
            continue
        paragraph = read_paragraph(node, preserved=preserved)
        is_cap = paragraph is not None and is_drop_cap(paragraph)
        if drop_cap is not None:
            if paragraph is None or is_cap:
                yield drop_cap
            else:
                paragraph = with_drop_cap(drop_cap, paragraph)
        drop_cap = paragraph if is_cap else None
        if paragraph is not None and not is_cap:
            yield paragraph
    if drop_cap is not None:
        yield drop_cap


def _text_entries(data: bytes, limits: FileLimits) -> Iterator[XmlEntry]:
    """Check the archive. Yield each entry with text, the body first. Raises FileError."""
    with opened(data, _KIND, limits) as archive:
        related = _relationships(BODY_RELATIONSHIPS, "", archive, limits) or ()
        body = next((each.target for each in related if each.kind == "officeDocument"), _BODY)
        names = {body, *_headers_and_notes(body, archive, limits)}.intersection(archive.namelist())
        check_size(archive, names, limits)
        if body not in names:
            raise missing_body(_KIND, body, _BODY)
        check_others(archive, names)
        reader = EntryReader(archive, limits)
        for name in sorted(names, key=lambda name: (name != body, name)):
            yield reader.read(name)


def _headers_and_notes(body: str, archive: ZipFile, limits: FileLimits) -> Sequence[str]:
    """The names of the headers, footers and notes. Raises FileError, or an error of a damaged archive."""
    related = _relationships(relationships_entry(body), body, archive, limits)
    if related is None:
        return list(filter(_TEXT_ENTRIES.fullmatch, archive.namelist()))
    return [each.target for each in related if each.kind in _HEADERS_AND_NOTES]


def _relationships(entry: str, name: str, archive: ZipFile, limits: FileLimits) -> list[Relationship] | None:
    """The relationships of an entry; None if the archive has none. entry: what has them.

    Raises FileError, or an error of a damaged archive.
    """
    if entry not in archive.namelist():
        return None
    return read_relationships(EntryReader(archive, limits).read(entry).root, name)
