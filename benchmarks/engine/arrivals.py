"""Submits sentences at given arrival times. Batches them by a time window for an engine without continuous batching."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any

from benchmarks.engine.jobs import ArrivalResult

Translate = Callable[[int], Awaitable[object]]


async def submit_at_arrivals(translate: Translate, gaps_s: list[float], *, limit_s: float) -> ArrivalResult:
    """Call translate(i) when sentence i is due, without waiting for earlier sentences.

    Waits at most limit_s after the last call of `translate`. Latency counts from the time when a sentence was due. So
    it includes the delay of an event loop that is late.
    """
    loop = asyncio.get_running_loop()
    latencies: list[float | None] = [None] * len(gaps_s)
    late = []
    tasks = []

    async def answer(index: int, due: float) -> None:
        await translate(index)
        latencies[index] = time.perf_counter() - due

    due = time.perf_counter()
    for index, gap_s in enumerate(gaps_s):
        due += gap_s
        wait_s = due - time.perf_counter()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        late.append(max(0.0, time.perf_counter() - due))
        tasks.append(loop.create_task(answer(index, due)))
    _, pending = await asyncio.wait(tasks, timeout=limit_s)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    for task in set(tasks) - pending:
        task.result()  # raise a translation's error
    return ArrivalResult(latencies, late)


class WindowBatcher:
    """Translates sentences that arrive within window_s seconds in one call, at most max_size of them.

    The window begins with the oldest waiting sentence. A batch starts as soon as a worker is free and either the batch
    is full or its window has passed. While all workers are busy, the waiting batch grows. A batcher for an engine
    without continuous batching cannot do more.
    """

    def __init__(
        self,
        translate_batch: Callable[[list[Any]], list[Any]],
        *,
        executor: Executor,
        num_workers: int,
        window_s: float,
        max_size: int,
    ) -> None:
        self._translate_batch = translate_batch
        self._executor = executor
        self._num_free = num_workers
        self._window_s = window_s
        self._max_size = max_size
        self._waiting: list[tuple[Any, asyncio.Future[Any], float]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._running: set[asyncio.Task[None]] = set()

    async def translate(self, sentence: Any) -> Any:
        """Translate a sentence in the batch of its window. Raises the error of the batch."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((sentence, future, loop.time()))
        self._start_batches()
        return await future

    def _start_batches(self) -> None:
        """Start the batches that are due."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._num_free and self._waiting:
            due = self._waiting[0][2] + self._window_s
            if len(self._waiting) < self._max_size and loop.time() < due:
                self._timer = loop.call_at(due, self._start_batches)
                return
            batch, self._waiting = self._waiting[: self._max_size], self._waiting[self._max_size :]
            self._num_free -= 1
            task = loop.create_task(self._run(batch))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _run(self, batch: list[tuple[Any, asyncio.Future[Any], float]]) -> None:
        loop = asyncio.get_running_loop()
        sentences = [sentence for sentence, _, _ in batch]
        try:
            results = await loop.run_in_executor(self._executor, self._translate_batch, sentences)
        except Exception as error:  # noqa: BLE001 - raised by each `translate` of the batch
            results = [error] * len(batch)
        for (_, future, _), result in zip(batch, results, strict=True):
            if future.done():
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)
        self._num_free += 1
        self._start_batches()
