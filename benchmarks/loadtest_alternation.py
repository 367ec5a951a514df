"""Compare two load testers that take turns on one server: A B A B A.

A shared machine may run at half speed for minutes. Such a change affects a pass and its neighbours alike. So each pass
of the other tester (B) is compared with the mean of our passes (A) right before and right after it. The result is the
median of these ratios. Each of our passes between two others of ours is compared with their mean. If the median of
those ratios is not 1 within the tolerance, the machine was too unsteady for a verdict.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Latencies in ms by percentile.
Latencies = Mapping[str, float]
# Two latencies agree within a tenth, or within a millisecond, which is the precision of other testers.
TOLERANCE = 0.10
TOLERANCE_MS = 1.0


@dataclass(frozen=True)
class Comparison:
    """Ratios of the compared passes' latencies, by percentile.

    ratios: the median over the passes. ranges: the lowest and the highest. agrees: whether every median is close enough
    to 1.
    """

    ratios: dict[str, float]
    ranges: dict[str, tuple[float, float]]
    agrees: bool


def agrees(other_ms: float, own_ms: float) -> bool:
    """Whether two latencies agree within 10 % or a millisecond."""
    return abs(other_ms - own_ms) <= max(TOLERANCE * own_ms, TOLERANCE_MS)


def median_of(passes: Sequence[Latencies]) -> dict[str, float]:
    """The median over the passes, by percentile."""
    return {name: statistics.median(each[name] for each in passes) for name in passes[0]}


def compare_other_passes(others: Sequence[Latencies], own: Sequence[Latencies]) -> Comparison:
    """Compare each pass of the other tester with our pass before it and our pass after it.

    own: our passes in order. Raises ValueError unless we have one pass more than the other tester.
    """
    if len(own) != len(others) + 1:
        raise ValueError(f"{len(others)} other passes need {len(others) + 1} of our own, not {len(own)}")
    return _compare_to_neighbours(list(zip(own[:-1], others, own[1:], strict=True)), own)


def compare_own_passes(own: Sequence[Latencies]) -> Comparison:
    """Compare each of our passes with its two neighbours. Needs at least three passes."""
    return _compare_to_neighbours(list(zip(own[:-2], own[1:-1], own[2:], strict=True)), own)


def _compare_to_neighbours(
    triples: Sequence[tuple[Latencies, Latencies, Latencies]], own: Sequence[Latencies]
) -> Comparison:
    """Ratios of the middle pass to the mean of its neighbours. triples: before, middle and after."""
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
