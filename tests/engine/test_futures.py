"""The futures of sentences on the event loop. Fake workers record the messages they get, and decode nothing."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Any

import pytest

from app.engine.messages import Cancel, Report, Submit
from app.engine.token_deltas import TokenDelta
from app.errors import DeadlineExceeded
from tests.engine.fake_runner import LIMITS
from tests.engine.test_worker_deaths import RESULT, Scenario, run


def test_a_sentence_past_its_deadline_reaches_no_worker() -> None:
    async def scenario() -> None:
        found = Scenario(1)
        with pytest.raises(DeadlineExceeded):
            await found.submit(deadline=time.monotonic())
        assert found.workers[0].sent == []
        await found.engine.close(0.0)

    run(scenario)


def test_tokens_and_an_answer_after_a_cancellation_are_dropped() -> None:
    async def scenario() -> None:
        found = Scenario(1)
        (worker,) = found.workers
        received: list[tuple[int, ...]] = []
        future = found.submit(on_tokens=lambda _position, ids: received.append(ids))
        future.cancel()  # the engine processes this after the worker's reports
        worker.send_tokens(0, 5)
        worker.answer(worker.sequences[0])
        assert received == []
        assert future.cancelled()
        await found.engine.close(0.0)

    run(scenario)


def test_a_callback_that_raises_fails_its_own_sentence_only() -> None:
    """The same report has the answer of another request."""

    def raise_error(_position: int, _ids: tuple[int, ...]) -> None:
        raise LookupError("no such word")

    async def scenario() -> None:
        found = Scenario(1)
        (worker,) = found.workers
        answered, failed = found.submit(), found.submit(on_tokens=raise_error)
        worker.sequences[0].outcome = RESULT
        found.engine.on_report(
            0, Report([worker.sequences[0]], [], [TokenDelta(worker.sequences[1], 0, (5,))])
        )
        assert await answered is RESULT
        with pytest.raises(LookupError):
            await failed
        await asyncio.sleep(0)  # the future's callbacks run
        assert isinstance(worker.sent[-1], Cancel)
        await found.engine.close(0.0)

    run(scenario)


def test_a_failed_future_that_nobody_awaits_is_no_problem_of_the_event_loop() -> None:
    problems: list[dict[str, Any]] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, problem: problems.append(problem))
        found = Scenario(1)
        found.submit()
        await found.engine.close(0.0)
        await asyncio.sleep(0)  # the future's callbacks run
        gc.collect()

    run(scenario)
    assert problems == []


def test_a_sentence_wakes_its_worker_only_while_its_caller_may_hold_more_rows() -> None:
    async def scenario() -> None:
        found = Scenario(1)
        for _ in range(LIMITS.num_rows + 1):
            found.submit()
        found.submit(caller="other")
        wakes = [message.wakes for message in found.workers[0].sent if isinstance(message, Submit)]
        assert wakes == [*[True] * LIMITS.num_rows, False, True]
        await found.engine.close(0.0)

    run(scenario)
