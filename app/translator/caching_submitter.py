"""Between the translator and the engine: a sentence that is known is not decoded again, nor twice at once.

Two sentences are the same where the model, the source's ids and every option are. What was drawn with a seed that
nobody chose is neither kept nor shared; errors are not kept, and there are no partial results.

Requests that wait for one sentence share a flight. Each keeps its own deadline and may leave; the last to leave frees
the sentence's rows. Who joins puts off the flight's deadline to its own where that is later, and gets the sentence a
place in its own turn, so that a short request never waits for a long one's. Where the engine had already found the
sentence late when somebody joined, it is submitted once more for those that still have time.
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

DIGEST_BYTES = 32


@dataclass(frozen=True)
class SubmitterSettings:
    """cache_bytes: of the results that are kept; 0: none. coalesces: whether equal sentences in flight are shared."""

    cache_bytes: int = 0
    coalesces: bool = True


@dataclass(frozen=True)
class SubmitterStats(CacheStats):
    """num_coalesced: sentences that waited for another's flight. num_in_flight: sentences in the engine now."""

    num_coalesced: int = 0
    num_in_flight: int = 0


class CachingSubmitter:
    """One engine's decoder. Called on the event loop."""

    def __init__(
        self, engine: Engine, *, model_key: str = "", settings: SubmitterSettings | None = None
    ) -> None:
        """model_key: two models of which any answer differs have two."""
        self.engine = engine
        self._model_key = model_key.encode()
        self._settings = settings or SubmitterSettings()
        self._is_needed = self._settings.cache_bytes > 0 or self._settings.coalesces
        self._cache: SentenceCache[SequenceResult] = SentenceCache(self._settings.cache_bytes)
        self._in_flight: dict[bytes, InFlight] = {}
        self._subscribers: dict[asyncio.Future[SequenceResult], Subscriber] = {}
        self._num_coalesced = 0
        self._num_in_flight = 0
        self.num_provisional = (
            0  # requests that were let in past a full queue, until it is known what they cost
        )

    def stats(self) -> SubmitterStats:
        """As it stands now."""
        kept = vars(self._cache.stats())
        return SubmitterStats(**kept, num_coalesced=self._num_coalesced, num_in_flight=self._num_in_flight)

    def clear(self) -> None:
        """Forget all results, and begin to count anew."""
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
        """Whether any sentence can be answered without the engine."""
        return self._settings.cache_bytes > 0

    def has(self, source_ids: Sequence[int], options: DecodingOptions) -> bool:
        """Whether `submit` would answer at once."""
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
        """As `Engine.submit`, from the cache or with another request's sentence where it is the same.

        on_tokens: not called for what is cached; who joins is told all tokens from the first on. Raises InvalidRequest,
        NotReady.
        """
        if not (self._is_needed and _is_repeatable(options)):
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
            self._join(in_flight, subscriber)
        self._subscribers[future] = subscriber
        timer = loop.call_later(deadline - time.monotonic(), subscriber.expire)
        future.add_done_callback(lambda _: self._on_answered(subscriber, timer))
        return future

    def prioritize_retries(self, futures: Iterable[asyncio.Future[SequenceResult]]) -> None:
        """As `Engine.prioritize_retries`, of futures that `submit` gave."""
        subscribers = self._subscribers
        self.engine.prioritize_retries(
            [subscribers[future].in_flight.future if future in subscribers else future for future in futures]
        )

    def _key(self, source_ids: Sequence[int], options: DecodingOptions) -> bytes:
        """Equal exactly where model, ids and every option are."""
        digest = hashlib.blake2b(_fingerprint(self._model_key, options), digest_size=DIGEST_BYTES)
        digest.update(np.asarray(source_ids, np.int32).tobytes())
        return digest.digest()

    def _start(self, in_flight: InFlight, subscribers: Sequence[Subscriber]) -> None:
        """Submit a flight's sentence for these. Raises InvalidRequest, NotReady: nobody waits then."""
        first = subscribers[0]
        listens = any(subscriber.on_tokens is not None for subscriber in subscribers)
        in_flight.future = self.engine.submit(
            in_flight.source_ids,
            in_flight.options,
            request_id=first.request_id,
            caller=first.caller,
            deadline=max(subscriber.deadline for subscriber in subscribers),
            on_tokens=in_flight.tell if listens else None,
        )
        in_flight.begin(subscribers, listens=listens)
        self._num_in_flight += 1
        if self._settings.coalesces:
            self._in_flight[in_flight.key] = in_flight
        in_flight.future.add_done_callback(lambda done: self._on_completed(in_flight, done))

    def _join(self, in_flight: InFlight, subscriber: Subscriber) -> None:
        is_new_listener = subscriber.on_tokens is not None and not in_flight.listens
        in_flight.add(subscriber)
        self.engine.join(
            in_flight.future,
            request_id=subscriber.request_id,
            caller=subscriber.caller,
            deadline=subscriber.deadline,
            on_tokens=in_flight.tell if is_new_listener else None,
        )

    def _on_answered(self, subscriber: Subscriber, timer: asyncio.TimerHandle) -> None:
        """A waiter has its answer, its time has run out, or it has left: the last one ends the flight."""
        timer.cancel()
        del self._subscribers[subscriber.future]
        if not subscriber.future.cancelled():
            subscriber.future.exception()  # marks it as seen: who left does not read it
        in_flight = subscriber.in_flight
        in_flight.subscribers.pop(subscriber, None)
        if not in_flight.subscribers and not in_flight.future.done():
            self._forget(in_flight)
            in_flight.future.cancel()

    def _on_completed(self, in_flight: InFlight, done: asyncio.Future[SequenceResult]) -> None:
        """Hand a flight's outcome to all who wait for it."""
        self._num_in_flight -= 1
        self._forget(in_flight)
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, DeadlineExceeded):
            late = in_flight.release(error, until=time.monotonic())
            if late:
                self._start_again(in_flight, late)
        elif error is not None:
            in_flight.fail(error)
        else:
            result = done.result()
            if self.keeps_results:
                self._keep(in_flight.key, result)
            in_flight.succeed(result)

    def _start_again(self, in_flight: InFlight, subscribers: Sequence[Subscriber]) -> None:
        """The engine had given the sentence up when these joined, and they have time left."""
        try:
            self._start(in_flight, subscribers)
        except ServiceError as error:
            for subscriber in subscribers:
                subscriber.fail(error)

    def _keep(self, key: bytes, result: SequenceResult) -> None:
        kept = replace(
            result, queue_time_s=0.0, encode_time_s=0.0, decode_time_s=0.0, num_steps=0, is_cached=True
        )
        self._cache.put(key, kept, size_of(kept))

    def _forget(self, in_flight: InFlight) -> None:
        if self._in_flight.get(in_flight.key) is in_flight:
            del self._in_flight[in_flight.key]


def _is_repeatable(options: DecodingOptions) -> bool:
    """Whether the same sentence gets the same answer again, in the eyes of who asked."""
    return options.sampling is None or options.sampling.is_seeded


@functools.lru_cache(maxsize=256)
def _fingerprint(model_key: bytes, options: DecodingOptions) -> bytes:
    """The model and every option in bytes; a field that is added later is in it too."""
    return b"%d:%s%s" % (len(model_key), model_key, repr(options).encode())
