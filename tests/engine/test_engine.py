"""The engine's interface with a worker thread. A GatedRunner waits until the test opens its gate."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from app.decoding.options import DecodingOptions
from app.engine.engine import LAST_STEP_TIMEOUT_S, Engine
from app.engine.limits import EngineLimits
from app.engine.messages import Stop
from app.engine.sequence import SequenceResult
from app.engine.speed import Cost
from app.engine.stats import StepStats
from app.errors import (
    DeadlineExceeded,
    InvalidRequest,
    NotReady,
    Overloaded,
    SettingsError,
)
from app.runtime.interface import StepInput, StepOutput
from app.workers.thread_worker import ThreadWorker
from tests.engine.core_driver import SETTINGS, assert_same, deadline_of, expected
from tests.engine.fake_runner import EOS, LIMITS, FakeRunner
from tests.engine.test_core import random_options, random_source

NARROW = DecodingOptions(beam_size=1, max_target_length=12)
WIDE = DecodingOptions(beam_size=16, max_target_length=12)
# Seconds. Only a hang takes longer, even on a busy machine.
HANG_TIMEOUT_S = 120.0
# Timeouts in seconds, tried in turn until a step begins before its deadline.
TIMEOUTS_S = (0.05, 0.5, 5.0, 50.0)


class GatedRunner(FakeRunner):
    """Waits in each forward until the test opens the gate.

    forward_began: an event that is set when a forward begins.
    """

    def __init__(self) -> None:
        super().__init__(eos_bonus=-30.0)
        self.gate = threading.Event()
        self.forward_began = threading.Event()

    def decode(self, step: StepInput) -> StepOutput:
        self.forward_began.set()
        assert self.gate.wait(HANG_TIMEOUT_S)
        return super().decode(step)

    async def wait_for_forward(self) -> None:
        assert await asyncio.to_thread(self.forward_began.wait, HANG_TIMEOUT_S)


async def begins_before_deadline(runner: GatedRunner, future: asyncio.Future[Any]) -> bool:
    """Return whether a forward begins before the future expires. If none begins, open the gate."""
    forward_task = asyncio.create_task(runner.wait_for_forward())
    await asyncio.wait({forward_task, future}, return_when=asyncio.FIRST_COMPLETED)
    if not future.done():
        return True
    future.exception()
    runner.forward_began.set()
    runner.gate.set()
    await forward_task
    return False


def run_with_deadlines(scenario: Callable[[float], Coroutine[Any, Any, bool]]) -> None:
    """Run a scenario with each timeout of TIMEOUTS_S in turn until it returns True."""
    assert any(asyncio.run(scenario(timeout_s)) for timeout_s in TIMEOUTS_S)


@asynccontextmanager
async def running(
    runner: FakeRunner, settings: EngineLimits = SETTINGS, *, steps: list[StepStats] | None = None
) -> AsyncIterator[Engine]:
    """Yield a started engine. At the end open the gate, close the engine, and check that its thread has ended."""
    engine = Engine(
        [ThreadWorker(runner)], settings=settings, on_steps=(steps if steps is not None else []).extend
    )
    engine.start()
    try:
        yield engine
    finally:
        if isinstance(runner, GatedRunner):
            runner.gate.set()
        await engine.close(HANG_TIMEOUT_S)
        assert not engine.health().is_alive
        assert engine.health().num_pending_sentences == 0


def submit(
    engine: Engine,
    source: Sequence[int],
    options: DecodingOptions = NARROW,
    *,
    request_id: str = "request",
    timeout_s: float = HANG_TIMEOUT_S,
) -> asyncio.Future[SequenceResult]:
    deadline = deadline_of(engine, request_id, timeout_s)
    return engine.submit(source, options, request_id=request_id, caller="caller", deadline=deadline)


def test_answers_equal_those_of_the_reference_search() -> None:
    async def scenario() -> None:
        rng = random.Random(1)
        runner = FakeRunner()
        async with running(runner) as engine:
            jobs = [(random_source(rng), random_options(rng)) for _ in range(60)]
            results = await asyncio.gather(*(submit(engine, *job) for job in jobs))
            for (source, options), result in zip(jobs, results, strict=True):
                assert_same(result.hypotheses, expected(source, options, runner))
                assert min(result.queue_time_s, result.encode_time_s, result.decode_time_s) >= 0.0
                assert 1 <= result.num_steps <= options.max_target_length + 1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("source", "options", "field"),
    [
        ([], NARROW, "source"),
        ([5] * (LIMITS.max_source_length + 1), NARROW, "source"),
        ([-1, EOS], NARROW, "source"),
        ([LIMITS.vocab_size, EOS], NARROW, "source"),
        ([5, EOS], DecodingOptions(beam_size=0), "beam_size"),
        ([5, EOS], DecodingOptions(beam_size=17), "beam_size"),
        ([5, EOS], DecodingOptions(beam_size=2, num_hypotheses=3, max_target_length=5), "num_hypotheses"),
        ([5, EOS], DecodingOptions(num_hypotheses=0, max_target_length=5), "num_hypotheses"),
        ([5, EOS], DecodingOptions(max_target_length=0), "max_target_length"),
        ([5, EOS], DecodingOptions(max_target_length=LIMITS.max_target_length), "max_target_length"),
        ([5, EOS], DecodingOptions(max_target_length=5, alpha=float("nan")), "alpha"),
        ([5, EOS], DecodingOptions(max_target_length=5, alpha=1e300), "alpha"),
        ([5, EOS], DecodingOptions(max_target_length=5, alpha=-0.1), "alpha"),
        ([5, EOS], DecodingOptions(max_target_length=5, target_prefix=(LIMITS.vocab_size,)), "target_prefix"),
        ([5, EOS], DecodingOptions(max_target_length=5, min_target_ratio=6.0), "min_target_ratio"),
        ([5, EOS], DecodingOptions(max_target_length=5, alignment=True), "alignment"),
    ],
)
def test_an_invalid_sentence_is_rejected_and_not_encoded(
    source: list[int], options: DecodingOptions, field: str
) -> None:
    async def scenario() -> None:
        runner = FakeRunner()
        async with running(runner) as engine:
            with pytest.raises(InvalidRequest) as caught:
                submit(engine, source, options)
            assert caught.value.field == field
            assert (await submit(engine, [5, EOS])).num_steps > 0
        assert runner.encoded == [(5, EOS)]

    asyncio.run(scenario())


@pytest.mark.parametrize("source", [[5, 6, 7, 8, EOS], [5, 6, 7, 8], [5, 6, 7, EOS, 8]])
def test_a_ratio_counts_the_source_without_its_end_token(source: list[int]) -> None:
    async def scenario() -> None:
        async with running(FakeRunner(eos_bonus=-30.0)) as engine:
            result = await submit(engine, source, replace(NARROW, max_target_ratio=1.5))
            assert len(result.hypotheses[0].ids) == 6

    asyncio.run(scenario())


def test_a_search_receives_its_source() -> None:
    async def scenario() -> None:
        async with running(FakeRunner(replace(LIMITS, has_alignment=True))) as engine:
            result = await submit(engine, [5, 6, EOS], replace(NARROW, alignment=True))
            assert {len(row) for row in result.hypotheses[0].alignment} == {3}

    asyncio.run(scenario())


def test_settings_that_contradict_the_model_are_refused_at_once() -> None:
    settings = EngineLimits(max_encode_tokens=8, max_pending_tokens=8, stall_limit_s=float("nan"))
    with pytest.raises(SettingsError) as caught:
        Engine([ThreadWorker(FakeRunner())], settings=settings)
    assert len(caught.value.problems) == 3


def test_cancelling_a_future_frees_its_rows_at_the_next_step() -> None:
    async def scenario() -> None:
        runner = GatedRunner()
        async with running(runner) as engine:
            first, second = submit(engine, [5, EOS], WIDE), submit(engine, [6, EOS], WIDE)
            await runner.wait_for_forward()
            first.cancel()
            await asyncio.sleep(0)  # the future's callbacks run
            runner.gate.set()
            result = await second
            assert_same(result.hypotheses, expected([6, EOS], WIDE, runner))
        # The engine reads the cancellation of the first sentence during its first step.
        assert runner.batches == [1, 1, *[16] * (result.num_steps - 1)]

    asyncio.run(scenario())


def test_a_sentence_cancelled_while_it_waits_never_reaches_the_runner() -> None:
    async def scenario() -> None:
        runner = GatedRunner()
        async with running(runner) as engine:
            first, second, third = (submit(engine, [number, EOS], WIDE) for number in (5, 6, 7))
            await runner.wait_for_forward()
            second.cancel()
            await asyncio.sleep(0)
            runner.gate.set()
            await asyncio.gather(first, third)
        assert runner.encoded == [(5, EOS), (7, EOS)]

    asyncio.run(scenario())


def test_a_deadline_holds_even_while_a_step_hangs() -> None:
    async def scenario(timeout_s: float) -> bool:
        runner = GatedRunner()
        async with running(runner) as engine:
            in_flight = submit(engine, [5, EOS], WIDE, timeout_s=timeout_s)
            if not await begins_before_deadline(runner, in_flight):
                return False
            queued = submit(engine, [6, EOS], WIDE, timeout_s=0.05)
            too_late = submit(engine, [7, EOS], WIDE, timeout_s=-1.0)
            for future in (in_flight, queued, too_late):
                with pytest.raises(DeadlineExceeded):
                    await future
            runner.gate.set()
            assert (await submit(engine, [8, EOS], WIDE)).hypotheses
        assert runner.encoded == [(5, EOS), (8, EOS)]
        return True

    run_with_deadlines(scenario)


def test_requests_above_the_bounds_are_refused_at_once_and_counted_exactly() -> None:
    """The queue holds two sentences, so ten more are rejected. After the two answers it accepts a sentence again."""

    async def scenario() -> None:
        runner = GatedRunner()
        async with running(runner, EngineLimits(max_encode_tokens=64, max_pending_sentences=2)) as engine:

            async def request() -> SequenceResult:
                with engine.reserve(1, 2):
                    return await submit(engine, [5, EOS], WIDE)

            accepted = [asyncio.create_task(request()) for _ in range(2)]
            await runner.wait_for_forward()
            assert engine.health().num_pending_sentences == 2
            assert engine.health().num_pending_tokens == 4
            for _ in range(10):
                with pytest.raises(Overloaded) as caught:
                    await request()
                assert caught.value.retry_after_s >= 1.0
            runner.gate.set()
            assert len(await asyncio.gather(*accepted)) == 2
            assert engine.health().num_pending_sentences == 0
            await request()
        assert len(runner.encoded) == 3

    asyncio.run(scenario())


def test_tokens_are_bounded_and_a_reservation_can_be_resized() -> None:
    async def scenario() -> None:
        async with running(FakeRunner(), EngineLimits(max_encode_tokens=64, max_pending_tokens=20)) as engine:
            with engine.reserve(1, 25) as alone:  # an empty engine accepts any request
                with pytest.raises(Overloaded), engine.reserve(1, 1):
                    pass
                alone.resize(Cost.of(2, 11), longest=6)
                assert engine.health().num_pending_sentences == 2
                with engine.reserve(3, 9):
                    assert engine.health().num_pending_tokens == 20
                    with pytest.raises(Overloaded), engine.reserve(1, 1):
                        pass
            assert engine.health().num_pending_tokens == 0
            with pytest.raises(ZeroDivisionError), engine.reserve(1, 20):
                raise ZeroDivisionError
            assert engine.health().num_pending_tokens == 0

    asyncio.run(scenario())


def test_the_statistics_of_every_step_are_reported() -> None:
    async def scenario() -> None:
        steps: list[StepStats] = []
        runner = FakeRunner(eos_bonus=-30.0)
        async with running(runner, steps=steps) as engine:
            await asyncio.gather(*(submit(engine, [5, 6, EOS]) for _ in range(30)))
        assert [step.num_rows for step in steps if step.num_rows] == runner.batches
        assert sum(step.num_finished for step in steps) == sum(step.num_admitted for step in steps) == 30
        assert sum(step.num_encode_tokens for step in steps) == 90
        assert all(
            step.step_time_s >= step.decode_time_s + step.encode_time_s > 0.0
            for step in steps
            if step.num_rows
        )

    asyncio.run(scenario())


def test_an_idle_engine_makes_no_step() -> None:
    """Without work the thread blocks and runs no step."""

    async def scenario() -> None:
        steps: list[StepStats] = []
        runner = FakeRunner()
        async with running(
            runner, EngineLimits(max_encode_tokens=64, stall_limit_s=0.01), steps=steps
        ) as engine:
            await submit(engine, [5, EOS])
            await asyncio.sleep(0.05)  # longer than the stall limit
            assert len(steps) == len(runner.batches)
            assert engine.health().is_healthy

    asyncio.run(scenario())


def test_closing_finishes_accepted_sentences_and_refuses_new_ones() -> None:
    async def scenario() -> None:
        runner = GatedRunner()
        engine = Engine([ThreadWorker(runner)], settings=SETTINGS)
        with pytest.raises(NotReady):
            engine.reserve(1, 1)
        engine.start()
        futures = [submit(engine, [5 + number, EOS], WIDE) for number in range(4)]
        await runner.wait_for_forward()
        closing = asyncio.create_task(engine.close(HANG_TIMEOUT_S))
        await asyncio.sleep(0)
        with pytest.raises(NotReady):
            submit(engine, [5, EOS])
        with pytest.raises(NotReady):
            engine.reserve(1, 1)
        runner.gate.set()
        await closing
        assert [len(future.result().hypotheses) for future in futures] == [1] * 4
        assert not engine.health().is_alive

    asyncio.run(scenario())


def test_closing_is_bounded_even_when_a_step_never_ends() -> None:
    async def scenario() -> None:
        runner = GatedRunner()
        engine = Engine([ThreadWorker(runner)], settings=SETTINGS)
        engine.start()
        futures = [submit(engine, [5, EOS], WIDE), submit(engine, [6, EOS], WIDE)]
        await runner.wait_for_forward()
        await asyncio.wait_for(engine.close(0.05), 0.05 + LAST_STEP_TIMEOUT_S + 2.0)
        assert all(isinstance(future.exception(), NotReady) for future in futures)
        runner.gate.set()

    asyncio.run(scenario())


def test_an_idle_engine_and_one_that_never_started_can_be_closed() -> None:
    async def scenario() -> None:
        engine = Engine([ThreadWorker(FakeRunner())], settings=SETTINGS)
        assert not engine.health().is_alive
        await engine.close(HANG_TIMEOUT_S)
        worker = ThreadWorker(FakeRunner())
        engine = Engine([worker], settings=SETTINGS)
        engine.start()
        await asyncio.wait_for(engine.close(HANG_TIMEOUT_S), HANG_TIMEOUT_S)
        assert not engine.health().is_alive
        worker.put(Stop())  # has no effect

    asyncio.run(scenario())


def test_one_sentence_of_a_retry_is_prioritized_and_no_token_is_counted_twice() -> None:
    """WIDE takes more than half of the rows, so one sentence runs at a time."""

    async def scenario() -> None:
        runner = GatedRunner()
        async with running(runner) as engine:
            answers = [submit(engine, [5, EOS], WIDE, request_id="a")]
            await runner.wait_for_forward()
            answers += [submit(engine, [source, EOS], WIDE, request_id="b") for source in (6, 7)]
            again = [submit(engine, [source, EOS], WIDE, request_id="c") for source in (8, 9)]
            (worker,) = engine._pool._workers.values()
            assert isinstance(worker, ThreadWorker)
            assert worker._core is not None
            inbox = worker._core.inbox
            before = inbox.qsize()
            engine.prioritize_retries(again)
            assert inbox.qsize() == before + 1, "one sentence is prioritized"
            runner.gate.set()
            await asyncio.gather(*answers, *again)
            assert [source for source, _ in runner.encoded] == [5, 8, 6, 9, 7]
            assert engine._admission.speed._row_tokens == pytest.approx(3 * 2 * WIDE.beam_size, rel=0.1)
            engine.prioritize_retries(again)  # without effect, because the sentences are answered

    asyncio.run(scenario())
