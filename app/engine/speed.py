"""How much a request costs, and how much the engine does a second: what admission foresees a wait from.

Both count row-steps: one row taken one step. A sentence costs its beam's rows times its steps. Two measurements say
what these are, each of which is right by itself whatever the load was: how many steps a source subword takes, told by
every sentence that ends; and how many row-steps a second are taken, told by steps after which somebody still waits, for
only then are the rows full. A sentence that is decoded a second time takes steps and brings no subwords: those were
counted in when its request was.

Before rows were ever full the speed is what the golden sentences and the warm-up showed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from app.decoding.options import DecodingOptions
from app.engine.messages import Report
from app.engine.sequence import SequenceResult
from app.engine.stats import StepStats

# What is measured fades with this time constant, of stepping with full rows and of sentences' decoding. A flood takes
# a third of the engine's speed within a second, by the work of refusing it: who remembers longer lets in too many.
MEMORY_S = 2.0
MEMORY_ROW_STEPS = 50_000
# Steps with full rows before which nothing is learned of them; without any for so long, what was measured is
# forgotten: a slow minute must not have requests refused that would never fill the rows, and so never show that it is
# over.
MIN_FULL_STEPS = 16
MAX_FULL_AGE_S = 3.0
# Rows of a step from which on it counts for the first guess.
MIN_GUESS_ROWS = 8


class Cost(NamedTuple):
    """What is asked of the engine.

    num_tokens: source subwords, end tokens counted. row_tokens: those, of each row of a sentence's beam.
    extra_row_steps: the row-steps that a shortest length adds to as many as there are source subwords.
    """

    num_sentences: int = 0
    num_tokens: int = 0
    row_tokens: int = 0
    extra_row_steps: int = 0

    @classmethod
    def of(cls, num_sentences: int, num_tokens: int, options: DecodingOptions | None = None) -> Cost:
        """Of sentences with the same options; None: one row each, and no shortest length."""
        rows, shortest = (1, 0) if options is None else (options.beam_size, options.min_target_length)
        extra = max(0, num_sentences * shortest - num_tokens)
        return cls(num_sentences, num_tokens, rows * num_tokens, rows * extra)

    @classmethod
    def sum(cls, costs: Iterable[Cost]) -> Cost:
        """Of several."""
        return cls(*map(sum, zip(cls(), *costs, strict=True)))

    def plus(self, other: Cost, sign: int = 1) -> Cost:
        """Both, or with sign -1 without the other."""
        return Cost(*[own + sign * more for own, more in zip(self, other, strict=True)])


class Speed:
    """Of the engine with all rows busy."""

    def __init__(self, clock: Callable[[], float], *, num_lanes: int = 1) -> None:
        """clock: seconds. num_lanes: that share the work; what is measured is one's, with the others at work too."""
        self._clock = clock
        self._num_lanes = num_lanes
        self._last_full_at = -math.inf
        self._row_steps = 0.0  # of sentences that ended, and their source subwords in as many rows
        self._row_tokens = 0.0
        self._full = _Steps()
        self._guessed = _Steps()
        self.is_guessing = True

    def measure(self, report: Report) -> None:
        """Learn from what a lane reports."""
        for sequence in report.ended:
            if isinstance(sequence.outcome, SequenceResult):
                num_rows, num_tokens = sequence.num_reserved_rows, len(sequence.source_ids)
                extra = max(0, sequence.options.min_target_length - num_tokens)
                row_steps = max(1, sequence.outcome.num_steps - extra) * num_rows
                kept = math.exp(-row_steps / MEMORY_ROW_STEPS)
                self._row_steps = self._row_steps * kept + row_steps
                self._row_tokens = self._row_tokens * kept + num_tokens * num_rows * (not sequence.is_retry)
        if not self._is_fresh:
            self._full = _Steps()
        for step in report.steps:
            if step.num_waiting and step.num_rows and not step.num_paused:
                self._full.add(step)
                self._last_full_at = self._clock()
            if self.is_guessing and step.num_rows >= MIN_GUESS_ROWS:
                self._guessed.add(step)

    def end_guessing(self) -> None:
        """What was seen so far is the first guess."""
        self.is_guessing = False

    @property
    def row_steps_per_s(self) -> float | None:
        """None while nothing is known."""
        steps = self._known
        return None if steps is None else self._num_lanes * steps.num_rows / steps.time_s

    def row_steps(self, cost: Cost) -> float:
        """What it is likely to take."""
        per_token = self._row_steps / self._row_tokens if self._row_tokens else 1.0
        return cost.row_tokens * per_token + cost.extra_row_steps

    def decode_time_s(self, num_tokens: float) -> float:
        """Seconds from a sentence's first step to its last, all rows busy; 0 while nothing is known."""
        steps = self._known
        if steps is None:
            return 0.0
        per_token = self._row_steps / self._row_tokens if self._row_tokens else 1.0
        return num_tokens * per_token * steps.time_s / steps.num_steps

    @property
    def _known(self) -> _Steps | None:
        if self._full.num_seen >= MIN_FULL_STEPS and self._is_fresh and self._full.is_known:
            return self._full
        return self._guessed if self._guessed.is_known and not self.is_guessing else None

    @property
    def _is_fresh(self) -> bool:
        return self._clock() - self._last_full_at <= MAX_FULL_AGE_S


class _Steps:
    """Rows, time and number of steps, fading; num_seen: calls, not fading."""

    def __init__(self) -> None:
        self.num_rows = self.time_s = self.num_steps = 0.0
        self.num_seen = 0

    @property
    def is_known(self) -> bool:
        return bool(self.num_rows and self.time_s)

    def add(self, step: StepStats) -> None:
        kept = math.exp(-step.step_time_s / MEMORY_S)
        self.num_rows = self.num_rows * kept + step.num_row_steps + step.num_idle_rows * step.num_steps
        self.time_s = self.time_s * kept + step.step_time_s
        self.num_steps = self.num_steps * kept + step.num_steps
        self.num_seen += 1
