"""Percentiles out of an HDR histogram: exact to three digits over the whole range, at a fixed cost."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from hdrh.histogram import HdrHistogram

LOWEST_US = 1
HIGHEST_US = 3_600_000_000  # an hour
DIGITS = 3
PERCENTILES = {"p50": 50.0, "p75": 75.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p99_9": 99.9}
# Bars of a chart: so many to a factor of ten, from 0.1 ms on.
BARS_PER_DECADE = 10
FIRST_BAR_MS = 0.1
# A curve of percentiles: the share beyond each of its points, over the next.
CURVE_STEP = 1.15
MIN_BEYOND = 1e-5


@dataclass(frozen=True)
class Distribution:
    """Milliseconds.

    Attributes:
        num: how many values.
        percentiles: by the names of PERCENTILES. Where fewer than two values lie above one, it is hardly more than
            the largest value; `num` tells.
        bars: pairs of lower bound and number of values, ascending, ten to a factor of ten, empty ones left out.
        hdr: the histogram itself in microseconds, in the common compressed encoding (base64), which other tools read.
    """

    num: int
    mean_ms: float
    min_ms: float
    max_ms: float
    percentiles: dict[str, float]
    bars: list[tuple[float, int]]
    hdr: str

    @property
    def p50_ms(self) -> float:
        """The median."""
        return self.percentiles["p50"]

    @property
    def p99_ms(self) -> float:
        """So many milliseconds, or fewer, in 99 of 100 cases."""
        return self.percentiles["p99"]


def distribution(seconds: Iterable[float]) -> Distribution | None:
    """Of values in seconds, from 0 to an hour; None where there is no value."""
    values = list(seconds)
    if not values:
        return None
    histogram = HdrHistogram(LOWEST_US, HIGHEST_US, DIGITS)
    bars: dict[float, int] = {}
    for value in values:
        microseconds = min(HIGHEST_US, max(LOWEST_US, round(value * 1e6)))
        histogram.record_value(microseconds)
        bar = bar_of(microseconds / 1e3)
        bars[bar] = bars.get(bar, 0) + 1
    return Distribution(
        num=len(values),
        mean_ms=sum(values) / len(values) * 1e3,
        min_ms=min(values) * 1e3,
        max_ms=max(values) * 1e3,
        percentiles={
            # The histogram gives the upper end of a step, which may lie above the largest value.
            name: min(_value_ms(histogram, percentile), max(values) * 1e3)
            for name, percentile in PERCENTILES.items()
        },
        bars=sorted(bars.items()),
        hdr=histogram.encode().decode("ascii"),
    )


def bar_of(milliseconds: float) -> float:
    """The lower bound of the bar that a value belongs to."""
    bound = FIRST_BAR_MS
    step: float = 10 ** (1 / BARS_PER_DECADE)
    while bound * step <= milliseconds:
        bound *= step
    return round(bound, 6)


def merged(encoded: Iterable[str]) -> dict[str, float]:
    """Percentiles, in ms, of several encoded histograms together."""
    whole = HdrHistogram(LOWEST_US, HIGHEST_US, DIGITS)
    for text in encoded:
        whole.decode_and_add(text.encode("ascii"))
    return {name: _value_ms(whole, percentile) for name, percentile in PERCENTILES.items()}


def percentile_of(seconds: list[float], percentile: float) -> float | None:
    """In ms, of a few values, the nearest rank; None where there is no value."""
    if not seconds:
        return None
    return sorted(seconds)[rank_of(len(seconds), percentile) - 1] * 1e3


def rank_of(num: int, percentile: float) -> int:
    """Of `num` ordered values, from 1: the first that at least so many of 100 do not exceed, as an objective counts."""
    return max(1, math.ceil(num * percentile / 100 - 1e-9))


def _value_ms(histogram: HdrHistogram, percentile: float) -> float:
    """Nearest rank: the histogram itself rounds to the nearer one, which a hundredth of the values may exceed."""
    num = histogram.get_total_count()
    if not num:
        return 0.0
    return float(histogram.get_value_at_percentile(100 * rank_of(num, percentile) / num)) / 1e3


def curve(encoded: Iterable[str]) -> list[tuple[float, float]]:
    """Pairs of percentile and ms of several encoded histograms together, denser towards 100; for a chart."""
    whole = HdrHistogram(LOWEST_US, HIGHEST_US, DIGITS)
    for text in encoded:
        whole.decode_and_add(text.encode("ascii"))
    num = whole.get_total_count()
    points = []
    beyond = 1.0
    while beyond * num >= 1 and beyond > MIN_BEYOND:
        percentile = 100 * (1 - beyond)
        points.append((percentile, _value_ms(whole, percentile)))
        beyond /= CURVE_STEP
    return points
