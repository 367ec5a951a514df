"""Documents as blocks of running text between markup, with placeholders for protected spans.

A document is a sequence of parts. A part that is a string is markup, which stays unchanged. A block is text between two
boundaries, with its inline tags extracted and its character references decoded.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import unescape
from html.entities import html5
from typing import NamedTuple

from app.text.protected_spans import PLACEHOLDER_CODE_POINTS
from app.text.scripts import is_unspaced
from app.text.segmentation import Span
from app.text.tags import Tag, TagKind, partners

_REFERENCE = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{0,31}+);?")
# Characters of the longest name that needs no semicolon.
_MAX_OPEN_NAME = max(len(name) for name in html5 if not name.endswith(";"))
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


class Block(NamedTuple):
    """Running text.

    text: the text with references decoded, with one placeholder for each protected span.
    raws: for each character of `text` its spelling in the document: itself, a reference, or the protected span. If one
        reference means several characters, the first has the reference, and the others are empty.
    offsets: for each character of `text` its position in the document, in code points. The last entry is the end.
    tags: inline tags in order, with positions in `text`.
    placeholders: the placeholder characters that are in `text`.
    """

    text: str
    raws: Sequence[str]
    offsets: Sequence[int]
    tags: tuple[Tag, ...] = ()
    placeholders: frozenset[str] = frozenset()

    @classmethod
    def of(cls, text: str) -> Block:
        """Return a block of plain text."""
        return cls(text, text, range(len(text) + 1))

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


@dataclass(frozen=True)
class Replacement:
    """A part of a block that the model must not read.

    restored: the markup that the translation has in its place; None: the same markup as the document.
    """

    span: Span
    restored: str | None = None


def protect(block: Block, replacements: Sequence[Replacement]) -> Block:
    """Return the block with a placeholder for each replacement.

    replacements: in order, without overlap. A part is not replaced if a tag inside has its partner outside.
    - Without `restored`, a placeholder stands for the markup of its part, with the tags inside. If the part is next to
      a letter or digit, as in `price<sup>1</sup>`, it also stands for the elements that enclose just this part. If a
      tag separates the part from a word after it, as in `<b>3</b>words`, the text has a space before the word, because
      models do not translate a word that follows a placeholder directly.
    - With `restored`, a placeholder stands for `restored` and for the tags inside the part. The tags before the first
      closing tag precede `restored`, and the other tags follow it.
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
    partner_of = closing | {close: start for start, close in closing.items()}
    done = next_tag = length = 0
    for replacement in replacements:
        span = replacement.span
        inner_tags = _tags_to_replace(block, replacement, partner_of)
        if inner_tags is None:
            continue
        length += span.start - done
        text.append(block.text[done : span.start])
        raws += block.raws[done : span.start]
        offsets += block.offsets[done : span.start]
        offsets.append(_offset_of(block, span, inner_tags))
        shift = length - span.start
        tags += (_moved(tag, tag.position + shift) for tag in block.tags[next_tag : inner_tags.start])
        character = next(free)
        placeholders.add(character)
        text.append(character)
        if replacement.restored is None:
            raws.append(_markup(block, span, inner_tags))
        else:
            raws.append(_between(replacement.restored, block.tags[inner_tags.start : inner_tags.stop]))
        length += 1
        if replacement.restored is None and _is_before_word(block, span):
            text.append(" ")
            raws.append("")
            offsets.append(block.end(span.end - 1, inner_tags.stop))
            length += 1
        done, next_tag = span.end, inner_tags.stop
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


def _tags_to_replace(block: Block, replacement: Replacement, partner_of: Mapping[int, int]) -> range | None:
    """Return the indices of the tags to replace with a part; None if the part cannot be replaced."""
    span = replacement.span
    inner_tags = _tags_inside(block, span, partner_of)
    if inner_tags is None or replacement.restored is not None or not _is_in_word(block.text, span):
        return inner_tags
    return _with_enclosing(block.tags, span, partner_of, inner_tags)


