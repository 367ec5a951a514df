"""The engine's loop, step by step, with the fake runner."""

from __future__ import annotations

import random

import pytest

from app.decoding.options import DecodingOptions
from app.engine.limits import EngineLimits
from app.engine.sequence import Sequence, SequenceResult, Status
from app.errors import DeadlineExceeded
from app.runtime.interface import StepInput, StepOutput
from tests.engine.core_driver import CoreDriver, assert_same, expected, hypotheses_of
from tests.engine.fake_runner import EOS, LIMITS, FakeRunner


def random_source(rng: random.Random) -> list[int]:
    return [
        *(rng.randrange(4, LIMITS.vocab_size) for _ in range(rng.randrange(LIMITS.max_source_length))),
        EOS,
    ]


def random_options(rng: random.Random) -> DecodingOptions:
    beam_size = rng.choice([1, 1, 1, 2, 3, 4, 4, 5, 8, 16])
    return DecodingOptions(
        beam_size=beam_size,
        num_hypotheses=rng.randint(1, beam_size),
        alpha=rng.choice([0.0, 0.6, 1.0]),
        max_target_length=rng.randint(1, LIMITS.max_target_length - 1),
    )


@pytest.mark.parametrize("seed", range(25))
def test_in_any_batch_answers_equal_those_of_the_reference_search(seed: int) -> None:
    """With random sentences, arrivals, beam sizes and cancellations, no answer depends on the rest of the batch."""
    rng = random.Random(seed)
    runner = FakeRunner(eos_bonus=rng.choice([0.0, 2.0]))
    driver = CoreDriver(runner)
    jobs = []
    cancelled = set()
    for _ in range(24):
        source, options = random_source(rng), random_options(rng)
        request_id, caller = str(rng.randrange(4)), str(rng.randrange(3))
        jobs.append((driver.submit(source, options, request_id=request_id, caller=caller), source, options))
        for _ in range(rng.choice([0, 0, 1, 3])):
            driver.step()
        if rng.random() < 0.15:
            victim = rng.choice(jobs)[0]
            if victim.status is not Status.ENDED:
                cancelled.add(victim)
                driver.cancel(victim)
    driver.run()
    for sequence, source, options in jobs:
        if sequence not in cancelled:
            assert_same(hypotheses_of(sequence), expected(source, options, runner))
    assert set(driver.ended) == {sequence for sequence, _, _ in jobs} - cancelled
    assert driver.core.scheduler.row_allocator.num_reserved == 0
    steps = [step for report in driver.reports for step in report.steps]
    assert sum(step.num_finished for step in steps) == len(driver.ended)
    assert [step.num_rows_in_use for step in steps] == driver.reserved_rows


def test_scores_alone_and_in_a_batch_are_identical() -> None:
    rng = random.Random(7)
    jobs = [(random_source(rng), random_options(rng)) for _ in range(30)]
    together = CoreDriver(FakeRunner())
    sequences = [together.submit(source, options) for source, options in jobs]
    together.run()
    for sequence, (source, options) in zip(sequences, jobs, strict=True):
        alone = CoreDriver(FakeRunner())
        only = alone.submit(source, options)
        alone.run()
        assert hypotheses_of(sequence) == hypotheses_of(only)


def test_one_step_advances_all_sentences() -> None:
    """A new sentence joins the batch at the next step. A beam occupies one row until its first step is done."""
    runner = FakeRunner(eos_bonus=-30.0)
    driver = CoreDriver(runner)
    driver.submit([5, EOS], DecodingOptions(beam_size=1, max_target_length=12))
    driver.step()
    driver.submit([6, EOS], DecodingOptions(beam_size=4, max_target_length=12))
    driver.step()
    driver.submit([7, EOS], DecodingOptions(beam_size=2, max_target_length=12))
    driver.step()
    driver.step()
    assert runner.batches == [1, 2, 1 + 4 + 1, 1 + 4 + 2]
    assert runner.calls["encode"] == 3
    steps = [step for report in driver.reports for step in report.steps]
    assert steps == [], "no sentence has ended, so there is no report"
    driver.run()
    steps = [step for report in driver.reports for step in report.steps]
    assert [step.num_rows for step in steps] == runner.batches
    assert [step.num_idle_rows for step in steps[:4]] == [0, 3, 1, 0]


