"""Detects hypotheses that repeat themselves.

A cycle is a run of subwords that repeats the same `period` subwords: after the first period, each subword equals the
subword `period` positions before it. A period has at most MAX_PERIOD subwords. A hypothesis loops when it ends in a
cycle that

- holds MIN_REPEATS whole periods or more, and
- has at least MIN_LENGTH + 2 * c subwords. c is the length of the source's longest cycle of at least two whole periods,
  or 0 if the source has none. A repetition in the source may recur in its translation, with up to twice as many
  subwords.

So "1, 1, 1" (five subwords), a line of fifteen dots and a refrain that is sung twice are no loops. Nor are forty
repetitions of "1," if the source has forty as well. The best live hypothesis is checked every CHECK_INTERVAL subwords.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.decoding.options import DecodingOptions

# Subwords of the longest period. If larger, checks are slower. If smaller, longer phrases repeat undetected.
MAX_PERIOD = 20
# The minimum number of whole periods, and of subwords, of a loop. If these are smaller, text that repeats on purpose
# counts as a loop. If larger, a loop is detected later.
MIN_REPEATS = 3
MIN_LENGTH = 16
# Subwords between checks. If larger, a loop runs longer. If smaller, checks take more time.
CHECK_INTERVAL = 8
# The shortest source cycle, in subwords, whose repetition the translation is expected to keep. The translation of a
# shorter cycle may be right even if it has less than half of the cycle's subwords.
MIN_CYCLE = 32
# The second attempt at a sentence whose hypothesis looped repeats no trigram, as in Paulus et al. 2018, section 2.5.
GUARD_NGRAM_SIZE = 3


def is_looping(ids: Sequence[int], source_ids: Sequence[int]) -> bool:
    """Whether a hypothesis loops, by the module's rule. Takes O(MAX_PERIOD) if it does not repeat."""
    cycle = last_cycle(ids)
    return cycle >= MIN_LENGTH and cycle >= MIN_LENGTH + 2 * longest_cycle(source_ids)


def last_cycle(ids: Sequence[int]) -> int:
    """The length of the longest cycle of at least MIN_REPEATS whole periods at the end of ids; 0 if there is none."""
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
    """The length of the longest cycle of at least two whole periods anywhere in ids; 0 if there is none."""
    longest = 0
    for period in range(1, min(MAX_PERIOD, len(ids) // 2) + 1):
        num_equal = 0
        for index in range(period, len(ids)):
            num_equal = num_equal + 1 if ids[index] == ids[index - period] else 0
            if num_equal >= period:
                longest = max(longest, num_equal + period)
    return longest


def leaves_out_repetition(source_ids: Sequence[int], ids: Sequence[int]) -> bool:
    """Whether the source has a cycle of MIN_CYCLE or more subwords and the target is shorter than half of the cycle."""
    if len(source_ids) < MIN_CYCLE or 2 * len(ids) >= len(source_ids):
        return False
    cycle = longest_cycle(source_ids)
    return cycle >= MIN_CYCLE and 2 * len(ids) < cycle


def guarded(options: DecodingOptions) -> DecodingOptions:
    """The options of the second attempt, without the loop guard.

    Its no_repeat_ngram_size is GUARD_NGRAM_SIZE, or the value of `options` if that is on and smaller.
    """
    ngram_size = options.no_repeat_ngram_size or GUARD_NGRAM_SIZE
    return replace(options, no_repeat_ngram_size=min(ngram_size, GUARD_NGRAM_SIZE), loop_guard=False)


def next_check(length: int, options: DecodingOptions) -> int:
    """The length at which a hypothesis that now has `length` subwords is checked next; -1 for never."""
    if not options.loop_guard:
        return -1
    return max(length // CHECK_INTERVAL + 1, MIN_LENGTH // CHECK_INTERVAL) * CHECK_INTERVAL
