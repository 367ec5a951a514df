"""Markdown (CommonMark with tables and strikethrough): one unit per paragraph, heading or table cell.

Front matter, code, URLs, image texts, link definitions, bullets and indentation are kept. HTML blocks are read as HTML.
A block is not translated if the file does not contain its text as the parser returns it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate, islice
from typing import Any

from markdown_it.token import Token

from app.files.block_starts import begins_block
from app.files.encoding import decode
from app.files.html_file import html_slots
from app.files.inline_marks import InlineMark, InlineParser
from app.files.markdown_writer import BlockWriter, Markup, in_cell, joined, restored
from app.files.tagged_text import Mark, Piece, TaggedText
from app.files.unit import FileLimits, Slot, SlottedText, is_translatable

_FRONT_MATTER = re.compile(r"(---|\+\+\+)[ \t]*\r?\n(?:.*?\r?\n)??\1[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_LINE = re.compile(r"([^\r\n]*)(\r\n|\n|\r|\Z)")


def read_markdown(data: bytes, limits: FileLimits) -> SlottedText:
    """Parse Markdown. Raises FileError."""
    decoded = decode(data)
    text = decoded.text
    front = _FRONT_MATTER.match(text)
    start = front.end() if front else 0
    return SlottedText(text, limits.bounded(_Reader(text, start).slots()), decoded.encoder())


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
                yield from self._html_slots(token.content, token.map[0], token.map[1])
            elif token.type == "inline" and token.map and before is not None:
                content = token.content
                offsets = self._line_offsets(content, token.map[0], before)
                if offsets is not None:
                    # A heading with an underline begins as a paragraph does, because no `#` precedes its text.
                    is_underlined = before.markup in {"=", "-"}
                    kind = "paragraph_open" if is_underlined else before.type
                    yield from self._text_slot(content, offsets, environment, kind)

    def _html_slots(self, content: str, first: int, end: int) -> Iterator[Slot]:
        """Yield the slots of a block of HTML. The `>` and the indentation before its lines are not part of its text."""
        lines = [line.strip() for line in content.split("\n")[: end - first]]
        found = [self._line_offset(line, number) for number, line in enumerate(lines, start=first)]
        offsets = [offset for offset in found if offset is not None]
        if len(offsets) < len(found):
            return
        ends = [offset + len(line) for offset, line in zip(offsets, lines, strict=True)]
        breaks = [self._text[end:offset] for end, offset in zip(ends, offsets[1:], strict=False)]
        starts = [0, *accumulate(len(line) + 1 for line in lines)]  # in the joined lines
        for slot in html_slots("\n".join(lines), 0):
            start, last = bisect_right(starts, slot.start) - 1, bisect_right(starts, slot.end - 1) - 1
            writer = partial(_written_html, breaks=tuple(breaks[start:last]))
            yield Slot(
                offsets[start] + slot.start - starts[start],
                offsets[last] + slot.end - starts[last],
                slot.unit,
                writer,
            )

    def _line_offsets(self, content: str, first: int, before: Token) -> list[int] | None:
        """The offset of each line of a block's content in the text; None if a line is not found."""
        if before.type in {"th_open", "td_open"}:
            return self._cell_offset(in_cell(content), first)
        offsets = []
        for number, line in enumerate(content.split("\n"), start=first):
            offset = self._line_offset(line, number, is_heading=before.type == "heading_open")
            if offset is None:
                return None
            offsets.append(offset)
        return offsets

    def _line_offset(self, content: str, number: int, *, is_heading: bool = False) -> int | None:
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
        # In a cell, the content is a single line, and `|` is `\|` in the file.
        is_cell = kind in {"th_open", "td_open"}
        lines = (in_cell(content) if is_cell else content).split("\n")
        ends = [offset + len(line) for offset, line in zip(offsets, lines, strict=True)]
        breaks = [self._text[end:offset] for end, offset in zip(ends, offsets[1:], strict=False)]
        remaining = iter(breaks)
        text_breaks: list[str] = []
        pieces: list[Piece[Markup]] = []
        spelled: list[tuple[str, str]] = []  # each text or character, and how the file has it
        for piece in self._parser.pieces(content, environment):
            if isinstance(piece, InlineMark):
                raw = content[piece.start : piece.end]
                mark_breaks = tuple(islice(remaining, raw.count("\n")))
                written = in_cell(raw) if is_cell else restored(raw, mark_breaks)
                pieces.append(Mark(piece.kind, Markup(raw, written, piece.named_end), piece.name))
                continue
            text, raw = (
                (piece, piece) if isinstance(piece, str) else (piece.text, content[piece.start : piece.end])
            )
            text_breaks += islice(remaining, text.count("\n"))
            pieces.append(text)
            spelled.append((text, raw))
        tagged = TaggedText.of(joined(pieces))
        if is_translatable(tagged.plain):
            first = content.split("\n", 1)[0] if isinstance(tagged.pieces[0], str) else ""
            writer = BlockWriter(
                tagged,
                tuple(text_breaks),
                kind,
                begins_block(first),
                _spellings(spelled),
                self._parser,
                environment,
            )
            yield Slot(offsets[0], ends[-1], tagged.unit(is_wrapped="\n" in content), writer)


def _written_html(translation: str, breaks: tuple[str, ...]) -> str:
    return restored(translation, breaks) if breaks else " ".join(translation.split("\n"))


def _spellings(spelled: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    """The spellings in a block, in order, of each character that has an escape or a reference there.

    Letters and digits of ASCII are left out, so a translation has them without an escape or a reference.
    """
    special = {
        text
        for text, raw in spelled
        if text != raw and len(text) == 1 and not (text.isascii() and text.isalnum())
    }
    spellings: dict[str, list[str]] = {character: [] for character in special}
    for text, raw in spelled if special else ():
        if text in special:
            spellings[text].append(raw)
        else:
            for character in filter(special.__contains__, text):
                spellings[character].append(character)
    return spellings
