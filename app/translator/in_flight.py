"""A sentence that the engine is decoding, and the requests that subscribe to its result."""

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
    """One request's subscription to one sentence in flight. deadline: seconds of time.monotonic."""

    future: asyncio.Future[SequenceResult]
    request_id: str
    caller: str
    deadline: float
    on_tokens: OnTokens | None
    in_flight: InFlight = field(init=False)

    def expire(self) -> None:
        """Fail this subscriber with DeadlineExceeded; others are unaffected."""
        self.fail(DeadlineExceeded("the request's time ran out"))

    def fail(self, error: BaseException) -> None:
        """Set the error, unless the future is done or cancelled."""
        if not self.future.done():
            self.future.set_exception(error)


class InFlight:
    """A submitted sentence.

    future: the engine's. streams_tokens: whether the engine reports its tokens. subscribers: in order of arrival; keys
    of a dict, which are removed in constant time.
    """

    future: asyncio.Future[SequenceResult]

    def __init__(self, key: bytes, source_ids: Sequence[int], options: DecodingOptions) -> None:
        self.key = key
        self.source_ids = source_ids
        self.options = options
        self.subscribers: dict[Subscriber, None] = {}
        self.streams_tokens = False
        self._ids: list[int] = []

    def begin(self, subscribers: Sequence[Subscriber], *, streams_tokens: bool) -> None:
        """Reset to a new submission with these subscribers."""
        self.streams_tokens = streams_tokens
        self._ids = []
        self.subscribers = dict.fromkeys(subscribers)
        for subscriber in subscribers:
            subscriber.in_flight = self

    def add(self, subscriber: Subscriber) -> None:
        """Add a subscriber, and pass it the tokens decoded so far."""
        self.subscribers[subscriber] = None
        subscriber.in_flight = self
        if subscriber.on_tokens is not None:
            if self._ids:
                subscriber.on_tokens(0, tuple(self._ids))
            self.streams_tokens = True

    def publish(self, position: int, ids: tuple[int, ...]) -> None:
        """Pass new tokens of the engine to all subscribers that stream."""
        self._ids[position:] = ids
        for subscriber in list(self.subscribers):
            if subscriber.on_tokens is not None and not subscriber.future.done():
                subscriber.on_tokens(position, ids)

    def succeed(self, result: SequenceResult) -> None:
        """Set the result of all subscribers whose futures are not done."""
        for subscriber in self.subscribers:
            if not subscriber.future.done():
                subscriber.future.set_result(result)

    def fail(self, error: BaseException) -> None:
        """Fail all subscribers whose futures are not done."""
        for subscriber in self.subscribers:
            subscriber.fail(error)

    def fail_expired(self, error: DeadlineExceeded, *, now: float) -> list[Subscriber]:
        """Fail the subscribers whose deadline has passed; return those with time left."""
        pending = [subscriber for subscriber in self.subscribers if not subscriber.future.done()]
        for subscriber in pending:
            if subscriber.deadline <= now:
                subscriber.fail(error)
        return [subscriber for subscriber in pending if subscriber.deadline > now]
