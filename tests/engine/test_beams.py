"""Beams that the runner advances (offloaded beams) give the same answers as the search on the host.

The host takes the steps that the runner cannot.
"""

from __future__ import annotations

import random
from collections import abc
from dataclasses import replace

import numpy as np
import pytest

from app.decoding.options import DecodingOptions, EarlyStop
from app.engine.sequence import SequenceResult
from app.errors import EngineFailure
from app.runtime.beams import BeamOutcome
from app.runtime.interface import Floats, Int32s, StepInput, StepOutput
from tests.engine.beam_runner import BEAM_LIMITS, BeamRunner
from tests.engine.core_driver import (
    SETTINGS,
    CoreDriver,
    assert_same,
    expected,
    hypotheses_of,
    run_in_batch,
)
from tests.engine.fake_runner import EOS, LoopingRunner, attention
from tests.engine.test_options import random_options, random_source
from tests.native_kernels import NEEDS_NATIVE

BEAM = DecodingOptions(beam_size=4, max_target_length=12)

pytestmark = NEEDS_NATIVE


def random_job(rng: random.Random) -> tuple[list[int], DecodingOptions]:
    """Draw a sentence and options. Most options are those of a plain beam."""
    if rng.random() < 0.3:
        return random_source(rng), random_options(rng)
    size = rng.choice([2, 3, 4, 8])
    options = replace(BEAM, beam_size=size, patience=rng.choice([1, 1, 0.5, 2]))
    return random_source(rng), replace(
        options, num_hypotheses=rng.randint(1, min(size, options.num_to_complete))
    )


@pytest.mark.parametrize("seed", range(30))
def test_in_any_batch_answers_equal_those_of_the_reference_search(seed: int) -> None:
    """Sentences arrive while others run, on few rows. Most have plain beams; the rest have any other options."""
    rng = random.Random(seed)
    runner = BeamRunner(replace(BEAM_LIMITS, num_rows=rng.choice([12, 24])), eos_bonus=rng.choice([1.0, 3.0]))
    driver = CoreDriver(runner)
    run_in_batch(driver, rng, [random_job(rng) for _ in range(30)])
    assert driver.core.scheduler.row_allocator.num_occupied == 0
    assert set(runner.outcomes) >= {BeamOutcome.CONTINUES, BeamOutcome.DONE}
    assert max(num_beams for num_beams, _ in runner.beam_calls) > 1


@pytest.mark.seconds
@pytest.mark.parametrize("seed", range(10))
def test_offloaded_beams_return_attention(seed: int) -> None:
    """In any batch, each subword has the attention that follows from its hypothesis' prefix."""
    rng = random.Random(seed)
    runner = BeamRunner(replace(BEAM_LIMITS, num_rows=rng.choice([12, 24])), eos_bonus=rng.choice([1.0, 3.0]))
    driver = CoreDriver(runner)
    jobs = [random_job(rng) for _ in range(10)]
    jobs += [
        (source, replace(options, alignment=True)) for source, options in [random_job(rng) for _ in range(20)]
    ]
    rng.shuffle(jobs)
    for sequence in run_in_batch(driver, rng, jobs):
        source = np.array(sequence.source_ids, np.int32)
        for one in hypotheses_of(sequence):
            tokens = np.array([runner.limits.bos_id, *one.ids], np.int32)
            expected_attention = [
                attention(source, tokens[: place + 1]) for place in range(len(one.token_log_probabilities))
            ]
            np.testing.assert_array_equal(
                one.alignment, expected_attention if sequence.options.alignment else []
            )


def test_a_beam_with_attention_stays_offloaded_to_its_end() -> None:
    runner = BeamRunner()
    driver = CoreDriver(runner)
    driver.submit([7, 8, EOS], replace(BEAM, alignment=True))
    driver.run()
    assert runner.outcomes[-1] == BeamOutcome.DONE
    assert max(num_steps for _, num_steps in runner.beam_calls) > 1


def test_each_step_of_a_call_is_counted() -> None:
    """A single sentence takes several steps a call. A runner without beams takes the same number of steps."""
    steps_of_each = []
    for limits in (BEAM_LIMITS, replace(BEAM_LIMITS, advances_beams=False)):
        runner = BeamRunner(limits, eos_bonus=-1.0)
        driver = CoreDriver(runner)
        sequence = driver.submit([7, 8, EOS], BEAM)
        driver.run()
        assert isinstance(sequence.outcome, SequenceResult)
        steps = [step for report in driver.reports for step in report.steps]
        assert sum(step.num_steps for step in steps) == sequence.outcome.num_steps
        # The first step has one row, each other step four.
        assert sum(step.num_row_steps for step in steps) == 4 * sequence.outcome.num_steps - 3
        steps_of_each.append((sequence.outcome.num_steps, len(steps)))
    (num_steps, num_calls), (num_host_steps, num_host_calls) = steps_of_each
    assert num_steps == num_host_steps == num_host_calls
    assert num_calls < num_steps / 2


