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
class Subscriber:
    """One request's wait for one sentence. deadline: seconds of time.monotonic. flight: the one that it is on."""

    future: asyncio.Future[SequenceResult]
    request_id: str
    caller: str
    deadline: float
    on_tokens: OnTokens | None
    in_flight: InFlight = field(init=False)

    def expire(self) -> None:
        """Its own time has run out, whatever becomes of the others."""
        self.fail(DeadlineExceeded("the request's time ran out"))

    def fail(self, error: BaseException) -> None:
        """Without effect where it is answered or has left."""
        if not self.future.done():
            self.future.set_exception(error)


class InFlight:
    """A sentence that was submitted. waiters: in order of arrival (a dict's keys, for removal in constant time).

    future: the engine's. listens: whether the engine tells its tokens.
    """

    future: asyncio.Future[SequenceResult]

    def __init__(self, key: bytes, source_ids: Sequence[int], options: DecodingOptions) -> None:
        self.key = key
        self.source_ids = source_ids
        self.options = options
        self.subscribers: dict[Subscriber, None] = {}
        self.listens = False
        self._told: list[int] = []

    def begin(self, subscribers: Sequence[Subscriber], *, listens: bool) -> None:
        """It was submitted for these."""
        self.listens = listens
        self._told = []
        self.subscribers = dict.fromkeys(subscribers)
        for subscriber in subscribers:
            subscriber.in_flight = self

    def add(self, subscriber: Subscriber) -> None:
        """One more waits, and is told what was said so far."""
        self.subscribers[subscriber] = None
        subscriber.in_flight = self
        if subscriber.on_tokens is not None:
            if self._told:
                subscriber.on_tokens(0, tuple(self._told))
            self.listens = True

    def tell(self, position: int, ids: tuple[int, ...]) -> None:
        """New tokens of the engine's, for all who listen."""
        self._told[position:] = ids
        for subscriber in list(self.subscribers):
            if subscriber.on_tokens is not None and not subscriber.future.done():
                subscriber.on_tokens(position, ids)

    def succeed(self, result: SequenceResult) -> None:
        """All who still wait have it."""
        for subscriber in self.subscribers:
            if not subscriber.future.done():
                subscriber.future.set_result(result)

    def fail(self, error: BaseException) -> None:
        """All who still wait fail with it."""
        for subscriber in self.subscribers:
            subscriber.fail(error)

    def release(self, error: DeadlineExceeded, *, until: float) -> list[Subscriber]:
        """Fail those whose time has run out by then. Returns those who have time left."""
        waiting = [subscriber for subscriber in self.subscribers if not subscriber.future.done()]
        late = [subscriber for subscriber in waiting if subscriber.deadline > until]
        for subscriber in waiting:
            if subscriber.deadline <= until:
                subscriber.fail(error)
        return late
