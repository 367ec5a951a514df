"""Where each subword stands in a text: code points of what the caller sees, not of what the model reads.

Between the two stand the placeholders of carried runs and Unicode's composition (`app.text.tokenizer`).
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from app.text.tokenizer import PLACEHOLDERS, Tokenizer

# Start and end of a subword, in code points; both the same where it has none of its own.
Offsets = tuple[int, int]


def target_offsets(
    tokenizer: Tokenizer, ids: Sequence[int], verbatim_spans: Sequence[str] = ()
) -> list[Offsets]:
    """Of each subword in `tokenizer.decode(ids, carried).text`; ids without start and end tokens.

    A carried run belongs to the first placeholder that stands for it; what was put at the end belongs to none.
    """
    text, offsets = tokenizer.offsets(ids)
    widths, waiting = [], dict(enumerate(verbatim_spans))
    for character in text:
        index = ord(character) - ord(PLACEHOLDERS[0])
        is_placeholder = 0 <= index < len(PLACEHOLDERS)
        widths.append(len(waiting.pop(index, "")) if is_placeholder else 1)
    if waiting:  # what is put at the end takes the place of the spaces on either side
        first = len(text) - len(text.lstrip())
        last = len(text.rstrip())
        widths = [0 if index < first or index >= last else width for index, width in enumerate(widths)]
    return _moved(offsets, widths)


def source_offsets(tokenizer: Tokenizer, text: str) -> list[Offsets]:
    """Of each subword of `tokenizer.encode(text)` in `text` as it is, the end token left out."""
    encoded = tokenizer.encode(text)
    return as_sent(text, target_offsets(tokenizer, encoded.ids[:-1], encoded.verbatim_spans))


def as_sent(text: str, offsets: list[Offsets]) -> list[Offsets]:
    """Offsets into the composed text (NFC), which is what the model reads, as offsets into `text`."""
    if unicodedata.is_normalized("NFC", text):
        return offsets
    # composed[i]: how many code points the first i of the text compose to.
    composed = [len(unicodedata.normalize("NFC", text[:end])) for end in range(len(text) + 1)]
    return [(bisect_right(composed, start) - 1, bisect_right(composed, end) - 1) for start, end in offsets]


def _moved(offsets: Sequence[Offsets], widths: Sequence[int]) -> list[Offsets]:
    """Offsets into a text whose every character becomes so many."""
    ends = [0, *accumulate(widths)]
    return [(ends[start], ends[end]) for start, end in offsets]
