"""Documents as blocks of running text between markup, with placeholders for protected spans.

A document is a sequence of parts. A part that is a string is markup, which stays unchanged. A block is text between two
boundaries, with its inline tags extracted and its character references decoded.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import unescape
from html.entities import html5
from typing import NamedTuple

from app.text.protected_spans import PLACEHOLDER_CODE_POINTS
from app.text.tags import Tag, TagKind

_REFERENCE = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{0,31}+);?")
# Characters of the longest name that needs no semicolon.
_MAX_OPEN_NAME = max(len(name) for name in html5 if not name.endswith(";"))
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
# The ligatures of Latin letters, such as U+FB01, which PDF files have, and their letters.
_LETTERS = {chr(code): unicodedata.normalize("NFKC", chr(code)) for code in range(0xFB00, 0xFB07)}
_LIGATURE = re.compile(f"[{''.join(_LETTERS)}]")


class Block(NamedTuple):
    """Running text.

    text: the text with references decoded and ligatures as letters, with one placeholder for each protected span.
    raws: for each character of `text` its spelling in the document: itself, a reference, or the protected span. If one
        reference or ligature means several characters, the first has its spelling, and the others are empty.
    offsets: for each character of `text` its position in the document, in code points. The last entry is the end.
    tags: inline tags in order, with positions in `text`.
    placeholders: the placeholder characters that are in `text`.
    spaced: the placeholders that have in `text`, but not in the document, a space before the word after them.
    """

    text: str
    raws: Sequence[str]
    offsets: Sequence[int]
    tags: tuple[Tag, ...] = ()
    placeholders: frozenset[str] = frozenset()
    spaced: frozenset[str] = frozenset()

    @classmethod
    def of(cls, text: str) -> Block:
        """Return a block of plain text, which may have ligatures."""
        if text.isascii() or not _LIGATURE.search(text):
            return cls(text, text, range(len(text) + 1))
        read = [_LETTERS.get(character, character) for character in text]
        raws = [
            raw for raw, letters in zip(text, read, strict=True) for raw in (raw, *[""] * (len(letters) - 1))
        ]
        offsets = [index for index, letters in enumerate(read) for _ in letters]
        return cls("".join(read), raws, (*offsets, len(text)))

    def placeholders_in(self, part: str) -> tuple[str, ...]:
        """Return the placeholders in a part of the text, in order."""
        return tuple(each for each in part if each in self.placeholders) if self.placeholders else ()

    def end(self, index: int, tag: int = 0) -> int:
        """Return the offset in the document where text[index] ends.

        Of the tags that directly follow text[index], those before tags[tag] are before the offset, the others after it.
        """
        first = bisect_left(self.tags, index + 1, key=lambda tag: tag.position)
        return self._offset(max(first, tag), index + 1)

    def tag_offset(self, index: int) -> int:
        """Return the offset in the document of tags[index]."""
        return self._offset(index, self.tags[index].position)

    def _offset(self, first: int, position: int) -> int:
        """Return the offset in the document of tags[first] if that tag is at text[position], else of text[position]."""
        last = bisect_right(self.tags, position, first, key=lambda tag: tag.position)
        return self.offsets[position] - sum(len(tag.markup) for tag in self.tags[first:last])

    def raw(self, start: int, end: int) -> str:
        """Return the document's spelling of text[start:end], without tags."""
        return "".join(self.raws[start:end]) if start < end else ""


class Document(NamedTuple):
    """A text as strings of markup and blocks. is_markup: whether text is escaped when it is written."""

    parts: tuple[str | Block, ...]
    is_markup: bool

    @classmethod
    def of(cls, text: str) -> Document:
        """Return a document of plain text."""
        return cls((Block.of(text),), is_markup=False)


class MarkupError(ValueError):
    """Malformed XML. `line` and `column` count from 1. The message has both, but no text of the document."""

    def __init__(self, reason: str, line: int, column: int) -> None:
        super().__init__(f"malformed XML at line {line}, column {column}: {reason}")
        self.line = line
        self.column = column


def unused_placeholders(text: str) -> Iterator[str]:
    """Yield the placeholder characters that are not in `text`."""
    used = set(text)
    return (character for character in map(chr, PLACEHOLDER_CODE_POINTS) if character not in used)


