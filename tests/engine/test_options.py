"""Sentences with every option share the engine with plain sentences. No answer depends on the rest of the batch."""

from __future__ import annotations

import random
from collections import abc
from dataclasses import replace

import numpy as np
import pytest

from app.decoding.loop_guard import guarded
from app.decoding.options import DecodingOptions, EarlyStop, Sampling
from app.engine.limits import EngineLimits
from app.engine.sequence import Sequence, SequenceResult, Status
from app.errors import EngineFailure
from app.runtime.interface import Int32s, StepInput, StepOutput
from tests.engine.core_driver import CoreDriver, assert_same, expected, hypotheses_of
from tests.engine.fake_runner import EOS, LIMITS, FakeRunner, LoopingRunner

ALIGNED = replace(LIMITS, has_alignment=True)
PLAIN = DecodingOptions(beam_size=1, max_target_length=12)
BEAM = DecodingOptions(beam_size=4, num_hypotheses=4, max_target_length=12)
WORDS = [token for token in range(LIMITS.vocab_size) if token != EOS]


def random_source(rng: random.Random) -> list[int]:
    return [*(rng.randrange(4, LIMITS.vocab_size) for _ in range(rng.randrange(6))), EOS]


def random_options(rng: random.Random) -> DecodingOptions:
    """Draw options that the reference search supports. Half of the time only the basic ones are set."""
    beam_size = rng.choice([1, 1, 2, 4, 8])
    longest = rng.randint(1, LIMITS.max_target_length - 1)
    options = DecodingOptions(
        beam_size=beam_size, num_hypotheses=rng.randint(1, beam_size), max_target_length=longest
    )
    if rng.random() < 0.5:
        return options
    if beam_size > 1:
        options = replace(options, early_stop=rng.choice(list(EarlyStop)))
    prefix = tuple(rng.choice(WORDS) for _ in range(rng.choice([0, 0, rng.randint(0, longest)])))
    return replace(
        options,
        min_target_length=rng.choice([0, rng.randint(0, longest)]),
        suppress_sequences=tuple((rng.choice(WORDS),) for _ in range(rng.choice([0, 3]))),
        no_repeat_ngram_size=rng.choice([0, 1, 2]),
        repetition_penalty=rng.choice([1.0, 1.4]),
        coverage_penalty=rng.choice([0.0, 0.3]),
        target_prefix=prefix,
        num_alternatives=rng.choice([0, 3, 9]),
    )


@pytest.mark.parametrize("seed", range(15))
def test_in_any_batch_answers_equal_those_of_the_reference_search(seed: int) -> None:
    rng = random.Random(seed)
    runner = FakeRunner(ALIGNED, eos_bonus=rng.choice([0.0, 2.0]))
    driver = CoreDriver(runner)
    jobs = []
    for _ in range(20):
        source, options = random_source(rng), random_options(rng)
        jobs.append((driver.submit(source, options), source, options))
        for _ in range(rng.choice([0, 0, 1, 3])):
            driver.step()
    driver.run()
    assert (True, True) in runner.optional_outputs
    for sequence, source, options in jobs:
        assert_same(hypotheses_of(sequence), expected(source, options, runner))


def test_hypotheses_alone_and_in_a_batch_are_identical() -> None:
    """The jobs include sampling, alternatives, attention and forced targets."""
    rng = random.Random(1)
    jobs = [(random_source(rng), random_options(rng)) for _ in range(12)]
    for number in range(6):
        sampling = Sampling(temperature=1.5, top_k=number * 3, top_p=0.95, seed=number)
        jobs.append((random_source(rng), replace(PLAIN, sampling=sampling)))
        jobs.append((random_source(rng), replace(PLAIN, forced_target=(7, 8, 9)[: number % 4])))
        jobs.append((random_source(rng), replace(BEAM, alignment=True, num_alternatives=number)))
    rng.shuffle(jobs)
    together = CoreDriver(FakeRunner(ALIGNED))
    sequences = [together.submit(source, options) for source, options in jobs]
    together.run()
    for sequence, (source, options) in zip(sequences, jobs, strict=True):
        alone = CoreDriver(FakeRunner(ALIGNED))
        only = alone.submit(source, options)
        alone.run()
        assert hypotheses_of(sequence) == hypotheses_of(only)


def test_optional_outputs_are_computed_only_in_steps_that_read_them() -> None:
    runner = FakeRunner(ALIGNED, eos_bonus=-30.0)
    driver = CoreDriver(runner)
    driver.submit([5, EOS], replace(PLAIN, max_target_length=9))
    driver.submit([6, EOS], replace(BEAM, target_prefix=(7, 8), max_target_length=4))
    driver.submit([7, EOS], replace(PLAIN, alignment=True, max_target_length=2))
    driver.run()
    assert runner.optional_outputs == [(True, True)] * 2 + [(False, True)] + [(False, False)] * 7


def test_a_forced_targets_scores_are_those_of_the_model() -> None:
    runner = FakeRunner(ALIGNED)
    driver = CoreDriver(runner)
    found = driver.submit([5, 6, EOS], BEAM)
    driver.run()
    for one in hypotheses_of(found):
        scored = driver.submit([5, 6, EOS], replace(PLAIN, forced_target=one.ids))
        driver.run()
        (again,) = hypotheses_of(scored)
        assert again.log_probability == pytest.approx(one.log_probability, abs=1e-9)


def looping_driver() -> CoreDriver:
    limits = replace(LIMITS, max_target_length=60)
    return CoreDriver(LoopingRunner(limits, eos_bonus=-1.0))