def test_a_sentence_is_reported_by_the_step_that_ends_it() -> None:
    driver = CoreDriver(FakeRunner(eos_bonus=-30.0))
    short = driver.submit([5, EOS], DecodingOptions(beam_size=1, max_target_length=2))
    driver.submit([6, EOS], DecodingOptions(beam_size=1, max_target_length=12))
    reported = []
    for _ in range(4):
        driver.step()
        reported.append(list(driver.ended))
    assert reported == [[], [], [short], [short]]


def test_the_last_step_is_reported_even_if_its_only_sentence_was_cancelled() -> None:
    driver = CoreDriver(FakeRunner(eos_bonus=-30.0))
    sequence = driver.submit([5, EOS], DecodingOptions(beam_size=4, max_target_length=12))
    driver.step()
    driver.cancel(sequence)
    driver.step()
    steps = [step for report in driver.reports for step in report.steps]
    assert [step.num_rows_in_use for step in steps] == [4, 0]


def test_rows_are_reused_at_once() -> None:
    """When a sentence ends, the next step runs another sentence in its row."""
    runner = FakeRunner(eos_bonus=-30.0)
    driver = CoreDriver(runner)
    for number in range(2 * LIMITS.num_rows):
        driver.submit([4 + number % 30, EOS], DecodingOptions(beam_size=1, max_target_length=4))
    # One group of sentences follows another. Each takes five steps: four subwords and the end token.
    assert driver.run() == 2 * 5
    assert runner.batches == [LIMITS.num_rows] * 10
    assert runner.calls["copy_rows"] == 0  # new sentences fill the free rows


def test_a_wide_beam_is_not_starved_by_narrow_ones() -> None:
    driver = CoreDriver(FakeRunner(eos_bonus=-30.0))
    for number in range(LIMITS.num_rows):
        driver.submit([4 + number, EOS], DecodingOptions(beam_size=1, max_target_length=1 + number % 12))
    driver.step()
    wide = driver.submit([9, EOS], DecodingOptions(beam_size=16, max_target_length=4))
    narrow = driver.submit([9, EOS], DecodingOptions(beam_size=1, max_target_length=4))
    while wide.status is Status.WAITING:
        assert narrow.status is Status.WAITING
        driver.step()
    driver.run()
    assert hypotheses_of(wide)


def test_a_step_encodes_no_more_than_its_budget() -> None:
    runner = FakeRunner()
    driver = CoreDriver(runner, EngineLimits(max_encode_tokens=20))
    rng = random.Random(3)
    for _ in range(40):
        driver.submit(random_source(rng), DecodingOptions(beam_size=1, max_target_length=12))
    driver.run()
    assert max(runner.encode_batches) <= 20
    assert sum(runner.encode_batches) == sum(len(sequence.source_ids) for sequence in driver.ended)
    steps = [step for report in driver.reports for step in report.steps]
    assert [step.num_encode_tokens for step in steps if step.num_admitted] == runner.encode_batches


def test_a_sentence_cancelled_while_it_waits_never_reaches_the_runner() -> None:
    runner = FakeRunner()
    driver = CoreDriver(runner)
    driver.submit([5, EOS], DecodingOptions(beam_size=16, max_target_length=3))
    waiting = driver.submit([6, 6, EOS], DecodingOptions(beam_size=16, max_target_length=3))
    driver.step()
    driver.cancel(waiting)
    driver.run()
    assert runner.encoded == [(5, EOS)]
    assert waiting.status is Status.ENDED
    assert waiting.outcome is None


