"""The engine's scores equal PyTorch's, for forced targets and for found hypotheses."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.decoding.options import DecodingOptions, FinishReason, Hypothesis, Sampling
from app.engine.limits import EngineLimits
from app.graphs import Precision
from app.runtime.interface import Floats, Runner
from export.parity import ParityPair, one_shot_log_probabilities, random_pairs
from model.config import EOS_ID
from model.transformer import Transformer
from tests.engine.core_driver import CoreDriver, hypotheses_of
from tests.export.tiny import VOCAB_SIZE, load_tiny_runner, random_model

LONGEST = 10


@pytest.fixture(scope="module")
def model() -> Transformer:
    return random_model(max_length=24)


def sources() -> list[list[int]]:
    pairs = random_pairs(
        np.random.default_rng(12), num_pairs=8, vocab_size=VOCAB_SIZE, max_length=24, max_first_step=0
    )
    return [pair.source.tolist() for pair in pairs]


def found_together(runner: Runner, jobs: list[tuple[list[int], DecodingOptions]]) -> list[list[Hypothesis]]:
    """The hypotheses of all jobs in one engine. Each job joins one step after the previous job."""
    driver = CoreDriver(runner, EngineLimits(max_encode_tokens=256))
    sequences = []
    for source, options in jobs:
        sequences.append(driver.submit(source, options))
        driver.step()
    driver.run()
    return [hypotheses_of(sequence) for sequence in sequences]


def teacher_forced(model: Transformer, source: list[int], one: Hypothesis) -> Floats:
    """PyTorch's log-probability of each token of a hypothesis, in one forward pass."""
    target = np.array(one.ids, np.int32)
    table = one_shot_log_probabilities(model, ParityPair(np.array(source, np.int32), target, 0))
    tokens = [*one.ids, EOS_ID][: len(one.token_log_probabilities)]
    scores: Floats = table[np.arange(len(tokens)), tokens]
    return scores


@pytest.mark.parametrize(
    "options",
    [
        DecodingOptions(beam_size=1, max_target_length=LONGEST),
        DecodingOptions(beam_size=4, num_hypotheses=4, max_target_length=LONGEST),
        DecodingOptions(beam_size=1, max_target_length=LONGEST, sampling=Sampling(seed=4)),
        DecodingOptions(
            beam_size=4,
            num_hypotheses=4,
            max_target_length=LONGEST,
            min_target_length=4,
            suppress_sequences=((7,), (9, 11)),
            no_repeat_ngram_size=2,
            target_prefix=(30, 31),
        ),
    ],
    ids=["greedy", "beam", "sampling", "constrained"],
)
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_found_hypothesis_has_the_score_of_its_ids(
    model: Transformer, precision: Precision, options: DecodingOptions, tmp_path: Path
) -> None:
    runner = load_tiny_runner(model, precision, tmp_path, num_rows=40)
    found = found_together(runner, [(source, options) for source in sources()])
    every = [(source, one) for source, hypotheses in zip(sources(), found, strict=True) for one in hypotheses]
    forced = [
        (source, DecodingOptions(beam_size=1, forced_target=one.ids, max_target_length=LONGEST))
        for source, one in every
    ]
    again = found_together(runner, forced)
    for (source, one), (scored,) in zip(every, again, strict=True):
        assert scored.ids == one.ids
        length = len(one.token_log_probabilities)
        assert length == len(one.ids) + (one.finish_reason is FinishReason.STOP)
        np.testing.assert_allclose(
            scored.token_log_probabilities[:length], one.token_log_probabilities, rtol=0, atol=2e-5
        )
        assert one.log_probability == pytest.approx(sum(one.token_log_probabilities), abs=1e-9)
        tolerance = 2e-5 if precision == "fp32" else 0.3
        np.testing.assert_allclose(
            one.token_log_probabilities, teacher_forced(model, source, one), rtol=0, atol=tolerance
        )


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_distributions_and_candidates_give_the_same_search(
    model: Transformer, precision: Precision, beam_size: int, tmp_path: Path
) -> None:
    """`neutral` forbids a sequence that is longer than any target, so it changes no answer.

    But its search reads whole distributions, and the search of `plain` reads the best candidates.
    """
    plain = DecodingOptions(beam_size=beam_size, num_hypotheses=beam_size, max_target_length=LONGEST)
    neutral = replace(plain, suppress_sequences=((9,) * 12,))
    jobs = [(source, options) for source in sources() for options in (plain, neutral)]
    found = found_together(load_tiny_runner(model, precision, tmp_path, num_rows=40), jobs)
    assert found[::2] == found[1::2]


def test_the_score_has_the_coverage_penalty_of_the_alignment(model: Transformer, tmp_path: Path) -> None:
    options = DecodingOptions(
        beam_size=4,
        num_hypotheses=4,
        alpha=0.0,
        coverage_penalty=0.5,
        alignment=True,
        max_target_length=LONGEST,
    )
    runner = load_tiny_runner(model, "fp32", tmp_path, num_rows=40)
    found = found_together(runner, [(source, options) for source in sources()])
    for source, hypotheses in zip(sources(), found, strict=True):
        assert len(hypotheses) == 4
        for one in hypotheses:
            assert len(one.alignment) == len(one.token_log_probabilities)
            assert {len(row) for row in one.alignment} == {len(source)}
            assert [sum(row) for row in one.alignment] == pytest.approx([1.0] * len(one.alignment), abs=1e-5)
            coverage_of_each = [min(1.0, sum(column)) for column in zip(*one.alignment, strict=True)]
            coverage = sum(math.log(share) for share in coverage_of_each)
            assert one.score == pytest.approx(one.log_probability + 0.5 * coverage, abs=1e-4)
