"""When a hypothesis is going round in circles.

A cycle is a stretch of subwords that repeats with a period of at most MAX_PERIOD: each equals the one `period` before
it. A hypothesis loops when it ends in a cycle that

- holds MIN_REPEATS whole periods or more, and
- is at least MIN_LENGTH subwords long, and twice as long again as the longest cycle of the source: what
  repeats in the source may repeat in its translation, which may need twice as many subwords for it.

So "1, 1, 1" (five subwords), a line of fifteen dots and a refrain sung twice are no loops, and neither is a list
of forty ones that is forty in the source too. It is looked for every CHECK_INTERVAL subwords, in the best live
hypothesis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.decoding.options import DecodingOptions

MAX_PERIOD = 20
MIN_REPEATS = 3
MIN_LENGTH = 16
CHECK_INTERVAL = 8
# A source's cycle from which on a translation is expected to repeat it: shorter ones may be told in fewer subwords.
MIN_CYCLE = 32
# The second attempt repeats no trigram, as Paulus et al. 2018, section 2.5.
GUARD_NGRAM_SIZE = 3


def is_looping(ids: Sequence[int], source_ids: Sequence[int]) -> bool:
    """Whether a hypothesis has run into a cycle, by the rule above. O(MAX_PERIOD) where it has not."""
    found = last_cycle(ids)
    return found >= MIN_LENGTH and found >= MIN_LENGTH + 2 * longest_cycle(source_ids)


def last_cycle(ids: Sequence[int]) -> int:
    """Length of the longest cycle of MIN_REPEATS periods or more that ids end in; 0 where there is none."""
    longest = 0
    for period in range(1, min(MAX_PERIOD, len(ids) // MIN_REPEATS) + 1):
        start = len(ids)
        while start > period and ids[start - 1] == ids[start - 1 - period]:
            start -= 1
        length = len(ids) - start + period
        if length >= MIN_REPEATS * period:
            longest = max(longest, length)
    return longest


def longest_cycle(ids: Sequence[int]) -> int:
    """Length of the longest cycle of two periods or more anywhere in ids; 0 where there is none."""
    longest = 0
    for period in range(1, min(MAX_PERIOD, len(ids) // 2) + 1):
        num_equal = 0
        for index in range(period, len(ids)):
            num_equal = num_equal + 1 if ids[index] == ids[index - period] else 0
            if num_equal >= period:
                longest = max(longest, num_equal + period)
    return longest


def leaves_out_repetition(source_ids: Sequence[int], ids: Sequence[int]) -> bool:
    """Whether a source has a long cycle, of MIN_CYCLE subwords or more, and a target is shorter than half of it."""
    if len(source_ids) < MIN_CYCLE or 2 * len(ids) >= len(source_ids):
        return False
    cycle = longest_cycle(source_ids)
    return cycle >= MIN_CYCLE and 2 * len(ids) < cycle


def guarded(options: DecodingOptions) -> DecodingOptions:
    """The options of the second attempt: n-grams of GUARD_NGRAM_SIZE, or smaller where asked for, do not repeat."""
    asked = options.no_repeat_ngram_size or GUARD_NGRAM_SIZE
    return replace(options, no_repeat_ngram_size=min(asked, GUARD_NGRAM_SIZE), loop_guard=False)


def next_check(length: int, options: DecodingOptions) -> int:
    """How many subwords a hypothesis of this length must have before it is looked at again; -1: never."""
    if not options.loop_guard:
        return -1
    return max(length // CHECK_INTERVAL + 1, MIN_LENGTH // CHECK_INTERVAL) * CHECK_INTERVAL
