"""Whose sentences a worker steps, where several callers have some: first those that have had less of it of late.

A step of many rows takes many times as long as one of few, so that a line that shares its steps with another caller's
hundred is slow, though it never waits. Its caller's rows are therefore stepped alone, and the other's pause, for as
long as the other has had more of the worker's time: what each has had fades within seconds. The others are never shut
out: every so often all are stepped together. A sentence that pauses keeps its rows and goes on where it stood.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from app.engine.scheduler import Scheduler
from app.engine.sequence import Sequence
from app.engine.stats import StepStats

# What a caller has had fades with this time constant.
DECAY_S = 2.0
# Callers that differ by no more are stepped together: a batch reads the weights once for all.
TOLERANCE_S = 0.05
# Those that pause are stepped, with all others, as soon as they have paused for so many times what that takes.
MAX_PAUSE_RATIO = 7.0
# What is less than this is forgotten.
MIN_USED_S = 1e-4


class CallerFairness:
    """One worker's; the engine thread's own."""

    def __init__(self) -> None:
        self._used_s: dict[str, float] = {}
        self._recorded_at: float | None = None
        self._apart_s = 0.0  # of steps since the last one of all
        self._together_s = 0.0  # of one step of all

    def choose(self, callers: Collection[str]) -> frozenset[str] | None:
        """Of the callers that have sentences here, those that are stepped now; None: all are."""
        if len(callers) < 2 or self.alone_s <= 0:
            return None
        used_s = {caller: self._used_s.get(caller, 0.0) for caller in callers}
        most_s = min(used_s.values()) + TOLERANCE_S
        found = frozenset(caller for caller, seconds in used_s.items() if seconds <= most_s)
        return None if len(found) == len(used_s) else found

    @property
    def alone_s(self) -> float:
        """Seconds for which some may be stepped alone before all are."""
        return MAX_PAUSE_RATIO * self._together_s - self._apart_s

    def record(self, rows: Mapping[str, int], stats: StepStats, now: float) -> None:
        """What a call took. rows: of each caller that was in it, at least one. now: its end, in seconds."""
        time_s = stats.step_time_s
        if stats.num_paused:
            self._apart_s += time_s
        else:
            self._apart_s, self._together_s = 0.0, time_s / stats.num_steps
        if self._recorded_at is not None:
            self._fade(math.exp(-max(0.0, now - self._recorded_at) / DECAY_S))
        self._recorded_at = now
        num_rows = sum(rows.values())
        for caller, own in rows.items():
            self._used_s[caller] = self._used_s.get(caller, 0.0) + time_s * own / num_rows

    def _fade(self, kept: float) -> None:
        self._used_s = {
            caller: left for caller, seconds in self._used_s.items() if (left := seconds * kept) > MIN_USED_S
        }


def rows_by_caller(present: Collection[Sequence], scheduler: Scheduler) -> dict[str, int]:
    """Rows that are reserved for sentences that run, by their callers."""
    if len(present) == len(scheduler.running):
        return dict(scheduler.num_held_rows)
    callers = {one.caller for one in present}
    return {caller: rows for caller, rows in scheduler.num_held_rows.items() if caller in callers}
