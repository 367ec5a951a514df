"""Splits a unit into parts that fit into one request, and joins their translations. Linear in the text's length."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice

from app.files.unit import FileError, Unit, UnitFormat

# A tag, the end of a sentence with the white space after it, or other white space.
_BOUNDARY = re.compile(
    r"<(?P<close>/?)(?P<name>[A-Za-z][\w-]*+)[^<>]*+>"
    r"|(?P<sentence>[.!?\u2026][\"'\u201d\u2019)\]]*+\s++|[\u3002\uff01\uff1f])|\s++"
)
_VOID = frozenset({"br", "img", "hr", "wbr", "input", "x"})
# A text inside one element is not split. So it may have up to this many times the characters of a part. If larger, a
# request may be refused as too large. If smaller, more files are refused.
_MAX_UNCUT = 10


def split_unit(unit: Unit, max_characters: int) -> list[Unit]:
    """Split the unit into parts that fit into one request and join to its text.

    Plain text is cut after a sentence, else after white space, else anywhere. A part has at most `max_characters`.
    Markup is cut only after a sentence or white space that is outside all elements. So a part of it may have up to
    _MAX_UNCUT times as many. Raises FileError for a longer one.
    """
    if len(unit.text) <= max_characters:
        return [unit]
    is_text = unit.format is UnitFormat.TEXT
    parts = list(_cut(unit.text, max_characters, is_text=is_text))
    if max(map(len, parts)) > _MAX_UNCUT * max_characters:
        raise FileError(
            f"an element has more than the {_MAX_UNCUT * max_characters} characters of running text allowed"
        )
    return [Unit(part, unit.format, unit.is_wrapped) for part in parts]


def _cut(text: str, size: int, *, is_text: bool) -> Iterator[str]:
    """Yield the parts of a text. size: the most characters of a part. is_text: whether the text has no markup."""
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
    for match in _BOUNDARY.finditer(text):
        if match["name"] is None:
            if depth == 0:
                yield match.end(), match["sentence"] is not None
        elif is_text:
            continue
        elif match["close"]:
            depth = max(depth - 1, 0)
        elif match["name"].lower() not in _VOID and not match.group().endswith("/>"):
            depth += 1


def join_parts(units: Sequence[Unit], max_characters: int, translations: Sequence[str]) -> list[str]:
    """Join the translations of the parts of each unit. Raises ValueError if their number is not that of the parts."""
    remaining = iter(translations)
    counts = [len(split_unit(unit, max_characters)) for unit in units]
    if sum(counts) != len(translations):
        raise ValueError(f"{len(translations)} translations for {sum(counts)} parts")
    return ["".join(islice(remaining, num_parts)) for num_parts in counts]
