"""Unless the forced target is empty, no search ends before its first subword, on standard and native kernels."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from app.decoding.options import DecodingOptions, Sampling
from app.graphs import KernelChoice
from app.runtime.interface import StepInput
from app.runtime.ort_runner import LoadedRunner
from export.golden import translate_ids
from model.config import BOS_ID, EOS_ID
from model.search import beam_search, greedy_search
from model.transformer import Transformer
from tests.export.tiny import load_tiny_runner, random_model

SOURCES = [[*range(5, 5 + length), EOS_ID] for length in (1, 3, 6, 9)]


@pytest.fixture(scope="module")
def ending_model() -> Transformer:
    """A model that gives the end token by far the largest probability at every step."""
    model = random_model(max_length=24, norm="pre")
    with torch.no_grad():
        model.get_parameter("decoder_norm.bias").fill_(1.0)
        model.embedding.weight[EOS_ID] = 1.0
    return model


@pytest.fixture(scope="module")
def runner(
    ending_model: Transformer, kernels: KernelChoice, tmp_path_factory: pytest.TempPathFactory
) -> LoadedRunner:
    return load_tiny_runner(
        ending_model, "fp32", tmp_path_factory.mktemp("ending_model"), num_rows=20, kernels=kernels
    )


@pytest.mark.parametrize(
    "options",
    [
        DecodingOptions(beam_size=1, max_target_length=8),
        DecodingOptions(beam_size=4, max_target_length=8),
        DecodingOptions(beam_size=16, max_target_length=8),
        DecodingOptions(beam_size=1, max_target_length=8, num_alternatives=2),
        DecodingOptions(beam_size=1, max_target_length=8, sampling=Sampling(seed=3)),
        DecodingOptions(beam_size=4, max_target_length=8, no_repeat_ngram_size=2),
        DecodingOptions(beam_size=4, max_target_length=8, suppress_sequences=((9,),)),
    ],
    ids=["greedy", "beam", "wide", "alternatives", "sampled", "no repeats", "suppressed"],
)
def test_every_translation_has_a_subword(runner: LoadedRunner, options: DecodingOptions) -> None:
    assert all(translate_ids(runner, SOURCES, options))


@pytest.mark.parametrize("beam_size", [1, 4])
def test_the_reference_searches_have_the_same_rule(
    ending_model: Transformer, runner: LoadedRunner, beam_size: int
) -> None:
    options = DecodingOptions(beam_size=beam_size, max_target_length=8)
    expected = [
        greedy_search(ending_model, source, max_target_length=8).ids
        if beam_size == 1
        else beam_search(ending_model, source, beam_size=beam_size, max_target_length=8)[0].ids
        for source in SOURCES
    ]
    assert translate_ids(runner, SOURCES, options) == expected
    assert {len(ids) for ids in expected} == {1}


def test_the_end_token_keeps_its_probability(runner: LoadedRunner) -> None:
    """The end token is no candidate for the first subword. The probabilities of other subwords do not change."""
    runner.encode([np.array(SOURCES[0], np.int32)], [0])
    step = StepInput(np.array([BOS_ID], np.int32), np.zeros(1, np.int32), 3, wants_distributions=True)
    output = runner.decode(step)
    assert output.distributions is not None
    assert output.distributions[0].argmax() == EOS_ID
    assert EOS_ID not in output.ids
    np.testing.assert_array_equal(output.log_probabilities[0], output.distributions[0][output.ids[0]])
    assert translate_ids(
        runner, SOURCES[:1], DecodingOptions(beam_size=1, max_target_length=8, forced_target=())
    ) == [()]
