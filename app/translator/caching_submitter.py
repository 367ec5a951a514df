"""Submits sentences to the engine through a cache of results, and coalesces equal sentences in flight.

Two sentences are equal if the model, the source ids and every option are. A sample without a seed of the caller's is
neither cached nor shared. Errors and partial results are not cached.

Requests for a sentence that is in flight subscribe to it. Each keeps its own deadline and can cancel; when the last
one cancels, the sentence's rows are freed. A new subscriber extends the sentence's deadline to its own if that is
later, and queues the sentence in its own request's turn too, so that a short request does not wait for the turn of a
long one. If a request subscribes when the engine has already dropped the sentence for its deadline, the sentence is
submitted again for the subscribers with time left.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.decoding.options import DecodingOptions
from app.engine.engine import Engine, OnTokens
from app.engine.sequence import SequenceResult
from app.errors import DeadlineExceeded, ServiceError
from app.stores.sentence_cache import CacheStats, SentenceCache
from app.translator.admission_ticket import AdmissionTicket
from app.translator.in_flight import InFlight, Subscriber
from app.translator.result_size import size_of

# Bytes of a cache key. Smaller: two different sentences may get the same key, and one the other's translation.
DIGEST_BYTES = 32


@dataclass(frozen=True)
class SubmitterSettings:
    """cache_bytes: memory for cached results; 0: no cache. coalesces: whether equal sentences in flight are shared."""

    cache_bytes: int = 0
    coalesces: bool = True


@dataclass(frozen=True)
class SubmitterStats(CacheStats):
    """num_coalesced: sentences that subscribed to an equal one. num_in_flight: sentences in the engine now."""

    num_coalesced: int = 0
    num_in_flight: int = 0


class CachingSubmitter:
    """Submits sentences to one engine. All methods run on the event loop."""

    def __init__(
        self, engine: Engine, *, model_key: str = "", settings: SubmitterSettings | None = None
    ) -> None:
        """model_key: part of every cache key. Two models whose answers differ have different keys."""
        self.engine = engine
        self._model_key = model_key.encode()
        self._settings = settings or SubmitterSettings()
        self._is_enabled = self._settings.cache_bytes > 0 or self._settings.coalesces
        self._cache: SentenceCache[SequenceResult] = SentenceCache(self._settings.cache_bytes)
        self._in_flight: dict[bytes, InFlight] = {}
        self._subscribers: dict[asyncio.Future[SequenceResult], Subscriber] = {}
        self._num_coalesced = 0
        self._num_in_flight = 0
        # Requests that were admitted past a full queue, until their cost is known.
        self.num_provisional = 0

    def stats(self) -> SubmitterStats:
        """Return the current counts."""
        kept = vars(self._cache.stats())
        return SubmitterStats(**kept, num_coalesced=self._num_coalesced, num_in_flight=self._num_in_flight)

    def clear(self) -> None:
        """Drop all cached results, and reset the counts."""
        self._cache = SentenceCache(self._settings.cache_bytes)
        self._num_coalesced = 0

    def reserve(
        self,
        num_sentences: int,
        num_tokens: int,
        *,
        options: DecodingOptions | None = None,
        caller: str = "",
        deadline: float,
    ) -> AdmissionTicket:
        """Return a request's admission ticket, to be held with `with` around all of its work.

        num_sentences, num_tokens: an estimate, end tokens included, that `AdmissionTicket.finalize` replaces. options:
        of all sentences. deadline: seconds of time.monotonic. Raises NotReady.
        """
        reservation = self.engine.reserve(
            num_sentences, num_tokens, options=options, caller=caller, deadline=deadline
        )
        return AdmissionTicket(self, reservation)

    @property
    def keeps_results(self) -> bool:
        """Whether there is a cache."""
        return self._settings.cache_bytes > 0

    def has(self, source_ids: Sequence[int], options: DecodingOptions) -> bool:
        """Whether the result of this sentence is cached."""
        return (
            self.keeps_results and _is_repeatable(options) and self._key(source_ids, options) in self._cache
        )

    def submit(
        self,
        source_ids: Sequence[int],
        options: DecodingOptions,
        *,
        request_id: str,
        caller: str,
        deadline: float,
        on_tokens: OnTokens | None = None,
    ) -> asyncio.Future[SequenceResult]:
        """Return the future of a sentence's result; as `Engine.submit`, but cached or shared where it can be.

        on_tokens: not called for a cached result; a new subscriber gets all tokens from the first on. Raises
        InvalidRequest, NotReady.
        """
        if not (self._is_enabled and _is_repeatable(options)):
            return self.engine.submit(
                source_ids,
                options,
                request_id=request_id,
                caller=caller,
                deadline=deadline,
                on_tokens=on_tokens,
            )
        loop = asyncio.get_running_loop()
        key = self._key(source_ids, options)
        future: asyncio.Future[SequenceResult] = loop.create_future()
        if self.keeps_results and (kept := self._cache.get(key)) is not None:
            future.set_result(kept)
            return future
        subscriber = Subscriber(future, request_id, caller, deadline, on_tokens)
        in_flight = self._in_flight.get(key)
        if in_flight is None or not self._settings.coalesces:
            in_flight = InFlight(key, source_ids, options)
            self._start(in_flight, [subscriber])
        else:
            self._num_coalesced += 1
            self._subscribe(in_flight, subscriber)
        self._subscribers[future] = subscriber
        timer = loop.call_later(deadline - time.monotonic(), subscriber.expire)
        future.add_done_callback(lambda _: self._on_subscriber_done(subscriber, timer))
        return future

    def prioritize_retries(self, futures: Iterable[asyncio.Future[SequenceResult]]) -> None:
        """As `Engine.prioritize_retries`, for futures of `submit`."""
        subscribers = self._subscribers
        self.engine.prioritize_retries(
            [subscribers[future].in_flight.future if future in subscribers else future for future in futures]
        )

    def _key(self, source_ids: Sequence[int], options: DecodingOptions) -> bytes:
        """Return the cache key, which is equal if and only if the model, the ids and every option are."""
        digest = hashlib.blake2b(_fingerprint(self._model_key, options), digest_size=DIGEST_BYTES)
        digest.update(np.asarray(source_ids, np.int32).tobytes())
        return digest.digest()

    def _start(self, in_flight: InFlight, subscribers: Sequence[Subscriber]) -> None:
        """Submit the sentence for these subscribers. Raises InvalidRequest, NotReady, without subscribing any."""
        first = subscribers[0]
        streams_tokens = any(subscriber.on_tokens is not None for subscriber in subscribers)
        in_flight.future = self.engine.submit(
            in_flight.source_ids,
            in_flight.options,
            request_id=first.request_id,
            caller=first.caller,
            deadline=max(subscriber.deadline for subscriber in subscribers),
            on_tokens=in_flight.publish if streams_tokens else None,
        )
        in_flight.begin(subscribers, streams_tokens=streams_tokens)
        self._num_in_flight += 1
        if self._settings.coalesces:
            self._in_flight[in_flight.key] = in_flight
        in_flight.future.add_done_callback(lambda done: self._on_completed(in_flight, done))

    def _subscribe(self, in_flight: InFlight, subscriber: Subscriber) -> None:
        starts_streaming = subscriber.on_tokens is not None and not in_flight.streams_tokens
        in_flight.add(subscriber)
        self.engine.join(
            in_flight.future,
            request_id=subscriber.request_id,
            caller=subscriber.caller,
            deadline=subscriber.deadline,
            on_tokens=in_flight.publish if starts_streaming else None,
        )

    def _on_subscriber_done(self, subscriber: Subscriber, timer: asyncio.TimerHandle) -> None:
        """Unsubscribe: answered, expired or cancelled. Cancel the sentence if this was the last subscriber."""
        timer.cancel()
        del self._subscribers[subscriber.future]
        if not subscriber.future.cancelled():
            subscriber.future.exception()  # marks it as retrieved: a request that was cancelled does not read it
        in_flight = subscriber.in_flight
        in_flight.subscribers.pop(subscriber, None)
        if not in_flight.subscribers and not in_flight.future.done():
            self._remove(in_flight)
            in_flight.future.cancel()

    def _on_completed(self, in_flight: InFlight, done: asyncio.Future[SequenceResult]) -> None:
        """Pass the outcome of a sentence to all its subscribers."""
        self._num_in_flight -= 1
        self._remove(in_flight)
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, DeadlineExceeded):
            remaining = in_flight.fail_expired(error, now=time.monotonic())
            if remaining:
                self._resubmit(in_flight, remaining)
        elif error is not None:
            in_flight.fail(error)
        else:
            result = done.result()
            if self.keeps_results:
                self._cache_result(in_flight.key, result)
            in_flight.succeed(result)

    def _resubmit(self, in_flight: InFlight, subscribers: Sequence[Subscriber]) -> None:
        """Submit the sentence again for subscribers with time left, which joined after the engine dropped it."""
        try:
            self._start(in_flight, subscribers)
        except ServiceError as error:
            for subscriber in subscribers:
                subscriber.fail(error)

    def _cache_result(self, key: bytes, result: SequenceResult) -> None:
        kept = replace(
            result, queue_time_s=0.0, encode_time_s=0.0, decode_time_s=0.0, num_steps=0, is_cached=True
        )
        self._cache.put(key, kept, size_of(kept))

    def _remove(self, in_flight: InFlight) -> None:
        if self._in_flight.get(in_flight.key) is in_flight:
            del self._in_flight[in_flight.key]


def _is_repeatable(options: DecodingOptions) -> bool:
    """Whether decoding the sentence again gives the same result: no sampling, or with a seed of the caller's."""
    return options.sampling is None or options.sampling.is_seeded


@functools.lru_cache(maxsize=256)
def _fingerprint(model_key: bytes, options: DecodingOptions) -> bytes:
    """Return the model and all options as bytes; repr includes every field of the options."""
    return b"%d:%s%s" % (len(model_key), model_key, repr(options).encode())
