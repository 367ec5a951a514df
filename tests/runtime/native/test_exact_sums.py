"""Sums of int8 products are exact, even for the largest numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.runtime.native.graphs import operator, random_floats
from tests.runtime.native.reference import OUTPUTS, Weights, norm_inputs
from tests.runtime.native.test_encoder import CrossCache

# Weights of inputs 2i and 2i + 1. With inputs of 255, the products of some pairs of "any" have a sum that exceeds an
# int16, in both directions. Those of "small" have the largest and the smallest sum that fits.
PAIRS = {
    "any": [(127, 127), (-128, -128), (127, -128), (-127, 127)],
    "small": [(127, 1), (1, 127), (64, 64), (-127, -1), (-1, -127), (-64, -64), (-128, 0), (127, -128)],
}
# Small pairs, except for one, whose sum is by 1 too large.
PAIRS["all but one small"] = PAIRS["small"]
all_pairs = pytest.mark.parametrize("pairs", PAIRS)


def random_pairs(pairs: str, inputs: int, outputs: int) -> NDArray[np.int8]:
    """Weights (inputs, outputs) of these pairs, each column with random ones."""
    chosen = np.random.default_rng(inputs).choice(PAIRS[pairs], (inputs // 2, outputs))
    stored = chosen.transpose(0, 2, 1).reshape(inputs, outputs).astype(np.int8)
    if pairs == "all but one small":
        stored[-2:, -1] = 127, 2
    return stored


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7, 40])
@pytest.mark.parametrize("inputs", [16, 80, 512])
@all_pairs
def test_sums_of_the_largest_numbers_are_exact(inputs: int, n: int, pairs: str) -> None:
    """Every input is 255, so each product is 255 times a weight. Sums stay below 2^24, where floats are exact."""
    stored = random_pairs(pairs, inputs, 64)
    if pairs == "any":
        stored[:, 0], stored[:, 1] = -128, 127
    sums = 255 * stored.astype(np.int64).sum(0)
    assert np.abs(sums).max() < 2**24
    # After ReLU all hidden numbers are 1, which is stored as 255. With this scale, the outputs equal the sums.
    constants = {
        "w_1": np.zeros((64, inputs), np.int8),
        "s_1": np.ones(inputs, np.float32),
        "b_1": np.ones(inputs, np.float32),
        "w_2": stored,
        "s_2": np.full(64, 255, np.float32),
        "b_2": np.zeros(64, np.float32),
    }
    run_inputs = {"residual": np.zeros((n, 64), np.float32), "x": random_floats(1, n, 64)}
    names: dict[str, Any] = {"residual": "float32", "x": "float32"}
    block = operator(
        "FeedForward", names | constants | norm_inputs(2, 64), OUTPUTS, activation="relu", epsilon=1e-5
    )
    assert (block.run(run_inputs)["total"] == sums).all()


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7, 40])
@pytest.mark.parametrize("inputs", [16, 80, 512])
@all_pairs
def test_sums_of_signed_numbers_are_exact(inputs: int, n: int, pairs: str) -> None:
    """Inputs of -127 to 127 are stored as 1 to 255."""
    stored = random_pairs(pairs, inputs, 2 * inputs)
    if pairs == "any":
        stored[:, 0], stored[:, 1] = -128, 127
    levels = np.random.default_rng(inputs).choice([-127, -1, 0, 1, 127], (n, inputs))
    levels[:, -1] = -127
    levels[0] = 127
    # The largest magnitude of every row is 1. With this scale, the outputs equal the sums.
    scales, bias = np.full(2 * inputs, 127, np.float32), np.zeros(2 * inputs, np.float32)
    block = CrossCache(inputs, 2)
    block.weights = Weights(stored, scales, bias)
    cache = np.zeros((2, 1, n, inputs), np.float32)
    run_inputs = {"x": (levels / 127).astype(np.float32), "lengths": np.array([n], np.int32)}
    block.operator("float32").run(run_inputs | {"slots": np.zeros(1, np.int32), "cache": cache})
    assert (np.concatenate(cache[:, 0], axis=1) == levels @ stored.astype(np.int64)).all()
