"""Sentences that the engine drops are submitted again for subscribers with time left. The engine is a fake."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest

from app.decoding.options import DecodingOptions
from app.engine.engine import Engine
from app.engine.sequence import SequenceResult
from app.engine.token_deltas import OnTokens
from app.errors import DeadlineExceeded, NotReady
from app.translator.caching_submitter import CachingSubmitter

HANG_TIMEOUT_S = 10.0
OPTIONS = DecodingOptions(beam_size=1)


@dataclass
class Submission:
    """A call of `submit`."""

    future: asyncio.Future[SequenceResult]
    deadline: float
    on_tokens: OnTokens | None

    def drop(self) -> None:
        """Do as the engine does at the deadline."""
        self.future.set_exception(DeadlineExceeded("the request's time ran out"))

    def succeed(self) -> SequenceResult:
        result = SequenceResult([], 0.0, 0.0, 0.0, num_steps=2)
        self.future.set_result(result)
        return result


class RecordingEngine:
    """Records the sentences that are submitted. The tests answer them."""

    def __init__(self) -> None:
        self.is_closed = False
        self.submissions: list[Submission] = []

    def submit(
        self,
        _ids: Sequence[int],
        _options: DecodingOptions,
        *,
        deadline: float,
        on_tokens: OnTokens | None,
        **_: str,
    ) -> asyncio.Future[SequenceResult]:
        if self.is_closed:
            raise NotReady("the server is shutting down")
        submission = Submission(asyncio.get_running_loop().create_future(), deadline, on_tokens)
        self.submissions.append(submission)
        return submission.future

    def join(self, *_: object, **__: object) -> None:
        """The fake has no queue."""


class Received:
    """The tokens that a subscriber has received, and the number of calls."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.num_calls = 0

    def __call__(self, position: int, ids: tuple[int, ...]) -> None:
        self.ids[position:] = ids
        self.num_calls += 1


class Script:
    """A submitter and its engine."""

    def __init__(self) -> None:
        self.engine = RecordingEngine()
        self.submitter = CachingSubmitter(cast("Engine", self.engine))
        self.deadline = time.monotonic() + HANG_TIMEOUT_S

    def submit(
        self, *, later_s: float = 0.0, on_tokens: OnTokens | None = None
    ) -> asyncio.Future[SequenceResult]:
        """Submit the one sentence of the test. later_s: seconds from `deadline` to the deadline of this request."""
        return self.submitter.submit(
            (5, 2), OPTIONS, request_id="r", caller="", deadline=self.deadline + later_s, on_tokens=on_tokens
        )


def run(scenario: Callable[[Script], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await asyncio.wait_for(scenario(Script()), HANG_TIMEOUT_S)

    asyncio.run(main())


def test_a_sentence_is_submitted_again_with_the_latest_deadline_and_streams_for_all() -> None:
    async def scenario(script: Script) -> None:
        received = Received()
        first = script.submit()
        script.engine.submissions[0].drop()
        second = script.submit(later_s=1.0, on_tokens=received)
        await asyncio.sleep(0)
        _, again = script.engine.submissions
        assert again.deadline == script.deadline + 1.0
        assert again.on_tokens is not None
        again.on_tokens(0, (7, 8))
        result = again.succeed()
        assert await first is await second is result
        assert received.ids == [7, 8]

    run(scenario)


def test_the_tokens_of_the_dropped_submission_are_discarded() -> None:
    async def scenario(script: Script) -> None:
        streams = [Received() for _ in range(2)]
        first = script.submit(on_tokens=streams[0])
        dropped = script.engine.submissions[0]
        assert dropped.on_tokens is not None
        dropped.on_tokens(0, (7, 8, 9))
        dropped.drop()
        await asyncio.sleep(0)
        second = script.submit(on_tokens=streams[1])
        assert streams[1].num_calls == 0
        again = script.engine.submissions[1]
        assert again.on_tokens is not None
        again.on_tokens(0, (7,))
        assert streams[0].ids == streams[1].ids == [7]
        again.succeed()
        await asyncio.gather(first, second)

    run(scenario)


def test_all_subscribers_fail_if_the_engine_is_closed_before_the_sentence_is_submitted_again() -> None:
    async def scenario(script: Script) -> None:
        first = script.submit()
        script.engine.submissions[0].drop()
        second = script.submit()
        script.engine.is_closed = True
        for future in (first, second):
            with pytest.raises(NotReady):
                await future

    run(scenario)


def test_a_cancelled_sentence_does_not_remove_an_equal_later_one() -> None:
    """The engine's future of the first sentence ends after the second one is submitted."""

    async def scenario(script: Script) -> None:
        script.submit().cancel()
        await asyncio.sleep(0)
        second = script.submit()
        await asyncio.sleep(0)
        third = script.submit()
        assert len(script.engine.submissions) == 2, "the third joins the second"
        script.engine.submissions[1].succeed()
        await asyncio.gather(second, third)

    run(scenario)


def test_a_cancelled_subscriber_receives_no_more_tokens() -> None:
    async def scenario(script: Script) -> None:
        streams = [Received() for _ in range(2)]
        cancelled, other = [script.submit(on_tokens=stream) for stream in streams]
        (submission,) = script.engine.submissions
        assert submission.on_tokens is not None
        cancelled.cancel()
        submission.on_tokens(0, (7,))
        assert [stream.ids for stream in streams] == [[], [7]]
        submission.succeed()
        await other

    run(scenario)