def _offset_of(block: Block, span: Span, inner_tags: range) -> int:
    """Return the offset in the document of a placeholder that stands for a part and these tags."""
    if inner_tags and block.tags[inner_tags.start].position == span.start:
        return block.tag_offset(inner_tags.start)
    return block.offsets[span.start]


def _tags_inside(block: Block, span: Span, partner_of: Mapping[int, int]) -> range | None:
    """Return the indices of the tags inside a part, and of their partners at its edges.

    Returns None if a partner is outside the part. partner_of: maps the index of a tag to that of its partner.
    """
    first = bisect_right(block.tags, span.start, key=lambda tag: tag.position)
    last = bisect_left(block.tags, span.end, key=lambda tag: tag.position)
    if last <= first:
        return range(first, first)
    ends = [partner_of.get(index, index) for index in range(first, last)]
    inner_tags = range(min(first, *ends), max(last - 1, *ends) + 1)
    for index in inner_tags:
        position = block.tags[index].position
        if not span.start <= position <= span.end or partner_of.get(index, index) not in inner_tags:
            return None
    return inner_tags


def _is_in_word(text: str, span: Span) -> bool:
    """Whether a letter or digit is next to a part. Letters of scripts without spaces do not count."""
    neighbours = (text[max(span.start - 1, 0) : span.start], text[span.end : span.end + 1])
    return any(each.isalnum() and not is_unspaced(each) for each in neighbours)


def _is_before_word(block: Block, span: Span) -> bool:
    """Whether a word of three letters or more follows a part, with a tag between."""
    tag = bisect_left(block.tags, span.end, key=lambda tag: tag.position)
    following = block.text[span.end : span.end + 3]
    return (
        tag < len(block.tags)
        and block.tags[tag].position == span.end
        and len(following) == 3
        and all(each.isalpha() and not is_unspaced(each) for each in following)
    )


def _with_enclosing(
    tags: Sequence[Tag], span: Span, partner_of: Mapping[int, int], inner_tags: range
) -> range:
    """Return the indices of the tags to replace, with those of the elements that begin and end with the span.

    If such an element has a tag whose partner is outside or missing, only `inner_tags` are returned.
    """
    first = bisect_left(tags, span.start, key=lambda tag: tag.position)
    last = bisect_right(tags, span.end, key=lambda tag: tag.position)
    for index in range(first, last):
        if tags[index].position > span.start:
            break
        if index < partner_of.get(index, index) < last and tags[partner_of[index]].position == span.end:
            found = range(index, partner_of[index] + 1)
            is_whole = all(
                tags[each].kind is TagKind.POINT or partner_of.get(each) in found for each in found
            )
            return found if is_whole else inner_tags
    return inner_tags


def _markup(block: Block, span: Span, inner_tags: range) -> str:
    """Return the part with the tags inside it, as in the document."""
    parts: list[str] = []
    done = span.start
    for index in inner_tags:
        tag = block.tags[index]
        parts += (block.raw(done, tag.position), tag.markup)
        done = tag.position
    return "".join([*parts, block.raw(done, span.end)])


def _between(restored: str, tags: Sequence[Tag]) -> str:
    """Return a part's new markup with its tags: those before the first closing tag precede it, the others follow it."""
    kinds = [tag.kind for tag in tags]
    place = kinds.index(TagKind.CLOSE) if TagKind.CLOSE in kinds else len(tags)
    markup = [tag.markup for tag in tags]
    return "".join([*markup[:place], restored, *markup[place:]])


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
            text += meaning
            raws += [raw] + [""] * (len(meaning) - 1)
            offsets += [start] * len(meaning)
        positions.append(len(text))
        tags = tuple(Tag(positions[index], raw, kind, name) for index, raw, kind, name in self._tags)
        return Block("".join(text), tuple(raws), (*offsets, self._offset), tags, frozenset(placeholders))