def test_a_call_takes_one_step_while_only_the_encoding_budget_delays_a_sequence() -> None:
    """The encoding budget admits one sentence a step."""
    runner = BeamRunner(eos_bonus=-30.0)
    driver = CoreDriver(runner, replace(SETTINGS, max_encode_tokens=16))
    for word in range(5, 8):
        driver.submit([*[word] * 15, EOS], BEAM)
    for _ in range(3):
        driver.step()
    # For each call: beams, steps.
    assert runner.beam_calls == [(1, 1), (2, 1), (3, 4)]


def test_a_finished_beam_does_not_stop_the_others() -> None:
    """The rows of the finished beam take no further steps. The first call has one step, as no step's time is known."""
    runner = BeamRunner(eos_bonus=1.0)
    driver = CoreDriver(runner)
    sequences = [driver.submit([word, EOS], BEAM) for word in range(5, 11)]
    driver.run()
    outcomes = [sequence.outcome for sequence in sequences]
    steps_of_each = [outcome.num_steps for outcome in outcomes if isinstance(outcome, SequenceResult)]
    assert len(set(steps_of_each)) > 3
    assert [num_steps for _, num_steps in runner.beam_calls[:-1]] == [1, 4, 4][: len(runner.beam_calls) - 1]
    steps = [step for report in driver.reports for step in report.steps]
    assert sum(step.num_row_steps for step in steps) == sum(4 * num_steps - 3 for num_steps in steps_of_each)
    assert sum(step.num_steps for step in steps) == max(steps_of_each)


def test_a_beam_is_offloaded_from_its_first_step() -> None:
    runner = BeamRunner(eos_bonus=-1.0)
    driver = CoreDriver(runner)
    sequence = driver.submit([7, 8, EOS], BEAM)
    driver.run()
    assert sum(num_steps for _, num_steps in runner.beam_calls) >= len(hypotheses_of(sequence)[0].ids)
    assert not runner.steps, "the search took a step on the host"
    assert runner.calls["copy_rows"] == 1


class NanFirstStepRunner(BeamRunner):
    """For a source that begins with 9, the scores of the first step are NaN."""

    def next_scores(self, source: Int32s, prefix: Int32s) -> Floats:
        scores = super().next_scores(source, prefix)
        return scores * np.float32(np.nan) if source[0] == 9 and len(prefix) == 1 else scores


def test_a_beam_whose_first_step_fails_frees_all_its_rows() -> None:
    runner = NanFirstStepRunner()
    driver = CoreDriver(runner)
    broken, sound = driver.submit([9, EOS], BEAM), driver.submit([8, EOS], BEAM)
    driver.step()
    assert isinstance(broken.outcome, EngineFailure)
    assert driver.core.scheduler.row_allocator.num_occupied == len(sound.rows) == 4
    driver.run()
    assert_same(hypotheses_of(sound), expected([8, EOS], BEAM, runner))


def test_with_too_few_candidates_the_host_takes_the_first_step() -> None:
    """A vocabulary of four cannot fill a beam of four beside the end token."""
    runner = BeamRunner(replace(BEAM_LIMITS, vocab_size=4), eos_bonus=-1.0)
    driver = CoreDriver(runner)
    sequence = driver.submit([0, EOS], BEAM)
    driver.run()
    assert runner.outcomes[0] == BeamOutcome.UNDECIDED
    assert_same(hypotheses_of(sequence), expected([0, EOS], BEAM, runner))


class NanRunner(BeamRunner):
    """For a source that begins with 9, the scores are NaN from position 3 on."""

    def next_scores(self, source: Int32s, prefix: Int32s) -> Floats:
        scores = super().next_scores(source, prefix)
        if source[0] == 9 and len(prefix) > 3:
            scores[:] = np.nan
        return scores


