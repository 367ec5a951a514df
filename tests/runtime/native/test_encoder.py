"""The encoder's self-attention, and the cross-attention columns that it writes for the decoder."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.runtime.native.graphs import Operator, operator, random_floats
from tests.runtime.native.reference import (
    EPSILON,
    LEVEL,
    OUTPUTS,
    attention,
    layer_norm,
    norm_inputs,
    random_weights,
)

Array = NDArray[Any]


class SelfAttention:
    """The weights of one block, its operator, and the expected result."""

    def __init__(self, d: int, num_heads: int, *, dtype: str = "int8") -> None:
        self.d, self.num_heads = d, num_heads
        self.qkv = random_weights(1, d, 3 * d, dtype=dtype)
        self.out = random_weights(2, d, d, dtype=dtype)
        self.norm = norm_inputs(3, d)

    def operator(self, **changed: Any) -> Operator:
        inputs: dict[str, Any] = {"residual": "float32", "x": "float32", "lengths": "int32"}
        inputs |= self.qkv.inputs("qkv") | self.out.inputs("o") | self.norm
        attributes = {"num_heads": self.num_heads, "epsilon": EPSILON} | changed
        return operator("SelfAttention", inputs, OUTPUTS, **attributes)

    def rows(self, *lengths: int) -> dict[str, Array]:
        return {
            "residual": random_floats(4, sum(lengths), self.d),
            "x": random_floats(5, sum(lengths), self.d),
            "lengths": np.array(lengths, np.int32),
        }

    def expected(self, residual: Array, x: Array, lengths: Array) -> Array:
        heads = []
        for sentence in np.split(self.qkv.product(x), np.cumsum(lengths)[:-1]):
            q, k, v = np.split(sentence, 3, axis=1)
            heads += [attention(row, k, v, self.num_heads)[0] for row in q]
        return residual + self.out.product(np.array(heads))


@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.parametrize(("d", "num_heads"), [(64, 4), (96, 6), (256, 4), (512, 8)])
def test_every_sentence_attends_to_itself(d: int, num_heads: int, dtype: str) -> None:
    block = SelfAttention(d, num_heads, dtype=dtype)
    rows = block.rows(5, 1, 70, 16, 3)
    found, expected = block.operator().run(rows), block.expected(**rows)
    gap = np.abs(found["total"] - expected)
    assert gap.max() <= (LEVEL if dtype == "int8" else 4e-5)
    assert np.median(gap) <= 1e-6
    assert np.abs(found["normalised"] - layer_norm(found["total"], **block.norm)).max() <= 4e-6


def test_a_sentence_has_the_same_result_alone_and_in_a_batch() -> None:
    block = SelfAttention(96, 3)
    run = block.operator().run
    lengths = (9, 1, 200, 64, 65, 3)
    rows = block.rows(*lengths)
    together = run(rows)
    for end, length in zip(np.cumsum(lengths), lengths, strict=True):
        own = slice(end - length, end)
        alone = run(
            {
                "residual": rows["residual"][own].copy(),
                "x": rows["x"][own].copy(),
                "lengths": np.array([length], np.int32),
            }
        )
        for name, values in alone.items():
            assert (values == together[name][own]).all()


def test_a_call_without_sentences_has_an_empty_result() -> None:
    block = SelfAttention(64, 4)
    assert {values.shape for values in block.operator().run(block.rows()).values()} == {(0, 64)}


class CrossCache:
    """The cross-attention projection of every layer, and the cache slots that its columns are written to."""

    def __init__(self, d: int, planes: int, *, dtype: str = "int8") -> None:
        self.d, self.planes = d, planes
        self.weights = random_weights(1, d, planes * d, dtype=dtype)

    def operator(self, cache: str) -> Operator:
        inputs: dict[str, Any] = {"x": "float32", "lengths": "int32", "slots": "int32", "cache": cache}
        inputs |= {"w": self.weights.stored, "s": self.weights.scales}
        return operator("WriteCrossCache", inputs, {"written": "int32"})

    def run_inputs(
        self, lengths: list[int], slots: list[int], *, cache: str, num_slots: int = 5, capacity: int = 20
    ) -> dict[str, Array]:
        return {
            "x": random_floats(2, sum(lengths), self.d),
            "lengths": np.array(lengths, np.int32),
            "slots": np.array(slots, np.int32),
            "cache": random_floats(3, self.planes, num_slots, capacity, self.d).astype(cache),
        }

    def expected(self, x: Array, lengths: Array, slots: Array, cache: Array) -> Array:
        expected_cache = cache.copy()
        columns = self.weights.product(x) - self.weights.bias
        for sentence, slot in zip(np.split(columns, np.cumsum(lengths)[:-1]), slots, strict=True):
            for plane, own in enumerate(np.split(sentence, self.planes, axis=1)):
                expected_cache[plane, slot, : len(sentence)] = own
        return expected_cache


@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.parametrize("cache", ["float16", "float32"])
@pytest.mark.parametrize("d", [64, 96, 512])
def test_columns_are_written_to_their_slots(d: int, cache: str, dtype: str) -> None:
    block = CrossCache(d, 4, dtype=dtype)
    run_inputs = block.run_inputs([3, 20, 1], [4, 0, 2], cache=cache)
    before, expected = run_inputs["cache"].copy(), block.expected(**run_inputs)
    written = block.operator(cache).run(run_inputs)["written"]
    assert written.tolist() == [3, 20, 1]
    rounding = 2**-10 if cache == "float16" else 1e-5
    assert np.allclose(run_inputs["cache"], expected, atol=rounding, rtol=rounding)
    is_written = np.zeros((5, 20), bool)
    is_written[4, :3] = is_written[0, :] = is_written[2, :1] = True
    assert (run_inputs["cache"][:, ~is_written] == before[:, ~is_written]).all()
