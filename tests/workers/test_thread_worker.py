"""The end of a worker thread: what the event loop sees of it, and what happens without an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from app.engine.messages import Stop
from app.engine.worker import WorkerExit, WorkerListener
from app.workers.thread_worker import ThreadWorker
from tests.engine.core_driver import SETTINGS
from tests.engine.fake_runner import FakeRunner
from tests.engine.test_engine import HANG_TIMEOUT_S


def test_a_worker_whose_end_is_reported_is_not_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread goes on until the event loop has read the report."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        is_read, has_ended, alive = threading.Event(), asyncio.Event(), list[bool]()
        call_loop = loop.call_soon_threadsafe

        def call_and_wait(callback: Callable[[], None]) -> None:
            call_loop(callback)
            assert is_read.wait(HANG_TIMEOUT_S)

        def on_exit(_exit: WorkerExit) -> None:
            alive.append(worker.is_alive)
            is_read.set()
            has_ended.set()

        monkeypatch.setattr(loop, "call_soon_threadsafe", call_and_wait)
        worker = ThreadWorker(FakeRunner())
        worker.start(SETTINGS, WorkerListener(lambda _report: None, on_exit))
        worker.put(Stop())
        await has_ended.wait()
        assert alive == [False]
        worker.close()

    asyncio.run(scenario())


def test_a_worker_can_end_after_its_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", errors.append)
    worker = ThreadWorker(FakeRunner())

    async def scenario() -> None:
        worker.start(SETTINGS, WorkerListener(lambda _report: None, lambda _exit: None))

    asyncio.run(scenario())
    worker.put(Stop())
    assert worker._thread is not None
    worker._thread.join(HANG_TIMEOUT_S)
    assert not worker.is_alive
    assert errors == []
