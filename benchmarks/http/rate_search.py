"""Finds the highest successful rate in few trials: brackets it from one side, then bisects."""

from __future__ import annotations

# Factors between two rates until one trial has succeeded and one has failed.
UP, DOWN = 1.2, 0.75
# The search ends when the lowest failed rate is at most this share above the highest successful one.
PRECISION = 0.06


class RateSearch:
    """Suggests the next `rate` to try. The caller tries it and records the outcome, until `is_done`.

    highest: the highest successful rate; 0 if none succeeded.
    """

    def __init__(self, first: float, *, most: int) -> None:
        """first: the first rate in requests/s, above 0. most: the largest number of trials."""
        self.rate = first
        self.highest = 0.0
        self._failed: float | None = None
        self._left = most

    @property
    def is_done(self) -> bool:
        """Whether the trials are used up, or the highest rate is known with PRECISION."""
        if self._left == 0:
            return True
        return (
            bool(self.highest) and self._failed is not None and self._failed <= self.highest * (1 + PRECISION)
        )

    @property
    def lowest_failed(self) -> float | None:
        """The lowest failed rate. If it is None, no rate failed, and `highest` is only a lower bound."""
        return self._failed

    def record(self, *, holds: bool) -> None:
        """Record the outcome at `rate`, and set the next rate. holds: whether the rate succeeded."""
        self._left -= 1
        if holds:
            self.highest = self.rate
        else:
            self._failed = self.rate
        if self._failed is None:
            self.rate *= UP
        elif not self.highest:
            self.rate *= DOWN
        else:
            self.rate = (self.highest + self._failed) / 2
