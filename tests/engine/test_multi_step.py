"""Several decoder steps in one call of the runner: the same answers, and no delay for sentences that could start."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from app.decoding.options import DecodingOptions
from app.engine.call_length import FEW_STEPS, MAX_CALL_S, MAX_FEW_S, MAX_STEPS_STREAMED, MIN_CALL_S
from app.engine.limits import EngineLimits
from app.engine.messages import Submit
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

AHEAD = replace(LIMITS, has_alignment=True, max_steps=4)
GREEDY = DecodingOptions(beam_size=1, max_target_length=12)
BEAM = DecodingOptions(beam_size=4, max_target_length=12)


class TimedRunner(FakeRunner):
    """A decoder step takes step_s seconds on the driver's clock.

    comes_in: number of the call in whose first step the sentence that begins with 6 is submitted.
    """

    driver: CoreDriver
    step_s = 0.0
    comes_in = 0

    def on_step(self, num_taken: int) -> None:
        self.driver.now += self.step_s
        if num_taken == 1 and self.calls["decode"] == self.comes_in:
            self.driver.submit([6, EOS], GREEDY)


def timed_driver(
    limits: Limits = AHEAD, *, step_s: float = 0.0, settings: EngineLimits = SETTINGS
) -> tuple[CoreDriver, TimedRunner]:
    runner = TimedRunner(limits, eos_bonus=-30.0)
    driver = runner.driver = CoreDriver(runner, settings)
    runner.step_s = step_s
    return driver, runner


@pytest.mark.parametrize("seed", range(20))
def test_answers_in_any_batch_equal_the_reference_searchs(seed: int) -> None:
    """Mostly greedy sentences arrive while others run, on few rows."""
    rng = random.Random(seed)
    runner = FakeRunner(replace(AHEAD, num_rows=9), eos_bonus=rng.choice([0.0, 2.0]))
    driver = CoreDriver(runner)
    wanted = [(random_source(rng), GREEDY if rng.random() < 0.8 else random_options(rng)) for _ in range(30)]
    sequences = run_in_batch(driver, rng, wanted)
    assert max(runner.steps) == AHEAD.max_steps
    steps = [step for report in driver.reports for step in report.steps]
    spent = [
        sequence.outcome.num_steps for sequence in sequences if isinstance(sequence.outcome, SequenceResult)
    ]
    wide = any(len(one.search.prefixes()) > 1 or one.options.beam_size > 1 for one in sequences)
    assert wide or sum(step.num_row_steps for step in steps) == sum(spent)


def test_rows_are_not_compacted_when_the_runner_skips_holes() -> None:
    """Sentences of many lengths come and go: no row is copied, and only occupied rows are counted."""
    rng = random.Random(1)
    runner = FakeRunner(replace(AHEAD, num_rows=5, skips_free_rows=True), eos_bonus=1.0)
    driver = CoreDriver(runner)
    run_in_batch(driver, rng, [(random_source(rng), GREEDY) for _ in range(30)])
    assert runner.calls["copy_rows"] == runner.calls["reorder"] == 0
    steps = [step for report in driver.reports for step in report.steps]
    assert sum(step.num_row_steps for step in steps) == sum(
        sequence.outcome.num_steps
        for sequence in driver.ended
        if isinstance(sequence.outcome, SequenceResult)
    )
    assert driver.core.scheduler.slots.end <= 5


def test_row_steps_are_counted_up_to_a_rows_end() -> None:
    driver = CoreDriver(FakeRunner(AHEAD, eos_bonus=2.0))
    sequences = [driver.submit([word, EOS], GREEDY) for word in range(5, 17)]
    driver.run()
    spent = [
        sequence.outcome.num_steps for sequence in sequences if isinstance(sequence.outcome, SequenceResult)
    ]
    assert len(set(spent)) > 3
    assert max(spent) < 12, "the last call does not end early"
    steps = [step for report in driver.reports for step in report.steps]
    assert sum(step.num_row_steps for step in steps) == sum(spent)
    assert sum(step.num_steps for step in steps if step.num_rows) == max(spent)


def test_a_sentence_alone_takes_the_fewest_calls() -> None:
    driver, runner = timed_driver()
    driver.submit([5, EOS], GREEDY)
    driver.run()
    # The time of the first step is unknown, so it is a call of its own. The end token takes one more step.
    assert runner.steps == [1, 4, 4, 4]


@pytest.mark.parametrize(("steps_in_time", "wanted"), [(0.5, 1), (1.5, 1), (2.5, 2), (3.5, 3), (9.0, 9)])
def test_a_new_sentence_ends_the_call_after_its_least_length(steps_in_time: float, wanted: int) -> None:
    """The sentence comes in the call's first step; the call still takes the steps that fit into MIN_CALL_S."""
    driver, runner = timed_driver(replace(AHEAD, max_steps=12), step_s=MIN_CALL_S / steps_in_time)
    runner.comes_in = 2
    driver.submit([5, EOS], GREEDY)
    for _ in range(3):
        driver.step()
    assert runner.steps[:2] == [1, wanted]
    assert runner.batches == [1, 1, 2]


