"""A sentence that is in the engine, and the requests that subscribe to its result."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from app.decoding.options import DecodingOptions
from app.engine.sequence import SequenceResult
from app.engine.token_deltas import OnTokens
from app.errors import DeadlineExceeded


@dataclass(eq=False)
class Subscriber:
    """One request's subscription to one sentence.

    future: the result, for this request only. deadline: seconds of time.monotonic. on_tokens: called with new tokens;
    None if the request does not stream. sentence: set when the subscriber is added to a sentence.
    """

    future: asyncio.Future[SequenceResult]
    request_id: str
    caller: str
    deadline: float
    on_tokens: OnTokens | None
    sentence: SentenceInFlight = field(init=False)

    def expire(self) -> None:
        """Fail this subscriber with DeadlineExceeded. The other subscribers are unaffected."""
        self.fail(DeadlineExceeded("the request's time ran out"))

    def fail(self, error: BaseException) -> None:
        """Set the error, unless the future is done or cancelled."""
        if not self.future.done():
            self.future.set_exception(error)


class SentenceInFlight:
    """A sentence that was submitted to the engine.

    future: the engine's future for this submission. submitter: the subscriber for whose request it was submitted.
    streams_tokens: whether the engine reports the sentence's tokens.
    subscribers: an ordered set (a dict without values), so that removal takes constant time.
    """

    future: asyncio.Future[SequenceResult]
    submitter: Subscriber

    def __init__(self, key: bytes, source_ids: Sequence[int], options: DecodingOptions) -> None:
        self.key = key
        self.source_ids = source_ids
        self.options = options
        self.subscribers: dict[Subscriber, None] = {}
        self.streams_tokens = False
        self._ids: list[int] = []

    def begin(self, subscribers: Sequence[Subscriber], *, streams_tokens: bool) -> None:
        """Record a new submission and its subscribers, and discard the tokens of the earlier submission.

        subscribers: the submitter first.
        """
        self.streams_tokens = streams_tokens
        self._ids = []
        self.submitter = subscribers[0]
        self.subscribers = dict.fromkeys(subscribers)
        for subscriber in subscribers:
            subscriber.sentence = self

    def add(self, subscriber: Subscriber) -> None:
        """Add a subscriber, and pass it the tokens decoded so far if it streams."""
        self.subscribers[subscriber] = None
        subscriber.sentence = self
        if subscriber.on_tokens is not None:
            if self._ids:
                subscriber.on_tokens(0, tuple(self._ids))
            self.streams_tokens = True

    def publish(self, position: int, ids: tuple[int, ...]) -> None:
        """Replace the tokens from `position` on by `ids`, and pass them to all subscribers that stream."""
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
        """Fail the subscribers whose deadline has passed. Return those with time left."""
        pending = [subscriber for subscriber in self.subscribers if not subscriber.future.done()]
        for subscriber in pending:
            if subscriber.deadline <= now:
                subscriber.fail(error)
        return [subscriber for subscriber in pending if subscriber.deadline > now]
