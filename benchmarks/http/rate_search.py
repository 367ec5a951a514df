"""Finds the highest successful rate in few trials: bracketed from one side, then halved."""

from __future__ import annotations

UP, DOWN = 1.2, 0.75
PRECISION = 0.06


class RateSearch:
    """Try `rate` and record the outcome, until `is_done`.

    highest: the highest rate that held below every one that did not; 0 where none has.
    """

    def __init__(self, first: float, *, most: int) -> None:
        """first: requests/s, above 0. most: trials."""
        self.rate = first
        self.highest = 0.0
        self._failed: float | None = None
        self._left = most

    @property
    def is_done(self) -> bool:
        """Whether the trials are used up, or the lowest failed rate is close enough to the highest successful one."""
        if self._left == 0:
            return True
        return (
            bool(self.highest) and self._failed is not None and self._failed <= self.highest * (1 + PRECISION)
        )

    @property
    def lowest_failed(self) -> float | None:
        """The lowest failed rate. None if none failed: then `highest` is only a lower bound."""
        return self._failed

    def tell(self, *, holds: bool) -> None:
        """Record the outcome at `rate`, and choose the next rate."""
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
