"""Encoder and decoder as one operator each. No result depends on the batch or on the number of steps in a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from app.bundle import Bundle
from app.errors import EngineFailure
from app.graphs import Precision
from app.runtime import native
from app.runtime.interface import FREE_ROW_ID, Int32s, StepInput
from app.runtime.native_runner import NativeRunner
from model.config import BOS_ID, EOS_ID
from tests.export.tiny import (
    VOCAB_SIZE,
    load_tiny_variant,
    random_model,
    random_sources,
    write_tiny_variant,
)

NUM_ROWS = 150
MAX_LENGTH = 40
NUM_STEPS = 8
Load = Callable[..., NativeRunner]
SHAPES: dict[str, dict[str, Any]] = {
    "pre-norm": {"norm": "pre"},
    "post-norm": {"norm": "post"},
    "output-bias": {"norm": "post", "has_bias": True},
    "ssru": {"norm": "post", "decoder": "ssru"},
}
# For each decoder and norm, a subword that the random model finds best after some steps. `write` makes the end token's
# embedding and bias nearly equal to those of this subword, so that rows end after some steps.
SIMILAR_TO_END = {("attention", "pre"): 387, ("attention", "post"): 389, ("ssru", "post"): 384}


@pytest.fixture(scope="session")
def variants(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Bundle]:
    """`write`, which writes each variant once for all CPU builds of the library."""

    @cache
    def written(precision: Precision, **options: Any) -> Bundle:
        return write(tmp_path_factory.mktemp("variant"), precision, **options)

    return written


@pytest.fixture
def load(variants: Callable[..., Bundle]) -> Load:
    def loaded(precision: Precision, *, num_threads: int = 1, **options: Any) -> NativeRunner:
        return runner_of(variants(precision, **options), num_threads)

    return loaded


def load_new(folder: Path, precision: Precision, *, num_threads: int = 1, **options: Any) -> NativeRunner:
    """Write a variant into the folder and load it."""
    return runner_of(write(folder, precision, **options), num_threads)


def runner_of(bundle: Bundle, num_threads: int) -> NativeRunner:
    runner = load_tiny_variant(bundle, num_rows=NUM_ROWS, num_threads=num_threads, kernels="native")
    assert isinstance(runner, NativeRunner)
    return runner


def write(folder: Path, precision: Precision, *, has_bias: bool = False, **changes: Any) -> Bundle:
    model = random_model(seed=3, max_length=MAX_LENGTH, **changes)
    with torch.no_grad():
        # Positions matter more than subwords, so the best candidate changes with the step and becomes the end token.
        table = model.embedding.weight.mul_(0.1)
        similar_to_end = SIMILAR_TO_END[model.config.decoder, model.config.norm]
        table[EOS_ID] = table[similar_to_end] * 1.02
        if has_bias:
            bias = 0.02 * torch.randn(VOCAB_SIZE)
            bias[EOS_ID] = bias[similar_to_end]
            model.embedding.output_bias = torch.nn.Parameter(bias)
            model.config = replace(model.config, output_bias=True)
    return write_tiny_variant(model, precision, folder)


def sources(count: int = NUM_ROWS) -> list[Int32s]:
    """Sentences of all lengths up to the longest. With this seed, their translations end at several steps."""
    return random_sources(10, count, least=0, most=MAX_LENGTH - 1)


def first_step(num_rows: int, num_steps: int = 1, num_candidates: int = 1) -> StepInput:
    ids, positions = np.full(num_rows, BOS_ID, np.int32), np.zeros(num_rows, np.int32)
    return StepInput(ids, positions, num_candidates, num_steps)


def single_steps(runner: NativeRunner, num_rows: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Tokens and log-probabilities of a greedy search of all rows by single steps, each (NUM_STEPS, num_rows).

    As in `StepOutput`, a row has the end token and log-probability 0 in all steps after its end.
    """
    step = first_step(num_rows)
    ids, positions = step.ids, step.positions
    has_ended = np.zeros(num_rows, bool)
    tokens, scores = [], []
    for _ in range(NUM_STEPS):
        output = runner.decode(StepInput(ids, positions, 1))
        tokens.append(np.where(has_ended, EOS_ID, output.ids[:, 0]))
        scores.append(np.where(has_ended, 0, output.log_probabilities[:, 0]))
        has_ended |= tokens[-1] == EOS_ID
        ids, positions = output.ids[:, 0].astype(np.int32), positions + 1
    return np.stack(tokens), np.stack(scores)


@pytest.fixture(params=["int8", "fp32"])
def precision(request: pytest.FixtureRequest) -> Precision:
    found: Precision = request.param
    return found


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest) -> dict[str, Any]:
    return SHAPES[request.param]


@pytest.fixture
def tile_choices(precision: Precision) -> Iterator[tuple[bool, ...]]:
    """The values for `allow_matrix_tiles` that make a difference.

    These are True and False if the precision is int8 and the processor has tile registers, and otherwise only True.
    `allow_matrix_tiles(True)` returns whether the processor has tile registers.
    """
    yield (True, False) if precision == "int8" and native.allow_matrix_tiles(True) else (True,)
    native.allow_matrix_tiles(True)


