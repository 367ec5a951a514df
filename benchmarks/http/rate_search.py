"""The highest rate that holds, found in few trials: enclosed from one side, then halved."""

from __future__ import annotations

UP, DOWN = 1.2, 0.75
PRECISION = 0.06


class RateSearch:
    """Ask for `rate`, tell whether it held, until `is_done`.

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
        """Enough was tried, or the lowest rate that failed is as near above the highest that held as is asked for."""
        if self._left == 0:
            return True
        return (
            bool(self.highest) and self._failed is not None and self._failed <= self.highest * (1 + PRECISION)
        )

    @property
    def lowest_failed(self) -> float | None:
        """The lowest rate that did not hold; None: none failed, and `highest` is only what the trials got to."""
        return self._failed

    def tell(self, *, holds: bool) -> None:
        """What came of `rate`; moves on to the next."""
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
