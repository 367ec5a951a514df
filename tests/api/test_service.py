"""Garbage collection between requests, a body that is read when draining begins, and which addresses are one caller."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import weakref

import pytest

from app.api.http.middleware import caller_address
from app.api.service import Phase, Service
from app.errors import NotReady
from app.observability.metrics import Metrics
from app.runtime.memory import limit_pauses
from app.stores.glossaries import GlossaryStore
from tests.api.server_process import HANG_TIMEOUT_S


class ReferenceCycle:
    """A reference cycle. Once it is old, only a full collection finds it."""

    def __init__(self) -> None:
        self.own = self


class HeldModels:
    """A stand-in for the models. `Service.work` calls only `held`."""

    held = contextlib.nullcontext


def test_garbage_is_collected_once_no_request_is_in_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.api.service.IDLE_S", 0.01)

    async def run() -> None:
        service = Service(Metrics(), GlossaryStore(None))
        service.phase, service._models = Phase.READY, HeldModels()  # type: ignore[assignment]
        cycle, is_freed = ReferenceCycle(), asyncio.Event()
        reference = weakref.ref(cycle, lambda _: is_freed.set())
        gc.collect()
        with service.work():
            pass  # at its end, the wait of IDLE_S before a collection begins
        with service.work():
            del cycle
            gc.collect(1)  # after a collection of generation 1, an idle server runs a full collection
            await asyncio.sleep(0.05)
            assert reference() is not None, "a request runs, so there must be no collection"
        await asyncio.wait_for(is_freed.wait(), HANG_TIMEOUT_S)

    gc.disable()
    try:
        asyncio.run(run())
    finally:
        gc.enable()


def test_a_body_that_is_read_while_draining_begins_twice_gets_one_error() -> None:
    may_end = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await may_end.wait()

    async def run() -> None:
        service = Service(Metrics(), GlossaryStore(None))
        task = asyncio.create_task(service.while_open(work()))
        for _ in range(2):
            await asyncio.sleep(0.01)
            service.start_draining(accepts_work=False)
        await asyncio.sleep(0.01)
        may_end.set()
        with pytest.raises(NotReady):
            await task

    asyncio.run(run())


def test_a_large_request_starts_no_collection_of_all_objects() -> None:
    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    try:
        limit_pauses()
        gc.collect()
        before = gc.get_stats()[2]["collections"]
        objects = [[number] for number in range(500_000)]
        assert gc.get_stats()[2]["collections"] == before
        assert objects
    finally:
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(interval)


@pytest.mark.parametrize(
    ("host", "caller"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::9", "2001:db8:1:2::"),
        ("2001:db8:1:3::9", "2001:db8:1:3::"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("fe80::1%eth0", "fe80::"),
    ],
)
def test_the_addresses_of_one_network_are_one_caller(host: str, caller: str) -> None:
    assert caller_address({"client": (host, 1234)}) == caller


def test_a_connection_without_an_address_is_a_caller_too() -> None:
    assert caller_address({"client": None}) == caller_address({}) == ""
