"""Protocols of the figures that the metrics read. Classes of higher layers satisfy them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class StepFigures(Protocol):
    """The engine's figures of one iteration; `app.engine.stats.StepStats` describes the fields."""

    @property
    def num_rows(self) -> int: ...  # noqa: D102
    @property
    def num_steps(self) -> int: ...  # noqa: D102
    @property
    def num_row_steps(self) -> int: ...  # noqa: D102
    @property
    def num_idle_rows(self) -> int: ...  # noqa: D102
    @property
    def num_wasted_rows(self) -> int: ...  # noqa: D102
    @property
    def num_waiting(self) -> int: ...  # noqa: D102
    @property
    def num_rows_in_use(self) -> int: ...  # noqa: D102
    @property
    def worker(self) -> int: ...  # noqa: D102
    @property
    def num_encode_tokens(self) -> int: ...  # noqa: D102
    @property
    def num_finished(self) -> int: ...  # noqa: D102
    @property
    def num_failed(self) -> int: ...  # noqa: D102
    @property
    def num_expired(self) -> int: ...  # noqa: D102
    @property
    def num_retried(self) -> int: ...  # noqa: D102
    @property
    def num_looped(self) -> int: ...  # noqa: D102
    @property
    def num_widened(self) -> int: ...  # noqa: D102
    @property
    def encode_time_s(self) -> float: ...  # noqa: D102
    @property
    def decode_time_s(self) -> float: ...  # noqa: D102
    @property
    def step_time_s(self) -> float: ...  # noqa: D102


class QueueFigures(Protocol):
    """The engine's figures of its queue and workers; `app.engine.stats.Health` describes the fields."""

    @property
    def num_pending_sentences(self) -> int: ...  # noqa: D102
    @property
    def num_pending_tokens(self) -> int: ...  # noqa: D102
    @property
    def drain_time_s(self) -> float | None: ...  # noqa: D102
    @property
    def step_age_s(self) -> float: ...  # noqa: D102
    @property
    def num_workers(self) -> int: ...  # noqa: D102
    @property
    def max_pending_sentences(self) -> int: ...  # noqa: D102
    @property
    def max_pending_tokens(self) -> int: ...  # noqa: D102
    @property
    def stall_limit_s(self) -> float: ...  # noqa: D102


class WorkerFigures(Protocol):
    """The engine's figures of one worker; `app.engine.stats.WorkerHealth` describes the fields."""

    @property
    def number(self) -> int: ...  # noqa: D102
    @property
    def step_age_s(self) -> float: ...  # noqa: D102
    @property
    def max_rows(self) -> int: ...  # noqa: D102


class ConnectionFigures(Protocol):
    """The figures of the open connections; `app.api.http.connections.ConnectionCounts` describes the fields."""

    @property
    def num_active(self) -> int: ...  # noqa: D102
    @property
    def num_idle(self) -> int: ...  # noqa: D102
    @property
    def num_reserve(self) -> int: ...  # noqa: D102
    @property
    def max_connections(self) -> int: ...  # noqa: D102


class WorkFigures(Protocol):
    """The figures of a request's work; `app.translator.request.Usage` describes the fields."""

    @property
    def num_sentences(self) -> int: ...  # noqa: D102
    @property
    def source_tokens(self) -> int: ...  # noqa: D102
    @property
    def target_tokens(self) -> int: ...  # noqa: D102
    @property
    def sentences_by_model(self) -> Mapping[str, int]: ...  # noqa: D102


class CacheFigures(Protocol):
    """The figures of the sentence cache; `app.translator.caching_submitter.SubmitterStats` describes the fields."""

    @property
    def num_entries(self) -> int: ...  # noqa: D102
    @property
    def num_bytes(self) -> int: ...  # noqa: D102
    @property
    def num_hits(self) -> int: ...  # noqa: D102
    @property
    def num_misses(self) -> int: ...  # noqa: D102
    @property
    def num_evicted(self) -> int: ...  # noqa: D102
    @property
    def num_coalesced(self) -> int: ...  # noqa: D102
