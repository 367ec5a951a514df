"""Percentiles from an HDR histogram: three significant digits over the whole range at constant cost."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from hdrh.histogram import HdrHistogram

LOWEST_US = 1
HIGHEST_US = 3_600_000_000  # an hour
DIGITS = 3
PERCENTILES = {"p50": 50.0, "p75": 75.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p99_9": 99.9}
# Bars of a chart: number per factor of ten, and lower bound of the first in ms.
BARS_PER_DECADE = 10
FIRST_BAR_MS = 0.1
# Points of a percentile curve. The share of values above a point is 1/CURVE_STEP of the share above the point before
# it. The last share is MIN_BEYOND or more.
CURVE_STEP = 1.15
MIN_BEYOND = 1e-5


@dataclass(frozen=True)
class Distribution:
    """A distribution of latencies in milliseconds.

    Attributes:
        num: number of values.
        percentiles: by the names of PERCENTILES. A percentile with fewer than two values above it is close to the
            maximum.
        bars: pairs of lower bound and number of values, ascending, ten per factor of ten, without empty ones.
        hdr: the histogram in microseconds in the standard compressed encoding (base64), for other tools.
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
        """The 99th percentile."""
        return self.percentiles["p99"]


def distribution(seconds: Iterable[float]) -> Distribution | None:
    """The distribution of values in seconds, from 0 to an hour; None without values."""
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
            # The histogram returns the upper end of a bucket, which may exceed the largest value.
            name: min(value_ms, max(values) * 1e3)
            for name, value_ms in zip(PERCENTILES, _values_ms(histogram, PERCENTILES.values()), strict=True)
        },
        bars=sorted(bars.items()),
        hdr=histogram.encode().decode("ascii"),
    )


def bar_of(milliseconds: float) -> float:
    """The lower bound of a value's bar. The first bar also holds the values below it."""
    bound = FIRST_BAR_MS
    step: float = 10 ** (1 / BARS_PER_DECADE)
    while bound * step <= milliseconds:
        bound *= step
    return round(bound, 6)


def _sum_of(encoded: Iterable[str]) -> HdrHistogram:
    """One histogram of the values of several encoded ones."""
    whole = HdrHistogram(LOWEST_US, HIGHEST_US, DIGITS)
    for text in encoded:
        whole.decode_and_add(text.encode("ascii"))
    return whole


def merged(encoded: Iterable[str]) -> dict[str, float]:
    """Percentiles in ms of several encoded histograms together."""
    whole = _sum_of(encoded)
    return dict(zip(PERCENTILES, _values_ms(whole, PERCENTILES.values()), strict=True))


def percentile_of(seconds: list[float], percentile: float) -> float | None:
    """A percentile in ms of a list in seconds, by nearest rank; None without values."""
    if not seconds:
        return None
    return sorted(seconds)[rank_of(len(seconds), percentile) - 1] * 1e3


def rank_of(num: int, percentile: float) -> int:
    """The nearest rank, from 1, of a percentile among `num` ordered values.

    The value at this rank is the smallest one that at least `percentile` % of the values do not exceed.
    """
    return max(1, math.ceil(num * percentile / 100 - 1e-9))


def _values_ms(histogram: HdrHistogram, percentiles: Iterable[float]) -> list[float]:
    """Percentiles in ms by nearest rank; 0 without values.

    The rank is rounded up (`rank_of`). The histogram's own method may round it down, so more than 1 % of the values may
    exceed its p99. One call for all percentiles reads the histogram's thousands of counts once.
    """
    num = histogram.get_total_count()
    if not num:
        return [0.0 for _ in percentiles]
    shares = [100 * rank_of(num, percentile) / num for percentile in percentiles]
    found = histogram.get_percentile_to_value_dict(shares)
    return [found[share] / 1e3 for share in shares]


def curve(encoded: Iterable[str]) -> list[tuple[float, float]]:
    """Pairs of percentile and ms of several encoded histograms together, denser towards 100, for a chart."""
    whole = _sum_of(encoded)
    num = whole.get_total_count()
    percentiles = []
    beyond = 1.0
    while beyond * num >= 1 and beyond > MIN_BEYOND:
        percentiles.append(100 * (1 - beyond))
        beyond /= CURVE_STEP
    return list(zip(percentiles, _values_ms(whole, percentiles), strict=True))
