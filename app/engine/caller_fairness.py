"""Fair shares of a worker's time: which callers' sequences are in the next step.

A step of many rows takes many times as long as a step of few. A single sentence that shares its steps with a hundred
rows of another caller would be slow although it never waits. So the rows of a caller that has lately used more of the
worker's time pause, and the other callers' rows are stepped alone. Used time decays within seconds. No caller starves:
after a pause of MAX_PAUSE_RATIO times the time of a step of all callers, all are stepped together. A paused sequence
keeps its rows and continues where it stopped.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from app.engine.scheduler import Scheduler
from app.engine.sequence import Sequence
from app.engine.stats import StepStats

# Time constant, in seconds, with which used time decays. Larger: a caller pays longer for earlier work.
DECAY_S = 2.0
# Callers whose used time is at most this many seconds above that of the caller with the least are stepped together.
# Smaller: more, smaller batches, and every batch reads all weights.
TOLERANCE_S = 0.05
# All callers are stepped together once the steps of some callers took this many times as long as a step of all callers.
# Larger: paused callers get less of the time; with 7 they get an eighth. Smaller: the other callers get less.
MAX_PAUSE_RATIO = 7.0
# Used seconds below which a caller is dropped from the record. Smaller: the record keeps more callers.
MIN_USED_S = 1e-4


class CallerFairness:
    """The used time of each caller of one worker. Belongs to the engine thread."""

    def __init__(self) -> None:
        self._used_s: dict[str, float] = {}
        self._recorded_at: float | None = None
        self._partial_s = 0.0  # seconds of the steps of some callers since the last step of all callers
        self._full_step_s = 0.0  # seconds of one step of all callers

    def choose(self, callers: Collection[str]) -> frozenset[str] | None:
        """Return the callers whose sequences the next step takes; None: all.

        callers: those that have a sequence in this worker, running or waiting.
        """
        if len(callers) < 2 or self.remaining_pause_s <= 0:
            return None
        used_s = {caller: self._used_s.get(caller, 0.0) for caller in callers}
        max_used_s = min(used_s.values()) + TOLERANCE_S
        chosen = frozenset(caller for caller, seconds in used_s.items() if seconds <= max_used_s)
        return None if len(chosen) == len(used_s) else chosen

    @property
    def remaining_pause_s(self) -> float:
        """Seconds for which some callers may still be stepped alone before a step of all callers is due."""
        return MAX_PAUSE_RATIO * self._full_step_s - self._partial_s

    def record(self, rows: Mapping[str, int], stats: StepStats, now: float) -> None:
        """Record the time of a step. rows: reserved rows of each caller in the step. now: its end, in seconds."""
        time_s = stats.step_time_s
        if stats.num_paused:
            self._partial_s += time_s
        else:
            self._partial_s, self._full_step_s = 0.0, time_s / stats.num_steps
        if self._recorded_at is not None:
            self._decay(math.exp(-max(0.0, now - self._recorded_at) / DECAY_S))
        self._recorded_at = now
        num_rows = sum(rows.values())
        for caller, caller_rows in rows.items():
            self._used_s[caller] = self._used_s.get(caller, 0.0) + time_s * caller_rows / num_rows

    def _decay(self, factor: float) -> None:
        decayed_s = {caller: seconds * factor for caller, seconds in self._used_s.items()}
        self._used_s = {caller: seconds for caller, seconds in decayed_s.items() if seconds > MIN_USED_S}


def rows_by_caller(selected: Collection[Sequence], scheduler: Scheduler) -> dict[str, int]:
    """Return the number of reserved rows of each caller that has a selected sequence.

    selected: all running sequences of some callers.
    """
    if len(selected) == len(scheduler.running):
        return dict(scheduler.num_held_rows)
    callers = {one.caller for one in selected}
    return {caller: rows for caller, rows in scheduler.num_held_rows.items() if caller in callers}
