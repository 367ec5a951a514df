"""Finds words that are not translated because of a tag inside: H<sub>2</sub>O, 10m<sup>2</sup>."""

from __future__ import annotations

import re
from bisect import bisect_left

from app.text.alignment import words
from app.text.blocks import Block
from app.text.scripts import UNSPACED
from app.text.segmentation import Span

_TAGS = frozenset({"sub", "sup"})
_SPACED = re.compile(f"[^{UNSPACED}]++")


def find_formulas(block: Block) -> list[Span]:
    """Return the words with a tag inside that are formulas: they have a digit, or the tag is `sub` or `sup`.

    Letters of scripts without spaces end a formula: `10m<sup>2</sup>` is the formula in `10m<sup>2</sup>的`.
    """
    if not block.tags:
        return []
    spans = [
        Span(*part.span())
        for word in words(block.text)
        for part in _SPACED.finditer(block.text, word.start, word.end)
    ]
    starts = [span.start for span in spans]
    have_digits = [any(map(str.isdigit, span.of(block.text))) for span in spans]
    formulas: list[Span] = []
    for tag in block.tags:
        index = bisect_left(starts, tag.position) - 1
        if index < 0 or not spans[index].start < tag.position < spans[index].end:
            continue
        if (tag.name in _TAGS or have_digits[index]) and spans[index] not in formulas[-1:]:
            formulas.append(spans[index])
    return formulas
