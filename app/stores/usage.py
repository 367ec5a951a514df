"""How many characters each caller had translated, and the quota. In memory: counted since the process started."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class QuotaExceeded(Exception):
    """The request would pass its caller's quota."""


class UsageCounter:
    """Code points by caller. Used on the event loop alone; callers are as many as there are API keys."""

    def __init__(self, max_characters: int) -> None:
        """max_characters: of one caller."""
        self.max_characters = max_characters
        self._counts: Counter[str] = Counter()

    def of(self, caller: str) -> int:
        """What the caller has used."""
        return self._counts[caller]

    @contextmanager
    def spending(self, caller: str, num_characters: int) -> Iterator[None]:
        """The scope of one translation: counted on entry, given back where it fails. Raises QuotaExceeded."""
        if self._counts[caller] + num_characters > self.max_characters:
            raise QuotaExceeded("the quota of this API key is used up")
        self._counts[caller] += num_characters
        try:
            yield
        except BaseException:
            self._counts[caller] -= num_characters
            raise
