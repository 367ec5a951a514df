"""Lets callers take turns at a few places, such as threads: the many tasks of one caller do not keep out the others."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class PlaceQueue(Generic[T]):
    """Items that wait for a place. Of the callers that wait, the one with the fewest places gets the next place.

    If several callers have equally few places, the one whose wait began first gets it. A caller's wait begins anew when
    the caller gets a place. A caller is any name, such as `Requester.share`.
    """

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()  # places, by caller
        # The items that wait, by caller. A caller that gets a place and still waits goes to the end.
        self._waiting: OrderedDict[str, OrderedDict[T, None]] = OrderedDict()

    def add(self, caller: str, item: T) -> None:
        """Let an item wait."""
        self._waiting.setdefault(caller, OrderedDict())[item] = None

    def remove(self, caller: str, item: T) -> None:
        """Take out an item whose wait has ended before its turn. An item that does not wait is ignored."""
        items = self._waiting.get(caller)
        if items is not None:
            items.pop(item, None)
            if not items:
                del self._waiting[caller]

    def pop(self) -> tuple[str, T] | None:
        """Return the next item with its caller, which holds one more place until `release`; None if none waits."""
        if not self._waiting:
            return None
        # At most as many callers hold places as there are places, so one without a place is found soon.
        caller = next((each for each in self._waiting if each not in self._held), None)
        if caller is None:
            caller = min(self._waiting, key=self._held.__getitem__)
        items = self._waiting.pop(caller)
        item, _ = items.popitem(last=False)
        if items:
            self._waiting[caller] = items
        self._held[caller] += 1
        return caller, item

    def release(self, caller: str) -> None:
        """End a place that this caller holds."""
        self._held[caller] -= 1
        if not self._held[caller]:
            del self._held[caller]


class FairTurns:
    """A number of places at which tasks of one event loop take turns, in the order of `PlaceQueue`."""

    def __init__(self, num_places: int) -> None:
        self._num_free = num_places
        self._queue: PlaceQueue[asyncio.Future[None]] = PlaceQueue()

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[None]:
        """Wait for a place, and hold it during the body. A wait that is cancelled takes none."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.add(caller, place)
        self._hand_out()
        try:
            await place
            yield
        finally:
            if place.cancelled():  # the task was cancelled before it got the place
                self._queue.remove(caller, place)
            else:
                self._queue.release(caller)
                self._num_free += 1
                self._hand_out()

    def _hand_out(self) -> None:
        while self._num_free and (found := self._queue.pop()) is not None:
            caller, place = found
            if place.cancelled():  # and its task has not run since
                self._queue.release(caller)
            else:
                self._num_free -= 1
                place.set_result(None)
