"""Markup as blocks of running text, and back: what is translated, what is protected in it, what is never touched.

A document is a sequence of parts. A string is markup that comes out as it came in. A block is text between two
boundaries, with its inline tags taken out and its character references read.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import unescape
from html.entities import html5
from typing import NamedTuple

from app.text.segmentation import Span
from app.text.tags import Tag, TagKind, partners

# Characters that stand for what is protected: supplementary private use, which no vocabulary holds.
PLACEHOLDER_RANGE = range(0xF0000, 0x10FFFE)
_REFERENCE = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{0,31}+);?")
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


class Block(NamedTuple):
    """Running text.

    text: references read, with a stand-in of one character for whatever is protected.
    raws: by character of `text`, what stands for it in the document: itself, a reference, or what is protected.
    offsets: by character of `text`, where it stands in the document, in code points; the end last.
    tags: inline tags in order, by position in `text`.
    stand_ins: those that `text` has.
    """

    text: str
    raws: Sequence[str]
    offsets: Sequence[int]
    tags: tuple[Tag, ...] = ()
    placeholders: frozenset[str] = frozenset()

    @classmethod
    def of(cls, text: str) -> Block:
        """Plain text."""
        return cls(text, text, range(len(text) + 1))

    def placeholders_in(self, part: str) -> tuple[str, ...]:
        """Those that a part of the text has, in order."""
        return tuple(each for each in part if each in self.placeholders) if self.placeholders else ()

    def raw(self, start: int, end: int) -> str:
        """What stands in the document for text[start:end], tags left out."""
        return "".join(self.raws[start:end]) if start < end else ""


class Document(NamedTuple):
    """is_markup: whether text is escaped when it is put back."""

    parts: tuple[str | Block, ...]
    is_markup: bool

    @classmethod
    def of(cls, text: str) -> Document:
        """Plain text."""
        return cls((Block.of(text),), is_markup=False)


class MarkupError(ValueError):
    """Malformed XML. `line` and `column` count from 1; the message names them and never echoes text."""

    def __init__(self, reason: str, line: int, column: int) -> None:
        super().__init__(f"malformed XML at line {line}, column {column}: {reason}")
        self.line = line
        self.column = column


def unused_placeholders(text: str) -> Iterator[str]:
    """Characters for stand-ins that `text` does not have."""
    used = set(text)
    return (character for character in map(chr, PLACEHOLDER_RANGE) if character not in used)


def read_references(raw: str) -> Iterator[tuple[str, str | None]]:
    """Parts of raw text as (raw, what it means); None for a reference that means nothing known.

    An ampersand that begins no reference means itself; a name without its semicolon counts where HTML knows it so.
    """
    done = 0
    for match in _REFERENCE.finditer(raw):
        reference = match.group()
        name = reference[1:]
        if not name.endswith(";") and not name.startswith("#") and name not in html5:
            continue
        for character in raw[done : match.start()]:
            yield character, character
        meaning = unescape(reference)
        yield reference, None if meaning == reference or not meaning else meaning
        done = match.end()
    for character in raw[done:]:
        yield character, character


def escaped(text: str, references: Mapping[str, str]) -> str:
    """Text as markup. references: spellings that the source chose for characters."""
    return "".join(references.get(character) or _ESCAPES.get(character, character) for character in text)


def references_of(block: Block) -> dict[str, str]:
    """Character -> the reference that the block's source wrote for it; letters and digits of ASCII stay plain."""
    found: dict[str, str] = {}
    for character, raw in zip(block.text, block.raws, strict=True):
        if len(raw) > 1 and raw[0] == "&" and character not in block.placeholders:
            is_plain = character.isascii() and character.isalnum()
            if not is_plain:
                found.setdefault(character, raw if raw.endswith(";") else raw + ";")
    return found


@dataclass(frozen=True)
class Replacement:
    """A part of a block that the model must not see. restored: raw, what stands there in the end."""

    span: Span
    restored: str | None = None


