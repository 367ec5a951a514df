"""The engine after failures of the model or of its own thread."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import pytest

from app.decoding.options import DecodingOptions, Hypothesis
from app.engine.engine import Engine
from app.engine.limits import EngineLimits
from app.engine.sequence import SequenceResult, Status
from app.errors import DeadlineExceeded, EngineFailure, NotReady
from app.runtime.interface import Floats, Int32s, StepInput, StepOutput
from app.workers.thread_worker import ThreadWorker
from tests.engine.core_driver import CoreDriver, assert_same, expected, hypotheses_of
from tests.engine.fake_runner import EOS, LIMITS, FakeRunner
from tests.engine.test_core import random_options, random_source

POISON = 39
EOS_BONUS = -1.0
SETTINGS = EngineLimits(max_encode_tokens=64, max_consecutive_failures=4, stall_limit_s=0.05)
NARROW = DecodingOptions(beam_size=1, max_target_length=12)
BEAM = DecodingOptions(beam_size=4, num_hypotheses=4, max_target_length=12)
HANG_TIMEOUT_S = 120.0  # seconds; only a hang takes longer, even on a busy machine


class PoisonedRunner(FakeRunner):
    """Fails every forward of the encoder or of the decoder that has a source with POISON.

    in_encoder: the encoder fails, else the decoder. at_position: the decoder fails from this target position on.
    in_copies: no forward fails, but each copy of a row whose source has POISON.
    """

    def __init__(self, *, in_encoder: bool = False, at_position: int = 0, in_copies: bool = False) -> None:
        super().__init__(eos_bonus=EOS_BONUS)
        self.in_encoder = in_encoder
        self.at_position = LIMITS.max_target_length if in_copies else at_position
        self.in_copies = in_copies
        self.num_failures = 0

    def encode(self, sources: Sequence[Int32s], rows: Sequence[int]) -> None:
        if self.in_encoder and any(POISON in source for source in sources):
            self.num_failures += 1
            raise EngineFailure("the encoder failed")
        super().encode(sources, rows)

    def decode(self, step: StepInput) -> StepOutput:
        output = super().decode(step)
        for row, position in enumerate(step.positions):
            if not self.in_encoder and POISON in self.source_of(row) and position >= self.at_position:
                self.num_failures += 1
                self.cache[:] = -9  # a failed forward destroys every row's cache
                raise EngineFailure("the decoder failed")
        return output

    def _copy_columns(self, sources: Int32s, targets: Int32s, lengths: Int32s, shared: Int32s) -> None:
        if self.in_copies and any(POISON in self.source_of(row) for row in sources):
            self.num_failures += 1
            self.cache[:] = -9
            raise EngineFailure("no memory for a copy of rows")
        super()._copy_columns(sources, targets, lengths, shared)


def source_without_poison(rng: random.Random) -> list[int]:
    return [token for token in random_source(rng) if token != POISON]


@cache
def random_jobs(seed: int) -> list[tuple[list[int], DecodingOptions, str, list[Hypothesis]]]:
    """Sources without the poison, with their options, their request ids and the reference search's hypotheses."""
    rng, runner = random.Random(seed), FakeRunner(eos_bonus=EOS_BONUS)
    jobs = []
    for _ in range(20):
        source, options = source_without_poison(rng), random_options(rng)
        jobs.append((source, options, str(rng.randrange(5)), expected(source, options, runner)))
    return jobs


