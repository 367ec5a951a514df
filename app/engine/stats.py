"""Statistics of the engine's steps and its health. The engine reports them; `observability` makes metrics of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class StepStats:
    """Statistics of one iteration. The engine thread fills it in. The event loop sets `worker` when it is reported.

    num_rows: rows decoded; 0 if no row was decoded. num_steps: decoder steps of the call.
    num_spared_row_steps: how many of num_rows * num_steps were not decoded: those after a row's end, and those of a
        beam's further rows in its first step.
    num_idle_rows: rows reserved for the decoded sequences, minus num_rows. A beam that has not spread yet decodes fewer
        rows than are reserved for it.
    num_wasted_rows: rows decoded without use: holes left open for a new beam, and rows of sequences that were cancelled
        during the call.
    num_waiting: sequences that wait after the step. num_rows_in_use: rows reserved after the step.
    num_paused: sequences that hold rows and were not decoded, because other callers' sequences were decoded alone.
    num_admitted: sequences encoded. num_encode_tokens: their subwords, without padding.
    num_finished, num_failed, num_expired: sequences that ended in this step.
    num_retried: sequences that are tried again because a forward or an encoding that they shared has failed.
    num_looped: sequences that restart because their search repeats itself.
    num_widened: sequences that restart with the whole vocabulary because their result among a shortlist is bad.
    encode_time_s, decode_time_s: seconds in the runner. step_time_s: seconds of the whole step.
    worker: number of the worker.
    """

    num_rows: int = 0
    num_steps: int = 1
    num_spared_row_steps: int = 0
    num_idle_rows: int = 0
    num_wasted_rows: int = 0
    num_waiting: int = 0
    num_rows_in_use: int = 0
    num_paused: int = 0
    num_admitted: int = 0
    num_encode_tokens: int = 0
    num_finished: int = 0
    num_failed: int = 0
    num_expired: int = 0
    num_retried: int = 0
    num_looped: int = 0
    num_widened: int = 0
    encode_time_s: float = 0.0
    decode_time_s: float = 0.0
    step_time_s: float = 0.0
    worker: int = 0

    @property
    def num_row_steps(self) -> int:
        """Rows decoded, summed over the steps."""
        return self.num_rows * self.num_steps - self.num_spared_row_steps


@dataclass(frozen=True)
class WorkerHealth:
    """A worker that runs. number: as `StepStats.worker`. max_rows: its rows.

    step_age_s: seconds since its current step began; 0 when idle.
    """

    number: int
    step_age_s: float
    max_rows: int


@dataclass(frozen=True)
class Health:
    """Whether the engine can take work.

    is_alive: whether the engine runs, also while a dead worker is being replaced.
    is_stalled: whether a worker's current step has taken longer than the limit. An idle engine is never stalled.
    step_age_s: seconds since the oldest current step began; 0 when idle.
    num_pending_sentences, num_pending_tokens: accepted and not yet answered.
    drain_time_s: seconds until these are answered if no more are accepted; None while the speed is unknown.
    has_worker: whether a worker of the engine runs. Otherwise sentences wait for one that is being started.
    num_workers: workers of the engine, without those that are being replaced. workers: the state of each of these.
    max_pending_sentences, max_pending_tokens: the limits of what is accepted and not yet answered.
    stall_limit_s: seconds after which a step counts as stalled.
    """

    is_alive: bool
    is_stalled: bool
    step_age_s: float
    num_pending_sentences: int
    num_pending_tokens: int
    drain_time_s: float | None = None
    has_worker: bool = True
    num_workers: int = 0
    workers: tuple[WorkerHealth, ...] = ()
    max_pending_sentences: int = 0
    max_pending_tokens: int = 0
    stall_limit_s: float = 0.0

    @classmethod
    def joint(cls, parts: Sequence[Health]) -> Health:
        """Return the health of several engines as one. Without engines it is healthy.

        Counts are summed, and the workers are listed together. Of every other field the worst value counts.
        """
        waits = [part.drain_time_s for part in parts if part.drain_time_s is not None]
        return cls(
            is_alive=all(part.is_alive for part in parts),
            is_stalled=any(part.is_stalled for part in parts),
            step_age_s=max((part.step_age_s for part in parts), default=0.0),
            num_pending_sentences=sum(part.num_pending_sentences for part in parts),
            num_pending_tokens=sum(part.num_pending_tokens for part in parts),
            drain_time_s=max(waits, default=0.0) if len(waits) == len(parts) else None,
            has_worker=all(part.has_worker for part in parts),
            num_workers=sum(part.num_workers for part in parts),
            workers=tuple(worker for part in parts for worker in part.workers),
            max_pending_sentences=sum(part.max_pending_sentences for part in parts),
            max_pending_tokens=sum(part.max_pending_tokens for part in parts),
            stall_limit_s=max((part.stall_limit_s for part in parts), default=0.0),
        )

    @property
    def is_healthy(self) -> bool:
        """Alive and not stalled."""
        return self.is_alive and not self.is_stalled