@pytest.mark.seconds
@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_several_steps_equal_single_steps(
    num_threads: int, precision: Precision, shape: dict[str, Any], tile_choices: tuple[bool, ...], load: Load
) -> None:
    """Threads share the products of few rows. If there are many rows, each thread decodes some of them."""
    runner = load(precision, num_threads=num_threads, **shape)
    for are_tiles_allowed in tile_choices:
        native.allow_matrix_tiles(are_tiles_allowed)
        runner.encode(sources(), range(NUM_ROWS))
        check_several_steps(runner, *single_steps(runner, NUM_ROWS))


def check_several_steps(runner: NativeRunner, tokens: NDArray[Any], scores: NDArray[Any]) -> None:
    """Calls of several steps give the tokens and scores of single steps."""
    ends = (tokens == EOS_ID).sum(axis=0)
    assert (ends > 1).sum() > 3, "some rows must end before the last step"
    for num_rows in (1, 2, 7, 40, NUM_ROWS):
        for num_steps in (2, 5, NUM_STEPS):
            runner._self_cache.fill(7)  # what earlier steps wrote must not help
            output = runner.decode(first_step(num_rows, num_steps))
            num_taken = output.num_steps
            has_all_ended = (tokens[:num_taken, :num_rows] == EOS_ID).any(axis=0).all()
            assert num_taken == num_steps or (num_taken < num_steps and has_all_ended)
            assert np.array_equal(output.ids, tokens[:num_taken, :num_rows])
            assert np.array_equal(output.log_probabilities, scores[:num_taken, :num_rows])


def test_steps_after_several_steps_equal_those_after_single_steps(precision: Precision, load: Load) -> None:
    """After both, the caches have the same content."""
    runner = load(precision)
    runner.encode(sources(40), range(40))
    tokens, _ = single_steps(runner, 40)
    alive = np.flatnonzero((tokens != EOS_ID).all(axis=0))
    assert len(alive) > 2
    step = StepInput(tokens[-1].astype(np.int32), np.full(40, NUM_STEPS, np.int32), 5)
    expected = runner.decode(step).log_probabilities[alive].copy()
    runner._self_cache.fill(7)
    runner.decode(first_step(40, NUM_STEPS))
    assert np.array_equal(runner.decode(step).log_probabilities[alive], expected)


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_a_sentence_has_the_same_result_alone_and_in_a_batch(
    num_threads: int, precision: Precision, shape: dict[str, Any], load: Load
) -> None:
    """The sentences run one by one, then in small groups whose tokens the threads share, then all at once."""
    runner = load(precision, num_threads=num_threads, **shape)
    all_sources = sources(60)
    alone = []
    for source in all_sources:
        runner.encode([source], [0])
        alone.append(runner.decode(first_step(1, num_candidates=6)).log_probabilities[0].copy())
    for together in (2, 5, 60):
        for begin in range(0, 60, together):
            group = all_sources[begin : begin + together]
            runner.encode(group, range(len(group)))
            found = runner.decode(first_step(len(group), num_candidates=6)).log_probabilities
            assert np.array_equal(found, alone[begin : begin + len(group)])


@pytest.mark.threads
def test_one_long_sentence_has_the_same_result_with_two_threads(precision: Precision, load: Load) -> None:
    longest = np.append(np.full(MAX_LENGTH - 1, 9, np.int32), EOS_ID).astype(np.int32)
    results = []
    for num_threads in (1, 2):
        runner = load(precision, num_threads=num_threads)
        runner.encode([longest], [0])
        results.append(runner.decode(first_step(1, num_candidates=9)).log_probabilities.tolist())
    assert results[0] == results[1]


@pytest.mark.seconds
@pytest.mark.threads
def test_two_models_on_two_threads_give_the_results_of_each_alone(tmp_path: Path) -> None:
    """The thread pool runs the job of one model at a time.

    It may be busy with one model when the other model's rows begin, and become free before these rows are done.
    """
    model = random_model(vocab_size=1200, max_length=MAX_LENGTH, d_model=256)
    bundle = write_tiny_variant(model, "int8", tmp_path)
    counts, runners = (30, 60), []
    for count in counts:
        runners.append(load_tiny_variant(bundle, num_rows=60, num_threads=2, kernels="native"))
        runners[-1].encode(sources(count), range(count))

    def result(index: int) -> bytes:
        output = runners[index].decode(first_step(counts[index], num_candidates=4))
        return output.ids.tobytes() + output.log_probabilities.tobytes()

    alone = [result(index) for index in range(2)]
    results: list[set[bytes]] = [set(), set()]

    def repeat(index: int) -> None:
        for _ in range(700):
            results[index].add(result(index))

    other = Thread(target=repeat, args=(1,))
    other.start()
    repeat(0)
    other.join()
    assert results == [{expected} for expected in alone]


