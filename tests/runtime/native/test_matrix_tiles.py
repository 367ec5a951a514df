"""Tile registers give the results of vector instructions, bit for bit. Skipped where they cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from app.runtime import native
from tests.runtime.native.graphs import random_floats
from tests.runtime.native.reference import random_table
from tests.runtime.native.test_feed_forward import Block
from tests.runtime.native.test_step_attention import SelfAttention
from tests.runtime.native.test_vocabulary import Vocabulary

Run = Callable[[int], list[NDArray[Any]]]
# Numbers of rows: of one tile, of an even and of an odd number of tiles, with and without a last tile that overlaps the
# tile before it; more than the 192 rows of a chunk.
ROW_COUNTS = [1, 4, 5, 7, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 97, 128, 193, 400]


@pytest.fixture(autouse=True)
def _tiles() -> Iterator[None]:
    if not native.allow_matrix_tiles(True):
        pytest.skip("the target or the processor has no AMX-INT8, or the system does not let it be used")
    yield
    native.allow_matrix_tiles(True)


def feed_forward(d_model: int, d_ff: int, activation: str) -> Run:
    block = Block(d_model, d_ff, dtype="int8", activation=activation)
    operator, rows = block.operator(), block.rows(max(ROW_COUNTS))
    return lambda n: [*operator.run({name: values[:n] for name, values in rows.items()}).values()]


def self_attention() -> Run:
    block = SelfAttention(192, 3, dtype="int8")
    operator, rows = block.operator("float16"), block.rows(max(ROW_COUNTS), 20, cache="float16")

    def run(n: int) -> list[NDArray[Any]]:
        inputs = {name: values[:n].copy() for name, values in rows.items()}
        return [*operator.run(inputs).values(), inputs["keys"], inputs["values"]]

    return run


def candidates() -> Run:
    # 1000 is not a multiple of a panel's columns.
    vocabulary, x = (
        Vocabulary(random_table(1, 1000, 128, dtype="int8")),
        random_floats(2, max(ROW_COUNTS), 128),
    )
    return lambda n: [*vocabulary.run(x[:n], 9).values()]


# Numbers of inputs below, at and above DEPTH_BLOCK in native/linear.h. More inputs than that are multiplied in several
# passes, of equal or unequal length.
RUNS: dict[str, Callable[[], Run]] = {
    "d_model 64, d_ff 128": lambda: feed_forward(64, 128, "relu"),
    "d_model 128, d_ff 512": lambda: feed_forward(128, 512, "gelu"),
    "d_model 64, d_ff 1088": lambda: feed_forward(64, 1088, "relu"),
    "d_model 512, d_ff 2048": lambda: feed_forward(512, 2048, "relu"),
    "self-attention": self_attention,
    "candidates": candidates,
}


@pytest.mark.parametrize("num_threads", [1, 2, 3])
@pytest.mark.parametrize("name", RUNS)
def test_tiles_give_the_same_bits(name: str, num_threads: int) -> None:
    run = RUNS[name]()
    native.set_num_threads(num_threads)
    for n in ROW_COUNTS:
        native.allow_matrix_tiles(False)
        expected = run(n)
        native.allow_matrix_tiles(True)
        for found, vector in zip(run(n), expected, strict=True):
            np.testing.assert_array_equal(found, vector)


def test_a_row_does_not_depend_on_other_rows() -> None:
    run = feed_forward(128, 640, "relu")
    everything = run(max(ROW_COUNTS))
    for n in ROW_COUNTS:
        for found, expected in zip(run(n), everything, strict=True):
            np.testing.assert_array_equal(found, expected[:n])


def test_tile_registers_can_be_forbidden() -> None:
    assert not native.allow_matrix_tiles(False)
    assert native.allow_matrix_tiles(True)
