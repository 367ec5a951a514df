"""Markdown (CommonMark with tables and strikethrough): one unit per paragraph, heading or table cell.

Front matter, code, URLs, image texts, link definitions, bullets and indentation are kept. HTML blocks are read as HTML.
A block is not translated if the file does not contain its text as the parser returns it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from markdown_it.token import Token

from app.files.encoding import decode
from app.files.html_file import html_slots
from app.files.inline_marks import InlineParser
from app.files.tagged_text import Mark, MarkKind, Piece, TaggedText
from app.files.unit import FileLimits, Slot, SlottedText, is_translatable

_FRONT_MATTER = re.compile(r"(---|\+\+\+)[ \t]*\r?\n(?:.*?\r?\n)??\1[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_LINE = re.compile(r"([^\r\n]*)(\r\n|\n|\r|\Z)")
# White space, which cannot be at the inner edges of emphasis (CommonMark 0.31, 2.1: Unicode whitespace).
_SPACES = " \t\n\r\f\u00a0\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_EMPHASIS = frozenset({"em", "strong", "s"})
# Characters that, at the beginning of a line, would turn running text into another kind of block.
_BLOCK_START = re.compile(
    r"(\s{0,3})(#{1,6}(?=\s|$)|[-+*](?=\s|$)|>|\d{1,9}(?=[.)](?:\s|$))|(?:=+|-+)\s*$|```|~~~)"
)


def read_markdown(data: bytes, limits: FileLimits) -> SlottedText:
    """Parse Markdown. Raises FileError."""
    decoded = decode(data)
    text = decoded.text
    front = _FRONT_MATTER.match(text)
    start = front.end() if front else 0
    slots = sorted(limits.bounded(_Reader(text, start).slots()), key=lambda slot: slot.start)
    return SlottedText(text, tuple(slots), decoded.encoder())


class _Reader:
    """Finds the slots of a document."""

    def __init__(self, text: str, start: int) -> None:
        self._text = text
        self._start = start
        self._parser = InlineParser()
        # The lines as the parser counts them: it converts \r\n and \r to \n.
        self._lines: list[str] = []
        self._starts: list[int] = []
        for match in _LINE.finditer(text, start):
            self._lines.append(match[1])
            self._starts.append(match.start())
        self._cells: dict[int, int] = {}  # the end of the last found cell in each table row, by line number

    def slots(self) -> Iterator[Slot]:
        environment: dict[str, Any] = {}
        tokens = self._parser.markdown.parse(self._text[self._start :], environment)
        for token, before in zip(tokens, [None, *tokens], strict=False):
            if token.type == "html_block" and token.map:
                yield from self._html_slots(token.map[0], token.map[1])
            elif token.type == "inline" and token.map and before is not None:
                is_cell = before.type in {"th_open", "td_open"}
                if is_cell and r"\|" in token.content:
                    continue  # the file has `\\|`, from which the parser removed a backslash
                # In a cell, `\|` is a literal `|`. The parser removes the backslash, so it is added again.
                content = token.content.replace("|", r"\|") if is_cell else token.content
                offsets = self._line_offsets(content, token.map[0], before)
                if offsets is not None:
                    # A heading with an underline begins as a paragraph does, because no `#` precedes its text.
                    is_underlined = before.markup in {"=", "-"}
                    kind = "paragraph_open" if is_underlined else before.type
                    yield from self._text_slot(content, offsets, environment, kind)

    def _html_slots(self, first: int, end: int) -> Iterator[Slot]:
        start = self._starts[first]
        stop = self._starts[end] if end < len(self._starts) else len(self._text)
        yield from html_slots(self._text[start:stop], start)

    def _line_offsets(self, content: str, first: int, before: Token) -> list[int] | None:
        """The offset of each line of a block's content in the text; None if a line is not found."""
        if before.type in {"th_open", "td_open"}:
            return self._cell_offset(content, first)
        offsets = []
        for number, line in enumerate(content.split("\n"), start=first):
            offset = self._line_offset(line, number, is_heading=before.type == "heading_open")
            if offset is None:
                return None
            offsets.append(offset)
        return offsets

    def _line_offset(self, content: str, number: int, *, is_heading: bool) -> int | None:
        if number >= len(self._lines):
            return None
        line, content = self._lines[number].rstrip(), content.rstrip()
        if is_heading and not line.endswith(content):
            words = line.rstrip("#")
            line = words.rstrip() if words.endswith((" ", "\t")) else line
        return self._starts[number] + len(line) - len(content) if line.endswith(content) else None

    def _cell_offset(self, content: str, number: int) -> list[int] | None:
        """The offset of a cell's content. The cells of a row must be requested in order."""
        start = self._cells.get(number, 0)
        offset = self._lines[number].find(content, start)
        if offset < 0:
            # Skip the row's further cells. To search the line for each of them takes quadratic time.
            self._cells[number] = len(self._lines[number])
        if offset < 0 or not content:
            return None
        self._cells[number] = offset + len(content)
        return [self._starts[number] + offset]

    def _text_slot(
        self, content: str, offsets: list[int], environment: dict[str, Any], kind: str
    ) -> Iterator[Slot]:
        """Yield the slot of a block of running text, if it has text to translate. offsets: the offset of each line."""
        lines = content.split("\n")
        ends = [offset + len(line) for offset, line in zip(offsets, lines, strict=True)]
        breaks = [self._text[end:offset] for end, offset in zip(ends, offsets[1:], strict=False)]
        remaining = iter(breaks)
        text_breaks: list[str] = []
        pieces: list[Piece[str]] = []
        done = 0
        for mark in self._parser.marks(content, environment):
            if mark.start < done:
                continue
            before, raw = content[done : mark.start], content[mark.start : mark.end]
            text_breaks += islice(remaining, before.count("\n"))
            mark_breaks = tuple(islice(remaining, raw.count("\n")))
            pieces += (before, Mark(mark.kind, mark.written or _restored(raw, mark_breaks), mark.name))
            done = mark.end
        pieces.append(content[done:])
        text_breaks += remaining
        tagged = TaggedText.of(pieces)
        if is_translatable(tagged.plain):
            beginning = tagged.pieces[0]
            has_block_start = isinstance(beginning, str) and _as_text(beginning) != beginning
            writer = _Writer(tagged, tuple(text_breaks), kind, has_block_start)
            yield Slot(offsets[0], ends[-1], tagged.unit(is_wrapped="\n" in content), writer)


