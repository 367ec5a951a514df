"""Plain text as a stream of lines. `transduce translate` reads stdin and text files in this way.

Without --json, line structure is kept: each input line gives one output line with the same line ending. Blank lines and
white space at both ends of a line are copied. A last line without a line ending stays without one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from transduce.errors import CommandError
from transduce.translate_batch import Part

# The server's default limits for one request.
MAX_ITEMS = 128
MAX_REQUEST_CHARACTERS = 50_000
MAX_ITEM_CHARACTERS = 5_000

BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True)
class Line:
    """One input line, equal to `before` + joined `pieces` + `after`.

    Attributes:
        before: byte order mark and leading white space.
        pieces: the text in pieces of at most MAX_ITEM_CHARACTERS; empty for a blank line.
        after: trailing white space and the line ending.
        num_bytes: length of the whole line in UTF-8.
    """

    before: str
    pieces: tuple[str, ...]
    after: str
    num_bytes: int


def read_lines(source: BinaryIO) -> Iterator[Line]:
    r"""Yield the lines of `source`. Only \n ends a line; a \r before it belongs to the line ending.

    Raises:
        CommandError: a line is not UTF-8.
    """
    for number, raw in enumerate(source, start=1):
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CommandError(f"line {number} is not UTF-8 (byte {error.start + 1} of the line)") from error
        mark = BYTE_ORDER_MARK if number == 1 and text.startswith(BYTE_ORDER_MARK) else ""
        text = text.removeprefix(mark)
        body = text.strip()
        start = text.index(body)
        yield Line(
            before=mark + text[:start],
            pieces=tuple(split_text(body, max_characters=MAX_ITEM_CHARACTERS)),
            after=text[start + len(body) :],
            num_bytes=len(raw),
        )


def split_text(text: str, *, max_characters: int) -> Iterator[str]:
    """Split a text into pieces of at most `max_characters` code points, as `app.files.parts` does."""
    if len(text) > max_characters:
        from app.files.parts import cut

        yield from cut(text, max_characters, is_text=True)
    elif text:
        yield text


def batches(lines: Iterable[Line], *, max_lines: int) -> Iterator[list[Line]]:
    """Yield groups of `max_lines` lines; the last group may be shorter.

    Raises:
        CommandError: as `lines` does, once the lines before it are yielded.
    """
    batch: list[Line] = []
    failure: CommandError | None = None
    try:
        for line in lines:
            batch.append(line)
            if len(batch) == max_lines:
                yield batch
                batch = []
    except CommandError as error:
        failure = error
    if batch:
        yield batch
    if failure is not None:
        raise failure


def requests(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield groups of `texts` within the server's default limits of items and characters per request."""
    request: list[str] = []
    num_characters = 0
    for text in texts:
        is_full = len(request) == MAX_ITEMS or num_characters + len(text) > MAX_REQUEST_CHARACTERS
        if request and is_full:
            yield request
            request, num_characters = [], 0
        request.append(text)
        num_characters += len(text)
    if request:
        yield request


def translated_line(line: Line, answers: Iterator[Sequence[Part]], gap: str = "") -> str:
    """The line with its pieces replaced by the next of `answers`, still as one line.

    gap: put between the translations of two parts if nothing separates the parts in the source.
    """
    from app.files.parts import joined

    parts = [part for _ in line.pieces for part in next(answers)]
    translated = joined([part.text for part in parts], [part.translation.text for part in parts], gap)
    return line.before + translated.replace("\n", " ") + line.after


def json_line(line: Line, answers: Iterator[Sequence[Part]]) -> str:
    """The server's translations of the line's parts as one line of JSON: an array, empty for a blank line."""
    found = [dict(part.translation.raw) for _ in line.pieces for part in next(answers)]
    return json.dumps(found, ensure_ascii=False) + "\n"
