"""Spaces of a translation from which something was taken or into which something was put: those of a sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence

_DOUBLED = re.compile(r"(?<= ) +")
_BEFORE_MARK = re.compile(r"(?<! ) +(?=[.,](?:\s|$))")
_ENDS = frozenset(".!?\u2026\u3002\uff01\uff1f")
_CLOSING = " \t\n\u00a0\u202f.!?\u2026:;,\u3002\uff01\uff1f\"'\u201c\u201d\u2019\u00bb)]"


def kept_positions(source: str, text: str) -> list[int] | None:
    """Indices of the characters of a translation that stay; None where all do.

    Dropped are a space behind a space, spaces before a full stop or a comma, and spaces at either end, each where the
    source has no such space.
    """
    patterns = [each for each in (_DOUBLED, _BEFORE_MARK) if each.search(text) and not each.search(source)]
    start = len(text) - len(text.lstrip(" ")) if not source.startswith(" ") else 0
    end = len(text.rstrip(" ")) if not source.endswith(" ") else len(text)
    if not patterns and (start, end) == (0, len(text)):
        return None
    dropped = {place for each in patterns for match in each.finditer(text) for place in range(*match.span())}
    return [place for place in range(start, end) if place not in dropped]


def closing_marks_start(text: str) -> int:
    """Where the marks begin that close a sentence, with the quotes and brackets behind its last word."""
    return len(text.rstrip(_CLOSING))


def clamp_to_clause(source: str, run: str, text: str, position: int) -> int:
    """A place for a run of the source that is not behind the closing mark, where that is so in the source too."""
    return position if _is_outside(source, run) else min(position, closing_marks_start(text))


def _is_outside(source: str, run: str) -> bool:
    """Whether a run of the source stands behind its closing mark."""
    place = source.find(run)
    if place < 0 or any(map(str.isalnum, source[place + len(run) :])):
        return False
    end = place
    while end > 0 and not source[end - 1].isalnum() and source[end - 1] not in _ENDS:
        end -= 1
    return source[end - 1 : end] in _ENDS


def without_strays(source: str, placeholders: Sequence[str], text: str) -> str:
    """The translation without the stand-ins alone behind its closing mark, where none stands so in the source."""
    kept = text.rstrip(" " + "".join(placeholders))
    is_closed = kept[-1:] in _ENDS or (kept[-1:] in _CLOSING and kept[-2:-1] in _ENDS)
    if not kept or kept == text.rstrip() or not is_closed:
        return text
    strays = [placeholder for placeholder in placeholders if placeholder in text[len(kept) :]]
    return kept if not any(_is_outside(source, stray) for stray in strays) else text