def protect(block: Block, replacements: Sequence[Replacement]) -> Block:
    """The block with a stand-in for each replacement.

    replacements: in order and apart. Without `restored` it is what stands there, with the tags inside; a part whose
    tags cannot be taken with it, because their partners stand elsewhere, is left as it is.
    """
    if not replacements:
        return block
    text: list[str] = []
    raws: list[str] = []
    offsets: list[int] = []
    tags: list[Tag] = []
    placeholders = set(block.placeholders)
    free = unused_placeholders(block.text)
    closing = partners(block.tags)
    both = closing | {close: start for start, close in closing.items()}
    done = next_tag = length = 0
    for replacement in replacements:
        span = replacement.span
        taken = _tags_inside(block, span, both)
        if taken is None:
            continue
        length += span.start - done
        text.append(block.text[done : span.start])
        raws += block.raws[done : span.start]
        offsets += block.offsets[done : span.start + 1]
        shift = length - span.start
        tags += (_moved(tag, tag.position + shift) for tag in block.tags[next_tag : taken.start])
        character = next(free)
        placeholders.add(character)
        text.append(character)
        raws.append(replacement.restored if replacement.restored is not None else _markup(block, span, taken))
        length += 1
        done, next_tag = span.end, taken.stop
    shift = length - done
    tags += (_moved(tag, tag.position + shift) for tag in block.tags[next_tag:])
    return Block(
        "".join([*text, block.text[done:]]),
        (*raws, *block.raws[done:]),
        (*offsets, *block.offsets[done:]),
        tuple(tags),
        frozenset(placeholders),
    )


def _moved(tag: Tag, position: int) -> Tag:
    return Tag(position, tag.markup, tag.kind, tag.name)


def _tags_inside(block: Block, span: Span, both: Mapping[int, int]) -> range | None:
    """Indices of the tags that go with a part of the text: those inside, and at its edges the partners of these.

    both: index of a tag -> index of its partner. None where a partner stands further away, or where the part has lost
    its place.
    """
    first = bisect_right(block.tags, span.start, key=lambda tag: tag.position)
    last = bisect_left(block.tags, span.end, key=lambda tag: tag.position)
    if last <= first:
        return range(first, first)
    ends = [both.get(index, index) for index in range(first, last)]
    taken = range(min(first, *ends), max(last - 1, *ends) + 1)
    for index in taken:
        position = block.tags[index].position
        if not span.start <= position <= span.end or both.get(index, index) not in taken:
            return None
    return taken


def _markup(block: Block, span: Span, taken: range) -> str:
    """The part with the tags inside it, as they stand in the document."""
    parts: list[str] = []
    done = span.start
    for index in taken:
        tag = block.tags[index]
        parts += (block.raw(done, tag.position), tag.markup)
        done = tag.position
    return "".join([*parts, block.raw(done, span.end)])


@dataclass
class BlockBuilder:
    """Gathers a document's parts in reading order."""

    parts: list[str | Block] = field(default_factory=list)
    _raw: list[str] = field(default_factory=list)
    _pieces: list[tuple[str, str | None]] = field(default_factory=list)
    _tags: list[tuple[int, str, TagKind, str]] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)
    _offset: int = 0

    def text(self, raw: str) -> None:
        """Running text, its references not yet read."""
        self._raw.append(raw)
        for piece, meaning in read_references(raw):
            self._add_piece(piece, meaning)

    def untouched(self, raw: str) -> None:
        """A part of a sentence that is not translated."""
        self._raw.append(raw)
        self._add_piece(raw, None)

    def _add_piece(self, raw: str, meaning: str | None) -> None:
        self._pieces.append((raw, meaning))
        self._starts.append(self._offset)
        self._offset += len(raw)

    def tag(self, raw: str, kind: TagKind, name: str) -> None:
        """An inline tag."""
        self._raw.append(raw)
        self._tags.append((len(self._pieces), raw, kind, name))
        self._offset += len(raw)

    def boundary(self, raw: str) -> None:
        """Markup between two blocks."""
        self._finish_block()
        self.parts.append(raw)
        self._offset += len(raw)

    def finish(self) -> tuple[str | Block, ...]:
        """All parts."""
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
            text += meaning
            raws += [raw] + [""] * (len(meaning) - 1)
            offsets += [start] * len(meaning)
        positions.append(len(text))
        tags = tuple(Tag(positions[place], raw, kind, name) for place, raw, kind, name in self._tags)
        return Block("".join(text), tuple(raws), (*offsets, self._offset), tags, frozenset(placeholders))
