"""With int8, a sentence has the same results alone and in any batch, bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from app.graphs import KernelChoice
from app.runtime.interface import Floats, Int32s
from app.runtime.native import set_num_threads
from app.runtime.ort_runner import LoadedRunner
from export.parity import distributions_of
from model.config import BOS_ID, EOS_ID
from model.transformer import Transformer
from tests.export.tiny import VOCAB_SIZE, load_tiny_runner, random_model, random_sources

MAX_LENGTH = 32
NUM_SENTENCES = 60
NUM_STEPS = 4


@pytest.fixture(scope="module", params=["attention", "ssru"])
def model(request: pytest.FixtureRequest) -> Transformer:
    return random_model(max_length=MAX_LENGTH, decoder=request.param)


@pytest.fixture(scope="module")
def runner(
    model: Transformer, tmp_path_factory: pytest.TempPathFactory, kernels: KernelChoice
) -> LoadedRunner:
    folder = tmp_path_factory.mktemp("int8")
    return load_tiny_runner(model, "int8", folder, num_rows=64, kernels=kernels)


def all_sources(seed: int) -> list[Int32s]:
    """Sources of random lengths, up to the longest that the model takes."""
    return random_sources(seed, NUM_SENTENCES, least=0, most=MAX_LENGTH - 1)


def follow(runner: LoadedRunner, targets: Int32s) -> Floats:
    """Distributions of rows along `targets` (rows, steps): (rows, steps, vocab_size)."""
    num_rows, num_steps = targets.shape
    found = [
        distributions_of(runner, targets[:, step], np.full(num_rows, step, np.int32)).copy()
        for step in range(num_steps)
    ]
    return np.stack(found, axis=1)


def test_a_sentence_has_the_same_results_alone_and_in_a_batch(runner: LoadedRunner) -> None:
    sources = all_sources(1)
    targets = (
        np.random.default_rng(2).integers(EOS_ID + 1, VOCAB_SIZE, (NUM_SENTENCES, NUM_STEPS)).astype(np.int32)
    )
    targets[:, 0] = BOS_ID
    runner.encode(sources, list(range(NUM_SENTENCES)))
    together = follow(runner, targets)
    for index, source in enumerate(sources):
        runner.encode([source], [0])
        alone = follow(runner, targets[index : index + 1])
        np.testing.assert_array_equal(alone[0], together[index])


def test_a_sentence_has_the_same_results_in_any_row_and_beside_any_other_rows(runner: LoadedRunner) -> None:
    sources = all_sources(3)
    targets = np.full((NUM_SENTENCES, NUM_STEPS), BOS_ID, np.int32)
    runner.encode(sources, list(range(NUM_SENTENCES)))
    expected = follow(runner, targets)
    for seed in (4, 5):
        order = np.random.default_rng(seed).permutation(NUM_SENTENCES)[: 37 + seed]
        runner.encode([sources[index] for index in order], list(range(len(order))))
        np.testing.assert_array_equal(follow(runner, targets[: len(order)]), expected[order])


def test_the_subwords_of_a_row_do_not_change_another_row(runner: LoadedRunner) -> None:
    """Each row has its own scale. One scale for the whole tensor would depend on all rows."""
    sources = all_sources(6)[:2]
    targets = np.full((2, NUM_STEPS), BOS_ID, np.int32)
    changed = targets.copy()
    changed[1] = np.arange(NUM_STEPS) + 50
    found = []
    for ids in (targets, changed):
        runner.encode(sources, [0, 1])
        found.append(follow(runner, ids)[0])
    np.testing.assert_array_equal(found[0], found[1])


def test_the_number_of_threads_changes_no_result(
    runner: LoadedRunner, model: Transformer, tmp_path: Path, kernels: KernelChoice
) -> None:
    sources = all_sources(7)
    targets = np.full((NUM_SENTENCES, NUM_STEPS), BOS_ID, np.int32)
    runner.encode(sources, list(range(NUM_SENTENCES)))
    expected = follow(runner, targets)
    two_threads = load_tiny_runner(model, "int8", tmp_path, num_rows=64, num_threads=2, kernels=kernels)
    two_threads.encode(sources, list(range(NUM_SENTENCES)))
    found = follow(two_threads, targets)
    set_num_threads(1)  # the native kernels have one thread pool in each process
    np.testing.assert_array_equal(found, expected)
