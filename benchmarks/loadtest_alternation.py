"""Two testers in turns on a server whose own times change with the minute: A B A B A, and each B beside its neighbours.

A machine that is shared runs for minutes half as fast as before. Such a change moves a pass and its neighbours alike,
so what is compared is each pass of the other tester with the mean of ours right before and right after it, and of those
ratios the median. The same is done with our own passes, each between two others of ours: where that median is not 1,
within what is asked of the other tester, the machine was not steady enough to tell anything.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Latencies in ms by percentile.
Latencies = Mapping[str, float]
# Within a tenth, or a millisecond, which is what others' timers and figures are rounded to.
WITHIN = 0.10
WITHIN_MS = 1.0


@dataclass(frozen=True)
class Comparison:
    """Ratios by percentile: median, least and largest. agrees: whether every median is near enough to 1."""

    ratios: dict[str, float]
    ranges: dict[str, tuple[float, float]]
    agrees: bool


def agrees(other_ms: float, own_ms: float) -> bool:
    """Within 10 %, or a millisecond."""
    return abs(other_ms - own_ms) <= max(WITHIN * own_ms, WITHIN_MS)


def median_of(passes: Sequence[Latencies]) -> dict[str, float]:
    """Percentile by percentile."""
    return {name: statistics.median(each[name] for each in passes) for name in passes[0]}


def beside(others: Sequence[Latencies], own: Sequence[Latencies]) -> Comparison:
    """Others' passes, each with the one of ours before it and the one after it.

    own: one more than the others, in the order in which they were measured.
    """
    if len(own) != len(others) + 1:
        raise ValueError(f"{len(others)} passes stand between {len(others) + 1} others, not {len(own)}")
    return _compared(list(zip(own[:-1], others, own[1:], strict=True)), own)


def control(own: Sequence[Latencies]) -> Comparison:
    """Our passes by the same rule: each but the first and the last with the two around it. At least three."""
    return _compared(list(zip(own[:-2], own[1:-1], own[2:], strict=True)), own)


def _compared(
    triples: Sequence[tuple[Latencies, Latencies, Latencies]], own: Sequence[Latencies]
) -> Comparison:
    """triples: before, between and after."""
    typical = median_of(own)
    ratios = {
        name: [2 * between[name] / (before[name] + after[name]) for before, between, after in triples]
        for name in typical
    }
    medians = {name: statistics.median(found) for name, found in ratios.items()}
    return Comparison(
        ratios=medians,
        ranges={name: (min(found), max(found)) for name, found in ratios.items()},
        agrees=all(agrees(medians[name] * typical[name], typical[name]) for name in typical),
    )
