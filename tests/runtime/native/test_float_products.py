"""A float32 product adds the inputs in order. The sums do not depend on the rows that are multiplied together."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from app.runtime import native
from tests.runtime.native.graphs import Operator, operator, random_floats
from tests.runtime.native.reference import EPSILON, OUTPUTS, random_table
from tests.runtime.native.test_feed_forward import Block
from tests.runtime.native.test_vocabulary import Vocabulary

Floats = NDArray[np.float32]
# Numbers of rows: of one tile and of several, full and partial; around 32 and 66, the minimum and the maximum that a
# thread takes alone; more than the 192 rows of a chunk.
ROW_COUNTS = [1, 2, 5, 6, 7, 11, 12, 13, 23, 25, 31, 32, 33, 47, 64, 66, 67, 128, 200]
# Numbers of inputs below, at and above FLOAT_DEPTH_BLOCK in native/linear.cpp (AVX-512: 128, AVX2 and NEON: 512). More
# inputs than that are multiplied in several passes, of equal or unequal length.
INPUTS = [16, 112, 128, 144, 256, 400, 512, 528, 1024]


def product_alone(weights: Floats) -> Operator:
    """A feed-forward block with identity and zero weights, so that total = relu(x) weights."""
    inputs, outputs = weights.shape
    assert inputs == outputs
    nothing, zero = np.zeros(0, np.float32), np.zeros(inputs, np.float32)
    constants: dict[str, Any] = {"residual": "float32", "x": "float32"}
    constants |= {"w_1": np.eye(inputs, dtype=np.float32), "s_1": nothing, "b_1": zero}
    constants |= {"w_2": weights, "s_2": nothing, "b_2": zero, "gamma": zero, "beta": zero}
    return operator("FeedForward", constants, OUTPUTS, activation="relu", epsilon=EPSILON)


def in_order(x: Floats, weights: Floats) -> Floats:
    """x weights, with each product added and rounded in the order of the inputs.

    This is correct if the exact sum of a product and a float32 fits into float64, as for numbers of `coarse`.
    """
    total = np.zeros((len(x), weights.shape[1]), np.float32)
    for i in range(len(weights)):
        total = (total + np.outer(x[:, i].astype(np.float64), weights[i])).astype(np.float32)
    return total


@cache
def exact_product(inputs: int) -> tuple[Floats, Floats, Floats]:
    """x, weights and `in_order(x, weights)`. It is computed once for all targets and numbers of threads."""
    weights = coarse(1, inputs, inputs)
    # The magnitudes differ much, so every order of additions rounds differently.
    powers = 2.0 ** np.random.default_rng(2).integers(0, 17, inputs)
    x = (np.abs(coarse(3, max(ROW_COUNTS), inputs)) * powers).astype(np.float32)
    expected = in_order(x, weights)
    # Another order gives other sums with these data.
    assert not np.array_equal(expected, in_order(x[:, ::-1], weights[::-1]))
    for array in (x, weights, expected):
        array.setflags(write=False)
    return x, weights, expected


def coarse(seed: int, *shape: int) -> Floats:
    """Random multiples of 1/4096 below 2. The product of two of them has more bits than a float32."""
    return (np.random.default_rng(seed).integers(-8191, 8192, shape) / 4096).astype(np.float32)


@pytest.mark.seconds
@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("inputs", INPUTS)
def test_sums_add_the_inputs_in_order(inputs: int, num_threads: int) -> None:
    x, weights, expected = exact_product(inputs)
    product = product_alone(weights)
    native.set_num_threads(num_threads)
    for n in ROW_COUNTS:
        found = product.run({"residual": np.zeros((n, inputs), np.float32), "x": x[:n]})
        np.testing.assert_array_equal(found["total"], expected[:n])


@pytest.mark.parametrize("num_threads", [1, 2, 3])
@pytest.mark.parametrize(("d", "f"), [(64, 112), (128, 144), (144, 400), (512, 2048)])
def test_a_row_has_the_same_result_alone_and_with_others(d: int, f: int, num_threads: int) -> None:
    block = Block(d, f, dtype="float32", activation="gelu")
    feed_forward, rows = block.operator(), block.rows(max(ROW_COUNTS))
    alone = [feed_forward.run({name: values[[i]] for name, values in rows.items()}) for i in (0, 130, 199)]
    native.set_num_threads(num_threads)
    for n in ROW_COUNTS:
        # The first rows or the last rows, so a row has several positions in a tile.
        begin = 0 if n % 2 else max(ROW_COUNTS) - n
        found = feed_forward.run({name: values[begin : begin + n] for name, values in rows.items()})
        for i, expected in zip((0, 130, 199), alone, strict=True):
            if begin <= i < begin + n:
                for name in OUTPUTS:
                    np.testing.assert_array_equal(found[name][i - begin], expected[name][0])


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("inputs", INPUTS)
def test_a_row_does_not_depend_on_others_if_the_last_panel_is_not_full(inputs: int, num_threads: int) -> None:
    vocabulary, x = Vocabulary(random_table(1, 200, inputs, dtype="float32")), random_floats(2, 128, inputs)
    alone = np.concatenate([vocabulary.run(x[[i]], 1)["log_probabilities"] for i in range(128)])
    native.set_num_threads(num_threads)
    for n in [n for n in ROW_COUNTS if n <= 128]:
        np.testing.assert_array_equal(vocabulary.run(x[:n], 1)["log_probabilities"], alone[:n])