def read_references(raw: str) -> Iterator[tuple[str, str | None]]:
    """Yield parts of raw text as (raw, meaning). The meaning of an unknown reference is None.

    An ampersand that begins no reference means itself. Of a name without a semicolon, the longest beginning that HTML
    defines is a reference: `&lt3` means `<3`.
    """
    done = 0
    for match in _REFERENCE.finditer(raw):
        name = match.group()[1:]
        is_known = name.startswith("#") or name in html5
        if not is_known and not name.endswith(";"):
            lengths = range(_MAX_OPEN_NAME, 0, -1)
            name = next((name[:length] for length in lengths if name[:length] in html5), "")
            if not name:
                continue
            is_known = True
        for character in raw[done : match.start()]:
            yield character, character
        reference = f"&{name}"
        # Of an unknown name, `unescape` would decode the beginning: `&not` of `&nothing;`.
        yield reference, (unescape(reference) or None) if is_known else None
        done = match.start() + len(reference)
    for character in raw[done:]:
        yield character, character


def escaped(text: str, references: Mapping[str, str]) -> str:
    """Return text as markup. references: how the document writes characters as references."""
    return "".join(references.get(character) or _ESCAPES.get(character, character) for character in text)


def references_of(block: Block) -> dict[str, str]:
    """Map each character to its reference in the block's source, except ASCII letters and digits.

    A reference that means several characters, such as `&bne;`, is left out.
    """
    references: dict[str, str] = {}
    for character, raw, next_raw in zip(block.text, block.raws, (*block.raws[1:], " "), strict=True):
        if len(raw) > 1 and raw[0] == "&" and next_raw and character not in block.placeholders:
            is_plain = character.isascii() and character.isalnum()
            if not is_plain:
                references.setdefault(character, raw if raw.endswith(";") else raw + ";")
    return references


@dataclass
class BlockBuilder:
    """Collects the parts of a document in reading order. A block without a letter becomes markup."""

    parts: list[str | Block] = field(default_factory=list)
    _raw: list[str] = field(default_factory=list)
    _pieces: list[tuple[str, str | None]] = field(default_factory=list)
    _tags: list[tuple[int, str, TagKind, str]] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)
    _offset: int = 0

    def text(self, raw: str) -> None:
        """Add running text with undecoded references."""
        self._raw.append(raw)
        for piece, meaning in read_references(raw):
            self._add_piece(piece, meaning)

    def untouched(self, raw: str) -> None:
        """Add inline content that is not translated. A placeholder stands for it in the sentence."""
        self._raw.append(raw)
        self._add_piece(raw, None)

    def _add_piece(self, raw: str, meaning: str | None) -> None:
        self._pieces.append((raw, meaning))
        self._starts.append(self._offset)
        self._offset += len(raw)

    def tag(self, raw: str, kind: TagKind, name: str) -> None:
        """Add an inline tag."""
        self._raw.append(raw)
        self._tags.append((len(self._pieces), raw, kind, name))
        self._offset += len(raw)

    def boundary(self, raw: str) -> None:
        """Add markup between two blocks."""
        self._finish_block()
        self.parts.append(raw)
        self._offset += len(raw)

    def finish(self) -> tuple[str | Block, ...]:
        """Return all parts."""
        self._finish_block()
        return tuple(self.parts)

    def _finish_block(self) -> None:
        meanings = [meaning for _, meaning in self._pieces if meaning is not None]
        if any(character.isalpha() for meaning in meanings for character in meaning):
            self.parts.append(self._block("".join(meanings)))
        elif self._raw:
            self.parts.append("".join(self._raw))
        self._raw, self._pieces, self._tags, self._starts = [], [], [], []

    def _block(self, known: str) -> Block:
        text: list[str] = []
        raws: list[str] = []
        offsets: list[int] = []
        positions: list[int] = []
        free = unused_placeholders(known)
        placeholders = set()
        for (raw, meaning), start in zip(self._pieces, self._starts, strict=True):
            positions.append(len(text))
            if meaning is None:
                meaning = next(free)
                placeholders.add(meaning)
            meaning = _LETTERS.get(meaning, meaning)
            text += meaning
            raws += [raw] + [""] * (len(meaning) - 1)
            offsets += [start] * len(meaning)
        positions.append(len(text))
        tags = tuple(Tag(positions[index], raw, kind, name) for index, raw, kind, name in self._tags)
        return Block("".join(text), tuple(raws), (*offsets, self._offset), tags, frozenset(placeholders))
