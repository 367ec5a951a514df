"""Word documents (.docx): paragraphs of body, headers, footers, footnotes and endnotes, also in tables and text boxes.

Other entries of the archive, and paragraphs whose text is unchanged, are copied unchanged.
"""

from __future__ import annotations

import posixpath
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from html import unescape
from io import BytesIO
from shutil import copyfileobj
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from app.files.docx_drop_caps import divided, is_drop_cap, with_drop_cap
from app.files.docx_paragraph import Paragraph, Raw, preserves_space, read_paragraph
from app.files.tagged_text import Piece
from app.files.unit import FileError, FileLimits, Unit, check_count, is_xml_text
from app.files.xml_tree import Node, read_tree

# The usual names of headers, footers and notes. They are used if the archive has no relationships of the body.
_TEXT_ENTRIES = re.compile(r"word/(?:header|footer|footnotes|endnotes)\d*\.xml")
# Bytes per step when an entry is copied or its checksum is verified.
_COPIED_BYTES = 1 << 16
# The entry that names the body, and the body if that entry is missing.
_RELATIONSHIPS = "_rels/.rels"
_BODY = "word/document.xml"
_IS_BODY = re.compile(r"""\sType\s*=\s*["'][^"']*/officeDocument["']""")
_HAS_TEXT = re.compile(r"""\sType\s*=\s*["'][^"']*/(?:header|footer|footnotes|endnotes)["']""")
_TARGET = re.compile(r"""\sTarget\s*=\s*["']([^"']+)["']""")
# The root elements of entries with text, with the prefix that Word writes.
_ROOTS = frozenset({"w:document", "w:hdr", "w:ftr", "w:footnotes", "w:endnotes"})
# The exceptions of a damaged or encrypted archive.
_BROKEN = (BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, ValueError, OSError)
# The first bytes of a ZIP archive, and those of the file format of encrypted documents and of old versions of Word.
_ZIP_START = b"PK"
_OLE_START = bytes.fromhex("d0cf11e0a1b11ae1")


# A paragraph with its translated pieces.
_Changed = tuple[Paragraph, Sequence[Piece[Raw]]]


@dataclass(frozen=True)
class _TextEntry:
    """One XML entry. paragraphs: those with text to translate, in reading order."""

    root: Node
    encoding: str
    paragraphs: tuple[Paragraph, ...]


@dataclass(frozen=True)
class DocxFile:
    """A parsed document. parts: the entries with text, by name. All other entries stay packed in `data`."""

    data: bytes
    parts: Mapping[str, _TextEntry]

    @property
    def units(self) -> tuple[Unit, ...]:
        """One unit per paragraph with text to translate."""
        return tuple(each.unit for part in self.parts.values() for each in part.paragraphs)

    def write(self, translations: Sequence[str]) -> bytes:
        """The document with the translations in its paragraphs.

        Raises ValueError for another number of translations or lost marks, and FileError for a damaged archive or a
        character that XML cannot contain.
        """
        units = self.units
        check_count(translations, len(units))
        if all(unit.text == text for unit, text in zip(units, translations, strict=True)):
            return self.data
        remaining = iter(translations)
        written = {}
        for name, part in self.parts.items():
            changed: dict[int, _Changed] = {}
            for paragraph in part.paragraphs:
                translation = next(remaining)
                if translation != paragraph.unit.text:
                    pieces = paragraph.tagged.read(translation)
                    if not all(is_xml_text(piece) for piece in pieces if isinstance(piece, str)):
                        raise FileError(f"{name}: a translation has a character that XML cannot contain")
                    changed |= {id(each.node): (each, own) for each, own in divided(paragraph, pieces)}
            if changed:
                written[name] = _rendered(part.root, changed).encode(part.encoding)
        archive = BytesIO()
        try:
            with ZipFile(BytesIO(self.data)) as old, ZipFile(archive, "w") as new:
                for info in old.infolist():
                    _copy(old, new, info, written.get(info.filename))
        except _BROKEN as error:
            raise _unreadable(self.data, error) from error
        return archive.getvalue()


