"""Counters and histograms without locks, for a single writing thread.

They cost less than those of prometheus_client.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class HistogramSeries:
    """One series of a histogram. One thread adds values. Another thread may read.

    A read has all values that were added before it began. Its buckets and its sum may also have values that were added
    later.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        """bounds: the upper bound of each bucket, ascending; a further bucket takes larger values."""
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str]) -> None:
        """Add the series with cumulative buckets, as Prometheus expects."""
        names = map(floatToGoString, (*self._bounds, math.inf))
        buckets = list(zip(names, accumulate(self._counts), strict=True))
        family.add_metric(labels, buckets, self._sum)


class LockFreeCounter(Collector):
    """A counter without labels. One thread counts. Another thread may read, and misses at most the last count."""

    def __init__(self, name: str, documentation: str, *, registry: CollectorRegistry) -> None:
        self._name = name
        self._documentation = documentation
        self._value = 0
        registry.register(self)

    def inc(self, amount: int) -> None:
        """Increase the counter."""
        self._value += amount

    def collect(self) -> Iterable[Metric]:
        """The counter's sample."""
        yield CounterMetricFamily(self._name, self._documentation, value=self._value)


class LockFreeHistogram(Collector):
    """A histogram with one series per combination of label values."""

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str] = (),
        *,
        buckets: Sequence[float],
        registry: CollectorRegistry,
    ) -> None:
        self._name = name
        self._documentation = documentation
        self._label_names = labels
        self._buckets = buckets
        self._series: dict[tuple[str, ...], HistogramSeries] = {}
        registry.register(self)

    def labels(self, *values: str) -> HistogramSeries:
        """The series of these label values, created on first use."""
        found = self._series.get(values)
        if found is None:
            found = self._series[values] = HistogramSeries(self._buckets)
        return found

    def collect(self) -> Iterable[Metric]:
        """All series."""
        family = HistogramMetricFamily(self._name, self._documentation, labels=self._label_names)
        for values, series in list(self._series.items()):
            series.add_to(family, values)
        yield family
