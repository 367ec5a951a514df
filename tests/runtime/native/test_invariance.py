"""A row's result does not depend on other rows or on the number of threads, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from app.runtime import native
from tests.runtime.native.graphs import random_floats
from tests.runtime.native.reference import random_table
from tests.runtime.native.test_encoder import CrossCache
from tests.runtime.native.test_encoder import SelfAttention as EncoderAttention
from tests.runtime.native.test_feed_forward import Block
from tests.runtime.native.test_step_attention import CrossAttention, SelfAttention
from tests.runtime.native.test_step_ssru import Ssru
from tests.runtime.native.test_vocabulary import Vocabulary

Array = NDArray[Any]
# A function that runs the rows of some indices. It returns all results of these rows.
Run = Callable[[list[int]], list[Array]]
MAX_ROWS = 200
ROW_COUNTS = [*range(1, 18), 33, 128, MAX_ROWS]


def feed_forward(dtype: str, activation: str = "gelu") -> Run:
    block = Block(96, 208, dtype=dtype, activation=activation)
    operator, rows = block.operator(), block.rows(MAX_ROWS)

    def run(chosen: list[int]) -> list[Array]:
        return [*operator.run({name: values[chosen] for name, values in rows.items()}).values()]

    return run


def self_attention(dtype: str, cache: str = "float16") -> Run:
    block = SelfAttention(96, 3, dtype=dtype)
    operator, rows = block.operator(cache), block.rows(MAX_ROWS, 37, cache=cache)

    def run(chosen: list[int]) -> list[Array]:
        inputs = {name: values[chosen] for name, values in rows.items()}
        return [*operator.run(inputs).values(), inputs["keys"], inputs["values"]]

    return run


def ssru(dtype: str) -> Run:
    block = Ssru(96, dtype=dtype)
    operator, rows = block.operator(), block.rows(MAX_ROWS)

    def run(chosen: list[int]) -> list[Array]:
        inputs = {name: values[chosen] for name, values in rows.items()}
        return [*operator.run(inputs).values(), inputs["state"]]

    return run


def cross_attention(dtype: str, cache: str = "float16") -> Run:
    block = CrossAttention(96, 3, dtype=dtype, aligned=(0, 2))
    operator, rows = block.operator(cache), block.rows(MAX_ROWS, 37, cache=cache)
    fixed = {name: rows.pop(name) for name in ("keys", "values")}

    def run(chosen: list[int]) -> list[Array]:
        return [*operator.run({name: values[chosen] for name, values in rows.items()} | fixed).values()]

    return run


def candidates(dtype: str) -> Run:
    vocabulary, x = Vocabulary(random_table(1, 1000, 96, dtype=dtype)), random_floats(2, MAX_ROWS, 96)
    return lambda chosen: [*vocabulary.run(x[chosen], 9).values()]


def best_candidates(dtype: str) -> Run:
    vocabulary, x = Vocabulary(random_table(1, 1700, 64, dtype=dtype)), random_floats(2, MAX_ROWS, 64)
    return lambda chosen: [*vocabulary.run(x[chosen], 5, wanted=False).values()][:2]


KINDS = [feed_forward, self_attention, ssru, cross_attention, candidates, best_candidates]


@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_a_row_has_the_same_result_alone_and_with_others(
    kind: Callable[[str], Run], dtype: str, num_threads: int
) -> None:
    run = kind(dtype)
    everything = run(list(range(MAX_ROWS)))
    native.set_num_threads(num_threads)
    for n in ROW_COUNTS:
        # The last rows, so that a row's position differs from its position among all rows.
        chosen = list(range(MAX_ROWS - n, MAX_ROWS))
        for found, expected in zip(run(chosen), everything, strict=True):
            assert np.array_equal(found, expected[chosen])


# The slot of each row. There are runs of one slot with every length up to 5, and slots that occur again later.
SLOTS = [0, 1, 1, 2, 2, 2, 0, 3, 3, 3, 3, 1, 4, 4, 4, 4, 4, 2, 0, 2]


@pytest.mark.parametrize("num_threads", [1, 2, 3])
@pytest.mark.parametrize("aligned", [(), (0, 1)])
@pytest.mark.parametrize("cache", ["float16", "float32"])
@pytest.mark.parametrize(
    ("d", "num_heads"), [(32, 2), (96, 2), (256, 4), (160, 2), (192, 2), (224, 2), (256, 2)]
)
def test_a_row_has_the_same_result_alone_and_with_others_of_its_slot(
    d: int, num_heads: int, cache: str, aligned: tuple[int, ...], num_threads: int
) -> None:
    # float32, because rounding to eight bits can hide a difference.
    block = CrossAttention(d, num_heads, dtype="float32", aligned=aligned)
    operator, rows = block.operator(cache), block.rows(len(SLOTS), 37, cache=cache, num_slots=5)
    rows["slots"][:] = SLOTS
    rows["lengths"][:] = np.array([37, 1, 6, 16, 19], np.int32)[SLOTS]
    # One row attends to fewer columns than the other rows of its slot.
    rows["lengths"][8] = 3
    fixed = {name: rows.pop(name) for name in ("keys", "values")}

    def run(chosen: slice) -> dict[str, Array]:
        return operator.run({name: values[chosen] for name, values in rows.items()} | fixed)

    alone = [run(slice(i, i + 1)) for i in range(len(SLOTS))]
    native.set_num_threads(num_threads)
    for first, last in [(0, 20), (1, 3), (3, 6), (7, 11), (12, 17), (13, 16), (9, 14)]:
        found = run(slice(first, last))
        for name, values in found.items():
            assert np.array_equal(values, np.concatenate([own[name] for own in alone[first:last]]))


@pytest.mark.threads
@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_an_encoding_does_not_depend_on_the_number_of_threads(dtype: str) -> None:
    attention, cross = EncoderAttention(96, 3, dtype=dtype), CrossCache(96, 4, dtype=dtype)
    operator, write = attention.operator(), cross.operator("float16")
    lengths = (17, 140, 1, 90, 33)
    rows = attention.rows(*lengths)
    results = []
    for num_threads in (1, 2, 3):
        native.set_num_threads(num_threads)
        inputs = cross.run_inputs([*lengths], [4, 0, 2, 3, 1], cache="float16", capacity=140)
        write.run(inputs)
        results.append([*operator.run(rows).values(), inputs["cache"]])
    for others in results[1:]:
        for first, other in zip(results[0], others, strict=True):
            assert np.array_equal(first, other)


@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_rows_give_empty_results(kind: Callable[[str], Run], dtype: str) -> None:
    assert all(len(values) == 0 for values in kind(dtype)([]))


@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
def test_nan_stays_in_its_row(activation: str, dtype: str) -> None:
    block = Block(96, 208, activation=activation, dtype=dtype)
    operator, rows = block.operator(), block.rows(9)
    clean = operator.run(rows)
    rows["x"][4, 3] = np.nan
    damaged = operator.run(rows)
    others = np.arange(9) != 4
    for name in clean:
        assert np.isnan(damaged[name][4]).all()
        assert np.array_equal(damaged[name][others], clean[name][others])


@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_changes_the_attention_of_no_other(value: float, dtype: str) -> None:
    for block in (SelfAttention(96, 3, dtype=dtype), CrossAttention(96, 3, dtype=dtype)):
        operator, rows = block.operator(), block.rows(9, 20)
        clean = operator.run({name: values.copy() for name, values in rows.items()})
        rows["x"][4, 3] = value
        damaged = operator.run(rows)
        others = np.arange(9) != 4
        assert np.isnan(damaged["total"][4]).all()
        assert np.array_equal(damaged["total"][others], clean["total"][others])


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_candidates_of_a_row_with_nan_are_nan(dtype: str, wanted: bool) -> None:
    vocabulary, x = Vocabulary(random_table(1, 1000, 96, dtype=dtype)), random_floats(2, 9, 96)
    clean = vocabulary.run(x, 5, wanted=wanted)
    x[4, 95] = np.nan
    damaged = vocabulary.run(x, 5, wanted=wanted)
    others = np.arange(9) != 4
    assert np.isnan(damaged["top_log_probabilities"][4]).all()
    assert damaged["top_ids"][4].tolist() == [0, 1, 2, 3, 4]
    for name in ("top_log_probabilities", "top_ids"):
        assert np.array_equal(damaged[name][others], clean[name][others])


def test_rows_of_zeros_give_the_bias() -> None:
    block = Block(64, 80)
    rows = block.rows(3)
    rows["x"][1] = 0
    hidden = np.maximum(block.inner.bias, 0)[None]
    expected = rows["residual"][1] + block.outer.product(hidden, is_rectified=True)[0]
    assert block.operator().run(rows)["total"][1] == pytest.approx(expected, abs=1e-5)
