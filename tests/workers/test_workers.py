"""An engine of several workers, each a process of its own: what one worker in a thread does, they do."""

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
from app.engine.core import MIN_CALL_S
from app.engine.engine import FEW_ROWS, Engine
from app.engine.sequence import SequenceResult
from app.errors import DeadlineExceeded, EngineFailure
from tests.engine import test_engine
from tests.engine.core_driver import assert_same, expected
from tests.engine.fake_runner import EOS, FakeRunner, LoopingRunner
from tests.engine.test_engine import NARROW, PATIENCE_S, WIDE, submit
from tests.engine.test_options import BEAM, PLAIN, random_options, random_source
from tests.workers.fake_worker import ALIGNED, POISON, STEP_S, FakePlan
from tests.workers.running_engine import SETTINGS, RunningEngine, block_until, descriptors, running

Job = tuple[list[int], DecodingOptions]
# More than any worker's sentences reserve here.
MANY_ROWS = 1000
ALONE = DecodingOptions(beam_size=1, max_target_length=50)
Heard = list[tuple[int, tuple[int, ...]]]


@pytest.fixture
def plan(tmp_path: Path) -> FakePlan:
    return FakePlan(str(tmp_path))


def listen(into: Heard, position: int, ids: tuple[int, ...]) -> None:
    into.append((position, ids))


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, PATIENCE_S))


def jobs_that_a_reference_search_knows(rng: random.Random) -> list[Job]:
    jobs = [(random_source(rng), random_options(rng)) for _ in range(60)]
    return [(source, options) for source, options in jobs if source[0] not in (9, POISON)]


def jobs_of_all_kinds(rng: random.Random) -> list[Job]:
    jobs = jobs_that_a_reference_search_knows(rng)
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


def test_answers_are_those_of_a_reference_search_and_of_a_thread_bit_for_bit(plan: FakePlan) -> None:
    async def scenario() -> None:
        known = jobs_that_a_reference_search_knows(random.Random(3))
        jobs = jobs_of_all_kinds(random.Random(4))
        async with running(plan) as workers:
            found = await answers(workers.engine, known)
            for (source, options), result in zip(known, found, strict=True):
                assert_same(result.hypotheses, expected(source, options, FakeRunner(ALIGNED)))
            found = await answers(workers.engine, jobs)
            assert {step.worker for step in workers.steps} == {0, 1}
        async with test_engine.running(LoopingRunner(ALIGNED)) as engine:
            wanted = await answers(engine, jobs)
        assert any(one.has_looped for one in found)
        for one, other in zip(found, wanted, strict=True):
            assert one.hypotheses == other.hypotheses
            assert repr(one.hypotheses) == repr(other.hypotheses)  # of the same types, too
            assert (one.num_steps > 0, one.has_looped) == (True, other.has_looped)
            assert min(one.queue_time_s, one.encode_time_s, one.decode_time_s) >= 0.0

    run(scenario())


def test_nothing_is_left_open(plan: FakePlan) -> None:
    gc.collect()
    before = descriptors("/memfd:transduce")

    async def scenario() -> None:
        async with running(plan) as workers:
            assert descriptors("/memfd:transduce") != before
            await submit(workers.engine, [5, EOS])

    run(scenario())
    gc.collect()
    assert descriptors("/memfd:transduce") == before


def test_a_single_stream_stays_in_one_worker_and_company_is_spread(plan: FakePlan) -> None:
    async def scenario() -> None:
        async with running(plan) as workers:
            for number in range(5):
                await submit(workers.engine, [10 + number, EOS])
            assert {step.worker for step in workers.steps} == {0}
            plan.hold(0, 1)
            futures = [submit(workers.engine, [20 + number, EOS], WIDE) for number in range(6)]
            await workers.until_held(0, 1)
            plan.release(0, 1)
            await asyncio.gather(*futures)
        assert plan.told(0, "encode") == [10, 11, 12, 13, 14, 20, 21, 24]
        assert plan.told(1, "encode") == [22, 23, 25]

    run(scenario())


