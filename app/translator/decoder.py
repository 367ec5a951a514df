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
from app.stores.sentence_cache import CacheFacts, SentenceCache
from app.translator.flights import Flight, Waiter
from app.translator.place import Place
from app.translator.result_size import size_of

DIGEST_BYTES = 32


@dataclass(frozen=True)
class DecoderSettings:
    """cache_bytes: of the results that are kept; 0: none. coalesces: whether equal sentences in flight are shared."""

    cache_bytes: int = 0
    coalesces: bool = True


@dataclass(frozen=True)
class DecoderFacts(CacheFacts):
    """num_coalesced: sentences that waited for another's flight. num_flights: sentences in the engine now."""

    num_coalesced: int = 0
    num_flights: int = 0


class SentenceDecoder:
    """One engine's decoder. Called on the event loop."""

    def __init__(
        self, engine: Engine, *, model_key: str = "", settings: DecoderSettings | None = None
    ) -> None:
        """model_key: two models of which any answer differs have two."""
        self.engine = engine
        self._model_key = model_key.encode()
        self._settings = settings or DecoderSettings()
        self._is_needed = self._settings.cache_bytes > 0 or self._settings.coalesces
        self._cache: SentenceCache[SequenceResult] = SentenceCache(self._settings.cache_bytes)
        self._flights: dict[bytes, Flight] = {}
        self._waiters: dict[asyncio.Future[SequenceResult], Waiter] = {}
        self._num_coalesced = 0
        self._num_flights = 0
        self.num_undecided = (
            0  # requests that were let in past a full queue, until it is known what they cost
        )

    def facts(self) -> DecoderFacts:
        """As it stands now."""
        kept = vars(self._cache.facts())
        return DecoderFacts(**kept, num_coalesced=self._num_coalesced, num_flights=self._num_flights)

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
    ) -> Place:
        """A place in the engine's queue, held with `with` around a request's work; see `Place`. Raises NotReady.

        num_sentences, num_tokens: an estimate, end tokens counted, that `Place.settle` puts right. options: of all
        sentences. deadline: seconds of time.monotonic.
        """
        reservation = self.engine.reserve(
            num_sentences, num_tokens, options=options, caller=caller, deadline=deadline
        )
        return Place(self, reservation)

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
        waiter = Waiter(future, request_id, caller, deadline, on_tokens)
        flight = self._flights.get(key)
        if flight is None or not self._settings.coalesces:
            flight = Flight(key, source_ids, options)
            self._start(flight, [waiter])
        else:
            self._num_coalesced += 1
            self._join(flight, waiter)
        self._waiters[future] = waiter
        timer = loop.call_later(deadline - time.monotonic(), waiter.expire)
        future.add_done_callback(lambda _: self._on_answered(waiter, timer))
        return future

    def come_back(self, futures: Iterable[asyncio.Future[SequenceResult]]) -> None:
        """As `Engine.resubmit`, of futures that `submit` gave."""
        waiters = self._waiters
        self.engine.resubmit(
            [waiters[future].flight.future if future in waiters else future for future in futures]
        )

    def _key(self, source_ids: Sequence[int], options: DecodingOptions) -> bytes:
        """Equal exactly where model, ids and every option are."""
        digest = hashlib.blake2b(_fingerprint(self._model_key, options), digest_size=DIGEST_BYTES)
        digest.update(np.asarray(source_ids, np.int32).tobytes())
        return digest.digest()

    def _start(self, flight: Flight, waiters: Sequence[Waiter]) -> None:
        """Submit a flight's sentence for these. Raises InvalidRequest, NotReady: nobody waits then."""
        first = waiters[0]
        listens = any(waiter.on_tokens is not None for waiter in waiters)
        flight.future = self.engine.submit(
            flight.source_ids,
            flight.options,
            request_id=first.request_id,
            caller=first.caller,
            deadline=max(waiter.deadline for waiter in waiters),
            on_tokens=flight.tell if listens else None,
        )
        flight.begin(waiters, listens=listens)
        self._num_flights += 1
        if self._settings.coalesces:
            self._flights[flight.key] = flight
        flight.future.add_done_callback(lambda done: self._on_landed(flight, done))

    def _join(self, flight: Flight, waiter: Waiter) -> None:
        is_new_listener = waiter.on_tokens is not None and not flight.listens
        flight.add(waiter)
        self.engine.join(
            flight.future,
            request_id=waiter.request_id,
            caller=waiter.caller,
            deadline=waiter.deadline,
            on_tokens=flight.tell if is_new_listener else None,
        )

    def _on_answered(self, waiter: Waiter, timer: asyncio.TimerHandle) -> None:
        """A waiter has its answer, its time has run out, or it has left: the last one ends the flight."""
        timer.cancel()
        del self._waiters[waiter.future]
        if not waiter.future.cancelled():
            waiter.future.exception()  # marks it as seen: who left does not read it
        flight = waiter.flight
        flight.waiters.pop(waiter, None)
        if not flight.waiters and not flight.future.done():
            self._forget(flight)
            flight.future.cancel()

    def _on_landed(self, flight: Flight, done: asyncio.Future[SequenceResult]) -> None:
        """Hand a flight's outcome to all who wait for it."""
        self._num_flights -= 1
        self._forget(flight)
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, DeadlineExceeded):
            late = flight.release(error, until=time.monotonic())
            if late:
                self._start_again(flight, late)
        elif error is not None:
            flight.fail(error)
        else:
            result = done.result()
            if self.keeps_results:
                self._keep(flight.key, result)
            flight.succeed(result)

    def _start_again(self, flight: Flight, waiters: Sequence[Waiter]) -> None:
        """The engine had given the sentence up when these joined, and they have time left."""
        try:
            self._start(flight, waiters)
        except ServiceError as error:
            for waiter in waiters:
                waiter.fail(error)

    def _keep(self, key: bytes, result: SequenceResult) -> None:
        kept = replace(
            result, queue_time_s=0.0, encode_time_s=0.0, decode_time_s=0.0, num_steps=0, is_cached=True
        )
        self._cache.put(key, kept, size_of(kept))

    def _forget(self, flight: Flight) -> None:
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]


def _is_repeatable(options: DecodingOptions) -> bool:
    """Whether the same sentence gets the same answer again, in the eyes of who asked."""
    return options.sampling is None or options.sampling.is_seeded


@functools.lru_cache(maxsize=256)
def _fingerprint(model_key: bytes, options: DecodingOptions) -> bytes:
    """The model and every option in bytes; a field that is added later is in it too."""
    return b"%d:%s%s" % (len(model_key), model_key, repr(options).encode())
