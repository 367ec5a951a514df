"""Counts the characters that each caller has translated since the process started, and enforces the quota."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class QuotaExceeded(Exception):
    """The request would exceed its caller's quota."""


class UsageCounter:
    """Counts code points by caller, with one entry for each API key. For use on the event loop only."""

    def __init__(self, max_characters: int) -> None:
        """max_characters: the quota of one caller."""
        self.max_characters = max_characters
        self._counts: Counter[str] = Counter()

    def of(self, caller: str) -> int:
        """Return the characters that the caller has used."""
        return self._counts[caller]

    @contextmanager
    def spending(self, caller: str, num_characters: int) -> Iterator[None]:
        """Count the characters of one translation on entry, and subtract them if it fails. Raises QuotaExceeded."""
        if self._counts[caller] + num_characters > self.max_characters:
            raise QuotaExceeded("the quota of this API key is used up")
        self._counts[caller] += num_characters
        try:
            yield
        except BaseException:
            self._counts[caller] -= num_characters
            raise
