"""The runner's cached steps give the log-probabilities of one forward pass in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from app.bundle import Bundle
from app.decoding.options import DecodingOptions
from app.graphs import KernelChoice, Precision
from app.runtime.interface import Runner, StepInput
from app.runtime.ort_runner import LoadedRunner
from export.blocks import MAX_CANDIDATES, chunk_length
from export.golden import translate_ids
from export.parity import (
    LEAST,
    ParityPair,
    distributions_of,
    mean_target_difference,
    one_shots_of,
    random_pairs,
    stepwise_log_probabilities,
    target_scores,
)
from model.config import BOS_ID, EOS_ID
from model.search import ModelWithStart, beam_search, greedy_search
from model.transformer import Transformer
from tests.export.tiny import (
    VOCAB_SIZE,
    load_tiny_runner,
    load_tiny_variant,
    random_model,
    write_tiny_variant,
)

FORMS: list[dict[str, Any]] = [
    {"norm": "post", "activation": "relu", "positions": "sinusoidal"},
    {"norm": "pre", "activation": "relu", "positions": "learned"},
    {"norm": "post", "activation": "gelu", "positions": "learned"},
    {"norm": "pre", "activation": "gelu", "positions": "sinusoidal"},
    {"norm": "post", "activation": "silu", "positions": "sinusoidal"},
    {"norm": "pre", "activation": "silu", "positions": "sinusoidal"},
    {"d_model": 128, "num_encoder_layers": 3, "num_decoder_layers": 1},
    {"norm": "post", "decoder": "ssru"},
    {"norm": "pre", "decoder": "ssru", "num_decoder_layers": 1},
    {"norm": "post", "activation": "silu", "output_bias": True},
]
NAMES = ["-".join(map(str, form.values())) for form in FORMS]


def ragged_pairs(seed: int, *, num_pairs: int = 9, max_length: int = 24) -> list[ParityPair]:
    return random_pairs(
        np.random.default_rng(seed),
        num_pairs=num_pairs,
        vocab_size=VOCAB_SIZE,
        max_length=max_length,
        max_first_step=7,
    )


class Subject:
    """A model, one variant of it, and PyTorch's results. All tests share them, so no test may change them."""

    def __init__(self, model: Transformer, bundle: Bundle) -> None:
        self._model, self._bundle = model, bundle
        self._results: dict[str, list[Any]] = {}

    def load(self, kernels: KernelChoice, num_rows: int = 16) -> LoadedRunner:
        return load_tiny_variant(self._bundle, num_rows=num_rows, kernels=kernels)

    def difference(self, runner: Runner, name: str, pairs: Sequence[ParityPair]) -> float:
        """The largest difference between the runner and PyTorch.

        name: the name of the pairs. PyTorch runs once for each name, so a name always stands for the same pairs.
        """
        if name not in self._results:
            self._results[name] = one_shots_of(self._model, pairs)
        found = stepwise_log_probabilities(runner, pairs)
        differences = [
            np.abs(np.maximum(stepwise, LEAST) - np.maximum(one_shot, LEAST)).max()
            for stepwise, one_shot in zip(found, self._results[name], strict=True)
        ]
        return float(np.max(differences))

    def reference_ids(
        self, sources: Sequence[Sequence[int]], options: DecodingOptions, starts: Sequence[int | None]
    ) -> list[tuple[int, ...]]:
        """The ids of the reference search, which runs once for each beam size.

        So all calls for one subject must have the same sources and starts.
        """
        name, limit = f"beam {options.beam_size}", options.max_target_length
        if name not in self._results:
            models = [
                ModelWithStart(self._model, (BOS_ID, *([] if one is None else [one]))) for one in starts
            ]
            self._results[name] = [
                greedy_search(model, source, max_target_length=limit).ids
                if options.beam_size == 1
                else beam_search(model, source, beam_size=options.beam_size, max_target_length=limit)[0].ids
                for model, source in zip(models, sources, strict=True)
            ]
        return self._results[name]


