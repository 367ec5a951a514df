"""Retries that join an equal sentence in flight, of the real engine with a fake runner."""

from __future__ import annotations

import asyncio
import time

from app.engine.sequence import SequenceResult
from app.translator.caching_submitter import CachingSubmitter
from tests.engine.fake_runner import EOS
from tests.engine.test_engine import HANG_TIMEOUT_S, WIDE, GatedRunner, running


def test_a_retry_that_joins_a_sentence_moves_no_other_request() -> None:
    """WIDE takes more than half of the rows, so one sentence runs at a time."""

    async def scenario() -> None:
        runner = GatedRunner()
        async with running(runner) as engine:
            submitter = CachingSubmitter(engine)
            deadline = time.monotonic() + HANG_TIMEOUT_S

            def submit(first_id: int, request_id: str) -> asyncio.Future[SequenceResult]:
                return submitter.submit(
                    (first_id, EOS),
                    WIDE,
                    request_id=request_id,
                    caller="caller",
                    deadline=deadline,
                )

            answers = [submit(5, "running")]
            await runner.wait_for_forward()
            answers += [submit(6, "first"), submit(7, "second"), submit(8, "second")]
            joined, new = submit(8, "third"), submit(9, "third")
            submitter.prioritize_retries([joined])
            assert not any(sequence.is_retry for sequence in engine._pending)
            submitter.prioritize_retries([joined, new])
            assert [sequence.is_retry for sequence in engine._pending] == [False] * 4 + [True]
            runner.gate.set()
            await asyncio.gather(*answers, joined, new)
            # Request "third" is at the front, and 8 is its first sentence. Then the requests take turns as before.
            assert [source for source, _ in runner.encoded] == [5, 8, 6, 7, 9]

    asyncio.run(asyncio.wait_for(scenario(), 2 * HANG_TIMEOUT_S))
