"""Maps subwords to their positions in a text as the caller sent it.

The positions differ because the model reads a text in Unicode's composed form (NFC), with placeholder symbols for
verbatim spans.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from app.text.segmentation import Offsets
from app.text.tokenizer import PLACEHOLDER_SYMBOLS, Tokenizer


def target_offsets(
    tokenizer: Tokenizer, ids: Sequence[int], verbatim_spans: Sequence[str] = ()
) -> list[Offsets]:
    """Return the offsets of each subword in `tokenizer.decode(ids, verbatim_spans).text`.

    ids: without start and end tokens. A verbatim span belongs to its first placeholder symbol. An appended span belongs
    to no subword.
    """
    text, offsets = tokenizer.offsets(ids)
    widths, remaining = [], dict(enumerate(verbatim_spans))
    for character in text:
        index = ord(character) - ord(PLACEHOLDER_SYMBOLS[0])
        is_placeholder = 0 <= index < len(PLACEHOLDER_SYMBOLS)
        widths.append(len(remaining.pop(index, "")) if is_placeholder else 1)
    if remaining:  # when `decode` appends spans, it strips the text
        first = len(text) - len(text.lstrip())
        last = len(text.rstrip())
        widths = [0 if index < first or index >= last else width for index, width in enumerate(widths)]
    return _with_widths(offsets, widths)


def source_offsets(tokenizer: Tokenizer, text: str) -> list[Offsets]:
    """Return the offsets of each subword of `tokenizer.encode(text)` in `text`, without end token."""
    encoded = tokenizer.encode(text)
    ids = encoded.ids[:-1] if encoded.ids[-1] == tokenizer.eos_id else encoded.ids
    return as_sent(text, target_offsets(tokenizer, ids, encoded.verbatim_spans))


def as_sent(text: str, offsets: list[Offsets]) -> list[Offsets]:
    """Convert offsets in the composed text (NFC), which the model reads, to offsets in `text`."""
    if unicodedata.is_normalized("NFC", text):
        return offsets
    # composed[i]: the number of code points that the first i code points of the text compose to.
    composed = [len(unicodedata.normalize("NFC", text[:end])) for end in range(len(text) + 1)]
    return [(bisect_right(composed, start) - 1, bisect_right(composed, end) - 1) for start, end in offsets]


def _with_widths(offsets: Sequence[Offsets], widths: Sequence[int]) -> list[Offsets]:
    """Convert offsets to those in a text where character i has widths[i] characters."""
    ends = [0, *accumulate(widths)]
    return [(ends[start], ends[end]) for start, end in offsets]
