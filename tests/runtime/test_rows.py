"""Copies of cache rows in cycles, chains and prefixes have the result of a simultaneous copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

from app.graphs import KernelChoice
from app.runtime.cuda_copies import RowCopier
from app.runtime.cuda_pool import CudaPool
from app.runtime.interface import Int32s, StepInput
from app.runtime.kv_cache import HostPool, PoolShape
from app.runtime.ort_runner import LoadedRunner
from export.parity import distributions_of
from model.config import BOS_ID, EOS_ID
from tests.export.tiny import VOCAB_SIZE, load_tiny_runner, random_model
from tests.runtime.host_cuda import host_cuda, read_cuda

NUM_ROWS = 8
SHAPE = PoolShape(num_planes=4, num_rows=NUM_ROWS, num_heads=2, capacity=6, head_dim=3, dtype="float32")
ROWS = np.arange(NUM_ROWS, dtype=np.int32)


def host_pool() -> HostPool:
    return HostPool(SHAPE)


def cuda_pool() -> CudaPool:
    cuda = host_cuda()
    return CudaPool(SHAPE, cuda, RowCopier(cuda), staging=cuda.allocate(SHAPE.num_bytes))


def read(pool: HostPool | CudaPool) -> Any:
    """The pool's memory: (planes, rows, num_heads, capacity, head_dim)."""
    return pool.read(NUM_ROWS) if isinstance(pool, HostPool) else read_cuda(pool, SHAPE)


@pytest.mark.parametrize("make_pool", [host_pool, cuda_pool])
@pytest.mark.parametrize(
    ("sources", "targets"),
    [
        ([1, 0], [0, 1]),
        ([1, 2, 3, 0], [0, 1, 2, 3]),
        ([0, 1, 2], [1, 2, 3]),
        ([3, 3, 3], [0, 1, 2]),
        ([5, 7], [0, 1]),
        ([0, 0, 2, 1], [0, 3, 1, 2]),
    ],
    ids=["swap", "cycle", "chain", "one source", "disjoint rows", "mixed"],
)
def test_a_pool_copies_as_if_all_at_once(sources: list[int], targets: list[int], make_pool: Any) -> None:
    pool = make_pool()
    before = np.random.default_rng(1).standard_normal((4, NUM_ROWS, 2, 6, 3), np.float32)
    pool.write(onnxruntime.OrtValue.ortvalue_from_numpy(before), ROWS.tolist(), np.full(NUM_ROWS, 6))
    lengths = [(row % 6) + 1 for row in sources]
    pool.copy(*(np.array(values, np.int32) for values in (sources, targets, lengths)))
    after = read(pool)
    for source, target, length in zip(sources, targets, lengths, strict=True):
        np.testing.assert_array_equal(after[:, target, :, :length], before[:, source, :, :length])
    untouched = sorted(set(range(NUM_ROWS)) - set(targets))
    np.testing.assert_array_equal(after[:, untouched], before[:, untouched])


@pytest.mark.parametrize("make_pool", [host_pool, cuda_pool])
def test_sentences_are_written_to_the_beginning_of_their_rows(make_pool: Any) -> None:
    pool = make_pool()
    block = np.random.default_rng(2).standard_normal((4, 2, 2, 5, 3), np.float32)
    pool.write(onnxruntime.OrtValue.ortvalue_from_numpy(block), [6, 1], np.array([5, 3]))
    values = read(pool)
    np.testing.assert_array_equal(values[:, 6, :, :5], block[:, 0])
    np.testing.assert_array_equal(values[:, 1, :, :3], block[:, 1, :, :3])


@pytest.mark.parametrize("make_pool", [host_pool, cuda_pool])
def test_an_empty_copy_is_allowed(make_pool: Any) -> None:
    nothing = np.array([], np.int32)
    make_pool().copy(nothing, nothing, nothing)


@pytest.fixture(scope="module", params=["attention", "ssru"])
def runner(
    tmp_path_factory: pytest.TempPathFactory, kernels: KernelChoice, request: pytest.FixtureRequest
) -> LoadedRunner:
    model = random_model(max_length=16, decoder=request.param)
    return load_tiny_runner(
        model, "int8", tmp_path_factory.mktemp("rows"), num_rows=NUM_ROWS, kernels=kernels
    )


def random_ids(seed: int, size: int) -> Int32s:
    return np.random.default_rng(seed).integers(EOS_ID + 1, VOCAB_SIZE, size).astype(np.int32)


def start(runner: LoadedRunner, *, same_source: bool) -> None:
    """Encode one sentence a row and decode two steps, the second with a random subword a row.

    Each row then has 2 columns. same_source: whether all rows have the same source, as the rows of a beam have.
    """
    lengths = [4] * NUM_ROWS if same_source else [1, 2, 9, 16, 3, 9, 5, 12]
    sources = [
        np.append(random_ids(1 if same_source else row, n - 1), EOS_ID) for row, n in enumerate(lengths)
    ]
    runner.encode([source.astype(np.int32) for source in sources], list(range(NUM_ROWS)))
    runner.decode(StepInput(np.full(NUM_ROWS, BOS_ID, np.int32), np.zeros(NUM_ROWS, np.int32), 1))
    runner.decode(StepInput(random_ids(20, NUM_ROWS), np.ones(NUM_ROWS, np.int32), 1))


def third_step(runner: LoadedRunner, ids: Int32s) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return distributions_of(runner, ids, np.full(len(ids), 2, np.int32)).copy()


@pytest.mark.parametrize(
    "sources", [[1, 2, 3, 4, 5, 6, 7, 0], [1, 0, 3, 2, 4, 5, 6, 7], [3, 3, 3, 3, 0, 0, 0, 0]]
)
def test_copied_rows_continue_like_their_sources(runner: LoadedRunner, sources: list[int]) -> None:
    ids = random_ids(21, NUM_ROWS)
    start(runner, same_source=False)
    expected = third_step(runner, ids)
    start(runner, same_source=False)
    runner.copy_rows(np.array(sources, np.int32), ROWS, np.full(NUM_ROWS, 2, np.int32))
    np.testing.assert_array_equal(third_step(runner, ids[sources]), expected[sources])


def test_reordered_beams_continue_like_their_parents(runner: LoadedRunner) -> None:
    sources = [0, 0, 1, 5, 5, 2, 6, 6]
    ids = random_ids(22, NUM_ROWS)
    start(runner, same_source=True)
    expected = third_step(runner, ids)
    assert len(np.unique(expected, axis=0)) == NUM_ROWS
    start(runner, same_source=True)
    two = np.full(NUM_ROWS, 2, np.int32)
    runner.reorder(np.array(sources, np.int32), ROWS, two, np.full(NUM_ROWS, 1, np.int32))
    np.testing.assert_array_equal(third_step(runner, ids[sources]), expected[sources])


def test_the_former_content_of_a_row_has_no_effect(runner: LoadedRunner) -> None:
    long, short = np.append(random_ids(30, 15), EOS_ID).astype(np.int32), np.append(random_ids(31, 2), EOS_ID)
    step = StepInput(np.array([BOS_ID], np.int32), np.zeros(1, np.int32), 4)
    runner.encode([short.astype(np.int32)], [0])
    expected = runner.decode(step).log_probabilities.copy()
    runner.encode([long], [0])
    assert not np.array_equal(runner.decode(step).log_probabilities, expected)
    runner.encode([short.astype(np.int32)], [0])
    np.testing.assert_array_equal(runner.decode(step).log_probabilities, expected)
