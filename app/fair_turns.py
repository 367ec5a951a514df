"""Lets callers take turns at a few places, such as threads: the many tasks of one caller do not keep out the others."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairTurns:
    """A number of places. Of the callers that wait, the one with the fewest places gets the next free place.

    If several have as few, the one whose last place is longest ago gets it. A caller is any name, such as
    `Requester.share`. All methods run on one event loop.
    """

    def __init__(self, num_places: int) -> None:
        self._num_free = num_places
        self._held: Counter[str] = Counter()  # places, by caller
        # A future for each task that waits, by caller. The caller that was served last comes last.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[None]:
        """Wait for a place, and hold it during the body."""
        await self.take(caller)
        try:
            yield
        finally:
            self.give_back(caller)

    async def take(self, caller: str) -> None:
        """Wait for a place. A wait that is cancelled takes none."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(place)
        self._hand_out()
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():  # the task was cancelled after it had got the place
                self.give_back(caller)
            raise

    def give_back(self, caller: str) -> None:
        """Free a place that this caller has taken."""
        self._num_free += 1
        self._held[caller] -= 1
        if not self._held[caller]:
            del self._held[caller]
        self._hand_out()

    def _hand_out(self) -> None:
        while self._num_free and self._waiting:
            caller = min(self._waiting, key=self._held.__getitem__)
            tasks = self._waiting.pop(caller)
            place = tasks.popleft()
            if tasks:
                self._waiting[caller] = tasks
            if not place.cancelled():
                self._num_free -= 1
                self._held[caller] += 1
                place.set_result(None)