def read_docx(data: bytes, limits: FileLimits) -> DocxFile:
    """Parse a document. Raises FileError."""
    parts: dict[str, _TextEntry] = {}
    num_elements = num_units = num_characters = 0
    for name, content in _checked_entries(data, limits):
        root, encoding = read_tree(content, name, max_elements=limits.max_elements, num_before=num_elements)
        if root.nodes[0].name not in _ROOTS:
            raise FileError(
                f"{name}: its root element is not w:document or another one that Word writes; "
                "save the document with Word"
            )
        preserved = preserves_space(root.nodes[0], default=False)
        paragraphs: list[Paragraph] = []
        is_after_drop_cap = False
        for node in _elements(root):
            num_elements += 1
            # A drop cap at the end of a cell does not belong to the next cell.
            is_after_drop_cap = is_after_drop_cap and node.name != "w:tc"
            if node.name != "w:p":
                continue
            paragraph = read_paragraph(node, preserved=preserved)
            is_cap = paragraph is not None and is_drop_cap(paragraph)
            if paragraph is not None:
                if is_after_drop_cap and not is_cap:
                    paragraph = with_drop_cap(paragraphs.pop(), paragraph)
                paragraphs.append(paragraph)
                num_characters += len(paragraph.unit.text)
                limits.check(num_units + len(paragraphs), num_characters)
            is_after_drop_cap = is_cap
        num_units += len(paragraphs)
        parts[name] = _TextEntry(root, encoding, tuple(paragraphs))
    return DocxFile(data, parts)


def _checked_entries(data: bytes, limits: FileLimits) -> Iterator[tuple[str, bytes]]:
    """Check the archive. Yield name and content of each entry with text, the body first. Raises FileError."""
    try:
        with ZipFile(BytesIO(data)) as archive:
            _check(archive.infolist(), limits)
            body = _body(archive, limits)
            names = {body, *_headers_and_notes(body, archive, limits)}.intersection(archive.namelist())
            _check_size([archive.getinfo(name) for name in names], limits)
            if body not in names:
                reason = (
                    f"it has no {_BODY}"
                    if body == _BODY
                    else f"it lacks the body that {_RELATIONSHIPS} names"
                )
                raise FileError(f"not a Word document: {reason}")
            for info in archive.infolist():
                if info.filename not in names:
                    _check_content(archive, info)
            for name in sorted(names, key=lambda name: (name != body, name)):
                yield name, _unpacked(archive, archive.getinfo(name))
    except FileError:
        raise
    except _BROKEN as error:
        raise _unreadable(data, error) from error


def _unreadable(data: bytes, error: Exception) -> FileError:
    """The error for a file that is not a readable archive. error: one of _BROKEN."""
    if not data:
        return FileError("the file is empty")
    if data.startswith(_OLE_START):
        return FileError(
            "the file is encrypted with a password, or an old .doc; save it as .docx without a password"
        )
    if not data.startswith(_ZIP_START):
        return FileError("the file is not a Word document, because it is not a ZIP archive")
    if isinstance(error, RuntimeError):
        return FileError("the archive is encrypted; save the document without a password")
    return FileError("the file is damaged: its archive cannot be unpacked")


def _check(infos: Sequence[ZipInfo], limits: FileLimits) -> None:
    """Check the archive's directory against the limits. Raises FileError."""
    if len(infos) > limits.max_parts:
        raise FileError(f"the archive has {len(infos)} entries and exceeds the limit of {limits.max_parts}")
    if len({info.filename for info in infos}) < len(infos):
        raise FileError("the archive has two entries of the same name")
    if any(info.compress_type not in {ZIP_STORED, ZIP_DEFLATED} for info in infos):
        raise FileError("the archive has a compression method that Word documents do not use")
    if sum(info.file_size for info in infos) > limits.max_unpacked_bytes:
        raise FileError(f"the archive exceeds the limit of {limits.max_unpacked_bytes} unpacked bytes")


