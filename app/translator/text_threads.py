"""The threads that process texts: they split and tokenise sources, and put translations together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from app.errors import DeadlineExceeded
from app.fair_turns import PlaceQueue
from app.translator.request import ScoreRequest, TranslationRequest

T = TypeVar("T")


class TextThreads(ThreadPoolExecutor):
    """An executor for the texts of all models, at which callers take turns."""

    def __init__(self, num_threads: int) -> None:
        super().__init__(num_threads, thread_name_prefix="text")
        self._queue: PlaceQueue[_Work[Any]] = PlaceQueue()
        self._lock = threading.Lock()  # for the queue

    async def run_for(self, request: TranslationRequest | ScoreRequest, work: Callable[[], T]) -> T:
        """As `run`, in the turn of the request's caller and up to its deadline."""
        return await self.run(work, caller=request.share or request.caller, deadline=request.deadline)

    async def run(self, work: Callable[[], T], *, caller: str, deadline: float | None = None) -> T:
        """Run `work` on a thread, in this caller's turn. Raises DeadlineExceeded, and what `work` raises.

        deadline: seconds of time.monotonic. Work that has begun by then is not interrupted, but its result is dropped.
        """
        waiting = _Work(work)
        with self._lock:
            self._queue.add(caller, waiting)
        self.submit(self._run_next)
        try:
            async with asyncio.timeout_at(deadline) as limit:
                return await asyncio.wrap_future(waiting.future)
        except TimeoutError as error:
            if limit.expired():
                raise DeadlineExceeded("the request's time ran out") from error
            raise
        finally:
            with self._lock:
                self._queue.remove(caller, waiting)

    def _run_next(self) -> None:
        """Run the next work, if any. Another `run` than the one that submitted this call may have added it."""
        with self._lock:
            found = self._queue.pop()
        if found is None:
            return
        caller, work = found
        try:
            work.run()
        finally:
            with self._lock:
                self._queue.release(caller)


class _Work(Generic[T]):
    """Work that waits for a thread, and the future of its result."""

    def __init__(self, work: Callable[[], T]) -> None:
        self.future: Future[T] = Future()
        self._work = work

    def run(self) -> None:
        """Do the work, unless it is cancelled."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self._work())
        except BaseException as error:  # noqa: BLE001 - the caller of `run` gets it
            self.future.set_exception(error)
            del self  # else the error, its traceback, this frame and the future would keep each other alive
