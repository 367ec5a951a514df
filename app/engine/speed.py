"""The cost of a request in row-steps and the engine's speed in row-steps a second, for the estimate of waits.

A row-step is one row decoded for one step. A sentence costs the rows of its beam times its steps. Two quantities are
measured:

- decoder steps for each source subword: from every sequence that ends with a result;
- row-steps a second: from the steps that paused no rows and after which sequences still wait. In such a step the rows
  are full.

A sequence that is decoded a second time adds steps but no subwords, because the first decoding has counted them. While
no step with full rows is recent, the speed is that of the golden sentences and the warm-up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from app.decoding.options import DecodingOptions
from app.engine.messages import Report
from app.engine.sequence import SequenceResult
from app.engine.stats import StepStats

# Time constants with which measurements decay: seconds of steps with full rows, and row-steps of ended sequences. The
# speed can change fast: while the server refuses a flood of requests, the engine loses a third of its speed within a
# second. Larger: the estimate follows too late and too much is admitted. Smaller: the estimate is noisier.
DECAY_S = 2.0
DECAY_ROW_STEPS = 50_000
# Calls with full rows before their speed is used. Smaller: chance decides. Larger: the warm-up's speed is used longer.
MIN_FULL_STEPS = 16
# The speed with full rows is dropped this many seconds after the last step with full rows. Larger: a low speed can
# refuse all requests for longer, and without requests the rows do not fill for a new measurement. Smaller: a short gap
# in the load drops the speed.
MAX_FULL_AGE_S = 3.0
# Fewest rows of a step that counts for the first estimate. A step of fewer rows takes more time for each row.
MIN_WARM_UP_ROWS = 8


class Cost(NamedTuple):
    """The work of some sentences.

    num_tokens: source subwords, end tokens included. row_tokens: num_tokens times the rows of the beam.
    extra_row_steps: row-steps that a minimum target length adds beyond one step a source subword.
    """

    num_sentences: int = 0
    num_tokens: int = 0
    row_tokens: int = 0
    extra_row_steps: int = 0

    @classmethod
    def of(cls, num_sentences: int, num_tokens: int, options: DecodingOptions | None = None) -> Cost:
        """Return the cost of sentences with the same options; None: one row each and no minimum length."""
        rows, shortest = (1, 0) if options is None else (options.beam_size, options.min_target_length)
        extra = max(0, num_sentences * shortest - num_tokens)
        return cls(num_sentences, num_tokens, rows * num_tokens, rows * extra)

    @classmethod
    def sum(cls, costs: Iterable[Cost]) -> Cost:
        """Return the sum of some costs."""
        return cls(*map(sum, zip(cls(), *costs, strict=True)))

    def plus(self, other: Cost, sign: int = 1) -> Cost:
        """Return the sum; with sign -1 the difference."""
        return Cost(
            self.num_sentences + sign * other.num_sentences,
            self.num_tokens + sign * other.num_tokens,
            self.row_tokens + sign * other.row_tokens,
            self.extra_row_steps + sign * other.extra_row_steps,
        )


class Speed:
    """The measured speed of the engine with all rows busy."""

    def __init__(self, clock: Callable[[], float], *, num_workers: int = 1) -> None:
        """clock: returns seconds. num_workers: workers that share the work. Each measured step is of one worker."""
        self._clock = clock
        self.num_workers = num_workers
        self._last_full_at = -math.inf
        self._row_steps = 0.0  # of sequences that ended
        self._row_tokens = 0.0  # source subwords of these, times their rows
        self._full_steps = _Steps()
        self._warm_up_steps = _Steps()
        self.is_warming_up = True

    def measure(self, report: Report) -> None:
        """Update the measurements from a worker's report."""
        for sequence in report.ended:
            if isinstance(sequence.outcome, SequenceResult):
                num_rows, num_tokens = sequence.num_reserved_rows, len(sequence.source_ids)
                extra = max(0, sequence.options.min_target_length - num_tokens)
                row_steps = max(1, sequence.outcome.num_steps - extra) * num_rows
                kept = math.exp(-row_steps / DECAY_ROW_STEPS)
                self._row_steps = self._row_steps * kept + row_steps
                self._row_tokens = self._row_tokens * kept + num_tokens * num_rows * (not sequence.is_retry)
        if not self._is_fresh:
            self._full_steps = _Steps()
        for step in report.steps:
            if step.num_waiting and step.num_rows and not step.num_paused:
                self._full_steps.add(step)
                self._last_full_at = self._clock()
            if self.is_warming_up and step.num_rows >= MIN_WARM_UP_ROWS:
                self._warm_up_steps.add(step)

    def end_warm_up(self) -> None:
        """End the warm-up: the steps so far are the first estimate."""
        self.is_warming_up = False

    @property
    def row_steps_per_s(self) -> float | None:
        """Row-steps that all workers together take in a second; None while unknown."""
        steps = self._known
        return None if steps is None else self.num_workers * steps.num_row_steps / steps.time_s

    def row_steps(self, cost: Cost) -> float:
        """Return the expected row-steps of some work."""
        return cost.row_tokens * self._steps_per_token + cost.extra_row_steps

    def decode_time_s(self, num_tokens: float) -> float:
        """Return the seconds of decoding a sentence of num_tokens source subwords; 0 while unknown."""
        steps = self._known
        if steps is None:
            return 0.0
        return num_tokens * self._steps_per_token * steps.time_s / steps.num_steps

    @property
    def _steps_per_token(self) -> float:
        """Decoder steps for each source subword; 1 until a sequence has ended."""
        return self._row_steps / self._row_tokens if self._row_tokens else 1.0

    @property
    def _known(self) -> _Steps | None:
        """The steps to use: those with full rows, else those of the warm-up, else None."""
        if self._full_steps.num_seen >= MIN_FULL_STEPS and self._is_fresh and self._full_steps.is_known:
            return self._full_steps
        return self._warm_up_steps if self._warm_up_steps.is_known and not self.is_warming_up else None

    @property
    def _is_fresh(self) -> bool:
        """Whether the last step with full rows is recent."""
        return self._clock() - self._last_full_at <= MAX_FULL_AGE_S


class _Steps:
    """Decaying sums of row-steps, seconds and steps. num_seen: the number of added calls, without decay."""

    def __init__(self) -> None:
        self.num_row_steps = self.time_s = self.num_steps = 0.0
        self.num_seen = 0

    @property
    def is_known(self) -> bool:
        return bool(self.num_row_steps and self.time_s)

    def add(self, step: StepStats) -> None:
        kept = math.exp(-step.step_time_s / DECAY_S)
        # Rows that a beam does not use yet count as used.
        self.num_row_steps = (
            self.num_row_steps * kept + step.num_row_steps + step.num_idle_rows * step.num_steps
        )
        self.time_s = self.time_s * kept + step.step_time_s
        self.num_steps = self.num_steps * kept + step.num_steps
        self.num_seen += 1
