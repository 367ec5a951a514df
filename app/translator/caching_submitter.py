"""Submits sentences to the engine through a cache of results, and coalesces equal sentences in flight.

Two sentences are equal if the model, the source ids and every option are equal. A sentence that is sampled without a
seed of the caller is neither cached nor shared. Errors are not cached.

Requests for a sentence that is in flight subscribe to it. Each subscriber keeps its own deadline and can cancel. When
the last one cancels, the engine stops decoding the sentence. A new subscriber with a later deadline extends the
sentence's deadline. The sentence waits in the queue of every subscriber's request. The engine starts it when the first
of these queues reaches it. If the engine has dropped the sentence at its deadline, the sentence is submitted
again for the subscribers with time left.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import time
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from app.decoding.options import DecodingOptions
from app.engine.engine import Engine
from app.engine.sequence import SequenceResult
from app.engine.token_deltas import OnTokens
from app.errors import DeadlineExceeded, ServiceError
from app.stores.sentence_cache import CacheStats, SentenceCache
from app.translator.admission_ticket import AdmissionTicket
from app.translator.in_flight import SentenceInFlight, Subscriber
from app.translator.result_size import size_of

# Bytes of a cache key. If smaller, two sentences may get the same key, and one would get the other's translation.
DIGEST_BYTES = 32


@dataclass(frozen=True)
class SubmitterSettings:
    """Settings of the cache and of coalescing.

    cache_bytes: memory for results; 0 for no cache. coalesces: whether equal sentences in flight are decoded once.
    """

    cache_bytes: int = 0
    coalesces: bool = True


@dataclass(frozen=True)
class SubmitterStats(CacheStats):
    """Counts of the cache and of coalescing.

    num_coalesced: sentences that joined an equal sentence in flight. num_in_flight: sentences in the engine that a
    subscriber waits for. Equal sentences that are coalesced count once. Sentences that are sampled without a seed of
    the caller do not count. No sentence counts if the settings turn off both the cache and coalescing.
    """

    num_coalesced: int = 0
    num_in_flight: int = 0

    @classmethod
    def joint(cls, parts: Sequence[SubmitterStats]) -> SubmitterStats:
        """Return the counts of several models' submitters as one."""
        return cls(**{name: sum(getattr(part, name) for part in parts) for name in vars(parts[0])})


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
        self._in_flight: dict[bytes, SentenceInFlight] = {}
        self._subscribers: dict[asyncio.Future[SequenceResult], Subscriber] = {}
        self._num_coalesced = 0
        self._num_in_flight = 0
        # Requests admitted although the engine refuses them, until their cost is known. `AdmissionTicket` counts them.
        self.num_provisional = 0

    def stats(self) -> SubmitterStats:
        """Return the current counts."""
        kept = vars(self._cache.stats())
        return SubmitterStats(**kept, num_coalesced=self._num_coalesced, num_in_flight=self._num_in_flight)

    def clear(self) -> None:
        """Drop all cached results. Reset the counts, except that of sentences in flight."""
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
        """Return a request's admission ticket. The caller holds it in a `with` block around all of the work.

        num_sentences, num_tokens: estimates, which `AdmissionTicket.finalize` replaces; num_tokens counts end tokens.
        options: the options of every sentence. deadline: seconds of time.monotonic. Raises NotReady.
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
        """Return the future of a sentence's result, as `Engine.submit` does.

        The result comes from the cache, or from an equal sentence in flight, if there is one. on_tokens: receives every
        token from the first on, even if the sentence is already in flight; not called for a cached result. Raises
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
        sentence = self._in_flight.get(key)
        if sentence is None or not self._settings.coalesces:
            sentence = SentenceInFlight(key, source_ids, options)
            self._start(sentence, [subscriber])
        else:
            self._num_coalesced += 1
            self._subscribe(sentence, subscriber)
        self._subscribers[future] = subscriber
        timer = loop.call_later(deadline - time.monotonic(), subscriber.expire)
        future.add_done_callback(lambda _: self._on_subscriber_done(subscriber, timer))
        return future

    def prioritize_retries(self, futures: Iterable[asyncio.Future[SequenceResult]]) -> None:
        """As `Engine.prioritize_retries`, for futures of `submit`.

        A retry that joined a sentence in flight is left out, because the engine would move another request to the
        front: the one that submitted the sentence. Such a retry waits for the first turn of a request that subscribes
        to the sentence.
        """
        submitted = []
        for future in futures:
            subscriber = self._subscribers.get(future)
            if subscriber is None:
                submitted.append(future)
            elif subscriber.sentence.submitter is subscriber:
                submitted.append(subscriber.sentence.future)
        self.engine.prioritize_retries(submitted)

    def _key(self, source_ids: Sequence[int], options: DecodingOptions) -> bytes:
        """Return the cache key. Equal sentences of a model have equal keys, and others have different ones."""
        digest = hashlib.blake2b(_fingerprint(self._model_key, options), digest_size=DIGEST_BYTES)
        digest.update(array("i", source_ids).tobytes())
        return digest.digest()

    def _start(self, sentence: SentenceInFlight, subscribers: Sequence[Subscriber]) -> None:
        """Submit the sentence for these subscribers. If it raises InvalidRequest or NotReady, none is added.

        subscribers: the subscriber with the latest deadline first.
        """
        first = subscribers[0]
        streams_tokens = any(subscriber.on_tokens is not None for subscriber in subscribers)
        sentence.future = self.engine.submit(
            sentence.source_ids,
            sentence.options,
            request_id=first.request_id,
            caller=first.caller,
            deadline=first.deadline,
            on_tokens=sentence.publish if streams_tokens else None,
        )
        sentence.begin(subscribers, streams_tokens=streams_tokens)
        self._num_in_flight += 1
        if self._settings.coalesces:
            self._in_flight[sentence.key] = sentence
        sentence.future.add_done_callback(lambda done: self._on_completed(sentence, done))

    def _subscribe(self, sentence: SentenceInFlight, subscriber: Subscriber) -> None:
        starts_streaming = subscriber.on_tokens is not None and not sentence.streams_tokens
        sentence.add(subscriber)
        self.engine.join(
            sentence.future,
            request_id=subscriber.request_id,
            caller=subscriber.caller,
            deadline=subscriber.deadline,
            on_tokens=sentence.publish if starts_streaming else None,
        )

    def _on_subscriber_done(self, subscriber: Subscriber, timer: asyncio.TimerHandle) -> None:
        """Unsubscribe a subscriber that has its result, expired or cancelled. The last one cancels the sentence."""
        timer.cancel()
        del self._subscribers[subscriber.future]
        if not subscriber.future.cancelled():
            subscriber.future.exception()  # else asyncio logs an exception that a cancelled request does not read
        sentence = subscriber.sentence
        sentence.subscribers.pop(subscriber, None)
        if not sentence.subscribers:
            self._remove(sentence)
            sentence.future.cancel()

    def _on_completed(self, sentence: SentenceInFlight, done: asyncio.Future[SequenceResult]) -> None:
        """Pass the outcome of a sentence to all its subscribers."""
        self._num_in_flight -= 1
        self._remove(sentence)
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, DeadlineExceeded):
            remaining = sentence.fail_expired(error, now=time.monotonic())
            if remaining:
                self._resubmit(sentence, remaining)
        elif error is not None:
            sentence.fail(error)
        else:
            result = done.result()
            if self.keeps_results:
                self._cache_result(sentence.key, result)
            sentence.succeed(result)

    def _resubmit(self, sentence: SentenceInFlight, subscribers: Sequence[Subscriber]) -> None:
        """Submit the sentence again for the subscribers that joined after the engine dropped it and have time left."""
        latest_first = sorted(subscribers, key=lambda each: each.deadline, reverse=True)
        try:
            self._start(sentence, latest_first)
        except ServiceError as error:
            for subscriber in subscribers:
                subscriber.fail(error)

    def _cache_result(self, key: bytes, result: SequenceResult) -> None:
        kept = replace(
            result, queue_time_s=0.0, encode_time_s=0.0, decode_time_s=0.0, num_steps=0, is_cached=True
        )
        self._cache.put(key, kept, size_of(kept))

    def _remove(self, sentence: SentenceInFlight) -> None:
        if self._in_flight.get(sentence.key) is sentence:
            del self._in_flight[sentence.key]


def _is_repeatable(options: DecodingOptions) -> bool:
    """Whether decoding the sentence again gives the same result: without sampling, or with the caller's seed."""
    return options.sampling is None or options.sampling.is_seeded


@functools.lru_cache(maxsize=256)
def _fingerprint(model_key: bytes, options: DecodingOptions) -> bytes:
    """Return the model and all options as bytes, from the repr, which includes every field of the options."""
    return b"%d:%s%s" % (len(model_key), model_key, repr(options).encode())
