"""All metrics of the server and their buckets. Other modules report figures; only this one counts them.

Names begin with `transduce_`, units are base units, and events are counted when they end. A caller cannot choose a
label value: routes are templates, methods and reasons are fixed words.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from app.observability.figures import CacheFigures, QueueFigures, StepFigures
from app.observability.lock_free import LockFreeCounter, LockFreeHistogram

CONTENT_TYPE = CONTENT_TYPE_LATEST
REQUEST_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
STEP_SECONDS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0, 2.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
# Steps that are collected before they are counted. If larger, the next scrape is slower.
MAX_UNCOUNTED_STEPS = 256
METHODS = frozenset({"GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"})
# Values of labels that are shown as 0 before they are counted: otherwise `rate()` would miss the first count of each.
REASONS = (
    "invalid", "unauthorized", "too_large", "queue_full", "would_be_late", "unread", "deadline", "cancelled",
    "not_ready", "engine", "quota", "usage_unavailable",
)  # fmt: skip
STREAM_EVENTS = ("start", "delta", "replace", "segment", "done", "error")
OUTCOMES = ("done", "failed")


class CacheCollector(Collector):
    """Reads the sentence cache's counts at each scrape."""

    def __init__(self, read: Callable[[], CacheFigures]) -> None:
        """read: returns the current counts."""
        self._read = read

    def collect(self) -> Iterable[Metric]:
        """One sample per count."""
        figures = self._read()
        name = "transduce_sentence_cache"
        lookups = CounterMetricFamily(
            f"{name}_lookups", "Sentences looked up in the cache", labels=["result"]
        )
        lookups.add_metric(["hit"], figures.num_hits)
        lookups.add_metric(["miss"], figures.num_misses)
        yield lookups
        yield CounterMetricFamily(
            f"{name}_evictions", "Sentences evicted from the cache", value=figures.num_evicted
        )
        yield GaugeMetricFamily(
            f"{name}_bytes", "Bytes of the sentences in the cache", value=figures.num_bytes
        )
        yield GaugeMetricFamily(f"{name}_entries", "Sentences in the cache", value=figures.num_entries)
        yield CounterMetricFamily(
            "transduce_coalesced_sentences",
            "Sentences that shared the decoding of an equal sentence",
            value=figures.num_coalesced,
        )


class _DroppedLines(Collector):
    """Reads the log's count of dropped lines at each scrape."""

    def __init__(self, count: Callable[[], int]) -> None:
        self._count = count

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily(
            "transduce_log_lines_dropped",
            "Log lines dropped because they were not read in time",
            value=self._count(),
        )


