"""Decides when the engine's thread reports to the event loop.

A report wakes the event loop. So the statistics of steps without a result or new token are held back.
"""

from __future__ import annotations

from collections.abc import Callable

from app.engine.messages import Report
from app.engine.sequence import Sequence
from app.engine.stats import StepStats
from app.engine.token_deltas import TokenDelta

# The maximum number of steps whose statistics are held back. Larger: metrics are later. Smaller: the event loop wakes
# more often.
MAX_UNREPORTED_STEPS = 32


class Reporter:
    """Collects ended sequences and statistics until the next report. Belongs to the engine thread."""

    def __init__(self, report: Callable[[Report], None]) -> None:
        """report: called with each report."""
        self._report = report
        self._ended: list[Sequence] = []
        self._steps: list[StepStats] = []

    def add_ended(self, sequence: Sequence) -> None:
        """Add a sequence that has ended. `add_step` reports it."""
        self._ended.append(sequence)

    def add_step(self, stats: StepStats, deltas: list[TokenDelta], *, is_last: bool) -> None:
        """Add a step. Report if a sequence has ended, tokens are new, enough steps wait, or the step is the last.

        is_last: whether the engine has no work after this step.
        """
        self._steps.append(stats)
        if self._ended or deltas or is_last or len(self._steps) >= MAX_UNREPORTED_STEPS:
            report = Report(self._ended, self._steps, deltas)
            self._ended, self._steps = [], []
            self._report(report)
