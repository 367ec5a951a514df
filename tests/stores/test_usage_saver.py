"""When counts are exchanged with a store, and what is logged. Tests set the clock of the saver."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from app.errors import UsageUnavailable
from app.stores import usage_saver
from app.stores.usage_saver import FRESH_S, RETRY_S, SAVE_S, UsageSaver
from app.stores.usage_store import Batch, Count, UsageStoreError
from tests.api.processes import wait_until
from tests.stores.test_usage_store import NOW, count

HANG_TIMEOUT_S = 10.0


class Clock:
    """The clock of the saver. now: its time in seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(usage_saver, "time", SimpleNamespace(monotonic=lambda: self.now))


class MemoryStore:
    """A store in memory. num_failures: how many of the next exchanges fail.

    An exchange moves the clock forward by exchange_s seconds, and waits until may_end is set.
    begun: set when an exchange begins. saved: set when an exchange has added amounts. numbers: of all batches it got.
    """

    def __init__(self, clock: Clock | None = None, *, exchange_s: float = 0.0) -> None:
        self.counts: Counter[Count] = Counter()
        self.num_exchanges = self.num_failures = 0
        self.numbers: list[int] = []
        self.begun, self.saved, self.may_end = threading.Event(), threading.Event(), threading.Event()
        self.may_end.set()
        self._clock, self._exchange_s = clock, exchange_s

    def exchange(self, batch: Batch | None, time_s: float) -> dict[Count, int]:
        assert time_s == NOW
        self.num_exchanges += 1
        if batch is not None:
            self.numbers.append(batch.number)
        self.begun.set()
        assert self.may_end.wait(HANG_TIMEOUT_S)
        if self._clock is not None:
            self._clock.now += self._exchange_s
        if self.num_failures:
            self.num_failures -= 1
            raise UsageStoreError("no disk")
        if batch is not None:
            self.counts.update(batch.amounts)
            self.saved.set()
        return dict(self.counts)

    def close(self) -> None:
        """Nothing is open."""


def new_saver(store: MemoryStore) -> UsageSaver:
    return UsageSaver(store, lambda: NOW, lambda _counts: None)


def test_closing_during_an_exchange_saves_what_was_used_meanwhile() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        store.may_end.clear()
        saver = new_saver(store)
        saver.add(count(), 60)
        exchange = asyncio.create_task(saver.ensure_fresh())
        await asyncio.to_thread(store.begun.wait, HANG_TIMEOUT_S)
        saver.add(count(), 30)
        closing = asyncio.create_task(saver.close())
        await asyncio.sleep(0)
        store.may_end.set()
        await closing
        await exchange
        assert store.counts == {count(): 90}

    asyncio.run(scenario())


def test_closing_after_a_failed_exchange_saves_its_counts() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        store.num_failures = 1
        saver = new_saver(store)
        saver.add(count(), 60)
        with pytest.raises(UsageUnavailable):
            await saver.ensure_fresh()
        await saver.close()
        assert store.counts == {count(): 60}

    asyncio.run(scenario())


def test_counts_that_are_given_back_before_an_exchange_are_not_saved() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        saver = new_saver(store)
        for amount in (60, -60):
            saver.add(count(), amount)
        await saver.close()
        assert (store.num_exchanges, store.numbers) == (1, [])

    asyncio.run(scenario())


def test_a_failed_exchange_is_repeated_without_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_saver, "SAVE_S", 0.0)
    monkeypatch.setattr(usage_saver, "RETRY_S", 0.01)

    async def scenario() -> None:
        store = MemoryStore()
        store.num_failures = 1
        saver = new_saver(store)
        saver.add(count(), 60)
        await asyncio.to_thread(store.saved.wait, HANG_TIMEOUT_S)
        assert store.counts == {count(): 60}
        assert saver.num_failures == 1
        saver.add(count(), 30)
        await saver.close()
        assert store.numbers == [1, 1, 2], "a batch keeps its number when it is sent again"

    asyncio.run(scenario())


def test_a_failed_exchange_is_not_repeated_before_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test records for how many seconds the timers of the exchanges run."""

    async def scenario() -> list[float]:
        loop, delays = asyncio.get_running_loop(), list[float]()
        call_later = loop.call_later

        def recorded(delay: float, *arguments: Any) -> asyncio.TimerHandle:
            delays.append(delay)
            return call_later(0, *arguments)

        store = MemoryStore()
        store.num_failures = 1
        saver = new_saver(store)
        monkeypatch.setattr(loop, "call_later", recorded)
        saver.add(count(), 60)
        await asyncio.to_thread(store.saved.wait, HANG_TIMEOUT_S)
        monkeypatch.undo()
        await saver.close()
        return delays

    assert asyncio.run(scenario()) == [SAVE_S, RETRY_S]


def test_the_first_failure_and_the_next_success_are_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        clock, store = Clock(monkeypatch), MemoryStore()
        store.num_failures = 2
        saver = new_saver(store)
        for _ in range(2):
            with pytest.raises(UsageUnavailable):
                await saver.ensure_fresh()
            clock.now += RETRY_S
        for _ in range(2):
            await saver.ensure_fresh()
            clock.now += FRESH_S
        assert (store.num_exchanges, saver.num_failures) == (4, 2)
        await saver.close()

    asyncio.run(scenario())
    assert caplog.messages == ["usage_store_failed", "usage_store_works_again"]


def test_requests_soon_after_a_failure_start_no_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        clock, store = Clock(monkeypatch), MemoryStore()
        store.num_failures = 1
        saver = new_saver(store)
        with pytest.raises(UsageUnavailable):
            await saver.ensure_fresh()
        clock.now += 0.75 * RETRY_S
        with pytest.raises(UsageUnavailable) as caught:
            await saver.ensure_fresh()
        assert caught.value.retry_after_s == pytest.approx(0.25 * RETRY_S)
        assert store.num_exchanges == 1
        clock.now += 0.25 * RETRY_S
        await saver.ensure_fresh()
        assert store.num_exchanges == 2
        await saver.close()

    asyncio.run(scenario())


def test_counts_are_fresh_from_the_start_of_their_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other servers add during an exchange may be missing in its counts."""

    async def scenario() -> None:
        clock = Clock(monkeypatch)
        store = MemoryStore(clock, exchange_s=0.5 * FRESH_S)
        saver = new_saver(store)
        await saver.ensure_fresh()
        clock.now += 0.4 * FRESH_S
        await saver.ensure_fresh()
        assert store.num_exchanges == 1
        clock.now += 0.1 * FRESH_S
        await saver.ensure_fresh()
        assert store.num_exchanges == 2
        await saver.close()

    asyncio.run(scenario())


def test_no_exchange_begins_after_closing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The running exchange ends after `close` has stopped waiting for it, and fails."""
    for name in ("SAVE_S", "WAIT_S", "RETRY_S"):
        monkeypatch.setattr(usage_saver, name, 0.01)

    async def scenario() -> None:
        store = MemoryStore()
        store.num_failures = 1
        store.may_end.clear()
        saver = new_saver(store)
        saver.add(count(), 60)
        await asyncio.to_thread(store.begun.wait, HANG_TIMEOUT_S)
        await saver.close()
        saver.add(count(), 30)
        store.may_end.set()
        await asyncio.to_thread(wait_until, lambda: saver.num_failures > 0)
        await asyncio.sleep(0.1)  # ten times RETRY_S
        assert (store.num_exchanges, saver.num_failures) == (1, 1)

    asyncio.run(scenario())
