"""The feed-forward block."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.runtime.native.graphs import Operator, operator, random_floats
from tests.runtime.native.reference import (
    EPSILON,
    OUTPUTS,
    Weights,
    layer_norm,
    norm_inputs,
    random_weights,
)

Floats = NDArray[np.float32]


class Block:
    """The weights of one block, its operator, and the expected result."""

    def __init__(self, d: int, f: int, *, activation: str = "relu", dtype: str = "int8") -> None:
        self.inner = random_weights(1, d, f, dtype=dtype)
        self.outer = random_weights(2, f, d, dtype=dtype)
        self.norm = norm_inputs(3, d)
        self.activation = activation
        self.d = d

    def operator(self, **changed: Any) -> Operator:
        inputs: dict[str, Any] = {"residual": "float32", "x": "float32"}
        inputs |= self.inner.inputs("1") | self.outer.inputs("2") | self.norm
        attributes = {"activation": self.activation, "epsilon": EPSILON} | changed
        return operator("FeedForward", inputs, OUTPUTS, **attributes)

    def rows(self, n: int, seed: int = 4) -> dict[str, Floats]:
        return {"residual": random_floats(seed, n, self.d), "x": random_floats(seed + 1, n, self.d)}

    def expected(self, residual: Floats, x: Floats) -> dict[str, Floats]:
        hidden = activated(self.activation, self.inner.product(x))
        total = residual + self.outer.product(hidden, is_rectified=self.activation == "relu")
        return {"total": total, "normalised": layer_norm(total, **self.norm)}


def activated(activation: str, x: Floats) -> Floats:
    if activation == "relu":
        return np.maximum(x, 0)
    wide = x.astype(np.float64)
    if activation == "silu":
        found = wide / (1 + np.exp(-wide))
    else:
        found = wide * 0.5 * (1 + np.vectorize(math.erf)(wide / math.sqrt(2)))
    rounded: Floats = found.astype(np.float32)
    return rounded


def level(weights: Weights, hidden: Floats) -> float:
    """An upper bound of an output's change when one hidden number moves to its next quantisation level."""
    if not weights.is_int8:
        return 0.0
    return float(
        np.abs(hidden).max() / 127 * np.abs(weights.stored.astype(np.float32) * weights.scales).max()
    )


@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
@pytest.mark.parametrize(("d", "f"), [(64, 80), (96, 208), (256, 1024), (512, 2048)])
def test_the_block_equals_the_formula(d: int, f: int, activation: str, dtype: str) -> None:
    block = Block(d, f, activation=activation, dtype=dtype)
    rows = block.rows(7)
    found, expected = block.operator().run(rows), block.expected(**rows)
    hidden = activated(activation, block.inner.product(rows["x"]))
    # A hidden number between two levels may round either way. This happens seldom and changes an output little.
    gap = np.abs(found["total"] - expected["total"])
    assert gap.max() <= 2 * level(block.outer, hidden) + 1e-5
    assert np.median(gap) <= 1e-6
    assert np.abs(found["normalised"] - layer_norm(found["total"], **block.norm)).max() <= 4e-6
