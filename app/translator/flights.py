"""One sentence in the engine, and who waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from app.decoding.options import DecodingOptions
from app.engine.engine import OnTokens
from app.engine.sequence import SequenceResult
from app.errors import DeadlineExceeded


@dataclass(eq=False)
class Waiter:
    """One request's wait for one sentence. deadline: seconds of time.monotonic. flight: the one that it is on."""

    future: asyncio.Future[SequenceResult]
    request_id: str
    caller: str
    deadline: float
    on_tokens: OnTokens | None
    flight: Flight = field(init=False)

    def expire(self) -> None:
        """Its own time has run out, whatever becomes of the others."""
        self.fail(DeadlineExceeded("the request's time ran out"))

    def fail(self, error: BaseException) -> None:
        """Without effect where it is answered or has left."""
        if not self.future.done():
            self.future.set_exception(error)


class Flight:
    """A sentence that was submitted. waiters: in order of arrival (a dict's keys, for removal in constant time).

    future: the engine's. listens: whether the engine tells its tokens.
    """

    future: asyncio.Future[SequenceResult]

    def __init__(self, key: bytes, source_ids: Sequence[int], options: DecodingOptions) -> None:
        self.key = key
        self.source_ids = source_ids
        self.options = options
        self.waiters: dict[Waiter, None] = {}
        self.listens = False
        self._told: list[int] = []

    def begin(self, waiters: Sequence[Waiter], *, listens: bool) -> None:
        """It was submitted for these."""
        self.listens = listens
        self._told = []
        self.waiters = dict.fromkeys(waiters)
        for waiter in waiters:
            waiter.flight = self

    def add(self, waiter: Waiter) -> None:
        """One more waits, and is told what was said so far."""
        self.waiters[waiter] = None
        waiter.flight = self
        if waiter.on_tokens is not None:
            if self._told:
                waiter.on_tokens(0, tuple(self._told))
            self.listens = True

    def tell(self, position: int, ids: tuple[int, ...]) -> None:
        """New tokens of the engine's, for all who listen."""
        self._told[position:] = ids
        for waiter in list(self.waiters):
            if waiter.on_tokens is not None and not waiter.future.done():
                waiter.on_tokens(position, ids)

    def succeed(self, result: SequenceResult) -> None:
        """All who still wait have it."""
        for waiter in self.waiters:
            if not waiter.future.done():
                waiter.future.set_result(result)

    def fail(self, error: BaseException) -> None:
        """All who still wait fail with it."""
        for waiter in self.waiters:
            waiter.fail(error)

    def release(self, error: DeadlineExceeded, *, until: float) -> list[Waiter]:
        """Fail those whose time has run out by then. Returns those who have time left."""
        waiting = [waiter for waiter in self.waiters if not waiter.future.done()]
        late = [waiter for waiter in waiting if waiter.deadline > until]
        for waiter in waiting:
            if waiter.deadline <= until:
                waiter.fail(error)
        return late
