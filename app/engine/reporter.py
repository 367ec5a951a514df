"""When the engine's thread reports to the event loop. A report wakes the loop, so steps without news are held back."""

from __future__ import annotations

from collections.abc import Callable

from app.engine.messages import Report
from app.engine.sequence import Sequence
from app.engine.stats import StepStats
from app.engine.token_deltas import TokenDelta

# Steps whose statistics are held back at most. Larger: the metrics are later. Smaller: the event loop wakes more often.
MAX_UNREPORTED_STEPS = 32


class Reporter:
    """What has not been reported yet. Belongs to the engine thread."""

    def __init__(self, report: Callable[[Report], None]) -> None:
        """report: called with each report."""
        self._report = report
        self._ended: list[Sequence] = []
        self._steps: list[StepStats] = []

    def add_ended(self, sequence: Sequence) -> None:
        """Report a sequence that has ended, with the next step."""
        self._ended.append(sequence)

    def add_step(self, stats: StepStats, deltas: list[TokenDelta], *, is_last: bool) -> None:
        """Report a step: at once if a sequence has ended, tokens are new, steps are enough, or it is the last."""
        self._steps.append(stats)
        if self._ended or deltas or is_last or len(self._steps) >= MAX_UNREPORTED_STEPS:
            report = Report(self._ended, self._steps, deltas)
            self._ended, self._steps = [], []
            self._report(report)
