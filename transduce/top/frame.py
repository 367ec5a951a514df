"""One view, computed from two scrapes: rates and percentiles over the time between them, and the last state."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from transduce.restarts import has_restarted
from transduce.top.scrape import Keep, Labels, Scrape

PROBES = re.compile(r"/livez|/readyz|/metrics|/health|/v2/health/.*")
# Routes whose requests last as long as their stream, file or model needs.
LONG_ROUTES = re.compile(r".*stream|/translate_file|/v2/document.*|/admin/.*")


@dataclass(frozen=True)
class WorkerState:
    """One worker. state: idle, busy or stalled. step_age_s: seconds since its step began; 0 while it is idle."""

    number: str
    model: str
    state: str
    rows: float
    max_rows: float
    step_age_s: float


@dataclass(frozen=True)
class ModelState:
    """One served model. requests_per_s: requests that it worked for. sentences_per_s: its sentences."""

    name: str
    version: str
    precision: str
    requests_per_s: float
    sentences_per_s: float


@dataclass(frozen=True)
class Frame:
    """One view. Rates, percentiles and utilisation are of the last interval_s seconds.

    In the first frame, and in the first after a failed scrape or a restart of the server, these figures and interval_s
    are NaN, and statuses and rejected are empty. A percentile is also NaN if nothing was measured in the interval, and
    any figure is NaN if the server has no such metric.
    p50_ms, p99_ms: latency of POST requests other than streams, files and an administrator's. utilisation: the
    workers' computing time that was reported in the interval, divided by the interval and the number of workers. A
    worker reports up to 32 steps at once. So in a short interval, the utilisation by busy workers may be 0, or above 1.
    statuses: answers per second by status, without probes. rejected: per second and by reason, the requests that got no
    translation. drain_s: seconds until the queue is done, if known.
    """

    interval_s: float
    ready: bool
    why_not_ready: str | None
    version: str
    kernels: str
    providers: str
    requests_per_s: float
    sentences_per_s: float
    num_inflight: float
    p50_ms: float
    p99_ms: float
    utilisation: float
    rows: float
    max_rows: float
    queue_sentences: float
    max_queue_sentences: float
    queue_tokens: float
    max_queue_tokens: float
    drain_s: float
    connections: dict[str, float]
    max_connections: float
    lag_p99_ms: float
    memory_bytes: float
    max_memory_bytes: float
    statuses: dict[str, float]
    rejected: dict[str, float]
    workers: tuple[WorkerState, ...]
    models: tuple[ModelState, ...]

    def as_json(self) -> dict[str, Any]:
        """The fields as JSON values: null in place of NaN and infinity."""
        found: dict[str, Any] = _finite(asdict(self))
        return found


def compare(before: Scrape | None, now: Scrape) -> Frame:
    """The frame of two scrapes. before: None for the first frame, and if the last scrape failed."""
    change = _Change(before, now)
    statuses = change.rates("code", "http_requests_total", _is_no_probe)
    build = next((labels for labels, _ in now.of("build_info")), {})
    return Frame(
        interval_s=change.seconds,
        ready=now.why_not_ready is None,
        why_not_ready=now.why_not_ready,
        **{name: build.get(name, "") for name in ("version", "kernels", "providers")},
        requests_per_s=sum(statuses.values()) if statuses else 0.0 * change.seconds,  # NaN without `before`
        sentences_per_s=change.rate("sentences_total"),
        num_inflight=now.total("inflight_requests"),
        p50_ms=change.percentile_ms(0.5, "http_request_duration_seconds", _is_short),
        p99_ms=change.percentile_ms(0.99, "http_request_duration_seconds", _is_short),
        utilisation=change.rate("worker_busy_seconds_total") / (now.total("workers") or math.nan),
        rows=now.total("worker_rows"),
        max_rows=now.total("worker_rows_limit"),
        queue_sentences=now.total("queue_depth"),
        max_queue_sentences=now.total("queue_depth_limit"),
        queue_tokens=now.total("queue_tokens"),
        max_queue_tokens=now.total("queue_tokens_limit"),
        drain_s=now.total("queue_drain_seconds"),
        connections=now.by("state", "http_connections"),
        max_connections=now.total("http_connections_limit"),
        lag_p99_ms=change.percentile_ms(0.99, "event_loop_lag_seconds"),
        memory_bytes=now.total("memory_bytes"),
        max_memory_bytes=now.total("memory_limit_bytes"),
        statuses=statuses,
        rejected=change.rates("reason", "rejected_total"),
        workers=_workers(now),
        models=_models(now, change),
    )


class _Change:
    """The differences between two scrapes. seconds: the time between them; NaN without an earlier one."""

    def __init__(self, before: Scrape | None, now: Scrape) -> None:
        if before is not None and has_restarted(before.total, now.total):
            before = None
        self._before, self._now = before, now
        self.seconds = math.nan if before is None else now.at - before.at

    def rate(self, name: str) -> float:
        """Events a second of all samples of a counter; NaN without an earlier scrape or without samples."""
        return self._sum(name) / self.seconds

    def rates(self, label: str, name: str, keep: Keep = lambda _labels: True) -> dict[str, float]:
        """Events a second by the values of a label; empty without an earlier scrape."""
        if self._before is None:
            return {}
        before = self._before.by(label, name, keep)
        return {
            value: (count - before.get(value, 0.0)) / self.seconds
            for value, count in sorted(self._now.by(label, name, keep).items())
        }

    def percentile_ms(self, share: float, name: str, keep: Keep = lambda _labels: True) -> float:
        """A percentile of a histogram between the scrapes, interpolated within its bucket; NaN without observations."""
        before = {} if self._before is None else self._before.by("le", f"{name}_bucket", keep)
        counts = self._now.by("le", f"{name}_bucket", keep) if self._before is not None else {}
        return 1000 * quantile(
            share, {float(le): count - before.get(le, 0.0) for le, count in counts.items()}
        )

    def _sum(self, name: str) -> float:
        if self._before is None:
            return math.nan
        before = self._before.total(name)
        return self._now.total(name) - (0.0 if math.isnan(before) else before)


def quantile(share: float, counts: Mapping[float, float]) -> float:
    """A quantile of a histogram, by linear interpolation within a bucket; NaN if it is empty.

    counts: for each bucket's upper bound, the number of values up to it. Values above the last finite bound count as
    that bound. The algorithm is that of Prometheus' histogram_quantile.
    """
    bounds = sorted(counts)
    total = counts[bounds[-1]] if bounds else 0.0
    if total <= 0:
        return math.nan
    rank = share * total
    for low, high in pairwise([0.0, *bounds]):
        if counts[high] >= rank:
            if math.isinf(high):
                return low
            below = counts.get(low, 0.0)
            return low + (high - low) * (rank - below) / (counts[high] - below)
    return math.nan


def _is_no_probe(labels: Labels) -> bool:
    return not PROBES.fullmatch(labels["route"])


def _is_short(labels: Labels) -> bool:
    return labels["method"] == "POST" and not LONG_ROUTES.fullmatch(labels["route"])


def _workers(now: Scrape) -> tuple[WorkerState, ...]:
    """The workers in the order of their numbers."""
    rows, limits = (now.by("worker", name) for name in ("worker_rows", "worker_rows_limit"))
    stall_limit_s = now.total("step_age_limit_seconds")
    found = []
    for labels, age_s in now.of("worker_step_age_seconds"):
        number = labels["worker"]
        state = "stalled" if age_s > stall_limit_s else "busy" if age_s else "idle"
        found.append(WorkerState(number, labels["model"], state, rows[number], limits[number], age_s))
    return tuple(sorted(found, key=lambda worker: int(worker.number)))


def _models(now: Scrape, change: _Change) -> tuple[ModelState, ...]:
    requests, sentences = (change.rates("model", f"model_{name}_total") for name in ("requests", "sentences"))
    return tuple(
        ModelState(
            labels["model"],
            labels["version"],
            labels["precision"],
            requests.get(labels["model"], math.nan),
            sentences.get(labels["model"], math.nan),
        )
        for labels, _ in now.of("model_info")
    )


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