@pytest.fixture(scope="module")
def subject_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Subject]:
    @cache
    def subject(
        precision: Precision, *, has_target_start: bool = False, max_length: int = 24, **form: Any
    ) -> Subject:
        model, folder = random_model(max_length=max_length, **form), tmp_path_factory.mktemp("variant")
        return Subject(model, write_tiny_variant(model, precision, folder, has_target_start=has_target_start))

    return subject


@pytest.mark.parametrize("form", FORMS, ids=NAMES)
def test_fp32_log_probabilities_equal_pytorchs_for_rows_that_start_at_different_steps(
    form: dict[str, Any], subject_of: Callable[..., Subject], kernels: KernelChoice
) -> None:
    subject = subject_of("fp32", **form)
    runner = subject.load(kernels)
    for seed in (1, 2):
        assert subject.difference(runner, f"ragged {seed}", ragged_pairs(seed)) < 2e-5


def test_the_longest_source_and_target_run(subject_of: Callable[..., Subject], kernels: KernelChoice) -> None:
    subject = subject_of("fp32")
    ids = np.random.default_rng(3).integers(EOS_ID + 1, VOCAB_SIZE, 23).astype(np.int32)
    longest = ParityPair(np.append(ids, EOS_ID).astype(np.int32), ids, 0)
    shortest = ParityPair(np.array([EOS_ID], np.int32), ids[:1], 0)
    assert subject.difference(subject.load(kernels), "longest", [longest, shortest]) < 2e-5


@pytest.mark.parametrize("form", [FORMS[0], FORMS[3], FORMS[-1]], ids=[NAMES[0], NAMES[3], NAMES[-1]])
class TestOtherPrecisions:
    def test_fp16_is_close(self, form: dict[str, Any], subject_of: Callable[..., Subject]) -> None:
        subject = subject_of("fp16", **form)
        assert subject.difference(subject.load("standard"), "ragged 4", ragged_pairs(4)) < 2e-2

    def test_int8_is_close(
        self, form: dict[str, Any], subject_of: Callable[..., Subject], kernels: KernelChoice
    ) -> None:
        subject = subject_of("int8", **form)
        assert subject.difference(subject.load(kernels), "ragged 4", ragged_pairs(4)) < 0.3


@pytest.mark.parametrize("vocab_size", [VOCAB_SIZE, 64 * 41, 64 * 80, 5003])
def test_top_candidates_are_the_largest_log_probabilities(
    vocab_size: int, subject_of: Callable[..., Subject], kernels: KernelChoice
) -> None:
    runner = subject_of("fp32", vocab_size=vocab_size).load(kernels)
    pairs = ragged_pairs(5)
    runner.encode([pair.source for pair in pairs], list(range(len(pairs))))
    for num_candidates in (1, 2, 8, 3, MAX_CANDIDATES - 1):
        step = StepInput(
            np.full(len(pairs), BOS_ID, np.int32), np.zeros(len(pairs), np.int32), num_candidates
        )
        everything = distributions_of(runner, step.ids, step.positions).copy()
        everything[:, EOS_ID] = -np.inf  # the first subword is never the end token
        output = runner.decode(step)
        expected = np.argsort(-everything, axis=1, kind="stable")[:, :num_candidates]
        np.testing.assert_array_equal(output.ids, expected)
        np.testing.assert_array_equal(
            output.log_probabilities, np.take_along_axis(everything, expected, axis=1)
        )


@pytest.mark.seconds
@pytest.mark.parametrize("decoder", ["attention", "ssru"])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_the_engine_finds_the_hypotheses_of_the_reference_search(
    beam_size: int, decoder: str, subject_of: Callable[..., Subject], kernels: KernelChoice
) -> None:
    subject = subject_of("fp32", decoder=decoder)
    sources = [pair.source.tolist() for pair in ragged_pairs(6, num_pairs=14)]
    options = DecodingOptions(beam_size=beam_size, max_target_length=12)
    expected = subject.reference_ids(sources, options, [None] * len(sources))
    assert translate_ids(subject.load(kernels), sources, options) == expected