@pytest.mark.parametrize("options", [PLAIN, replace(BEAM, num_hypotheses=1)])
def test_a_sentence_that_loops_is_decoded_again_with_the_guard(options: DecodingOptions) -> None:
    options = replace(options, loop_guard=True, max_target_length=50)
    driver = looping_driver()
    looping = driver.submit([9, 9, EOS], options)
    quiet = driver.submit([5, EOS], options)
    driver.run()
    assert isinstance(looping.outcome, SequenceResult)
    assert isinstance(quiet.outcome, SequenceResult)
    assert (looping.outcome.has_looped, quiet.outcome.has_looped) == (True, False)
    assert driver.core.scheduler.row_allocator.num_reserved == 0
    assert isinstance(driver.runner, LoopingRunner)
    # The sentence is not encoded again: the only call of `encode` has both sentences.
    assert driver.runner.calls["encode"] == 1
    assert looping in driver.ended
    # The loop is found after 24 steps. The second attempt takes a step for each subword and for the end.
    assert looping.num_steps == 24 + len(looping.outcome.hypotheses[0].ids) + 1
    assert sum(step.num_looped for report in driver.reports for step in report.steps) == 1
    second = looping_driver()
    guarded_only = second.submit([9, 9, EOS], guarded(options))
    second.run()
    assert hypotheses_of(looping) == hypotheses_of(guarded_only)


def test_a_looped_sentence_keeps_its_flag_and_guard_after_a_failed_forward() -> None:
    class FailingRunner(LoopingRunner):
        fails_at = -1

        def decode(self, step: StepInput) -> StepOutput:
            if self.calls["decode"] == self.fails_at:
                self.fails_at = -1
                raise EngineFailure("a single failure")
            return super().decode(step)

    runner = FailingRunner(replace(LIMITS, max_target_length=60), eos_bonus=-1.0)
    runner.fails_at = 30
    driver = CoreDriver(runner)
    options = replace(PLAIN, loop_guard=True, max_target_length=50)
    looping, other = driver.submit([9, 9, EOS], options), driver.submit([9, 8, EOS], options)
    driver.run()
    assert runner.fails_at == -1
    for sequence in (looping, other):
        assert isinstance(sequence.outcome, SequenceResult)
        assert sequence.outcome.has_looped
    assert sum(step.num_looped for report in driver.reports for step in report.steps) == 2


class NanDistributionRunner(FakeRunner):
    """Puts a NaN into the distributions of rows whose source begins with 9, but never at the best candidates."""

    def decode(self, step: StepInput) -> StepOutput:
        output = super().decode(step)
        if output.distributions is not None:
            for row in range(len(step.ids)):
                if self.source_of(row)[0] == 9:
                    output.distributions[row, np.argmin(output.distributions[row])] = np.nan
        return output


def test_a_distribution_with_a_nan_fails_the_sentence_that_reads_it_alone() -> None:
    driver = CoreDriver(NanDistributionRunner(ALIGNED), EngineLimits(max_encode_tokens=64))
    reading = driver.submit([9, 5, EOS], replace(PLAIN, repetition_penalty=1.2))
    plain = driver.submit([9, 5, EOS], BEAM)
    other = driver.submit([5, EOS], replace(PLAIN, repetition_penalty=1.2))
    driver.run()
    assert isinstance(reading.outcome, EngineFailure)
    for sequence in (plain, other):
        assert isinstance(sequence.outcome, SequenceResult)


def test_a_beam_that_restarts_with_the_guard_keeps_one_row() -> None:
    driver = looping_driver()
    options = replace(BEAM, loop_guard=True, max_target_length=50)
    looping: Sequence = driver.submit([9, EOS], options)
    while not looping.has_looped:
        driver.step()
    assert (len(looping.rows), looping.length, looping.status) == (1, 0, Status.RUNNING)
    assert driver.core.scheduler.row_allocator.num_occupied == 1
    driver.run()
    assert hypotheses_of(looping)


class NoSecondShortlistRunner(LoopingRunner):
    """Cannot restrict a row a second time after its encoding, as the restart of a looping search needs."""

    def __init__(self) -> None:
        super().__init__(replace(LIMITS, max_target_length=65, num_shortlists=1), eos_bonus=-30.0)
        self.fresh: set[int] = set()

    def encode(self, sources: abc.Sequence[Int32s], rows: abc.Sequence[int]) -> None:
        super().encode(sources, rows)
        self.fresh |= {*rows}

    def restrict(
        self, rows: abc.Sequence[int], _sources: abc.Sequence[Int32s], _tables: abc.Sequence[int | None]
    ) -> None:
        if not self.fresh >= {*rows}:
            raise EngineFailure("no memory for shortlists")
        self.fresh -= {*rows}


@pytest.mark.parametrize("options", [PLAIN, BEAM])
def test_a_restart_that_fails_costs_no_other_answer(options: DecodingOptions) -> None:
    """If a restart fails while two sentences run, both start again. If it fails while one runs, this sentence fails."""
    runner = NoSecondShortlistRunner()
    driver = CoreDriver(runner)
    options = replace(options, max_target_length=64)
    guarded = replace(options, loop_guard=True)
    looping = driver.submit([9, EOS], guarded)
    other = driver.submit([5, EOS], options)
    driver.run()
    assert isinstance(looping.outcome, SequenceResult)
    assert looping.outcome.has_looped
    assert_same(hypotheses_of(other), expected([5, EOS], options, runner))
    alone = driver.submit([9, EOS], guarded)
    driver.run()
    assert isinstance(alone.outcome, EngineFailure)
    after = driver.submit([5, EOS], options)
    driver.run()
    assert_same(hypotheses_of(after), expected([5, EOS], options, runner))
    assert driver.core.scheduler.row_allocator.num_reserved == 0
