"""An engine with several worker processes gives the same results as an engine with one worker thread."""

from __future__ import annotations

import asyncio
import gc
import random
import signal
import threading
import time
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.decoding.options import DecodingOptions, Sampling
from app.engine.call_length import MIN_CALL_S
from app.engine.engine import Engine
from app.engine.placement import FEW_ROWS
from app.engine.sequence import SequenceResult
from app.errors import DeadlineExceeded, EngineFailure
from tests.engine import test_engine
from tests.engine.core_driver import assert_same, expected
from tests.engine.fake_runner import EOS, FakeRunner, LoopingRunner
from tests.engine.test_engine import HANG_TIMEOUT_S, NARROW, WIDE, submit
from tests.engine.test_options import BEAM, PLAIN, random_options, random_source
from tests.workers.fake_worker import ALIGNED, POISON, STEP_S, FakePlan
from tests.workers.running_engine import SETTINGS, RunningEngine, block_until, descriptors, running

Job = tuple[list[int], DecodingOptions]
# More rows than the sentences of any worker reserve in these tests.
MANY_ROWS = 1000
LONG = DecodingOptions(beam_size=1, max_target_length=50)
Tokens = list[tuple[int, tuple[int, ...]]]


@pytest.fixture
def plan(tmp_path: Path) -> FakePlan:
    return FakePlan(str(tmp_path))


def append_to(into: Tokens, position: int, ids: tuple[int, ...]) -> None:
    into.append((position, ids))


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, HANG_TIMEOUT_S))


def jobs_that_the_reference_search_supports(rng: random.Random) -> list[Job]:
    """Random jobs, without the sources that begin with POISON, or with 9, for which `LoopingRunner` loops."""
    jobs = [(random_source(rng), random_options(rng)) for _ in range(60)]
    return [(source, options) for source, options in jobs if source[0] not in (9, POISON)]


def jobs_of_all_kinds(rng: random.Random) -> list[Job]:
    jobs = jobs_that_the_reference_search_supports(rng)
    for number in range(8):
        sampling = Sampling(temperature=1.5, top_k=number * 3, top_p=0.95, seed=2**63 - 1 - number)
        jobs.append(([7, number + 4, EOS], replace(PLAIN, sampling=sampling)))
        jobs.append(([8, number + 4, EOS], replace(PLAIN, forced_target=(7, 8, 9)[: number % 4])))
        jobs.append(([10, number + 4, EOS], replace(BEAM, alignment=True, num_alternatives=number)))
        looping = replace(PLAIN, loop_guard=True, coverage_penalty=0.2, max_target_length=50)
        jobs.append(([9, number + 4, EOS], looping))
    rng.shuffle(jobs)
    return jobs


async def answers(engine: Engine, jobs: list[Job]) -> list[SequenceResult]:
    return await asyncio.gather(*(submit(engine, *job) for job in jobs))


@pytest.mark.seconds
def test_answers_equal_those_of_the_reference_search_and_of_a_worker_thread(plan: FakePlan) -> None:
    async def scenario() -> None:
        known = jobs_that_the_reference_search_supports(random.Random(3))
        jobs = jobs_of_all_kinds(random.Random(4))
        async with running(plan) as started:
            found = await answers(started.engine, known)
            for (source, options), result in zip(known, found, strict=True):
                assert_same(result.hypotheses, expected(source, options, FakeRunner(ALIGNED)))
            found = await answers(started.engine, jobs)
            assert {step.worker for step in started.steps} == {0, 1}
        async with test_engine.running(LoopingRunner(ALIGNED)) as engine:
            reference = await answers(engine, jobs)
        assert any(one.has_looped for one in found)
        for one, other in zip(found, reference, strict=True):
            assert one.hypotheses == other.hypotheses
            assert repr(one.hypotheses) == repr(other.hypotheses)  # the types are equal, too
            assert (one.num_steps > 0, one.has_looped) == (True, other.has_looped)
            assert min(one.queue_time_s, one.encode_time_s, one.decode_time_s) >= 0.0

    run(scenario())