@pytest.mark.seconds
@pytest.mark.parametrize(
    "runner",
    [
        lambda: PoisonedRunner(in_encoder=True),
        lambda: PoisonedRunner(at_position=0),
        lambda: PoisonedRunner(at_position=3),
        lambda: PoisonedRunner(in_copies=True),
    ],
)
@pytest.mark.parametrize("num_poisons", [1, 2])
def test_only_the_poison_fails(runner: Callable[[], PoisonedRunner], num_poisons: int) -> None:
    """The other running and queued sentences get the answers that they get without the poison."""
    for seed in range(4):
        driver = CoreDriver(poisoned := runner(), SETTINGS)
        jobs = [
            (driver.submit(source, options, request_id=request_id), hypotheses)
            for source, options, request_id, hypotheses in random_jobs(seed)
        ]
        poisons = [driver.submit([5, POISON, EOS], BEAM) for _ in range(num_poisons)]
        driver.run()
        for sequence, hypotheses in jobs:
            assert_same(hypotheses_of(sequence), hypotheses)
        assert all(isinstance(one.outcome, EngineFailure) for one in poisons)
        # Each failure halves the batch: five times for up to 22 sentences. Then the poison fails alone.
        assert poisoned.num_failures <= num_poisons * 6
        steps = [step for report in driver.reports for step in report.steps]
        assert sum(step.num_failed for step in steps) == num_poisons
        assert sum(step.num_finished for step in steps) == 20
        assert driver.core.scheduler.row_allocator.num_reserved == 0
        after = driver.submit([5, EOS], BEAM)
        driver.run()
        assert hypotheses_of(after)


def test_no_sentence_is_admitted_while_a_half_is_retried() -> None:
    runner = PoisonedRunner(at_position=2)
    driver = CoreDriver(runner, SETTINGS)
    driver.submit([POISON, EOS], BEAM)
    others = [driver.submit([5 + number, EOS], BEAM) for number in range(3)]
    for _ in range(3):
        driver.step()
    newcomer = driver.submit([9, EOS], BEAM)
    while not all(sequence.status is Status.ENDED for sequence in others):
        assert newcomer.status is Status.WAITING
        driver.step()
    # All four sentences, then the half with the poison, then the poison alone.
    assert runner.num_failures == 3
    driver.run()
    assert_same(hypotheses_of(newcomer), expected([9, EOS], BEAM, runner))


def test_a_forward_that_fails_once_costs_no_answer() -> None:
    class FailingOnceRunner(FakeRunner):
        def decode(self, step: StepInput) -> StepOutput:
            output = super().decode(step)
            if self.calls["decode"] == 4:
                raise EngineFailure("out of memory")
            return output

    runner = FailingOnceRunner(eos_bonus=-1.0)
    driver = CoreDriver(runner, SETTINGS)
    sequences = [driver.submit([5 + number, EOS], BEAM) for number in range(6)]
    driver.run()
    for number, sequence in enumerate(sequences):
        assert_same(hypotheses_of(sequence), expected([5 + number, EOS], BEAM, runner))
    assert sum(step.num_retried for report in driver.reports for step in report.steps) == 6
    assert [first for first, _ in runner.encoded] == [*range(5, 11)] * 2, "the earlier half is retried first"


