"""The metrics that the server counts, and their buckets. Other modules report figures, or increase a counter directly.

`readings` and `key_metrics` have the metrics that are read at each scrape.

Names begin with `transduce_`, except those of the client library's own metrics. Units are base units, and events are
counted when they end. A caller cannot choose a label value: routes are templates, methods and reasons are fixed words.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

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
from prometheus_client.core import CounterMetricFamily, Metric

from app.observability.figures import StepFigures, WorkFigures
from app.observability.lock_free import LockFreeCounter, LockFreeHistogram
from app.observability.readings import Readings

CONTENT_TYPE = CONTENT_TYPE_LATEST
REQUEST_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
LAG_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
STEP_SECONDS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0, 2.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
# The maximum number of the engine's iterations that wait to be counted. If larger, the next scrape is slower. If
# smaller, responses wait more often.
MAX_UNCOUNTED_STEPS = 256
METHODS = frozenset({"GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"})
# Values of labels that are shown as 0 before they are counted: otherwise `rate()` would miss the first count of each.
REASONS = (
    "invalid", "unauthorized", "too_large", "queue_full", "would_be_late", "unread", "read_timeout", "deadline",
    "cancelled", "not_ready", "engine", "quota", "usage_unavailable",
)  # fmt: skip
STREAM_EVENTS = ("start", "delta", "replace", "segment", "done", "error")
OUTCOMES = ("done", "failed")


class Build(NamedTuple):
    """Labels of the server. kernels, providers: those of its models, separated by commas."""

    version: str
    kernels: str
    providers: str


class ModelInfo(NamedTuple):
    """Labels of a served model."""

    name: str
    version: str
    precision: str


@dataclass(slots=True)
class _ModelCounts:
    num_requests: int = 0
    num_sentences: int = 0


class Metrics:
    """The metrics of one server, in its own registry."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # would add a second series per counter
        self.registry = CollectorRegistry()
        self._uncounted: list[StepFigures] = []
        # By worker, after its last step: sentences that wait, and rows in use.
        self._num_waiting: dict[int, int] = {}
        self.rows_in_use: dict[int, int] = {}
        self._last_step_at = 0.0  # seconds since 1970
        self.readings = Readings(self.registry)
        # Registered first, so that the collectors after it see the counted steps.
        self.readings.track(self._count_before_scrape)
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
        _show_zeros(self.certificate_reloads, OUTCOMES)
        _show_zeros(self.model_loads, OUTCOMES)

    def _define_http(self) -> None:
        labels = ("route", "method")
        self.requests = Counter(
            "transduce_http_requests",
            "Requests that reach the application, answered or not",
            (*labels, "code"),
            registry=self.registry,
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
        self.loop_lag_seconds = LockFreeHistogram(
            "transduce_event_loop_lag_seconds",
            "How late the event loop calls a timer",
            buckets=LAG_SECONDS,
            registry=self.registry,
        ).labels()
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
        self.certificate_reloads = Counter(
            "transduce_certificate_reloads",
            "Reloads of the TLS certificate and its key, by outcome",
            ("outcome",),
            registry=self.registry,
        )
        self.rejected = Counter(
            "transduce_rejected",
            "Requests without a translation, by reason",
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
            "transduce_sentences", "Sentences translated or scored", registry=self.registry
        )
        self.source_tokens = LockFreeCounter(
            "transduce_source_tokens", "Source subwords translated", registry=self.registry
        )
        self.target_tokens = LockFreeCounter(
            "transduce_target_tokens", "Target subwords returned", registry=self.registry
        )
        self._counts_by_model: dict[str, _ModelCounts] = {}
        self.readings.track(self._model_families)

    def _define_streams(self) -> None:
        self.stream_events = Counter(
            "transduce_stream_events", "Events sent on streams", ("event",), registry=self.registry
        )
        self.stream_first_seconds = LockFreeHistogram(
            "transduce_stream_first_event_seconds",
            "From the arrival of a stream's request to its first event",
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
            "1 for each served model",
            ("model", "version", "precision"),
            registry=registry,
        )
        self.model_load_seconds = Gauge(
            "transduce_model_load_seconds", "Seconds from listening until ready", registry=registry
        )
        self.build_info = Gauge(
            "transduce_build_info",
            "1 for the server's version, and the kernels and ONNX Runtime's providers of its models",
            ("version", "kernels", "providers"),
            registry=registry,
        )
        self.reloads = Counter(
            "transduce_reloads", "Reloads of the bundles, by outcome", ("outcome",), registry=registry
        )
        self.model_loads = Counter(
            "transduce_model_loads",
            "Loads of a model with a memory budget, by outcome",
            ("outcome",),
            registry=registry,
        )
        self.model_load_duration = LockFreeHistogram(
            "transduce_model_load_duration_seconds",
            "Load of a model with a memory budget, with its check and warm-up",
            buckets=REQUEST_SECONDS,
            registry=registry,
        ).labels()
        self.model_unloads = Counter(
            "transduce_model_unloads",
            "Models unloaded for others, replaced, or unloaded by an administrator",
            registry=registry,
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
            "transduce_batch_size", "Rows that a call decodes", buckets=ROWS, registry=registry
        ).labels()
        self.rows = Counter(
            "transduce_rows",
            "Cache rows by use: decoded, idle (reserved for a beam), wasted (decoded without use)",
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
            "Sentences by event: finished, failed or expired; and retried, looped or widened, which are decoded "
            "again and counted once more at their end",
            ("outcome",),
            registry=registry,
        )
        self.worker_restarts = Counter(
            "transduce_worker_restarts", "Starts of worker processes in place of dead ones", registry=registry
        )
        self.last_step = Gauge(
            "transduce_last_step_timestamp_seconds",
            "Unix time of the end of a worker's last step",
            registry=registry,
        )
        self.busy_seconds = Counter(
            "transduce_worker_busy_seconds", "Time of the workers' steps, summed", registry=registry
        )
        uses = {"decoded": "num_row_steps", "idle": "num_idle_rows", "wasted": "num_wasted_rows"}
        outcomes = ("finished", "failed", "expired", "retried", "looped", "widened")
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
        """Collect the engine's iterations. They are counted later, because responses wait for this call."""
        self._uncounted += steps
        self._last_step_at = time.time()
        if len(self._uncounted) > MAX_UNCOUNTED_STEPS:
            self.count_steps()

    def _count_before_scrape(self) -> Iterable[Metric]:
        """Count the collected iterations. Returns no samples."""
        self.count_steps()
        return ()

    def count_steps(self) -> None:
        """Count the collected iterations."""
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
        self.rows_in_use |= {step.worker: step.num_rows_in_use for step in steps}
        self.waiting.set(sum(self._num_waiting.values()))

    def forget_workers(self, numbers: Iterable[int]) -> None:
        """Drop the figures of workers that have ended."""
        self.count_steps()
        for number in numbers:
            self._num_waiting.pop(number, None)
            self.rows_in_use.pop(number, None)
        self.waiting.set(sum(self._num_waiting.values()))

    def describe(self, build: Build, models: Iterable[ModelInfo]) -> None:
        """Set `build_info`, and `model_info` for each served model. The counters of a new model begin at 0."""
        self.build_info.clear()
        self.build_info.labels(*build).set(1)
        self.model_info.clear()
        for model in models:
            self.model_info.labels(*model).set(1)
            self._counts_by_model.setdefault(model.name, _ModelCounts())

    def record_work(self, work: WorkFigures) -> None:
        """Count what models did for one request."""
        self.sentences.inc(work.num_sentences)
        self.source_tokens.inc(work.source_tokens)
        self.target_tokens.inc(work.target_tokens)
        for model, num_sentences in work.sentences_by_model.items():
            counts = self._counts_by_model.setdefault(model, _ModelCounts())
            counts.num_requests += 1
            counts.num_sentences += num_sentences

    def _model_families(self) -> Iterable[Metric]:
        requests = CounterMetricFamily(
            "transduce_model_requests", "Requests that a model worked for", labels=["model"]
        )
        sentences = CounterMetricFamily(
            "transduce_model_sentences", "Sentences translated or scored by a model", labels=["model"]
        )
        for model, counts in self._counts_by_model.items():
            requests.add_metric([model], counts.num_requests)
            sentences.add_metric([model], counts.num_sentences)
        return requests, sentences

    def record_request(self, *, route: str, method: str, code: int, seconds: float) -> None:
        """Count one request. code: the status in its log line. A request without an answer has such a status, too."""
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
