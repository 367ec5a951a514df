"""Facts of the engine's work, handed to whoever records them. The engine itself records no metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class StepStats:
    """What one iteration did. The engine thread fills it in; once reported, nobody changes it.

    num_rows: rows decoded; 0 where nothing ran. num_steps: decoder steps that they were taken through in one call, each
        to its end at most. num_spared_row_steps: of those rows times steps, the ones behind a row's end, and a beam's
        rows but one in its first step.
    num_idle_rows: rows reserved for beams that have not spread yet, and so not decoded.
    num_wasted_rows: rows decoded that a newcomer's beam is to take, or whose sentence was cancelled meanwhile.
    num_waiting: sentences still waiting after the step.
    num_paused: sentences that held rows and were not stepped, while another caller's were.
    num_admitted: sentences that were encoded, of num_encode_tokens subwords; no padding is computed.
    num_finished, num_failed, num_expired: sentences that ended so in this step.
    num_retried: sentences that start again because a forward failed that they shared.
    num_looped: sentences that start again because their search went round in circles.
    encode_time_s, decode_time_s: in the runner. step_time_s: the whole step.
    worker: number of the engine's worker that took it.
    """

    num_rows: int = 0
    num_steps: int = 1
    num_spared_row_steps: int = 0
    num_idle_rows: int = 0
    num_wasted_rows: int = 0
    num_waiting: int = 0
    num_paused: int = 0
    num_admitted: int = 0
    num_encode_tokens: int = 0
    num_finished: int = 0
    num_failed: int = 0
    num_expired: int = 0
    num_retried: int = 0
    num_looped: int = 0
    encode_time_s: float = 0.0
    decode_time_s: float = 0.0
    step_time_s: float = 0.0
    worker: int = 0

    @property
    def num_row_steps(self) -> int:
        """Rows decoded in each step, summed over the steps."""
        return self.num_rows * self.num_steps - self.num_spared_row_steps


@dataclass(frozen=True)
class Health:
    """Whether the engine can be trusted with work.

    is_alive: every worker of the engine runs.
    is_stalled: a step under way takes longer than the limit. An idle engine is never stalled.
    step_age_s: for how long the oldest step under way has run; 0 when idle.
    num_pending_sentences, num_pending_tokens: accepted and not yet answered.
    drain_time_s: until these would be done if no more came; None while the speed is not known.
    """

    is_alive: bool
    is_stalled: bool
    step_age_s: float
    num_pending_sentences: int
    num_pending_tokens: int
    drain_time_s: float | None = None

    @property
    def is_healthy(self) -> bool:
        """Alive and not stalled."""
        return self.is_alive and not self.is_stalled