def test_a_worker_shares_the_cores_with_those_at_work(plan: FakePlan) -> None:
    plan = replace(plan, eos_bonus=-30.0)

    async def scenario() -> None:
        async with running(plan) as workers:
            plan.hold(0, 1)
            first = [submit(workers.engine, [5, EOS], WIDE) for _ in range(FEW_ROWS // WIDE.beam_size)]
            await workers.until_held(0)
            second = submit(workers.engine, [6, EOS], WIDE)
            await workers.until_held(1)
            plan.release(0)
            await asyncio.gather(*first)
            await workers.until_idle(0)
            plan.release(1)
            await second
        assert plan.told(0, "share") == [1, 2]
        assert plan.told(1, "share") == [2, 1]

    run(scenario())


# Steps that take STEP_S and more: as few that a call which ends for who comes ends behind this one.
HOLDS_BEHIND = 4


@pytest.mark.parametrize("worker", [0, 1])
def test_a_call_of_many_steps_ends_for_who_comes_and_for_who_shares_the_cores(
    plan: FakePlan, worker: int
) -> None:
    """Into the worker itself, or the other one."""
    plan = replace(plan, eos_bonus=-30.0, max_steps=40, holds_behind=HOLDS_BEHIND)

    async def scenario() -> None:
        async with running(plan) as workers:
            plan.hold(0)
            first = put_into(workers, 0, 5, request_id="first", options=ALONE)
            await workers.until_held(0)
            assert HOLDS_BEHIND > MIN_CALL_S / STEP_S
            second = put_into(workers, worker, 6, request_id="second", options=ALONE)
            if worker == 1:
                await second
            plan.release(0)
            await asyncio.gather(first, second)
            calls = [step.num_steps for step in workers.steps if step.worker == 0]
            assert calls[:2] == [1, HOLDS_BEHIND]
            assert max(calls[2:]) > HOLDS_BEHIND, "nobody comes, and no call is longer"

    run(scenario())


def test_a_future_that_is_cancelled_gives_its_rows_back(plan: FakePlan) -> None:
    """WIDE takes more than half of the rows, so that one sentence runs at a time."""
    plan = replace(plan, eos_bonus=-30.0)

    async def scenario() -> None:
        async with running(plan, 1) as workers:
            plan.hold(0)
            first, second, third = (submit(workers.engine, [number, EOS], WIDE) for number in (5, 6, 7))
            await workers.until_held(0)
            first.cancel()
            second.cancel()
            await asyncio.sleep(0)  # the futures' callbacks run
            plan.release(0)
            result = await third
            assert_same(result.hypotheses, expected([7, EOS], WIDE, FakeRunner(eos_bonus=-30.0)))
            steps = workers.steps
        assert sum(step.num_finished for step in steps) == 1
        assert sum(step.num_wasted_rows for step in steps) == 1
        assert plan.told(0, "encode") == [5, 7]

    run(scenario())


def test_who_leaves_while_the_answer_is_under_way_disturbs_nobody(plan: FakePlan) -> None:
    """The worker reports several at once; of one of them nothing is known any more."""

    async def scenario() -> None:
        async with running(plan, 1) as workers:
            plan.hold(0)
            heard: Heard = []
            leaving = workers.engine.submit(
                [5, EOS],
                NARROW,
                request_id="a",
                caller="b",
                deadline=time.monotonic() + PATIENCE_S,
                on_tokens=partial(listen, heard),
            )
            staying = submit(workers.engine, [5, EOS])
            await workers.until_held(0)
            plan.release(0)
            block_until(lambda: workers.began(0) is None)
            leaving.cancel()
            assert_same((await staying).hypotheses, expected([5, EOS], NARROW, FakeRunner(ALIGNED)))
            await submit(workers.engine, [6, EOS])
            assert sum(step.num_finished for step in workers.steps) == 3
            assert heard == []

    run(scenario())


def test_failures_and_deadlines_of_the_worker_arrive_as_such(plan: FakePlan) -> None:
    async def scenario() -> None:
        async with running(plan, 1) as workers:
            with pytest.raises(EngineFailure, match=r"^poisoned$"):
                await submit(workers.engine, [POISON, EOS])
            plan.hold(0)
            others = submit(workers.engine, [5, EOS], WIDE)
            await workers.until_held(0)
            deadline = time.monotonic() + 0.05
            late = submit(workers.engine, [6, EOS], WIDE, timeout_s=0.05)
            block_until(lambda: time.monotonic() > deadline + 0.01)
            plan.release(0)
            block_until(lambda: workers.began(0) is None)
            with pytest.raises(DeadlineExceeded):
                await late
            await others
        assert plan.told(0, "encode") == [5]
        assert (sum(s.num_failed for s in workers.steps), sum(s.num_expired for s in workers.steps)) == (1, 1)

    run(scenario())


def test_tokens_are_told_as_by_a_thread(plan: FakePlan) -> None:
    async def listened(engine: Engine) -> list[Heard]:
        deadline = time.monotonic() + PATIENCE_S
        heard: list[Heard] = [[] for _ in range(6)]
        await asyncio.gather(
            *(
                engine.submit(
                    [10 + number, EOS],
                    replace(NARROW, target_prefix=(7, 8)[: number % 3]),
                    request_id="request",
                    caller="caller",
                    deadline=deadline,
                    on_tokens=partial(listen, into),
                )
                for number, into in enumerate(heard)
            )
        )
        return heard

    async def scenario() -> None:
        async with running(plan) as workers:
            found = await listened(workers.engine)
        async with test_engine.running(FakeRunner()) as engine:
            assert found == await listened(engine)
        assert all(len(one) > 1 for one in found[:1])

    run(scenario())


def test_who_joins_puts_off_the_deadline_and_hears_all_tokens(plan: FakePlan) -> None:
    plan = replace(plan, eos_bonus=-30.0)

    async def scenario() -> None:
        async with running(plan, 1) as workers:
            plan.hold(0)
            blocking = submit(workers.engine, [5, EOS], WIDE)
            await workers.until_held(0)
            first_deadline = time.monotonic() + 0.2
            future = submit(workers.engine, [6, EOS], timeout_s=0.2)
            heard: Heard = []
            workers.engine.join(
                future,
                request_id="another",
                caller="other",
                deadline=first_deadline + PATIENCE_S,
                on_tokens=partial(listen, heard),
            )
            block_until(lambda: time.monotonic() > first_deadline + 0.01)
            plan.release(0)
            result = await future
            said: list[int] = []
            for position, ids in heard:
                assert position == len(said)
                said += ids
            assert tuple(said) == result.hypotheses[0].ids[: len(said)]
            assert len(said) >= NARROW.max_target_length - 1
            await blocking

    run(scenario())


def test_who_comes_back_is_next_in_its_worker(plan: FakePlan) -> None:
    async def scenario() -> None:
        async with running(plan, 1) as workers:
            plan.hold(0)
            futures = [submit(workers.engine, [5, EOS], WIDE, request_id="a")]
            await workers.until_held(0)
            futures += [submit(workers.engine, [source, EOS], WIDE, request_id="b") for source in (6, 7)]
            again = [submit(workers.engine, [source, EOS], WIDE, request_id="c") for source in (8, 10)]
            workers.engine.prioritize_retries(again)
            plan.release(0)
            await asyncio.gather(*futures, *again)
            workers.engine.prioritize_retries(again)  # they are answered
        assert plan.told(0, "encode") == [5, 8, 6, 10, 7]

    run(scenario())


def test_who_comes_back_is_next_in_each_of_its_workers(plan: FakePlan) -> None:
    """Both workers have a sentence that runs, and two of another request that wait."""

    async def scenario() -> None:
        async with running(plan) as workers:
            plan.hold(0, 1)
            put = partial(put_into, workers)
            futures = [put(worker, 5, request_id="a") for worker in (0, 1)]
            await workers.until_held(0, 1)
            futures += [put(worker, source, request_id="b") for source in (6, 7) for worker in (0, 1)]
            again = [put(worker, source, request_id="c") for source in (8, 10) for worker in (0, 1)]
            workers.engine.prioritize_retries(again)
            plan.release(0, 1)
            await asyncio.gather(*futures, *again)
        assert [plan.told(worker, "encode") for worker in (0, 1)] == [[5, 8, 6, 10, 7]] * 2

    run(scenario())


def put_into(
    workers: RunningEngine, worker: int, source: int, *, request_id: str, options: DecodingOptions = WIDE
) -> asyncio.Future[SequenceResult]:
    """Submit a sentence to this worker: the other counts as full. One of WIDE has a worker's rows for itself."""
    rows = workers.engine._num_rows
    other = workers.processes[1 - worker]
    rows[workers.processes[worker]] -= MANY_ROWS
    rows[other] += MANY_ROWS
    future = submit(workers.engine, [source, EOS], options, request_id=request_id)
    rows[workers.processes[worker]] += MANY_ROWS
    rows[other] -= MANY_ROWS
    return future


def test_a_worker_that_reads_nothing_holds_nobody_up(plan: FakePlan) -> None:
    """More is said to stopped processes than their sockets hold; the event loop goes on, and all comes through."""

    async def scenario() -> None:
        async with running(plan) as workers:
            workers.signal(signal.SIGSTOP, 0, 1)
            in_case_it_blocks = threading.Timer(30.0, workers.signal, (signal.SIGCONT, 0, 1))
            in_case_it_blocks.start()
            began = time.monotonic()
            request_id = "x" * 2000
            futures = [
                submit(
                    workers.engine,
                    [5 + number % 4, EOS],
                    replace(NARROW, max_target_length=2),
                    request_id=request_id,
                )
                for number in range(600)
            ]
            futures[100].cancel()
            await asyncio.sleep(0.01)
            assert all(process._unsent for process in workers.processes)
            assert not any(future.done() for future in futures[200:])
            assert time.monotonic() - began < 20.0
            in_case_it_blocks.cancel()
            workers.signal(signal.SIGCONT, 0, 1)
            results = await asyncio.gather(*futures, return_exceptions=True)
            assert [type(one) for one in results].count(SequenceResult) == 599
            assert not any(process._unsent for process in workers.processes)

    run(scenario())
    assert SETTINGS.max_pending_sentences >= 600