@pytest.mark.parametrize(
    ("runner", "message"),
    [
        (PoisonedRunner(in_encoder=True), "are encoded one by one: the encoder failed"),
        (PoisonedRunner(), "are retried in halves: the decoder failed"),
    ],
)
def test_the_message_of_the_first_failure_is_logged(
    runner: PoisonedRunner, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Later failures may have another cause: on a GPU every call fails after an illegal access to memory."""
    driver = CoreDriver(runner, SETTINGS)
    for source in ([POISON, EOS], [5, EOS]):
        driver.submit(source, NARROW)
    driver.run()
    assert caplog.messages[0] == f"2 sentences failed together and {message}"
    assert caplog.records[0].levelno == logging.ERROR


def test_a_sentence_that_fails_is_logged_with_its_request(caplog: pytest.LogCaptureFixture) -> None:
    driver = CoreDriver(PoisonedRunner(), SETTINGS)
    driver.submit([POISON, EOS], NARROW)
    driver.run()
    (record,) = caplog.records
    assert record.getMessage() == "sentence_failed"
    assert vars(record)["fields"] == {"request_id": "request", "problem": "the decoder failed"}


def test_sentences_that_end_while_waiting_for_a_retry_are_dropped() -> None:
    runner = PoisonedRunner()
    driver = CoreDriver(runner, SETTINGS)
    driver.submit([POISON, EOS], BEAM)
    driver.submit([5, EOS], BEAM)
    cancelled = driver.submit([6, EOS], BEAM)
    expired = driver.submit([7, EOS], BEAM, deadline=1.0)
    driver.step()
    assert cancelled.status is expired.status is Status.WAITING
    driver.cancel(cancelled)
    driver.now = 1.0
    driver.run()
    assert cancelled.outcome is None
    assert isinstance(expired.outcome, DeadlineExceeded)
    assert Counter(runner.encoded)[6, EOS] == Counter(runner.encoded)[7, EOS] == 1
    assert driver.core.scheduler.num_waiting == 0


class NanRunner(FakeRunner):
    """Returns NaN scores for rows whose sentence contains POISON, once the prefix has `length` tokens."""

    def __init__(self, *, length: int) -> None:
        super().__init__(eos_bonus=-1.0)
        self.length = length

    def next_scores(self, source: Int32s, prefix: Int32s) -> Floats:
        scores = super().next_scores(source, prefix)
        return np.full_like(scores, np.nan) if POISON in source and len(prefix) >= self.length else scores


def test_nan_scores_fail_their_own_sentence_only() -> None:
    rng = random.Random(4)
    runner = NanRunner(length=3)
    driver = CoreDriver(runner, SETTINGS)
    jobs = [(source_without_poison(rng), random_options(rng)) for _ in range(20)]
    broken = [driver.submit([POISON, EOS], options) for options in (NARROW, BEAM)]
    sequences = [driver.submit(source, options) for source, options in jobs]
    driver.run()
    assert all(isinstance(one.outcome, EngineFailure) for one in broken)
    for sequence, (source, options) in zip(sequences, jobs, strict=True):
        assert_same(hypotheses_of(sequence), expected(source, options, runner))
    assert sum(step.num_retried for report in driver.reports for step in report.steps) == 0


def test_the_rows_of_failed_sentences_are_not_decoded_again() -> None:
    """A beam that will need a hole soon keeps it open, but not after a failure."""
    runner = NanRunner(length=0)
    driver = CoreDriver(runner, SETTINGS)
    for source in (POISON, POISON, 5):
        driver.submit([source, EOS], NARROW)
    driver.step()
    driver.submit([6, EOS], BEAM)
    driver.step()
    assert runner.batches == [3, 2]


@pytest.mark.parametrize("runner", [PoisonedRunner(), PoisonedRunner(in_encoder=True), NanRunner(length=1)])
def test_failures_in_a_row_end_the_engine(runner: FakeRunner) -> None:
    driver = CoreDriver(runner, SETTINGS)
    for _ in range(SETTINGS.max_consecutive_failures - 1):
        driver.submit([POISON, EOS], NARROW)
        driver.run()
    driver.submit([POISON, EOS], NARROW)
    with pytest.raises(EngineFailure, match="4 forwards in a row"):
        driver.run()


@pytest.mark.parametrize("in_encoder", [True, False])
def test_a_broken_model_ends_the_engine_with_any_number_of_sentences(in_encoder: bool) -> None:
    driver = CoreDriver(PoisonedRunner(in_encoder=in_encoder), SETTINGS)
    for _ in range(40):
        driver.submit([POISON, EOS], BEAM)
    with pytest.raises(EngineFailure, match="4 forwards in a row"):
        driver.run()


def test_one_good_forward_resets_the_count_of_failures() -> None:
    driver = CoreDriver(PoisonedRunner(), SETTINGS)
    for _ in range(3):
        for _ in range(SETTINGS.max_consecutive_failures - 1):
            driver.submit([POISON, EOS], NARROW)
            driver.run()
        driver.submit([5, EOS], NARROW)
        driver.run()
    assert len(driver.ended) == 12


class CrashingRunner(FakeRunner):
    """Raises an unexpected error in the third forward."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(eos_bonus=-30.0)
        self.error = error

    def decode(self, step: StepInput) -> StepOutput:
        if self.calls["decode"] == 2:
            raise self.error
        return super().decode(step)


@pytest.mark.parametrize("error", [RuntimeError("broken"), SystemExit(3), MemoryError()])
def test_when_the_engine_thread_dies_all_futures_fail(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        deaths: list[float] = []
        engine = Engine(
            [ThreadWorker(CrashingRunner(error))],
            settings=SETTINGS,
            on_death=lambda: deaths.append(time.monotonic()),
        )
        engine.start()
        deadline = time.monotonic() + HANG_TIMEOUT_S
        futures = [
            engine.submit([5, EOS], BEAM, request_id=str(number), caller="caller", deadline=deadline)
            for number in range(20)
        ]
        done, _ = await asyncio.wait(futures, timeout=HANG_TIMEOUT_S)
        assert len(done) == 20
        assert all(isinstance(future.exception(), NotReady) for future in futures)
        assert len(deaths) == 1
        assert not engine.health().is_alive
        with pytest.raises(NotReady):
            engine.submit([5, EOS], BEAM, request_id="late", caller="caller", deadline=deadline)
        with pytest.raises(NotReady):
            engine.reserve(1, 1)
        await asyncio.wait_for(engine.close(HANG_TIMEOUT_S), HANG_TIMEOUT_S)

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    assert "the engine thread has died" in caplog.text


def test_a_step_that_hangs_is_a_stall_and_an_idle_engine_is_not() -> None:
    async def scenario() -> None:
        gate = threading.Event()
        hangs = threading.Event()

        class HangingRunner(FakeRunner):
            def decode(self, step: StepInput) -> StepOutput:
                hangs.set()
                assert gate.wait(HANG_TIMEOUT_S)
                return super().decode(step)

        engine = Engine([ThreadWorker(HangingRunner())], settings=SETTINGS)
        engine.start()
        await asyncio.sleep(2 * SETTINGS.stall_limit_s)
        assert engine.health().is_healthy
        deadline = time.monotonic() + HANG_TIMEOUT_S
        future = engine.submit([5, EOS], NARROW, request_id="request", caller="caller", deadline=deadline)
        assert await asyncio.to_thread(hangs.wait, HANG_TIMEOUT_S)
        await asyncio.sleep(2 * SETTINGS.stall_limit_s)
        health = engine.health()
        assert health.is_alive
        assert health.is_stalled
        assert not health.is_healthy
        assert health.step_age_s > SETTINGS.stall_limit_s
        gate.set()
        assert isinstance(await future, SequenceResult)
        assert not engine.health().is_stalled
        await engine.close(HANG_TIMEOUT_S)

    asyncio.run(scenario())


def test_a_request_cancelled_at_any_point_leaves_nothing() -> None:
    """A request is cancelled before the first step, while it runs, or after the answer.

    The engine keeps no row, reservation or future of it.
    """

    async def scenario() -> None:
        engine = Engine([ThreadWorker(FakeRunner(eos_bonus=-30.0))], settings=SETTINGS)
        engine.start()

        async def request(number: int) -> None:
            deadline = time.monotonic() + HANG_TIMEOUT_S
            with engine.reserve(4, 8):
                await asyncio.gather(
                    *(
                        engine.submit(
                            [5, EOS], BEAM, request_id=str(number), caller="caller", deadline=deadline
                        )
                        for _ in range(4)
                    )
                )

        for number in range(60):
            task = asyncio.create_task(request(number))
            for _ in range(number % 15):
                await asyncio.sleep(0)
            if number % 15 == 14:
                await asyncio.wait([task])
            task.cancel()
            await asyncio.wait([task])
        await request(99)
        assert engine.health().num_pending_sentences == engine.health().num_pending_tokens == 0
        await engine.close(HANG_TIMEOUT_S)

    asyncio.run(scenario())


def test_a_worker_goes_on_if_the_encoder_works_for_other_sentences() -> None:
    """More sentences fail in one step than max_consecutive_failures, but not all of them."""
    driver = CoreDriver(PoisonedRunner(in_encoder=True), SETTINGS)
    for source in [[POISON, EOS]] * (2 * SETTINGS.max_consecutive_failures) + [[5, EOS]]:
        driver.submit(source, NARROW)
    driver.run()
    failed = [isinstance(sequence.outcome, EngineFailure) for sequence in driver.ended]
    assert sorted(failed) == [False] + [True] * (2 * SETTINGS.max_consecutive_failures)