@pytest.mark.parametrize(
    "step",
    [
        StepInput(np.zeros(2, np.int32), np.array([0, MAX_LENGTH - 3], np.int32), 1, 4),
        StepInput(np.zeros(2, np.int32), np.array([-1, 0], np.int32), 1),
        StepInput(np.array([VOCAB_SIZE, 0], np.int32), np.zeros(2, np.int32), 1),
        StepInput(np.zeros(2, np.int32), np.zeros(2, np.int32), 2, 2),
        StepInput(np.zeros(2, np.int32), np.zeros(2, np.int32), 1, 2, wants_distributions=True),
        StepInput(np.zeros(2, np.int32), np.zeros(2, np.int32), 1, 0),
        StepInput(np.zeros(2, np.int32), np.zeros(2, np.int32), 65),
    ],
    ids=[
        "steps beyond the last position",
        "negative position",
        "id outside the vocabulary",
        "several candidates in several steps",
        "distributions in several steps",
        "no step",
        "too many candidates",
    ],
)
def test_an_invalid_step_is_an_error_and_the_next_step_is_right(step: StepInput, load: Load) -> None:
    runner = load("int8")
    runner.encode(sources(2), [0, 1])
    expected = runner.decode(first_step(2)).log_probabilities.tolist()
    with pytest.raises((EngineFailure, ValueError)):
        runner.decode(step)
    assert runner.decode(first_step(2)).log_probabilities.tolist() == expected


@pytest.mark.parametrize("num_threads", [1, 3])
def test_free_rows_are_skipped(precision: Precision, num_threads: int, load: Load) -> None:
    """A free row has no result, and its cache is unchanged. Each other row has its own result."""
    runner = load(precision, num_threads=num_threads)
    runner.encode(sources(40), range(40))
    positions = np.zeros(40, np.int32)
    for wants in (False, True):
        all_rows = StepInput(np.full(40, 9, np.int32), positions, 5, wants_distributions=wants)
        output = runner.decode(all_rows)
        occupied = np.flatnonzero(np.random.default_rng(3).random(40) < 0.6)
        assert output.alignment is not None
        expected = [
            output.ids[occupied].copy(),
            output.log_probabilities[occupied].copy(),
            output.alignment[occupied].copy(),
        ]
        if output.distributions is not None:
            expected.append(output.distributions[occupied].copy())
        before = runner._self_cache.copy()
        ids = np.full(40, FREE_ROW_ID, np.int32)
        ids[occupied] = 9
        output = runner.decode(replace(all_rows, ids=ids))
        found: list[NDArray[Any] | None] = [
            output.ids,
            output.log_probabilities,
            output.alignment,
            output.distributions,
        ]
        for expected_values, values in zip(expected, found, strict=False):
            assert values is not None
            np.testing.assert_array_equal(values[occupied], expected_values)
        np.testing.assert_array_equal(runner._self_cache, before)
    ids[occupied] = 11
    runner.decode(StepInput(ids, positions, 1))
    others = np.setdiff1d(np.arange(40), occupied)
    np.testing.assert_array_equal(runner._self_cache[:, others], before[:, others])
    assert (runner._self_cache[:, occupied] != before[:, occupied]).any(axis=(0, 2, 3)).all()


def test_several_steps_may_reach_the_last_position(load: Load) -> None:
    runner = load("int8", norm="pre")
    runner.encode(sources(1), [0])
    positions = np.array([MAX_LENGTH - NUM_STEPS], np.int32)
    output = runner.decode(StepInput(np.array([9], np.int32), positions, 1, NUM_STEPS))
    assert output.num_steps == NUM_STEPS, "the row must reach the last position"
    assert output.ids.shape == (NUM_STEPS, 1)


def test_rows_that_a_step_does_not_name_are_free(load: Load) -> None:
    """Row 1 is at the last position, where several steps do not fit. The last call names only row 0."""
    runner = load("int8")
    runner.encode(sources(2), [0, 1])
    runner.decode(StepInput(np.array([9, 9], np.int32), np.array([0, MAX_LENGTH - 1], np.int32), 1))
    first, positions = np.array([9], np.int32), np.ones(1, np.int32)
    output = runner.decode(StepInput(first, positions, 1, NUM_STEPS))
    assert output.ids.shape == (output.num_steps, 1)


def test_time_is_measured_by_kind_of_block(load: Load) -> None:
    runner = load("int8")

    def newly_spent(before: dict[str, dict[str, float]]) -> dict[str, set[str]]:
        now = native.block_times()
        return {
            stack: {kind for kind in now[stack] if now[stack][kind] > before[stack][kind]} for stack in now
        }

    both = {"embedding", "self-attention sub-layer", "feed-forward sub-layer"}
    before = native.block_times()
    runner.encode(sources(4), range(4))
    assert newly_spent(before) == {"encoder": both | {"cross keys and values"}, "decoder": set()}
    before = native.block_times()
    runner.decode(first_step(4, NUM_STEPS))
    decoder = both | {"cross-attention sub-layer", "projection and top-k"}
    assert newly_spent(before) == {"encoder": set(), "decoder": decoder}