class _BeforeScrape(Collector):
    """Calls a function at each scrape. Has no samples."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def collect(self) -> Iterable[Metric]:
        self._act()
        return ()


class Metrics:
    """The metrics of one server, in its own registry."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # would add a second series per counter
        self.registry = CollectorRegistry()
        self._uncounted: list[StepFigures] = []
        self._num_waiting: dict[int, int] = {}  # by worker, after its last step
        self._last_step_at = 0.0  # seconds since 1970
        # Registered first, so that the collectors after it see the counted steps.
        self.registry.register(_BeforeScrape(self.count_steps))
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._define_http()
        self._define_translation()
        self._define_streams()
        self._define_engine()
        _show_zeros(self.rejected, REASONS)
        _show_zeros(self.stream_events, STREAM_EVENTS)
        _show_zeros(self.reloads, OUTCOMES)
        _show_zeros(self.model_loads, OUTCOMES)

    def _define_http(self) -> None:
        labels = ("route", "method")
        self.requests = Counter(
            "transduce_http_requests", "Requests answered", (*labels, "code"), registry=self.registry
        )
        # The counters of `requests` by route, method and code. The library's look-up costs more than counting.
        self._requests: dict[tuple[str, str, int], Counter] = {}
        self.request_seconds = LockFreeHistogram(
            "transduce_http_request_duration_seconds",
            "From the request's headers to the end of its response",
            labels,
            buckets=REQUEST_SECONDS,
            registry=self.registry,
        )
        self.inflight = Gauge(
            "transduce_inflight_requests", "Translation requests in progress", registry=self.registry
        )
        self.read_timeouts = Counter(
            "transduce_http_request_read_timeouts",
            "Connections closed because a request did not arrive in time",
            registry=self.registry,
        )
        self.connections_refused = Counter(
            "transduce_http_connections_refused",
            "Connections refused at the connection limit",
            registry=self.registry,
        )
        self.connections_displaced = Counter(
            "transduce_http_connections_displaced",
            "Idle connections closed to make room for others",
            registry=self.registry,
        )
        self.rejected = Counter(
            "transduce_rejected",
            "Translation requests without a translation, by reason",
            ("reason",),
            registry=self.registry,
        )

    def _define_translation(self) -> None:
        self.phase_seconds = LockFreeHistogram(
            "transduce_phase_duration_seconds",
            "Time of a translated request by phase: load, tokenise, queue, encode, decode, detokenise",
            ("phase",),
            buckets=REQUEST_SECONDS,
            registry=self.registry,
        )
        self.sentences = LockFreeCounter(
            "transduce_sentences", "Sentences translated", registry=self.registry
        )
        self.source_tokens = LockFreeCounter(
            "transduce_source_tokens", "Source subwords translated", registry=self.registry
        )
        self.target_tokens = LockFreeCounter(
            "transduce_target_tokens", "Target subwords returned", registry=self.registry
        )

    def _define_streams(self) -> None:
        self.stream_events = Counter(
            "transduce_stream_events", "Events sent on streams", ("event",), registry=self.registry
        )
        self.stream_first_seconds = LockFreeHistogram(
            "transduce_stream_first_event_seconds",
            "From a stream's request to its first event",
            buckets=REQUEST_SECONDS,
            registry=self.registry,
        ).labels()
        self.stalled_readers = Counter(
            "transduce_http_stalled_readers",
            "Connections closed because the client stopped reading its response",
            registry=self.registry,
        )

    def _define_engine(self) -> None:
        registry = self.registry
        self.model_info = Gauge(
            "transduce_model_info",
            "1 for the served model",
            ("model", "version", "precision"),
            registry=registry,
        )
        self.model_load_seconds = Gauge(
            "transduce_model_load_seconds", "Seconds from the start until ready", registry=registry
        )
        self.ready = Gauge("transduce_ready", "1 while requests are accepted", registry=registry)
        self.reloads = Counter(
            "transduce_reloads", "Reloads of the bundles, by outcome", ("outcome",), registry=registry
        )
        self.model_loads = Counter(
            "transduce_model_loads", "Loads of a model on demand, by outcome", ("outcome",), registry=registry
        )
        self.model_load_duration = LockFreeHistogram(
            "transduce_model_load_duration_seconds",
            "Load of a model on demand, with its check and warm-up",
            buckets=REQUEST_SECONDS,
            registry=registry,
        ).labels()
        self.model_unloads = Counter(
            "transduce_model_unloads", "Models unloaded for others or by an administrator", registry=registry
        )
        self.steps = Counter("transduce_decode_steps", "Decoder steps", registry=registry)
        self.step_seconds = LockFreeHistogram(
            "transduce_decode_step_seconds", "Decoder step", buckets=STEP_SECONDS, registry=registry
        ).labels()
        self.encode_seconds = LockFreeHistogram(
            "transduce_encode_seconds",
            "Encoder pass of new sentences",
            buckets=STEP_SECONDS,
            registry=registry,
        ).labels()
        self.batch_rows = LockFreeHistogram(
            "transduce_batch_size", "Rows in a worker's step", buckets=ROWS, registry=registry
        ).labels()
        self.rows = Counter(
            "transduce_rows",
            "Cache rows by use: decoded, idle (kept for a beam), wasted",
            ("use",),
            registry=registry,
        )
        self.encoded_tokens = Counter(
            "transduce_encoded_tokens", "Source subwords encoded", registry=registry
        )
        self.waiting = Gauge(
            "transduce_waiting_sentences", "Sentences waiting for batch rows", registry=registry
        )
        self.ended = Counter(
            "transduce_engine_sentences",
            "Sentences that left the engine, by outcome",
            ("outcome",),
            registry=registry,
        )
        self.worker_restarts = Counter(
            "transduce_worker_restarts", "Starts of worker processes in place of dead ones", registry=registry
        )
        self.last_step = Gauge(
            "transduce_last_step_timestamp_seconds", "Unix time of the last step", registry=registry
        )
        self.busy_seconds = Counter(
            "transduce_worker_busy_seconds", "Time of the workers' steps, summed", registry=registry
        )
        uses = {"decoded": "num_row_steps", "idle": "num_idle_rows", "wasted": "num_wasted_rows"}
        outcomes = ("finished", "failed", "expired", "retried", "looped")
        self._counted = [
            self.encoded_tokens,
            *(self.rows.labels(use) for use in uses),
            *(self.ended.labels(outcome) for outcome in outcomes),
            self.busy_seconds,
        ]
        # The figures of a step in the order of `_counted`.
        self._figures = attrgetter(
            "num_encode_tokens",
            *uses.values(),
            *(f"num_{outcome}" for outcome in outcomes),
            "step_time_s",
        )

    def record_steps(self, steps: Sequence[StepFigures]) -> None:
        """Collect the engine's steps. The next scrape counts them, because responses wait for this call."""
        self._uncounted += steps
        self._last_step_at = time.time()
        if len(self._uncounted) > MAX_UNCOUNTED_STEPS:
            self.count_steps()

    def count_steps(self) -> None:
        """Count the collected steps."""
        steps, self._uncounted = self._uncounted, []
        if not steps:
            return
        self.last_step.set(self._last_step_at)
        num_steps = 0
        for step in steps:
            if step.num_rows:
                num_steps += step.num_steps
                self.step_seconds.observe(step.decode_time_s / step.num_steps)
                self.batch_rows.observe(step.num_rows)
            if step.num_encode_tokens:
                self.encode_seconds.observe(step.encode_time_s)
        self.steps.inc(num_steps)
        sums = map(sum, zip(*map(self._figures, steps), strict=True))
        for counter, count in zip(self._counted, sums, strict=True):
            if count:
                counter.inc(count)
        self._num_waiting |= {step.worker: step.num_waiting for step in steps}
        self.waiting.set(sum(self._num_waiting.values()))

    def forget_workers(self, numbers: Iterable[int]) -> None:
        """Drop the figures of workers that have ended."""
        self.count_steps()
        for number in numbers:
            self._num_waiting.pop(number, None)
        self.waiting.set(sum(self._num_waiting.values()))

    def track_models(self, num_loaded: Callable[[], int], num_bytes: Callable[[], int]) -> None:
        """Read the number of loaded models, and the estimate of their memory, at each scrape. Call once."""
        loaded = Gauge("transduce_models_loaded", "Models in memory", registry=self.registry)
        loaded.set_function(num_loaded)
        memory = Gauge(
            "transduce_model_memory_bytes",
            "Estimated bytes of the models in memory; 0 without a budget",
            registry=self.registry,
        )
        memory.set_function(num_bytes)

    def track_queue(self, health: Callable[[], QueueFigures]) -> None:
        """Read the queue's depth and the state of the workers at each scrape. Call once."""
        depth = Gauge(
            "transduce_queue_depth", "Sentences accepted and not yet answered", registry=self.registry
        )
        depth.set_function(lambda: health().num_pending_sentences)
        tokens = Gauge(
            "transduce_queue_tokens", "Source subwords accepted and not yet answered", registry=self.registry
        )
        tokens.set_function(lambda: health().num_pending_tokens)
        wait = Gauge(
            "transduce_queue_drain_seconds",
            "Estimated seconds until the queue is empty; NaN without a measured speed",
            registry=self.registry,
        )
        wait.set_function(lambda: _known(health().drain_time_s))
        workers = Gauge("transduce_workers", "Engine workers of the loaded models", registry=self.registry)
        workers.set_function(lambda: health().num_workers)
        age = Gauge(
            "transduce_step_age_seconds",
            "Seconds since the oldest current step began; 0 while no step runs",
            registry=self.registry,
        )
        age.set_function(lambda: health().step_age_s)

    def track_memory(self, num_used: Callable[[], float], limit: Callable[[], float]) -> None:
        """Read the bytes in use and their limit at each scrape. Call once."""
        used = Gauge(
            "transduce_memory_bytes",
            "Memory of the server and its processes by their control group; NaN if unknown",
            registry=self.registry,
        )
        used.set_function(num_used)
        most = Gauge(
            "transduce_memory_limit_bytes",
            "The control group's limit; +Inf without one, NaN if unknown",
            registry=self.registry,
        )
        most.set_function(limit)

    def track_cache(self, read: Callable[[], CacheFigures]) -> None:
        """Read the sentence cache's counts at each scrape. Call once."""
        self.registry.register(CacheCollector(read))

    def track_log(self, num_dropped: Callable[[], int]) -> None:
        """Read the number of dropped log lines at each scrape. Call once."""
        self.registry.register(_DroppedLines(num_dropped))

    def record_request(self, *, route: str, method: str, code: int, seconds: float) -> None:
        """Count one answered request. `code` 499: the client disconnected before the response."""
        method = method if method in METHODS else "other"
        key = (route, method, code)
        requests = self._requests.get(key)
        if requests is None:
            requests = self._requests[key] = self.requests.labels(route, method, str(code))
        requests.inc()
        self.request_seconds.labels(route, method).observe(max(seconds, 0.0))

    def render(self) -> bytes:
        """All metrics in the Prometheus text format."""
        return generate_latest(self.registry)


def _show_zeros(counter: Counter, values: Iterable[str]) -> None:
    for value in values:
        counter.labels(value)


def _known(seconds: float | None) -> float:
    return math.nan if seconds is None else seconds