def test_a_cancellation_ends_the_call_too() -> None:
    class Leaving(TimedRunner):
        def on_step(self, num_taken: int) -> None:
            super().on_step(num_taken)
            if self.calls["decode"] == num_taken == 2:
                self.driver.cancel(first)

    runner = Leaving(replace(AHEAD, max_steps=12), eos_bonus=-30.0)
    driver = runner.driver = CoreDriver(runner)
    runner.step_s = MIN_CALL_S
    first, _ = driver.submit([5, EOS], GREEDY), driver.submit([6, EOS], GREEDY)
    driver.run()
    assert runner.steps == [1, 2, 10]


@pytest.mark.parametrize(("steps_in_time", "wanted"), [(1.5, 1), (4.5, 4), (100.0, 12)])
def test_the_longest_call_is_bounded(steps_in_time: float, wanted: int) -> None:
    driver, runner = timed_driver(replace(AHEAD, max_steps=12), step_s=MAX_CALL_S / steps_in_time)
    driver.submit([5, EOS], GREEDY)
    for _ in range(2):
        driver.step()
    assert runner.steps == [1, wanted]


FEW = [(1 / 0.5, 1), (1 / 1.5, 1), (1 / 2.5, 2), (1 / 3.5, 3), (1 / 6.5, FEW_STEPS), (1 / 40, 8)]


class EndingRunner(TimedRunner):
    """After a source that begins with 7 the end token is third."""

    def next_scores(self, source: Int32s, prefix: Int32s) -> Floats:
        scores = super().next_scores(source, prefix)
        if source[0] == 7 and len(prefix) == 3:
            scores[EOS] = 0.0
        return scores