def test_no_shared_memory_is_left_open(plan: FakePlan) -> None:
    gc.collect()
    before = descriptors("/memfd:transduce")

    async def scenario() -> None:
        async with running(plan) as started:
            assert descriptors("/memfd:transduce") != before
            await submit(started.engine, [5, EOS])

    gc.disable()  # a busy server collects no garbage
    try:
        run(scenario())
        assert descriptors("/memfd:transduce") == before
    finally:
        gc.enable()


def test_few_sentences_stay_in_one_worker_and_many_are_spread(plan: FakePlan) -> None:
    async def scenario() -> None:
        async with running(plan) as started:
            for number in range(5):
                await submit(started.engine, [10 + number, EOS])
            assert {step.worker for step in started.steps} == {0}
            plan.hold(0, 1)
            futures = [submit(started.engine, [20 + number, EOS], WIDE) for number in range(6)]
            await started.until_held(0, 1)
            plan.release(0, 1)
            await asyncio.gather(*futures)
        # Two WIDE sentences have FEW_ROWS rows. Each worker gets two. Then the worker with fewer rows gets the next.
        assert plan.calls(0, "encode") == [10, 11, 12, 13, 14, 20, 21, 24]
        assert plan.calls(1, "encode") == [22, 23, 25]

    run(scenario())