def test_a_beam_with_nan_scores_fails_alone() -> None:
    runner = NanRunner()
    driver = CoreDriver(runner)
    broken = driver.submit([9, 9, EOS], BEAM)
    sources = [[word, EOS] for word in (5, 6, 7)]
    sound = [driver.submit(source, BEAM) for source in sources]
    driver.run()
    assert isinstance(broken.outcome, EngineFailure)
    assert BeamOutcome.UNDECIDED in runner.outcomes
    for source, sequence in zip(sources, sound, strict=True):
        assert_same(hypotheses_of(sequence), expected(source, BEAM, runner))


class FailingRunner(BeamRunner):
    """Some forwards raise after the beams have advanced. failing: the numbers of these forwards."""

    failing: tuple[int, ...] = (3, 5)

    def decode(self, step: StepInput) -> StepOutput:
        output = super().decode(step)
        if self.calls["decode"] in self.failing:
            raise EngineFailure("the forward pass failed")
        return output


def test_a_failed_forward_changes_no_answer() -> None:
    runner = FailingRunner(eos_bonus=-1.0)
    driver = CoreDriver(runner)
    sources = [[word, EOS] for word in (5, 6, 7, 8, 9)]
    sequences = [driver.submit(source, BEAM) for source in sources]
    driver.run()
    for source, sequence in zip(sources, sequences, strict=True):
        assert_same(hypotheses_of(sequence), expected(source, BEAM, runner))
    assert sum(step.num_retried for report in driver.reports for step in report.steps) >= 5


class RestrictedRunner(BeamRunner):
    """Every result with a shortlist is bad, so its sentence is decoded again with the whole vocabulary."""

    def __init__(self) -> None:
        super().__init__(replace(BEAM_LIMITS, num_shortlists=1, min_log_probability=9.0), eos_bonus=-1.0)

    def restrict(
        self, _rows: abc.Sequence[int], _sources: abc.Sequence[Int32s], _tables: abc.Sequence[int | None]
    ) -> None:
        """The scores stay those of the whole vocabulary."""


def test_a_beam_that_restarts_with_the_whole_vocabulary_gives_the_answer_of_the_search() -> None:
    runner = RestrictedRunner()
    driver = CoreDriver(runner)
    options = replace(BEAM, num_hypotheses=4)
    sequences = [driver.submit([word, EOS], replace(options, shortlist=0)) for word in (5, 6)]
    driver.run()
    for word, sequence in zip((5, 6), sequences, strict=True):
        assert_same(hypotheses_of(sequence), expected([word, EOS], options, runner))
    assert sum(step.num_widened for report in driver.reports for step in report.steps) == 2


def test_a_cancelled_sentence_frees_its_beam() -> None:
    runner = BeamRunner(eos_bonus=-30.0)
    driver = CoreDriver(runner)
    cancelled, other = driver.submit([5, EOS], BEAM), driver.submit([6, EOS], BEAM)
    driver.step()
    driver.step()
    assert all(sequence.beam is not None for sequence in (cancelled, other))
    driver.cancel(cancelled)
    driver.run()
    assert cancelled.beam is None
    assert cancelled.outcome is None
    assert_same(hypotheses_of(other), expected([6, EOS], BEAM, runner))
    assert runner.beam_calls[-1][0] == 1


def test_a_beam_with_another_stopping_rule_is_not_offloaded() -> None:
    runner = BeamRunner()
    driver = CoreDriver(runner)
    for rule in set(EarlyStop) - {EarlyStop.FIRST}:
        driver.submit([5, EOS], replace(BEAM, early_stop=rule))
    driver.run()
    assert not runner.beam_calls


class LoopingBeamRunner(LoopingRunner, BeamRunner):
    """A runner that advances beams of a model that loops."""


def test_a_loop_is_found_at_the_same_step_by_the_runner_and_on_the_host() -> None:
    options = replace(BEAM, loop_guard=True, max_target_length=50)
    found = []
    for advances in (True, False):
        limits = replace(BEAM_LIMITS, max_target_length=60, advances_beams=advances)
        runner = LoopingBeamRunner(limits, eos_bonus=-1.0)
        driver = CoreDriver(runner)
        sequences = [driver.submit(source, options) for source in ([9, 9, EOS], [5, EOS])]
        driver.run()
        outcomes = [sequence.outcome for sequence in sequences]
        assert all(isinstance(outcome, SequenceResult) for outcome in outcomes)
        found.append(
            [
                (one.hypotheses, one.num_steps, one.has_looped)
                for one in outcomes
                if isinstance(one, SequenceResult)
            ]
        )
        assert bool(runner.beam_calls) == advances
    assert found[0] == found[1]
    assert [has_looped for *_, has_looped in found[0]] == [True, False]