def test_int8_is_close_with_ssrus(subject_of: Callable[..., Subject], kernels: KernelChoice) -> None:
    subject = subject_of("int8", decoder="ssru")
    assert subject.difference(subject.load(kernels), "ragged 4", ragged_pairs(4)) < 0.3


def test_int8_rows_of_zeros_give_zeros(tmp_path: Path, kernels: KernelChoice) -> None:
    """ReLU sets every hidden value to zero. A row is divided by its largest magnitude, which is then 0."""
    model = random_model(max_length=24)
    with torch.no_grad():
        for layer in [*model.encoder, *model.decoder]:
            layer.feed_forward.w_1.bias.fill_(-1000.0)
    subject = Subject(model, write_tiny_variant(model, "int8", tmp_path))
    assert subject.difference(subject.load(kernels), "ragged 7", ragged_pairs(7)) < 0.3


def test_chunks_divide_the_vocabulary_or_there_are_none() -> None:
    assert [chunk_length(size) for size in (8000, 37000, 64 * 41, 5003, VOCAB_SIZE)] == [
        80,
        74,
        41,
        None,
        None,
    ]


def test_more_pairs_than_rows_are_compared_in_batches(tmp_path: Path) -> None:
    model = random_model(max_length=24)
    runner = load_tiny_runner(model, "fp32", tmp_path, num_rows=4)
    pairs = ragged_pairs(8)
    assert mean_target_difference(target_scores(model, pairs), runner, pairs) < 2e-5


# --- models whose sentences have start tokens of their own


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_rows_with_their_own_start_tokens_equal_pytorchs(
    precision: Precision, subject_of: Callable[..., Subject], kernels: KernelChoice
) -> None:
    subject = subject_of(precision, norm="pre", has_target_start=True)
    starts = [VOCAB_SIZE - 1 - number for number in range(9)]
    pairs = [
        replace(pair, start_id=start)
        for pair, start in zip(ragged_pairs(1, max_length=23), starts, strict=True)
    ]
    found = subject.difference(subject.load(kernels), "started", pairs)
    assert found < (2e-5 if precision == "fp32" else 0.3)


@pytest.mark.seconds
@pytest.mark.parametrize("beam_size", [1, 3])
def test_searches_with_their_own_start_tokens_equal_the_reference_search(
    beam_size: int, subject_of: Callable[..., Subject], kernels: KernelChoice
) -> None:
    """Sentences wait for rows, so they are encoded while others are decoded."""
    subject = subject_of("fp32", has_target_start=True)
    sources = [tuple(pair.source.tolist()) for pair in ragged_pairs(5, num_pairs=12)]
    starts = [VOCAB_SIZE - 1 - number % 3 for number in range(12)]
    options = DecodingOptions(beam_size=beam_size, max_target_length=12)
    expected = subject.reference_ids(sources, options, starts)
    assert translate_ids(subject.load(kernels, num_rows=7), sources, options, starts=starts) == expected
    assert len(set(expected)) > 2


@pytest.mark.seconds
@pytest.mark.parametrize(("precision", "vocab_size"), [("int8", 256_206), ("fp32", 128_112)])
def test_large_vocabularies_give_pytorchs_log_probabilities_and_the_best_candidates(
    precision: Precision, vocab_size: int, subject_of: Callable[..., Subject], kernels: KernelChoice
) -> None:
    subject = subject_of(precision, vocab_size=vocab_size, max_length=8, output_bias=True)
    runner = subject.load(kernels, num_rows=4)
    pairs = random_pairs(
        np.random.default_rng(1), num_pairs=3, vocab_size=vocab_size, max_length=6, max_first_step=1
    )
    assert subject.difference(runner, "three", pairs) < (2e-5 if precision == "fp32" else 0.3)
    ids = np.array([BOS_ID] * 3, np.int32)
    best = runner.decode(StepInput(ids, np.zeros(3, np.int32), 5, wants_distributions=True))
    assert best.distributions is not None
    everything = best.distributions.copy()
    everything[:, EOS_ID] = -np.inf  # the first subword is never the end token
    np.testing.assert_array_equal(best.ids, np.argsort(-everything, axis=1, kind="stable")[:, :5])
