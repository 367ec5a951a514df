"""The SSRU of a decoder step equals the formula in numpy. It updates the state in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.runtime.native.graphs import Operator, operator, random_floats
from tests.runtime.native.reference import EPSILON, OUTPUTS, layer_norm, norm_inputs, random_weights

Array = NDArray[Any]
SIZES = [16, 48, 96, 256, 512]


class Ssru:
    """The weights of one block, its operator, and the expected result."""

    def __init__(self, d: int, *, dtype: str = "int8", outputs: int | None = None) -> None:
        self.d = d
        self.weights = random_weights(1, d, outputs or 2 * d, dtype=dtype)
        self.norm = norm_inputs(3, d)

    def operator(self) -> Operator:
        inputs: dict[str, Any] = {
            "residual": "float32",
            "x": "float32",
            "positions": "int32",
            "state": "float32",
        }
        constants = self.weights.inputs("in") | self.norm
        return operator("SsruStep", inputs | constants, OUTPUTS, epsilon=EPSILON)

    def rows(self, n: int) -> dict[str, Array]:
        """Every third row is at its first position."""
        return {
            "residual": random_floats(4, n, self.d),
            "x": random_floats(5, n, self.d),
            "positions": (np.arange(n) % 3).astype(np.int32),
            "state": random_floats(6, n, self.d),
        }

    def expected(self, rows: dict[str, Array]) -> tuple[Array, Array]:
        """The residual plus the block's result, and the state after the step (Kim et al. 2019, section 3.1)."""
        z, gate = np.split(self.weights.product(rows["x"]).astype(np.float64), 2, axis=1)
        f = 1 / (1 + np.exp(-gate))
        before = np.where(rows["positions"][:, None] == 0, 0, rows["state"])
        c = f * before + (1 - f) * z
        return rows["residual"] + np.maximum(c, 0), c


@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.parametrize("d", SIZES)
def test_the_block_equals_the_formula(d: int, dtype: str) -> None:
    block = Ssru(d, dtype=dtype)
    run = block.operator().run
    for n in (1, 2, 7, 40):
        rows = block.rows(n)
        total, state = block.expected(rows)
        found = run(rows)
        np.testing.assert_allclose(rows["state"], state, rtol=0, atol=2e-5)
        np.testing.assert_allclose(found["total"], total, rtol=0, atol=2e-5)
        normalised = layer_norm(found["total"], **block.norm)
        np.testing.assert_allclose(found["normalised"], normalised, rtol=0, atol=4e-6)


def test_large_gates_keep_or_replace_the_state() -> None:
    block = Ssru(32, dtype="float32")
    block.weights.stored[:, 32:] = 0
    block.weights.bias[32:48], block.weights.bias[48:] = 1e30, -1e30
    rows = block.rows(2)
    before = rows["state"].copy()
    block.operator().run(rows)
    np.testing.assert_allclose(rows["state"][1, :16], before[1, :16], rtol=0, atol=1e-6)
    z = block.weights.product(rows["x"])[:, 16:32]
    np.testing.assert_allclose(rows["state"][:, 16:], z, rtol=0, atol=2e-5)


def test_at_the_first_position_the_old_state_has_no_effect_even_if_it_is_nan() -> None:
    block = Ssru(64)
    run, rows, others = block.operator().run, block.rows(1), block.rows(1)
    others["state"].fill(np.nan)
    np.testing.assert_array_equal(run(rows)["normalised"], run(others)["normalised"])
    np.testing.assert_array_equal(rows["state"], others["state"])


def test_weights_whose_columns_are_not_twice_the_inputs_are_refused() -> None:
    with pytest.raises(Exception, match="the weights of an SSRU have 48 columns, and must have 64, twice"):
        Ssru(32, outputs=48).operator()
