"""The threads that process texts: they split and tokenise sources, and put translations together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from app.errors import DeadlineExceeded
from app.fair_turns import FairTurns
from app.translator.request import ScoreRequest, TranslationRequest

T = TypeVar("T")


class TextThreads(ThreadPoolExecutor):
    """An executor for texts of all models, at which callers take turns."""

    def __init__(self, num_threads: int) -> None:
        super().__init__(num_threads, thread_name_prefix="text")
        self._turns = FairTurns(num_threads)

    async def run_for(self, request: TranslationRequest | ScoreRequest, work: Callable[[], T]) -> T:
        """As `run`, in the turn of the request's caller and up to its deadline."""
        return await self.run(work, caller=request.share or request.caller, deadline=request.deadline)

    async def run(self, work: Callable[[], T], *, caller: str, deadline: float | None = None) -> T:
        """Run `work` on a thread, in this caller's turn. Raises DeadlineExceeded, and what `work` raises.

        deadline: seconds of time.monotonic. Work that has begun by then is not interrupted, but its result is dropped.
        """
        loop = asyncio.get_running_loop()

        def end_turn(_: Future[T]) -> None:
            with contextlib.suppress(RuntimeError):  # the event loop has ended
                loop.call_soon_threadsafe(self._turns.give_back, caller)

        try:
            async with asyncio.timeout_at(deadline) as limit:
                await self._turns.take(caller)
                future = self.submit(work)
                future.add_done_callback(end_turn)
                return await asyncio.wrap_future(future)
        except TimeoutError as error:
            if limit.expired():
                raise DeadlineExceeded("the request's time ran out") from error
            raise
