"""Corrects spaces and punctuation of a translation after placeholders were inserted or removed."""

from __future__ import annotations

import re
from collections.abc import Sequence

_DOUBLED = re.compile(r"(?<= ) +")
_BEFORE_MARK = re.compile(r"(?<! ) +(?=[.,](?:\s|$))")
_ENDS = frozenset(".!?\u2026\u3002\uff01\uff1f")
_CLOSING = " \t\n\u00a0\u202f.!?\u2026:;,\u3002\uff01\uff1f\"'\u201c\u201d\u2019\u00bb)]"


def kept_positions(source: str, text: str) -> list[int] | None:
    """Return the indices of the characters of a translation that are kept; None for all.

    Repeated spaces, spaces before a full stop or comma, and spaces at both ends are dropped. Each kind of space is kept
    if the source has it.
    """
    patterns = [each for each in (_DOUBLED, _BEFORE_MARK) if each.search(text) and not each.search(source)]
    start = len(text) - len(text.lstrip(" ")) if not source.startswith(" ") else 0
    end = len(text.rstrip(" ")) if not source.endswith(" ") else len(text)
    if not patterns and (start, end) == (0, len(text)):
        return None
    dropped = {index for each in patterns for match in each.finditer(text) for index in range(*match.span())}
    return [index for index in range(start, end) if index not in dropped]


def closing_marks_start(text: str) -> int:
    """Return the position after the last word, where the closing marks, quotes and brackets of a sentence begin."""
    return len(text.rstrip(_CLOSING))


def clamp_to_clause(source: str, span: str, text: str, position: int) -> int:
    """Return the position at which to insert a span of the source, at most `position`.

    It is before the closing mark of the translation, unless the span follows the closing mark of the source.
    """
    return position if _is_outside(source, span) else min(position, closing_marks_start(text))


def _is_outside(source: str, span: str) -> bool:
    """Whether a span of the source follows the source's closing mark."""
    index = source.find(span)
    if index < 0 or any(map(str.isalnum, source[index + len(span) :])):
        return False
    end = index
    while end > 0 and not source[end - 1].isalnum() and source[end - 1] not in _ENDS:
        end -= 1
    return source[end - 1 : end] in _ENDS


def without_strays(source: str, placeholders: Sequence[str], text: str) -> str:
    """Return the translation without placeholders after its closing mark, unless the source has one there."""
    kept = text.rstrip(" " + "".join(placeholders))
    is_closed = kept[-1:] in _ENDS or (kept[-1:] in _CLOSING and kept[-2:-1] in _ENDS)
    if not kept or kept == text.rstrip() or not is_closed:
        return text
    strays = [placeholder for placeholder in placeholders if placeholder in text[len(kept) :]]
    return kept if not any(_is_outside(source, stray) for stray in strays) else text