def _check_size(infos: Sequence[ZipInfo], limits: FileLimits) -> None:
    """Check the unpacked size of entries whose XML is read. Raises FileError."""
    if sum(info.file_size for info in infos) > limits.max_part_bytes:
        raise FileError(f"the entries with text exceed the limit of {limits.max_part_bytes} unpacked bytes")


def _body(archive: ZipFile, limits: FileLimits) -> str:
    """The name of the entry that has the body. Raises FileError, or one of _BROKEN."""
    return next(iter(_targets(_RELATIONSHIPS, _IS_BODY, "/", archive, limits) or ()), _BODY)


def _headers_and_notes(body: str, archive: ZipFile, limits: FileLimits) -> Sequence[str]:
    """The names of the headers, footers and notes. Raises FileError, or one of _BROKEN."""
    folder, name = posixpath.split("/" + body)
    entry = posixpath.join(folder, "_rels", f"{name}.rels").lstrip("/")
    found = _targets(entry, _HAS_TEXT, folder, archive, limits)
    return list(filter(_TEXT_ENTRIES.fullmatch, archive.namelist())) if found is None else found


def _targets(
    entry: str, kind: re.Pattern[str], folder: str, archive: ZipFile, limits: FileLimits
) -> list[str] | None:
    """The names of the entries that relationships of this kind name; None without an entry of relationships.

    folder: the folder that the names are relative to. Raises FileError, or one of _BROKEN.
    """
    if entry not in archive.namelist():
        return None
    info = archive.getinfo(entry)
    _check_size([info], limits)
    root, _ = read_tree(_unpacked(archive, info), entry, max_elements=limits.max_elements, num_before=0)
    openings = [node.opening for node in _elements(root) if kind.search(node.opening)]
    targets = [match for match in map(_TARGET.search, openings) if match is not None]
    return [posixpath.normpath(posixpath.join(folder, unescape(match[1]))).lstrip("/") for match in targets]


def _unpacked(archive: ZipFile, info: ZipInfo) -> bytes:
    """Unpack an entry up to its declared size, and verify its checksum. Raises one of _BROKEN.

    read() without an argument would also unpack the bytes beyond the declared size.
    """
    with archive.open(info) as entry:
        return entry.read(info.file_size)


def _check_content(archive: ZipFile, info: ZipInfo) -> None:
    """Read an entry to verify its checksum. Raises one of _BROKEN."""
    with archive.open(info) as entry:
        while entry.read(_COPIED_BYTES):
            pass


def _copy(old: ZipFile, new: ZipFile, info: ZipInfo, written: bytes | None) -> None:
    """Copy an entry into another archive. written: its new content, if changed."""
    if written is not None:
        new.writestr(copy(info), written)
        return
    with old.open(info) as source, new.open(copy(info), "w") as target:
        copyfileobj(source, target, _COPIED_BYTES)


def _elements(root: Node) -> Iterator[Node]:
    """Yield all elements in reading order."""
    stack = root.nodes[::-1]
    while stack:
        node = stack.pop()
        yield node
        stack += reversed(node.nodes)


def _rendered(node: Node, changed: Mapping[int, _Changed]) -> str:
    """A node's XML, in which the changed paragraphs are replaced, nested ones too.

    The function is recursive; `read_tree` limits the depth of the tree. changed: by the id() of each paragraph's node.
    """
    if id(node) in changed:
        paragraph, pieces = changed[id(node)]
        return paragraph.written(pieces, lambda inner: _rendered(inner, changed))
    parts = [node.opening]
    for child in node.children:  # In Python 3.11 a comprehension would double the depth of the stack.
        if isinstance(child, str):
            parts.append(child)
        else:
            parts.append(_rendered(child, changed))
    return "".join([*parts, node.closing])
