"""Metrics whose values are read at each scrape, from figures that the server has anyway."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from app.observability.figures import CacheFigures, ConnectionFigures, QueueFigures, WorkerFigures

_QUEUE = {
    "queue_depth": ("Sentences accepted and not yet answered", "num_pending_sentences"),
    "queue_depth_limit": (
        "Limit of transduce_queue_depth: the sum of the loaded models' limits",
        "max_pending_sentences",
    ),
    "queue_tokens": ("Source subwords accepted and not yet answered", "num_pending_tokens"),
    "queue_tokens_limit": (
        "Limit of transduce_queue_tokens: the sum of the loaded models' limits",
        "max_pending_tokens",
    ),
    "queue_drain_seconds": (
        "Estimated seconds until the queue is empty; NaN without a measured speed",
        "drain_time_s",
    ),
    "workers": ("Engine workers of the loaded models", "num_workers"),
    "step_age_seconds": (
        "Seconds since the oldest current step of a worker began; 0 while all are idle",
        "step_age_s",
    ),
    "step_age_limit_seconds": ("Seconds after which a worker's step counts as stalled", "stall_limit_s"),
}


class _Reader(Collector):
    """Calls, at each scrape, a function that returns the samples."""

    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        return self._read()


class Readings:
    """The metrics of one registry that are read at each scrape. Track each metric only once."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def track(self, read: Callable[[], Iterable[Metric]]) -> None:
        """Read the samples that a function returns."""
        self._registry.register(_Reader(read))

    def track_gauges(self, gauges: Mapping[str, tuple[str, Callable[[], float]]]) -> None:
        """Read gauges. gauges: the help text and the function that reads the value, by name without `transduce_`."""
        self.track(lambda: (_gauge(name, text, value()) for name, (text, value) in gauges.items()))

    def track_queue(self, read: Callable[[], QueueFigures]) -> None:
        """Read the queue, its limits, and the oldest step."""

        def families() -> Iterable[Metric]:
            figures = read()
            for name, (text, field) in _QUEUE.items():
                value = getattr(figures, field)
                yield _gauge(name, text, math.nan if value is None else value)

        self.track(families)

    def track_workers(
        self, read: Callable[[], Iterable[tuple[str, WorkerFigures]]], rows: Mapping[int, int]
    ) -> None:
        """Read the state of each worker. read: returns each worker with its model's name.

        rows: how many rows are in use, by the worker's number.
        """

        def families() -> Iterable[Metric]:
            ages = _labelled("worker_step_age_seconds", "Seconds since the worker's step began; 0 if idle")
            used = _labelled("worker_rows", "Rows in use in a worker after its last step")
            limits = _labelled("worker_rows_limit", "Rows of a worker")
            for model, worker in read():
                labels = (model, str(worker.number))
                ages.add_metric(labels, worker.step_age_s)
                used.add_metric(labels, rows.get(worker.number, 0))
                limits.add_metric(labels, worker.max_rows)
            return ages, used, limits

        self.track(families)

    def track_connections(self, read: Callable[[], ConnectionFigures]) -> None:
        """Read the open connections and their limit."""

        def families() -> Iterable[Metric]:
            figures = read()
            family = GaugeMetricFamily(
                "transduce_http_connections",
                "Open connections: active, idle, and in the reserve for probes",
                labels=["state"],
            )
            family.add_metric(["active"], figures.num_active)
            family.add_metric(["idle"], figures.num_idle)
            family.add_metric(["reserve"], figures.num_reserve)
            return family, _gauge(
                "http_connections_limit",
                "Limit of active and idle connections together",
                figures.max_connections,
            )

        self.track(families)

    def track_cache(self, read: Callable[[], CacheFigures]) -> None:
        """Read the sentence cache's counts."""
        self.track(lambda: _cache_families(read()))

    def track_log(self, num_dropped: Callable[[], int]) -> None:
        """Read the number of dropped log lines."""
        name, text = "transduce_log_lines_dropped", "Log lines that were not written, or not read in time"
        self.track(lambda: [CounterMetricFamily(name, text, value=num_dropped())])


def _gauge(name: str, documentation: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"transduce_{name}", documentation, value=value)


def _labelled(name: str, documentation: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"transduce_{name}", documentation, labels=["model", "worker"])


def _cache_families(figures: CacheFigures) -> Iterable[Metric]:
    name = "transduce_sentence_cache"
    lookups = CounterMetricFamily(f"{name}_lookups", "Sentences looked up in the cache", labels=["result"])
    lookups.add_metric(["hit"], figures.num_hits)
    lookups.add_metric(["miss"], figures.num_misses)
    yield lookups
    yield CounterMetricFamily(
        f"{name}_evictions", "Sentences evicted from the cache", value=figures.num_evicted
    )
    yield _gauge("sentence_cache_bytes", "Bytes of the sentences in the cache", figures.num_bytes)
    yield _gauge("sentence_cache_entries", "Sentences in the cache", figures.num_entries)
    yield CounterMetricFamily(
        "transduce_coalesced_sentences",
        "Sentences that shared the decoding of an equal sentence",
        value=figures.num_coalesced,
    )