def test_a_cancelled_sentence_is_not_in_the_next_step() -> None:
    runner = FakeRunner(eos_bonus=-30.0)
    driver = CoreDriver(runner)
    options = DecodingOptions(beam_size=4, num_hypotheses=4, max_target_length=12)
    first = driver.submit([5, EOS], options)
    second = driver.submit([6, EOS], options)
    for _ in range(3):
        driver.step()
    driver.cancel(first)
    driver.run()
    assert runner.batches[:3] == [2, 8, 8]
    assert set(runner.batches[3:]) == {4}
    assert_same(hypotheses_of(second), expected([6, EOS], options, runner))


class CancellingRunner(FakeRunner):
    """Cancels a sentence during the third forward, like a client that disconnects."""

    driver: CoreDriver
    victim: Sequence

    def decode(self, step: StepInput) -> StepOutput:
        if self.calls["decode"] == 2:
            self.driver.cancel(self.victim)
        return super().decode(step)


def test_a_cancel_during_the_forward_is_read_before_its_results_are_used() -> None:
    runner = CancellingRunner(eos_bonus=-30.0)
    driver = runner.driver = CoreDriver(runner)
    options = DecodingOptions(beam_size=4, max_target_length=12)
    victim = runner.victim = driver.submit([5, EOS], options)
    other = driver.submit([6, EOS], options)
    for _ in range(3):
        driver.step()
    assert victim.status is Status.ENDED
    assert victim.num_steps == 2
    assert other.num_steps == 3
    driver.run()
    assert_same(hypotheses_of(other), expected([6, EOS], options, runner))
    steps = [step for report in driver.reports for step in report.steps]
    assert [step.num_wasted_rows for step in steps[:4]] == [0, 0, 4, 0]


def test_a_deadline_that_has_passed_costs_no_step() -> None:
    runner = FakeRunner(eos_bonus=-30.0)
    driver = CoreDriver(runner)
    wide = DecodingOptions(beam_size=16, max_target_length=12)
    running = driver.submit([5, EOS], wide, deadline=1.0)
    queued = driver.submit([6, EOS], wide, deadline=2.0)
    for _ in range(3):
        driver.step()
    driver.now = 2.0
    driver.run()
    assert len(runner.batches) == 3
    assert runner.encoded == [(5, EOS)]
    assert isinstance(running.outcome, DeadlineExceeded)
    assert isinstance(queued.outcome, DeadlineExceeded)
    assert sum(step.num_expired for report in driver.reports for step in report.steps) == 2


def test_each_sentence_has_its_own_deadline() -> None:
    driver = CoreDriver(FakeRunner(eos_bonus=-30.0))
    options = DecodingOptions(beam_size=1, max_target_length=12)
    running = [driver.submit([5, EOS], options, deadline=at) for at in (2.0, 1.0, 3.0, 9.0)]
    ended = []
    for driver.now in (0.0, 1.0, 2.0, 2.5, 3.0):
        driver.step()
        ended.append([isinstance(one.outcome, DeadlineExceeded) for one in running].count(True))
    assert ended == [0, 1, 2, 2, 3]


def test_an_answer_has_its_queue_encode_and_decode_times() -> None:
    runner = FakeRunner(eos_bonus=-30.0)
    driver = CoreDriver(runner)
    driver.submit([5, EOS], DecodingOptions(beam_size=16, max_target_length=2))
    waiting = driver.submit([6, EOS], DecodingOptions(beam_size=16, max_target_length=3))
    for now in range(1, 20):
        driver.step()
        driver.now = float(now)
    assert isinstance(waiting.outcome, SequenceResult)
    # The first sentence takes three steps: two subwords and the end token.
    assert waiting.outcome.queue_time_s == 3.0
    assert waiting.outcome.decode_time_s == 3.0
    assert waiting.outcome.num_steps == 4
    assert waiting.outcome.encode_time_s == 0.0
