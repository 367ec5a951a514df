"""Calls of several decoder steps give the same answers as single steps, and delay no sentence that can be admitted."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from app.decoding.options import DecodingOptions
from app.engine.call_length import FEW_STEPS, MAX_CALL_S, MAX_FEW_S, MAX_STEPS_STREAMED, MIN_CALL_S
from app.engine.limits import EngineLimits
from app.engine.sequence import Sequence, SequenceResult
from app.errors import EngineFailure
from app.runtime.interface import Floats, Int32s, Limits, StepInput, StepOutput
from tests.engine.core_driver import (
    SETTINGS,
    CoreDriver,
    assert_same,
    expected,
    hypotheses_of,
    run_in_batch,
)
from tests.engine.fake_runner import EOS, LIMITS, FakeRunner, LoopingRunner
from tests.engine.test_options import random_options, random_source

MULTI_STEP = replace(LIMITS, has_alignment=True, max_steps=4)
GREEDY = DecodingOptions(beam_size=1, max_target_length=12)
BEAM = DecodingOptions(beam_size=4, max_target_length=12)


class TimedRunner(FakeRunner):
    """A runner whose decoder step takes step_s seconds on the driver's clock.

    arrives_in_call: the number of a call; 0 for none. In the first step of this call, a sentence is submitted.
    """

    driver: CoreDriver
    step_s = 0.0
    arrives_in_call = 0

    def on_step(self, num_taken: int) -> None:
        self.driver.now += self.step_s
        if num_taken == 1 and self.calls["decode"] == self.arrives_in_call:
            self.driver.submit([6, EOS], GREEDY)


def timed_driver(
    limits: Limits = MULTI_STEP, *, step_s: float = 0.0, settings: EngineLimits = SETTINGS
) -> tuple[CoreDriver, TimedRunner]:
    runner = TimedRunner(limits, eos_bonus=-30.0)
    driver = runner.driver = CoreDriver(runner, settings)
    runner.step_s = step_s
    return driver, runner


@pytest.mark.parametrize("seed", range(20))
def test_in_any_batch_answers_equal_those_of_the_reference_search(seed: int) -> None:
    """Mostly greedy sentences arrive while others run, on few rows."""
    rng = random.Random(seed)
    runner = FakeRunner(replace(MULTI_STEP, num_rows=9), eos_bonus=rng.choice([0.0, 2.0]))
    driver = CoreDriver(runner)
    jobs = [(random_source(rng), GREEDY if rng.random() < 0.8 else random_options(rng)) for _ in range(30)]
    run_in_batch(driver, rng, jobs)
    assert max(runner.steps) == MULTI_STEP.max_steps


def test_rows_are_not_compacted_if_the_runner_skips_free_rows() -> None:
    """Sentences of many lengths start and end. No row is copied, and only occupied rows are counted."""
    rng = random.Random(1)
    runner = FakeRunner(replace(MULTI_STEP, num_rows=5, skips_free_rows=True), eos_bonus=1.0)
    driver = CoreDriver(runner)
    run_in_batch(driver, rng, [(random_source(rng), GREEDY) for _ in range(30)])
    assert runner.calls["copy_rows"] == runner.calls["reorder"] == 0
    steps = [step for report in driver.reports for step in report.steps]
    assert sum(step.num_row_steps for step in steps) == sum(
        sequence.outcome.num_steps
        for sequence in driver.ended
        if isinstance(sequence.outcome, SequenceResult)
    )


def test_row_steps_are_counted_up_to_a_rows_end() -> None:
    driver = CoreDriver(FakeRunner(MULTI_STEP, eos_bonus=2.0))
    sequences = [driver.submit([word, EOS], GREEDY) for word in range(5, 17)]
    driver.run()
    steps_of_each = [
        sequence.outcome.num_steps for sequence in sequences if isinstance(sequence.outcome, SequenceResult)
    ]
    assert len(set(steps_of_each)) > 3
    assert max(steps_of_each) < 12, "the last call must end before the maximum length"
    steps = [step for report in driver.reports for step in report.steps]
    assert sum(step.num_row_steps for step in steps) == sum(steps_of_each)
    assert sum(step.num_steps for step in steps if step.num_rows) == max(steps_of_each)


def test_a_single_sentence_takes_as_few_calls_as_possible() -> None:
    driver, runner = timed_driver()
    driver.submit([5, EOS], GREEDY)
    driver.run()
    # The first call takes one step, because the time of a step is unknown. 12 subwords and the end token: 13 steps.
    assert runner.steps == [1, 4, 4, 4]


@pytest.mark.parametrize(
    ("steps_in_limit", "expected_steps"), [(0.5, 1), (1.5, 1), (2.5, 2), (3.5, 3), (9.0, 9)]
)
def test_a_new_sentence_ends_the_call_after_its_minimum_time(
    steps_in_limit: float, expected_steps: int
) -> None:
    """The sentence arrives in the call's first step. The call still takes the steps that fit into MIN_CALL_S."""
    driver, runner = timed_driver(replace(MULTI_STEP, max_steps=12), step_s=MIN_CALL_S / steps_in_limit)
    runner.arrives_in_call = 2
    driver.submit([5, EOS], GREEDY)
    for _ in range(3):
        driver.step()
    assert runner.steps[:2] == [1, expected_steps]
    assert runner.batches == [1, 1, 2]


