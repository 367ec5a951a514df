"""Callers take turns at the threads for texts, and a request does not wait beyond its deadline."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest

from app.errors import DeadlineExceeded
from app.translator.text_threads import TextThreads


@pytest.fixture
def threads() -> Iterator[TextThreads]:
    with TextThreads(1) as threads:
        yield threads


def test_the_result_and_the_error_of_the_work_are_returned(threads: TextThreads) -> None:
    assert asyncio.run(threads.run(lambda: 7, caller="a")) == 7
    with pytest.raises(ZeroDivisionError):
        asyncio.run(threads.run(lambda: 1 // 0, caller="a"))
    with pytest.raises(TimeoutError, match="of the work"):
        asyncio.run(threads.run(_time_out, caller="a", deadline=time.monotonic() + 600))


def _time_out() -> None:
    raise TimeoutError("of the work")


def test_a_caller_with_much_work_does_not_keep_out_another(threads: TextThreads) -> None:
    order: list[str] = []
    all_wait = threading.Event()

    async def run() -> None:
        names = [*(f"a{number}" for number in range(20)), "b0"]
        first = asyncio.create_task(threads.run(partial(all_wait.wait, 60), caller="a"))
        rest = [
            asyncio.create_task(threads.run(partial(order.append, name), caller=name[0])) for name in names
        ]
        await asyncio.sleep(0)  # each task adds its work
        all_wait.set()
        await asyncio.gather(first, *rest)

    asyncio.run(run())
    assert order[:2] == ["a0", "b0"]


def test_a_request_fails_at_its_deadline_while_its_work_keeps_the_thread(
    threads: TextThreads,
) -> None:
    begun, may_end = threading.Event(), threading.Event()
    late: list[str] = []

    def work() -> None:
        begun.set()
        assert may_end.wait(60)

    async def run() -> None:
        slow = asyncio.create_task(threads.run(work, caller="a", deadline=time.monotonic() + 0.2))
        await asyncio.to_thread(begun.wait, 60)
        waiting = threads.run(lambda: late.append("waited"), caller="b", deadline=time.monotonic() + 0.2)
        for each in (slow, waiting):
            with pytest.raises(DeadlineExceeded):
                await each
        following = asyncio.create_task(threads.run(lambda: late.append("next"), caller="b"))
        may_end.set()
        await asyncio.wait_for(following, 60)

    asyncio.run(run())
    assert late == ["next"], "work whose request has ended is not begun"


def test_cancelled_work_is_not_begun(threads: TextThreads) -> None:
    may_end = threading.Event()
    begun: list[str] = []

    async def run() -> None:
        first = asyncio.create_task(threads.run(lambda: may_end.wait(60), caller="a"))
        second = asyncio.create_task(threads.run(lambda: begun.append("b"), caller="b"))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        again = asyncio.create_task(threads.run(partial(begun.append, "b again"), caller="b"))
        last = asyncio.create_task(threads.run(partial(begun.append, "c"), caller="c"))
        await asyncio.sleep(0)
        may_end.set()
        await asyncio.gather(first, again, last)

    asyncio.run(run())
    assert begun == ["b again", "c"], "a cancelled wait does not cost the caller its turn"
