"""Maps subwords to their positions in a text as the caller sent it.

The positions in the text that the model reads differ from these, because that text is in Unicode's composed form (NFC)
and has a placeholder symbol in place of each verbatim span.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from app.text.segmentation import Offsets
from app.text.tokenizer import PLACEHOLDER_SYMBOLS, Tokenizer

# The maximum number of characters with exact positions in a cluster, such as a letter with its marks. If smaller,
# positions in words of some languages are approximate. If larger, a text with long runs of marks takes more time.
# Unicode's stream-safe text format (UAX #15) has at most 30 marks in a row.
MAX_CLUSTER_LENGTH = 32


def target_offsets(
    tokenizer: Tokenizer, ids: Sequence[int], verbatim_spans: Sequence[str] = ()
) -> list[Offsets]:
    """Return the offsets of each subword in `tokenizer.decode(ids, verbatim_spans).text`.

    ids: without start and end tokens. If a placeholder symbol is repeated, its span belongs to the first symbol. A span
    that `decode` appends belongs to no subword.
    """
    text, offsets = tokenizer.offsets(ids)
    remaining = dict(enumerate(verbatim_spans))
    widths = _widths(text, remaining)
    if remaining:  # when `decode` appends spans, it strips the text
        first = len(text) - len(text.lstrip())
        last = len(text.rstrip())
        widths = [0 if index < first or index >= last else width for index, width in enumerate(widths)]
    return _with_widths(offsets, widths)


def source_offsets(tokenizer: Tokenizer, text: str) -> list[Offsets]:
    """Return the offsets of each subword of `tokenizer.encode(text)` in `text`, without end token."""
    read, verbatim_spans, offsets = tokenizer.offsets_in_source(text)
    return as_sent(text, _with_widths(offsets, _widths(read, dict(enumerate(verbatim_spans)))))


def scored_offsets(tokenizer: Tokenizer, text: str, verbatim_spans: Sequence[str]) -> list[Offsets]:
    """Return the offsets in `text` of each subword of `tokenizer.encode_target(text, verbatim_spans)`.

    The end token has no offsets. Raises TokenizerError as `encode_target` does.
    """
    read, offsets = tokenizer.offsets_in_target(text, verbatim_spans)
    return as_sent(text, _with_widths(offsets, _widths(read, dict(enumerate(verbatim_spans)))))


def as_sent(text: str, offsets: list[Offsets]) -> list[Offsets]:
    """Convert offsets in the composed text (NFC), which the model reads, to offsets in `text`."""
    if unicodedata.is_normalized("NFC", text):
        return offsets
    composed = _composed_lengths(text)
    return [(bisect_right(composed, start) - 1, bisect_right(composed, end) - 1) for start, end in offsets]


def _composed_lengths(text: str) -> list[int]:
    """Return for each position in `text` the number of characters to which the text before the position composes.

    A longer text can compose to fewer characters, because a mark can change how the marks before it compose. So a
    length above a later one is lowered to it, and the list is in order. At a position after the first
    MAX_CLUSTER_LENGTH characters of a cluster, the length is approximate: it is that of the whole cluster. The time is
    linear.
    """
    lengths = [0]
    for cluster in _clusters(text):
        before, head, tail = lengths[-1], cluster[:MAX_CLUSTER_LENGTH], cluster[MAX_CLUSTER_LENGTH:]
        prefixes = [head[:end] for end in range(1, len(head) + 1)]
        if tail:  # only marks, which NFC composes in linear time if they are in canonical order
            marks = "".join(unicodedata.normalize("NFD", character) for character in tail)
            prefixes += [head + "".join(sorted(marks, key=unicodedata.combining))]
        sizes = [len(unicodedata.normalize("NFC", prefix)) for prefix in prefixes]
        sizes += sizes[-1:] * (len(tail) - 1)
        lengths += [before + size for size in reversed(list(accumulate(reversed(sizes), min)))]
    return lengths


def _clusters(text: str) -> Iterator[str]:
    """Cut a text before each character that neither composes with earlier ones nor changes its place among them."""
    start, composed = 0, ""
    for index, character in enumerate(text):
        alone = unicodedata.normalize("NFC", character)
        apart = composed + alone
        # So many characters never compose to a single one, so the next character cannot compose with them.
        is_long = index - start >= MAX_CLUSTER_LENGTH
        joined = apart if is_long else unicodedata.normalize("NFC", apart)
        if joined == apart and not unicodedata.combining(alone[0]):
            if index > start:
                yield text[start:index]
            start, composed = index, alone
        elif not is_long:
            composed = joined
    yield text[start:]


def _widths(text: str, verbatim_spans: dict[int, str]) -> list[int]:
    """Return how many characters each character of a text with placeholder symbols stands for.

    verbatim_spans: the span of each symbol, by the symbol's number. A span is removed when its symbol occurs.
    """
    widths = []
    for character in text:
        index = ord(character) - ord(PLACEHOLDER_SYMBOLS[0])
        is_placeholder = 0 <= index < len(PLACEHOLDER_SYMBOLS)
        widths.append(len(verbatim_spans.pop(index, "")) if is_placeholder else 1)
    return widths


def _with_widths(offsets: Sequence[Offsets], widths: Sequence[int]) -> list[Offsets]:
    """Convert offsets to those in a text where character i has widths[i] characters."""
    ends = [0, *accumulate(widths)]
    return [(ends[start], ends[end]) for start, end in offsets]