def test_a_cancellation_ends_the_call() -> None:
    class CancellingRunner(TimedRunner):
        def on_step(self, num_taken: int) -> None:
            super().on_step(num_taken)
            if self.calls["decode"] == num_taken == 2:
                self.driver.cancel(first)

    runner = CancellingRunner(replace(MULTI_STEP, max_steps=12), eos_bonus=-30.0)
    driver = runner.driver = CoreDriver(runner)
    runner.step_s = MIN_CALL_S
    first, _ = driver.submit([5, EOS], GREEDY), driver.submit([6, EOS], GREEDY)
    driver.run()
    assert runner.steps == [1, 2, 10]


@pytest.mark.parametrize(("steps_in_limit", "expected_steps"), [(1.5, 1), (4.5, 4), (100.0, 12)])
def test_the_longest_call_is_bounded(steps_in_limit: float, expected_steps: int) -> None:
    driver, runner = timed_driver(replace(MULTI_STEP, max_steps=12), step_s=MAX_CALL_S / steps_in_limit)
    driver.submit([5, EOS], GREEDY)
    for _ in range(2):
        driver.step()
    assert runner.steps == [1, expected_steps]


# Pairs: the time of a step as a share of MAX_FEW_S, and the expected number of steps.
SHORT_CALLS = [(1 / 0.5, 1), (1 / 1.5, 1), (1 / 2.5, 2), (1 / 3.5, 3), (1 / 6.5, FEW_STEPS), (1 / 40, 8)]


class EndingRunner(TimedRunner):
    """For a source that begins with 7, the third subword is the end token."""

    def next_scores(self, source: Int32s, prefix: Int32s) -> Floats:
        scores = super().next_scores(source, prefix)
        if source[0] == 7 and len(prefix) == 3:
            scores[EOS] = 0.0
        return scores


