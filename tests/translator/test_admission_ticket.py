"""The admission ticket of a request that is rejected after the cache lookup of its sentences."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, cast

import pytest

from app.decoding.options import DecodingOptions
from app.errors import Overloaded
from app.translator.admission_ticket import AdmissionTicket


class EmptyCache:
    """A cache that is enabled and empty."""

    keeps_results = True
    num_provisional = 0

    def has(self, source_ids: Sequence[int], options: DecodingOptions) -> bool:
        return False


class FullQueue(AbstractContextManager["FullQueue"]):
    """A reservation that fails, as with a full queue."""

    def __enter__(self) -> FullQueue:
        raise Overloaded("too much work is waiting", retry_after_s=1)

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        raise AssertionError("a refused reservation was released")


class RoomForAll(AbstractContextManager["RoomForAll"]):
    """A reservation that records the length of the longest sentence."""

    longest = 0

    def resize(self, cost: object, *, longest: int, checks_bounds: bool) -> None:
        self.longest = longest

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        pass


class RequestText:
    """Represents the objects that a request holds during its translation."""


def refuse(cache: EmptyCache) -> weakref.ref[RequestText]:
    """Reject a request in a frame that holds its text. Returns a weak reference to the text."""

    def translate(text: RequestText) -> None:
        with AdmissionTicket(cache, cast(Any, FullQueue())) as ticket:
            ticket.finalize([((5, 2), DecodingOptions(), 1)])
        raise AssertionError(text)

    text = RequestText()
    with pytest.raises(Overloaded) as caught:
        translate(text)
    del caught
    return weakref.ref(text)


def test_a_refused_request_is_freed_without_the_garbage_collector() -> None:
    cache = EmptyCache()
    gc.collect()
    gc.disable()
    try:
        assert refuse(cache)() is None
    finally:
        gc.enable()
    assert cache.num_provisional == 0


def test_the_longest_sentence_counts_its_least_target_and_its_decodings() -> None:
    reservation = RoomForAll()
    sentences = [((5,) * 9, DecodingOptions(), 1), ((5, 2), DecodingOptions(min_target_length=6), 2)]
    with AdmissionTicket(EmptyCache(), cast(Any, reservation)) as ticket:
        ticket.finalize(sentences)
    assert reservation.longest == 12
