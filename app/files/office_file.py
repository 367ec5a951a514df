"""An office document: paragraphs in the XML entries of an archive. All other entries are copied unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from zipfile import ZipFile

from app.files.office_archive import DocumentKind, copied, unpacked
from app.files.styled_paragraph import Paragraph
from app.files.unit import FileError, FileLimits, Unit, check_count, is_xml_text
from app.files.xml_tree import Node, read_tree

# The maximum number of characters of XML in the translated paragraphs of a document. A paragraph repeats the formatting
# of a text with each part of it, so a small document could become very large.
MAX_WRITTEN_CHARACTERS = 100_000_000


@dataclass(frozen=True)
class XmlEntry:
    """One XML entry of an archive. root: a node without a name."""

    name: str
    root: Node
    encoding: str


@dataclass(frozen=True)
class OfficeFile:
    """A parsed document. entries: those with text, each with its paragraphs. The others stay packed in `data`."""

    data: bytes
    kind: DocumentKind
    entries: Sequence[tuple[XmlEntry, Sequence[Paragraph]]]

    @property
    def units(self) -> tuple[Unit, ...]:
        """One unit per paragraph with text to translate."""
        return tuple(each.unit for _, paragraphs in self.entries for each in paragraphs)

    def write(self, translations: Sequence[str]) -> bytes:
        """The document with the translations in its paragraphs.

        Raises ValueError for another number of translations or lost marks. Raises FileError for a damaged archive, a
        character that XML cannot contain, or more than MAX_WRITTEN_CHARACTERS.
        """
        units = self.units
        check_count(translations, len(units))
        if all(unit.text == text for unit, text in zip(units, translations, strict=True)):
            return self.data
        remaining = iter(translations)
        written, translated = {}, _TranslatedParagraphs()
        for entry, paragraphs in self.entries:
            changed = translated.read(entry.name, [(each, next(remaining)) for each in paragraphs])
            if changed:
                written[entry.name] = entry.root.written(changed).encode(entry.encoding)
        return copied(self.data, self.kind, written)


class _TranslatedParagraphs:
    """Writes translated paragraphs of a document, and counts their characters."""

    def __init__(self) -> None:
        self._num_characters = 0

    def read(self, entry: str, pairs: Iterable[tuple[Paragraph, str]]) -> dict[int, list[str | Node]]:
        """The new XML of the paragraphs whose translation differs, by the id() of their nodes.

        entry: the name of their entry. pairs: paragraphs with their translations. Raises FileError, or ValueError for
        lost marks.
        """
        changed: dict[int, list[str | Node]] = {}
        for paragraph, translation in pairs:
            if translation != paragraph.unit.text:
                pieces = paragraph.tagged.read(translation)
                if not all(is_xml_text(piece) for piece in pieces if isinstance(piece, str)):
                    raise FileError(f"{entry}: a translation has a character that XML cannot contain")
                for node, parts in paragraph.replacements(pieces):
                    changed[id(node)] = list(map(self._counted, parts))
        return changed

    def _counted(self, part: str | Node) -> str | Node:
        """The part. Raises FileError if all parts together are too long."""
        self._num_characters += len(part) if isinstance(part, str) else 0
        if self._num_characters > MAX_WRITTEN_CHARACTERS:
            raise FileError(
                f"the translated paragraphs exceed the limit of {MAX_WRITTEN_CHARACTERS} characters of XML, because "
                "a paragraph repeats the formatting of a text with each part of it"
            )
        return part


class EntryReader:
    """Reads XML entries of an archive. The limits hold for all of them together."""

    def __init__(self, archive: ZipFile, limits: FileLimits) -> None:
        self._archive, self._limits = archive, limits
        self._num_bytes = self._num_elements = 0

    def read(self, name: str) -> XmlEntry:
        """Parse an entry of the archive. Raises FileError, or an error of a damaged archive."""
        self._num_bytes += self._archive.getinfo(name).file_size
        if self._num_bytes > self._limits.max_part_bytes:
            raise FileError(
                f"the entries with text exceed the limit of {self._limits.max_part_bytes} unpacked bytes"
            )
        content = unpacked(self._archive, name)
        root, encoding, self._num_elements = read_tree(
            content, name, max_elements=self._limits.max_elements, num_before=self._num_elements
        )
        return XmlEntry(name, root, encoding)


def read_office_file(
    data: bytes,
    kind: DocumentKind,
    limits: FileLimits,
    entries: Iterable[XmlEntry],
    paragraphs_of: Callable[[XmlEntry], Iterator[Paragraph]],
) -> OfficeFile:
    """Collect the paragraphs with text of all entries. Raises FileError at the first text that exceeds a limit."""
    found: list[tuple[XmlEntry, Sequence[Paragraph]]] = []
    num_units = num_characters = 0
    for entry in entries:
        paragraphs: list[Paragraph] = []
        for paragraph in paragraphs_of(entry):
            paragraphs.append(paragraph)
            num_units += 1
            num_characters += len(paragraph.unit.text)
            limits.check(num_units, num_characters)
        found.append((entry, paragraphs))
    return OfficeFile(data, kind, found)