@pytest.mark.parametrize(("share", "wanted"), FEW)
def test_an_ended_sentence_waits_for_a_few_steps_at_most(share: float, wanted: int) -> None:
    """share: a step's time, as a share of MAX_FEW_S / FEW_STEPS."""
    runner = EndingRunner(replace(AHEAD, max_steps=12), eos_bonus=-30.0)
    driver = runner.driver = CoreDriver(runner)
    runner.step_s = share * MAX_FEW_S
    ending, other = driver.submit([7, EOS], GREEDY), driver.submit([5, EOS], GREEDY)
    driver.step()
    if share < 1:  # else a call of one step
        driver.step()
        assert runner.steps == [1, min(MAX_CALL_S // runner.step_s, 1 + wanted)]
    driver.run()
    assert [len(hypotheses_of(one)[0].ids) for one in (ending, other)] == [2, 12]


@pytest.mark.parametrize(("share", "wanted"), FEW)
def test_a_call_is_short_while_all_rows_are_occupied(share: float, wanted: int) -> None:
    """Also when a sentence was admitted just before."""
    limits = replace(AHEAD, num_rows=1, max_steps=8)
    driver, runner = timed_driver(limits, step_s=share * MAX_FEW_S)
    for length in (1, 12):
        driver.submit([5, EOS], replace(GREEDY, max_target_length=length))
    driver.submit([5, EOS], GREEDY)
    driver.step()
    driver.step()
    now = driver.now
    driver.step()
    assert runner.steps[2] == wanted
    assert driver.now - now <= max(MAX_FEW_S, share * MAX_FEW_S)


def test_steps_of_more_rows_are_assumed_to_take_longer() -> None:
    """A step of two rows is assumed to take twice as long as one of one row."""
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


def test_a_call_takes_one_step_while_a_sentence_could_be_admitted() -> None:
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
    driver, runner = timed_driver(replace(AHEAD, num_rows=2))
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


class SpoiltRunner(FakeRunner):
    """After a source that begins with 9 the third subword has no score."""

    def next_scores(self, source: Int32s, prefix: Int32s) -> Floats:
        scores = super().next_scores(source, prefix)
        return scores * np.float32(np.nan) if source[0] == 9 and len(prefix) == 3 else scores


def test_a_nan_score_fails_its_sentence_alone() -> None:
    driver = CoreDriver(SpoiltRunner(AHEAD, eos_bonus=-30.0))
    spoilt, sound = driver.submit([9, EOS], GREEDY), driver.submit([8, EOS], GREEDY)
    driver.run()
    assert isinstance(spoilt.outcome, EngineFailure)
    assert_same(hypotheses_of(sound), expected([8, EOS], GREEDY, FakeRunner(AHEAD, eos_bonus=-30.0)))


class LeavingRunner(FakeRunner):
    """A sentence is cancelled during the second call."""

    driver: CoreDriver
    victim: Sequence

    def decode(self, step: StepInput) -> StepOutput:
        if self.calls["decode"] == 1:
            self.driver.cancel(self.victim)
        return super().decode(step)


def test_a_sentence_cancelled_during_a_call_is_gone_after_it() -> None:
    runner = LeavingRunner(AHEAD, eos_bonus=-30.0)
    driver = runner.driver = CoreDriver(runner)
    runner.victim, other = driver.submit([5, EOS], GREEDY), driver.submit([6, EOS], GREEDY)
    driver.step()
    driver.step()
    assert list(driver.core.scheduler.running) == [other]
    driver.run()
    assert_same(hypotheses_of(other), expected([6, EOS], GREEDY, runner))
    assert runner.victim.outcome is None


class HiccupRunner(FakeRunner):
    """The second call fails."""

    def decode(self, step: StepInput) -> StepOutput:
        output = super().decode(step)
        if self.calls["decode"] == 2:
            raise EngineFailure("out of memory")
        return output


def test_sentences_of_a_failed_call_restart() -> None:
    runner = HiccupRunner(AHEAD, eos_bonus=-30.0)
    driver = CoreDriver(runner)
    sequences = {word: driver.submit([word, EOS], GREEDY) for word in (5, 6, 7)}
    driver.run()
    assert runner.steps[1] == 4
    for word, sequence in sequences.items():
        assert_same(hypotheses_of(sequence), expected([word, EOS], GREEDY, runner))


def test_a_stream_gets_every_subword_once_and_soon() -> None:
    driver, runner = timed_driver()
    sequence = driver.submit([5, EOS], GREEDY)
    driver.core.inbox.get()
    driver.core.inbox.put(Submit(sequence, streams=True))
    driver.run()
    received: list[int] = []
    for report in driver.reports:
        for deltas in report.deltas:
            assert deltas.position == len(received)
            received += deltas.ids
    wanted = hypotheses_of(sequence)[0].ids
    assert tuple(received) == wanted[: len(received)]
    assert len(received) >= len(wanted) - MAX_STEPS_STREAMED
    assert runner.steps == [1, *[MAX_STEPS_STREAMED] * 6]
    # No sentence is streamed any more.
    driver.submit([6, EOS], GREEDY)
    driver.run()
    assert runner.steps[7:] == [4, 4, 4, 1]