def test_a_worker_shares_the_cores_with_busy_ones(plan: FakePlan) -> None:
    plan = replace(plan, eos_bonus=-30.0)

    async def scenario() -> None:
        async with running(plan) as started:
            plan.hold(0, 1)
            first = [submit(started.engine, [5, EOS], WIDE) for _ in range(FEW_ROWS // WIDE.beam_size)]
            await started.until_held(0)
            second = submit(started.engine, [6, EOS], WIDE)
            await started.until_held(1)
            plan.release(0)
            await asyncio.gather(*first)
            await started.until_idle(0)
            plan.release(1)
            await second
        assert plan.calls(0, "share") == [1, 2]
        assert plan.calls(1, "share") == [2, 1]

    run(scenario())


# A call is held after this many steps, which take longer than MIN_CALL_S: there ends a call that must stop early.
HOLDS_AFTER = 4


@pytest.mark.parametrize("worker", [0, 1])
def test_a_long_call_ends_for_a_new_sentence_and_for_a_worker_that_becomes_busy(
    plan: FakePlan, worker: int
) -> None:
    """The new sentence goes to the worker with the long call (0), or makes the other worker (1) busy."""
    plan = replace(plan, eos_bonus=-30.0, max_steps=40, holds_after=HOLDS_AFTER)

    async def scenario() -> None:
        async with running(plan) as started:
            plan.hold(0)
            first = put_into(started, 0, 5, request_id="first", options=LONG)
            await started.until_held(0)
            assert HOLDS_AFTER > MIN_CALL_S / STEP_S
            second = put_into(started, worker, 6, request_id="second", options=LONG)
            if worker == 1:
                await second
            plan.release(0)
            await asyncio.gather(first, second)
            calls = [step.num_steps for step in started.steps if step.worker == 0]
            assert calls[:2] == [1, HOLDS_AFTER]
            assert max(calls[2:]) > HOLDS_AFTER, "without a new sentence, calls are longer"

    run(scenario())


def test_a_cancelled_future_frees_its_rows(plan: FakePlan) -> None:
    """WIDE takes more than half of the rows, so one sentence runs at a time."""
    plan = replace(plan, eos_bonus=-30.0)

    async def scenario() -> None:
        async with running(plan, 1) as started:
            plan.hold(0)
            first, second, third = (submit(started.engine, [number, EOS], WIDE) for number in (5, 6, 7))
            await started.until_held(0)
            first.cancel()
            second.cancel()
            await asyncio.sleep(0)  # the futures' callbacks run
            plan.release(0)
            result = await third
            assert_same(result.hypotheses, expected([7, EOS], WIDE, FakeRunner(eos_bonus=-30.0)))
            steps = started.steps
        assert sum(step.num_finished for step in steps) == 1
        assert sum(step.num_wasted_rows for step in steps) == 1
        assert plan.calls(0, "encode") == [5, 7]

    run(scenario())


def test_a_cancellation_that_crosses_the_report_changes_nothing_else(plan: FakePlan) -> None:
    """The worker reports several sentences at once. One of them is cancelled meanwhile."""

    async def scenario() -> None:
        async with running(plan, 1) as started:
            plan.hold(0)
            received: Tokens = []
            leaving = started.engine.submit(
                [5, EOS],
                NARROW,
                request_id="a",
                caller="b",
                deadline=time.monotonic() + HANG_TIMEOUT_S,
                on_tokens=partial(append_to, received),
            )
            staying = submit(started.engine, [5, EOS])
            await started.until_held(0)
            plan.release(0)
            block_until(lambda: started.step_started_at(0) is None)
            leaving.cancel()
            assert_same((await staying).hypotheses, expected([5, EOS], NARROW, FakeRunner(ALIGNED)))
            await submit(started.engine, [6, EOS])
            assert sum(step.num_finished for step in started.steps) == 3
            assert received == []

    run(scenario())


def test_errors_in_the_worker_keep_their_type(plan: FakePlan) -> None:
    async def scenario() -> None:
        async with running(plan, 1) as started:
            with pytest.raises(EngineFailure, match=r"^the source is POISON$"):
                await submit(started.engine, [POISON, EOS])
            plan.hold(0)
            others = submit(started.engine, [5, EOS], WIDE)
            await started.until_held(0)
            deadline = time.monotonic() + 0.05
            late = submit(started.engine, [6, EOS], WIDE, timeout_s=0.05)
            block_until(lambda: time.monotonic() > deadline + 0.01)
            plan.release(0)
            block_until(lambda: started.step_started_at(0) is None)
            with pytest.raises(DeadlineExceeded):
                await late
            await others
        assert plan.calls(0, "encode") == [5]
        assert (sum(s.num_failed for s in started.steps), sum(s.num_expired for s in started.steps)) == (1, 1)

    run(scenario())


def test_tokens_are_streamed_as_by_a_worker_thread(plan: FakePlan) -> None:
    async def listened(engine: Engine) -> list[Tokens]:
        deadline = time.monotonic() + HANG_TIMEOUT_S
        received: list[Tokens] = [[] for _ in range(6)]
        await asyncio.gather(
            *(
                engine.submit(
                    [10 + number, EOS],
                    replace(NARROW, target_prefix=(7, 8)[: number % 3]),
                    request_id="request",
                    caller="caller",
                    deadline=deadline,
                    on_tokens=partial(append_to, into),
                )
                for number, into in enumerate(received)
            )
        )
        return received

    async def scenario() -> None:
        async with running(plan) as started:
            found = await listened(started.engine)
        async with test_engine.running(FakeRunner()) as engine:
            assert found == await listened(engine)
        assert len(found[0]) > 1

    run(scenario())


def test_a_joining_request_moves_the_deadline_and_gets_all_tokens(plan: FakePlan) -> None:
    plan = replace(plan, eos_bonus=-30.0)

    async def scenario() -> None:
        async with running(plan, 1) as started:
            plan.hold(0)
            blocking = submit(started.engine, [5, EOS], WIDE)
            await started.until_held(0)
            first_deadline = time.monotonic() + 0.2
            future = submit(started.engine, [6, EOS], timeout_s=0.2)
            received: Tokens = []
            started.engine.join(
                future,
                request_id="another",
                caller="other",
                deadline=first_deadline + HANG_TIMEOUT_S,
                on_tokens=partial(append_to, received),
            )
            block_until(lambda: time.monotonic() > first_deadline + 0.01)
            plan.release(0)
            result = await future
            tokens: list[int] = []
            for position, ids in received:
                assert position == len(tokens)
                tokens += ids
            assert tuple(tokens) == result.hypotheses[0].ids[: len(tokens)]
            assert len(tokens) >= NARROW.max_target_length - 1
            await blocking

    run(scenario())


def test_a_retried_request_is_next_in_its_worker(plan: FakePlan) -> None:
    async def scenario() -> None:
        async with running(plan, 1) as started:
            plan.hold(0)
            futures = [submit(started.engine, [5, EOS], WIDE, request_id="a")]
            await started.until_held(0)
            futures += [submit(started.engine, [source, EOS], WIDE, request_id="b") for source in (6, 7)]
            again = [submit(started.engine, [source, EOS], WIDE, request_id="c") for source in (8, 10)]
            started.engine.prioritize_retries(again)
            plan.release(0)
            await asyncio.gather(*futures, *again)
            started.engine.prioritize_retries(again)  # without effect, because the sentences are answered
        # The retries move request c to the front for one sentence. Then the requests take turns.
        assert plan.calls(0, "encode") == [5, 8, 6, 10, 7]

    run(scenario())


def test_a_retried_request_is_next_in_each_of_its_workers(plan: FakePlan) -> None:
    """In both workers one sentence runs and two of another request wait."""

    async def scenario() -> None:
        async with running(plan) as started:
            plan.hold(0, 1)
            put = partial(put_into, started)
            futures = [put(worker, 5, request_id="a") for worker in (0, 1)]
            await started.until_held(0, 1)
            futures += [put(worker, source, request_id="b") for source in (6, 7) for worker in (0, 1)]
            again = [put(worker, source, request_id="c") for source in (8, 10) for worker in (0, 1)]
            started.engine.prioritize_retries(again)
            plan.release(0, 1)
            await asyncio.gather(*futures, *again)
        assert [plan.calls(worker, "encode") for worker in (0, 1)] == [[5, 8, 6, 10, 7]] * 2

    run(scenario())


def put_into(
    started: RunningEngine, worker: int, source: int, *, request_id: str, options: DecodingOptions = WIDE
) -> asyncio.Future[SequenceResult]:
    """Submit a sentence to this worker, as if the other worker were full. A worker runs one WIDE sentence at a time."""
    rows = started.engine._pool.placement._num_rows
    other = started.processes[1 - worker]
    rows[started.processes[worker]] -= MANY_ROWS
    rows[other] += MANY_ROWS
    future = submit(started.engine, [source, EOS], options, request_id=request_id)
    rows[started.processes[worker]] += MANY_ROWS
    rows[other] -= MANY_ROWS
    return future


def test_a_worker_that_reads_nothing_does_not_block_the_event_loop(plan: FakePlan) -> None:
    """Stopped workers are sent more than their sockets hold; everything arrives once they continue."""

    async def scenario() -> None:
        async with running(plan) as started:
            started.signal(signal.SIGSTOP, 0, 1)
            in_case_it_blocks = threading.Timer(30.0, started.signal, (signal.SIGCONT, 0, 1))
            in_case_it_blocks.start()
            began = time.monotonic()
            request_id = "x" * 2000
            futures = [
                submit(
                    started.engine,
                    [5 + number % 4, EOS],
                    replace(NARROW, max_target_length=2),
                    request_id=request_id,
                )
                for number in range(600)
            ]
            futures[100].cancel()
            await asyncio.sleep(0.01)
            assert all(process._unsent for process in started.processes)
            assert not any(future.done() for future in futures[200:])
            assert time.monotonic() - began < 20.0
            in_case_it_blocks.cancel()
            started.signal(signal.SIGCONT, 0, 1)
            results = await asyncio.gather(*futures, return_exceptions=True)
            assert [type(one) for one in results].count(SequenceResult) == 599
            assert not any(process._unsent for process in started.processes)

    run(scenario())
    assert SETTINGS.max_pending_sentences >= 600