@dataclass(frozen=True)
class _Writer:
    """Writes a block. breaks: the line breaks in its text, each with the `>` and the indentation of the next line.

    kind: the type of the token that opens the block, such as `paragraph_open` or, for a cell, `td_open`. An underlined
        heading has the kind `paragraph_open`.
    has_block_start: the source begins as another kind of block does, so the translation's beginning is not escaped.
    A mark that spans lines holds its own line breaks.
    """

    tagged: TaggedText[str]
    breaks: tuple[str, ...]
    kind: str
    has_block_start: bool

    def __call__(self, translation: str) -> str:
        """The block's text with a translation."""
        pieces = _tidied(self.tagged.read(translation))
        if not self.breaks:
            pieces = [piece if isinstance(piece, Mark) else " ".join(piece.split("\n")) for piece in pieces]
        if self.kind in {"th_open", "td_open"}:
            pieces = [
                piece if isinstance(piece, Mark) else re.sub(r"(?<!\\)\|", r"\\|", piece) for piece in pieces
            ]
        if self.kind == "paragraph_open":
            pieces = _escaped(pieces, is_line_start=not self.has_block_start)
        written: list[str] = []
        num_breaks = 0
        for piece in pieces:
            if isinstance(piece, Mark):
                written.append(piece.raw)
                continue
            written.append(_restored(piece, self.breaks, num_breaks))
            num_breaks += piece.count("\n")
        return "".join(written)


def _tidied(pieces: list[Piece[str]]) -> list[Piece[str]]:
    """Move white space out of emphasis, because CommonMark allows none at its inner edges."""
    tidied: list[Piece[str]] = []
    for piece in pieces:
        previous = tidied[-1] if tidied else ""
        if isinstance(piece, str) and _is_emphasis(previous, MarkKind.OPEN):
            body = piece.lstrip(_SPACES)
            tidied[-1:] = [piece[: len(piece) - len(body)], previous, body]
        elif not _is_emphasis(piece, MarkKind.CLOSE):
            tidied.append(piece)
        elif isinstance(previous, str):
            body = previous.rstrip(_SPACES)
            tidied[-1:] = [body, piece, previous[len(body) :]]
        elif _is_emphasis(previous, MarkKind.OPEN):
            tidied.pop()  # the emphasis is empty
        else:
            tidied.append(piece)
        tidied[-3:] = [each for each in tidied[-3:] if each != ""]
    return tidied


def _is_emphasis(piece: Piece[str], kind: MarkKind) -> bool:
    return isinstance(piece, Mark) and piece.name in _EMPHASIS and piece.kind is kind


def _escaped(pieces: list[Piece[str]], *, is_line_start: bool) -> list[Piece[str]]:
    """Escape the block marker at the beginning of each line. is_line_start: whether the first one is escaped too."""
    escaped: list[Piece[str]] = []
    for piece in pieces:
        if isinstance(piece, Mark):
            escaped.append(piece)
            is_line_start = piece.kind is MarkKind.BREAK and not {"\r", "\n"}.isdisjoint(piece.raw)
        else:
            first, *others = piece.split("\n")
            lines = [_as_text(first) if is_line_start else first, *map(_as_text, others)]
            escaped.append("\n".join(lines))
            is_line_start = lines[-1] == ""
    return escaped


def _as_text(line: str) -> str:
    """The line with a leading block marker escaped."""
    match = _BLOCK_START.match(line)
    if match is None:
        return line
    offset = match.end() if match[2].isdecimal() else match.start(2)
    return f"{line[:offset]}\\{line[offset:]}"


def _restored(text: str, breaks: tuple[str, ...], num_done: int = 0) -> str:
    """The text with the file's own line breaks, from breaks[num_done] on. Further line breaks are like the last one."""
    lines = text.split("\n")
    parts = [lines[0]]
    for index, line in enumerate(lines[1:], start=num_done):
        parts += (breaks[min(index, len(breaks) - 1)], line)
    return "".join(parts)
