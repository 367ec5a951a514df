"""Splits a unit into parts that fit into one request, and joins their translations. Linear in the text's length."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice

from app.files.unit import FileError, Unit, UnitFormat
from app.text.html_scanner import Event, scan_html

# The end of a sentence with the white space after it, or other white space.
_BOUNDARY = re.compile(
    r"(?P<sentence>[.!?\u2026][\"'\u201d\u2019)\]]*+\s++"
    r"|[\u3002\uff01\uff1f][\"'\u201d\u2019\u300d\u300f\uff09)\]]*+\s*+)|\s++"
)
_VOID = frozenset({"br", "img", "hr", "wbr", "input", "x"})
# A text inside one element is not split. So it may have up to this many times the characters of a part. If larger, a
# request may be refused as too large. If smaller, more files are refused.
_MAX_UNCUT = 10


def split_unit(unit: Unit, max_characters: int) -> list[Unit]:
    """Split the unit into parts that fit into one request and join to its text.

    Plain text is cut after a sentence, else after white space, else anywhere. A part has at most `max_characters`.
    Markup is cut only after a sentence or white space that is outside all elements. So a part of markup may have up to
    _MAX_UNCUT times as many characters. Raises FileError for a longer part. A shorter part may still have more
    sentences than a request may have.
    """
    if len(unit.text) <= max_characters:
        return [unit]
    is_text = unit.format is UnitFormat.TEXT
    parts = list(cut(unit.text, max_characters, is_text=is_text))
    if max(map(len, parts)) > _MAX_UNCUT * max_characters:
        raise FileError(
            "a part of the markup that cannot be cut has more than the "
            f"{_MAX_UNCUT * max_characters} characters allowed, tags and attributes included"
        )
    return [Unit(part, unit.format, unit.is_wrapped) for part in parts]


def cut(text: str, size: int, *, is_text: bool) -> Iterator[str]:
    """Yield the parts of a text, which join to it. is_text: whether the text has no markup.

    size: the maximum number of characters of a part. A part of markup that cannot be cut may have more.
    """
    start = sentence = space = 0
    for offset, is_sentence in chain(_cut_points(text, is_text=is_text), [(len(text), True)]):
        while offset - start > size:
            best = sentence if sentence > start else space
            if best <= start and not is_text:
                break
            best = best if best > start else start + size
            yield text[start:best]
            start = best
        space = offset
        sentence = offset if is_sentence else sentence
    if start < len(text):
        yield text[start:]


def _cut_points(text: str, *, is_text: bool) -> Iterator[tuple[int, bool]]:
    """Yield each offset where the text may be cut, and whether a sentence ends there."""
    depth = 0
    for event in [Event(0, len(text), "text")] if is_text else scan_html(text):
        if event.kind == "text" and depth == 0:
            yield from _boundaries(text, event.start, event.end)
        elif event.kind == "close" and event.name not in _VOID:
            depth = max(depth - 1, 0)
        elif event.kind == "open" and event.name not in _VOID:
            depth += 1


def _boundaries(text: str, start: int, end: int) -> Iterator[tuple[int, bool]]:
    """Yield the boundaries in text[start:end] as `_cut_points` does."""
    for match in _BOUNDARY.finditer(text, start, end):
        yield match.end(), match["sentence"] is not None


def join_parts(
    units: Sequence[Unit], max_characters: int, translations: Sequence[str], gap: str = ""
) -> list[str]:
    """Join the translations of the parts of each unit. Raises ValueError if their number is not that of the parts.

    gap: what is written between the translations of two parts if the first part does not end with white space.
    """
    remaining = iter(translations)
    parts = [[part.text for part in split_unit(unit, max_characters)] for unit in units]
    num_parts = sum(map(len, parts))
    if num_parts != len(translations):
        raise ValueError(f"{len(translations)} translations for {num_parts} parts")
    return [joined(each, list(islice(remaining, len(each))), gap) for each in parts]


def joined(parts: Sequence[str], translations: Sequence[str], gap: str) -> str:
    """Join the translations of a text's parts. gap: as in `join_parts`."""
    last = len(parts) - 1
    return "".join(
        text if index == last or part[-1:].isspace() else text + gap
        for index, (part, text) in enumerate(zip(parts, translations, strict=True))
    )