@pytest.mark.parametrize(("share", "expected_steps"), SHORT_CALLS)
def test_an_ended_sentence_waits_for_few_further_steps(share: float, expected_steps: int) -> None:
    """share: a step's time as a share of MAX_FEW_S."""
    runner = EndingRunner(replace(MULTI_STEP, max_steps=12), eos_bonus=-30.0)
    driver = runner.driver = CoreDriver(runner)
    runner.step_s = share * MAX_FEW_S
    ending, other = driver.submit([7, EOS], GREEDY), driver.submit([5, EOS], GREEDY)
    driver.step()
    if share < 1:  # a longer step is a call of its own
        driver.step()
        assert runner.steps == [1, min(MAX_CALL_S // runner.step_s, 1 + expected_steps)]
    driver.run()
    assert [len(hypotheses_of(one)[0].ids) for one in (ending, other)] == [2, 12]


@pytest.mark.parametrize(("share", "expected_steps"), SHORT_CALLS)
def test_a_call_is_short_while_all_rows_are_occupied(share: float, expected_steps: int) -> None:
    """The call is also short right after an admission."""
    limits = replace(MULTI_STEP, num_rows=1, max_steps=8)
    driver, runner = timed_driver(limits, step_s=share * MAX_FEW_S)
    for length in (1, 12):
        driver.submit([5, EOS], replace(GREEDY, max_target_length=length))
    driver.submit([5, EOS], GREEDY)
    driver.step()
    driver.step()
    now = driver.now
    driver.step()
    assert runner.steps[2] == expected_steps
    assert driver.now - now <= max(MAX_FEW_S, share * MAX_FEW_S)


def test_steps_of_more_rows_are_assumed_to_take_longer() -> None:
    """A step of two rows is assumed to take twice as long as a step of one row."""
    driver, runner = timed_driver(step_s=MAX_CALL_S / 4.5)
    driver.submit([5, EOS], GREEDY)
    for _ in range(2):
        driver.step()
    driver.submit([6, EOS], GREEDY)
    driver.run()
    assert runner.steps[:4] == [1, 4, 2, 4]


def test_no_row_is_stepped_beyond_its_longest_target() -> None:
    driver, runner = timed_driver()
    lengths = [12, 5, 9]
    jobs = [driver.submit([5 + n, EOS], replace(GREEDY, max_target_length=n)) for n in lengths]
    driver.run()
    assert [len(hypotheses_of(sequence)[0].ids) for sequence in jobs] == lengths
    assert runner.steps == [1, 4, 1, 4, 3]


def test_a_call_takes_one_step_while_only_the_encoding_budget_delays_a_sentence() -> None:
    """The encoding budget admits one sentence a step."""
    driver, runner = timed_driver(settings=replace(SETTINGS, max_encode_tokens=16))
    for word in range(5, 9):
        driver.submit([*[word] * 15, EOS], GREEDY)
    for _ in range(3):
        driver.step()
    assert runner.steps == [1, 1, 1]
    driver.step()
    assert runner.steps[3:] == [4]


def test_a_call_takes_several_steps_while_all_rows_are_occupied() -> None:
    driver, runner = timed_driver(replace(MULTI_STEP, num_rows=2))
    for word in range(5, 9):
        driver.submit([word, EOS], GREEDY)
    driver.run()
    assert runner.steps == [1, 4, 4, 4, 4, 4, 4, 1]


def test_a_beam_in_the_batch_keeps_calls_to_single_steps() -> None:
    driver, runner = timed_driver()
    driver.submit([5, EOS], GREEDY)
    driver.submit([6, EOS], BEAM)
    driver.run()
    assert set(runner.steps) == {1}


def test_a_loop_found_within_a_call_restarts_the_sentence() -> None:
    options = replace(GREEDY, loop_guard=True, max_target_length=50)
    answers = []
    for max_steps in (1, 8):
        limits = replace(LIMITS, max_target_length=60, max_steps=max_steps)
        driver = CoreDriver(LoopingRunner(limits, eos_bonus=-1.0))
        sequences = [driver.submit(source, options) for source in ([9, 9, EOS], [5, EOS], [9, 8, 7, EOS])]
        driver.run()
        outcomes = [sequence.outcome for sequence in sequences]
        assert all(isinstance(outcome, SequenceResult) for outcome in outcomes)
        answers.append([(o.hypotheses, o.has_looped) for o in outcomes if isinstance(o, SequenceResult)])
    assert answers[0] == answers[1]
    assert [has_looped for _, has_looped in answers[0]] == [True, False, True]


class NanRunner(FakeRunner):
    """For a source that begins with 9, the scores of the third subword are NaN."""

    def next_scores(self, source: Int32s, prefix: Int32s) -> Floats:
        scores = super().next_scores(source, prefix)
        return scores * np.float32(np.nan) if source[0] == 9 and len(prefix) == 3 else scores


def test_a_nan_score_fails_its_sentence_alone() -> None:
    driver = CoreDriver(NanRunner(MULTI_STEP, eos_bonus=-30.0))
    broken, sound = driver.submit([9, EOS], GREEDY), driver.submit([8, EOS], GREEDY)
    driver.run()
    assert isinstance(broken.outcome, EngineFailure)
    assert_same(hypotheses_of(sound), expected([8, EOS], GREEDY, FakeRunner(MULTI_STEP, eos_bonus=-30.0)))


class CancelDuringCallRunner(FakeRunner):
    """Cancels a sentence during the second call."""

    driver: CoreDriver
    victim: Sequence

    def decode(self, step: StepInput) -> StepOutput:
        if self.calls["decode"] == 1:
            self.driver.cancel(self.victim)
        return super().decode(step)


def test_a_sentence_cancelled_during_a_call_does_not_run_after_it() -> None:
    runner = CancelDuringCallRunner(MULTI_STEP, eos_bonus=-30.0)
    driver = runner.driver = CoreDriver(runner)
    runner.victim, other = driver.submit([5, EOS], GREEDY), driver.submit([6, EOS], GREEDY)
    driver.step()
    driver.step()
    assert list(driver.core.scheduler.running) == [other]
    driver.run()
    assert_same(hypotheses_of(other), expected([6, EOS], GREEDY, runner))
    assert runner.victim.outcome is None


class FailingRunner(FakeRunner):
    """Fails in its second call."""

    def decode(self, step: StepInput) -> StepOutput:
        output = super().decode(step)
        if self.calls["decode"] == 2:
            raise EngineFailure("out of memory")
        return output


def test_sentences_of_a_failed_call_restart() -> None:
    runner = FailingRunner(MULTI_STEP, eos_bonus=-30.0)
    driver = CoreDriver(runner)
    sequences = {word: driver.submit([word, EOS], GREEDY) for word in (5, 6, 7)}
    driver.run()
    assert runner.steps[1] == 4
    for word, sequence in sequences.items():
        assert_same(hypotheses_of(sequence), expected([word, EOS], GREEDY, runner))


def test_a_stream_receives_every_subword_once_and_without_delay() -> None:
    driver, runner = timed_driver()
    sequence = driver.submit([5, EOS], GREEDY, streams=True)
    driver.run()
    received: list[int] = []
    for report in driver.reports:
        for deltas in report.deltas:
            assert deltas.position == len(received)
            received += deltas.ids
    final_ids = hypotheses_of(sequence)[0].ids
    assert tuple(received) == final_ids[: len(received)]
    assert len(received) >= len(final_ids) - MAX_STEPS_STREAMED
    assert runner.steps == [1, *[MAX_STEPS_STREAMED] * 6]
    # A sentence without a stream has longer calls.
    driver.submit([6, EOS], GREEDY)
    driver.run()
    assert runner.steps[7:] == [4, 4, 4, 1]
