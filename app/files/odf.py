"""OpenDocument texts and presentations (.odt, .odp): paragraphs of content, headers, footers, notes and master pages.

Other entries of the archive, and paragraphs whose text is unchanged, are copied unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from zipfile import ZipFile

from app.files.odf_paragraph import PARAGRAPHS, read_paragraph
from app.files.odf_styles import SpanStyles
from app.files.office_archive import DocumentKind, check_others, opened, unpacked
from app.files.office_file import EntryReader, OfficeFile, XmlEntry, read_office_file
from app.files.styled_paragraph import Paragraph
from app.files.unit import FileError, FileLimits
from app.files.xml_tree import Node, elements

_KIND = DocumentKind(
    "an OpenDocument text or presentation", "OpenDocument files", ".odt or .odp", ".doc or .ppt"
)
_CONTENT, _STYLES, _MANIFEST, _TYPE = "content.xml", "styles.xml", "META-INF/manifest.xml", "mimetype"
_TYPES = re.compile(rb"application/vnd\.oasis\.opendocument\.(?:text|presentation)(?:-[a-z]+)?\s*")
# The maximum number of bytes of the entry with the type.
_MAX_TYPE_BYTES = 1_000
_BODIES = frozenset({"office:text", "office:presentation"})
_TEXT_PREFIX = re.compile(
    r"""\sxmlns(?::([^\s=]+))?\s*=\s*["']urn:oasis:names:tc:opendocument:xmlns:text:1\.0["']"""
)
# Comments and deleted text.
_SKIPPED = frozenset({"office:annotation", "text:tracked-changes"})
# A frame with a prompt, on an empty slide or on a master page. No slide shows the prompts of its master page.
_IS_PLACEHOLDER = re.compile(r"""\spresentation:placeholder\s*=\s*["']true["']""")
_IS_PROMPT = re.compile(r"""\spresentation:class\s*=\s*["'](?!header|footer|date-time|page-number)""")


def read_odf(data: bytes, limits: FileLimits) -> OfficeFile:
    """Parse a text or a presentation. Raises FileError."""
    return read_office_file(data, _KIND, limits, _text_entries(data, limits), _paragraphs)


def _paragraphs(entry: XmlEntry) -> Iterator[Paragraph]:
    """Yield the paragraphs with text to translate, in reading order. Raises FileError."""
    styles = SpanStyles(entry)
    is_skipped = _is_skipped if entry.name == _CONTENT else _is_skipped_in_styles
    for node in elements(entry.root, is_skipped):
        if node.name in PARAGRAPHS:
            paragraph = read_paragraph(node, styles)
            if paragraph is not None:
                yield paragraph


def _is_skipped(node: Node) -> bool:
    """Whether the text in an element is not translated."""
    return node.name in _SKIPPED or _IS_PLACEHOLDER.search(node.opening) is not None


def _is_skipped_in_styles(node: Node) -> bool:
    """Whether the text in an element of a master page, a header or a footer is not translated."""
    return _is_skipped(node) or _IS_PROMPT.search(node.opening) is not None


def _text_entries(data: bytes, limits: FileLimits) -> Iterator[XmlEntry]:
    """Check the archive. Yield the entries with text. Raises FileError."""
    with opened(data, _KIND, limits) as archive:
        reader, names = EntryReader(archive, limits), frozenset(archive.namelist())
        _check_type(archive)
        if _MANIFEST in names and _is_encrypted(reader.read(_MANIFEST)):
            raise FileError("the document is encrypted; save it without a password")
        if _CONTENT not in names:
            raise FileError(f"not {_KIND.name}: it has no {_CONTENT}")
        read = names & {_CONTENT, _STYLES}
        check_others(archive, read)
        for name in sorted(read):
            yield _checked(reader.read(name))


def _check_type(archive: ZipFile) -> None:
    """Check the type that the archive declares, if any. Raises FileError, or an error of a damaged archive."""
    if _TYPE in archive.namelist() and (
        archive.getinfo(_TYPE).file_size > _MAX_TYPE_BYTES or not _TYPES.fullmatch(unpacked(archive, _TYPE))
    ):
        raise FileError(f"not {_KIND.name}: its {_TYPE} is another one")


def _is_encrypted(manifest: XmlEntry) -> bool:
    """Whether an entry of the archive is encrypted. Any prefix may be before the names of elements."""
    return any(node.name.endswith("encryption-data") for node in elements(manifest.root))


def _checked(entry: XmlEntry) -> XmlEntry:
    """The entry. Raises FileError if its document is no text or presentation, or its prefixes are unusual."""
    root = entry.root.nodes[0]
    if root.name not in {"office:document-content", "office:document-styles"} or any(
        prefix != "text" for node in elements(entry.root) for prefix in _TEXT_PREFIX.findall(node.opening)
    ):
        raise FileError(
            f"{entry.name}: its root element is not office:document-content or office:document-styles, or its "
            "paragraphs are not text:p; save the document with LibreOffice"
        )
    if entry.name == _CONTENT and not any(node.name in _BODIES for node in elements(entry.root)):
        raise FileError(f"not {_KIND.name}: its {entry.name} has neither office:text nor office:presentation")
    return entry
