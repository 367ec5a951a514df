"""Attention blocks of a decoder step over caches that are updated in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.runtime.native.graphs import Operator, operator, random_floats
from tests.runtime.native.processes import run_python
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

    kind = "SelfAttentionStep"

    def __init__(self, d: int, num_heads: int, *, dtype: str = "int8") -> None:
        self.d, self.num_heads = d, num_heads
        self.qkv = random_weights(1, d, 3 * d, dtype=dtype)
        self.out = random_weights(2, d, d, dtype=dtype)
        self.norm = norm_inputs(3, d)

    def operator(self, cache: str = "float16", **changed: Any) -> Operator:
        inputs: dict[str, Any] = {"residual": "float32", "x": "float32", "positions": "int32"}
        inputs |= {"keys": cache, "values": cache}
        inputs |= self.qkv.inputs("qkv") | self.out.inputs("o") | self.norm
        return operator(
            self.kind, inputs, OUTPUTS, **({"num_heads": self.num_heads, "epsilon": EPSILON} | changed)
        )

    def rows(self, n: int, capacity: int, *, cache: str = "float16", spare: int = 0) -> dict[str, Array]:
        shape = (n + spare, capacity, self.d)
        return {
            "residual": random_floats(4, n, self.d),
            "x": random_floats(5, n, self.d),
            "positions": np.random.default_rng(6).integers(0, capacity, n).astype(np.int32),
            "keys": (random_floats(7, *shape) / 4).astype(cache),
            "values": random_floats(8, *shape).astype(cache),
        }

    def expected(self, rows: dict[str, Array]) -> tuple[dict[str, Array], Array, Array]:
        """The outputs, and the caches after the run."""
        q, k, v = np.split(self.qkv.product(rows["x"]), 3, axis=1)
        keys, values = rows["keys"].copy(), rows["values"].copy()
        heads = np.zeros_like(q)
        for row, position in enumerate(rows["positions"]):
            keys[row, position], values[row, position] = k[row], v[row]
            own = slice(0, position + 1)
            heads[row], _ = attention(q[row], keys[row, own], values[row, own], self.num_heads)
        total = rows["residual"] + self.out.product(heads)
        return {"total": total, "normalised": layer_norm(total, **self.norm)}, keys, values


class CrossAttention:
    """The weights of one block, its operator, and the expected result. Each row attends to the columns of its slot."""

    def __init__(self, d: int, num_heads: int, *, dtype: str = "int8", aligned: tuple[int, ...] = ()) -> None:
        self.d, self.num_heads, self.aligned = d, num_heads, aligned
        self.kind = "AlignedCrossAttentionStep" if aligned else "CrossAttentionStep"
        self.q = random_weights(1, d, d, dtype=dtype)
        self.out = random_weights(2, d, d, dtype=dtype)
        self.norm = norm_inputs(3, d)

    def operator(self, cache: str = "float16", **changed: Any) -> Operator:
        inputs: dict[str, Any] = {"residual": "float32", "x": "float32", "slots": "int32"}
        inputs |= {"lengths": "int32", "keys": cache, "values": cache}
        inputs |= self.q.inputs("q") | self.out.inputs("o") | self.norm
        attributes: dict[str, Any] = {"num_heads": self.num_heads, "epsilon": EPSILON}
        attributes |= {"heads": list(self.aligned)} if self.aligned else {}
        outputs = OUTPUTS | ({"weights": "float32"} if self.aligned else {})
        return operator(self.kind, inputs, outputs, **(attributes | changed))

    def rows(self, n: int, capacity: int, *, cache: str = "float16", num_slots: int = 3) -> dict[str, Array]:
        random = np.random.default_rng(6)
        shape = (num_slots, capacity, self.d)
        slots = random.integers(0, num_slots, n)
        return {
            "residual": random_floats(4, n, self.d),
            "x": random_floats(5, n, self.d),
            "slots": slots.astype(np.int32),
            "lengths": random.integers(1, capacity + 1, num_slots)[slots].astype(np.int32),
            "keys": (random_floats(7, *shape) / 4).astype(cache),
            "values": random_floats(8, *shape).astype(cache),
        }

    def expected(self, rows: dict[str, Array]) -> dict[str, Array]:
        q = self.q.product(rows["x"])
        heads = np.zeros_like(q)
        weights = np.zeros((q.shape[0], rows["keys"].shape[1]), np.float32)
        for row, (slot, length) in enumerate(zip(rows["slots"], rows["lengths"], strict=True)):
            columns = rows["keys"][slot, :length], rows["values"][slot, :length]
            heads[row], all_weights = attention(q[row], *columns, self.num_heads)
            if self.aligned:
                weights[row, :length] = all_weights[list(self.aligned)].mean(axis=0)
        total = rows["residual"] + self.out.product(heads)
        outputs = {"total": total, "normalised": layer_norm(total, **self.norm)}
        return outputs | ({"weights": weights} if self.aligned else {})


def check(found: dict[str, Array], expected: dict[str, Array], norm: dict[str, Array], dtype: str) -> None:
    gap = np.abs(found["total"] - expected["total"])
    assert gap.max() <= (LEVEL if dtype == "int8" else 4e-5)
    assert np.median(gap) <= 1e-6
    assert np.abs(found["normalised"] - layer_norm(found["total"], **norm)).max() <= 4e-6


SIZES = [(64, 4), (96, 6), (256, 4), (512, 8), (128, 1)]


@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.parametrize("cache", ["float16", "float32"])
@pytest.mark.parametrize(("d", "num_heads"), SIZES)
def test_self_attention_equals_the_formula(d: int, num_heads: int, cache: str, dtype: str) -> None:
    block = SelfAttention(d, num_heads, dtype=dtype)
    rows = block.rows(9, 41, cache=cache, spare=2)
    expected, keys, values = block.expected(rows)
    found = block.operator(cache).run(rows)
    check(found, expected, block.norm, dtype)
    # Only this step's columns change. They differ from the expected ones by rounding at most.
    rounding = 2**-10 if cache == "float16" else 1e-5
    assert np.allclose(rows["keys"], keys, atol=rounding, rtol=rounding)
    assert np.allclose(rows["values"], values, atol=rounding, rtol=rounding)
    is_new = np.zeros(keys.shape[:2], bool)
    is_new[np.arange(9), rows["positions"]] = True
    assert (rows["keys"] == keys)[~is_new].all()
    assert (rows["values"] == values)[~is_new].all()


@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.parametrize("cache", ["float16", "float32"])
@pytest.mark.parametrize(("d", "num_heads"), SIZES)
def test_cross_attention_equals_the_formula(d: int, num_heads: int, cache: str, dtype: str) -> None:
    block = CrossAttention(d, num_heads, dtype=dtype)
    rows = block.rows(9, 41, cache=cache)
    before = rows["keys"].copy(), rows["values"].copy()
    check(block.operator(cache).run(rows), block.expected(rows), block.norm, dtype)
    assert (rows["keys"] == before[0]).all()
    assert (rows["values"] == before[1]).all()


@pytest.mark.parametrize("capacity", [1, 2, 3, 4, 5, 15, 16, 17, 33, 256])
def test_attention_uses_exactly_the_valid_columns(capacity: int) -> None:
    """The columns after a row's valid ones hold garbage."""
    block = CrossAttention(64, 1)
    for length in sorted({1, (capacity + 1) // 2, capacity}):
        rows = block.rows(2, capacity, cache="float32")
        rows["lengths"][:] = length
        rows["keys"][:, length:] = np.nan
        rows["values"][:, length:] = np.inf
        check(block.operator("float32").run(rows), block.expected(rows), block.norm, "int8")


def test_the_weights_are_the_mean_over_the_requested_heads() -> None:
    block = CrossAttention(256, 4, aligned=(0, 2, 3))
    rows = block.rows(11, 30)
    found, expected = block.operator().run(rows), block.expected(rows)
    assert found["weights"] == pytest.approx(expected["weights"], abs=1e-6)
    assert found["weights"].sum(axis=1) == pytest.approx(np.ones(11), abs=1e-5)
    for row, length in enumerate(rows["lengths"]):
        assert (found["weights"][row, length:] == 0).all()
    plain = CrossAttention(256, 4).operator().run(rows)
    assert all((found[name] == plain[name]).all() for name in OUTPUTS)


# Keys and values end at the end of mapped memory. Reading further ends the process.
AT_THE_END = """
import ctypes, mmap
import numpy as np
from tests.runtime.native.test_step_attention import CrossAttention
block = CrossAttention(64, 4)
rows = block.rows(1, 3, cache="float32", num_slots=1)
rows["lengths"][:] = 3
libc = ctypes.CDLL(None, use_errno=True)
for name in ("keys", "values"):
    pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    assert libc.mprotect(ctypes.c_void_p(address + mmap.PAGESIZE), mmap.PAGESIZE, 0) == 0
    offset = mmap.PAGESIZE - rows[name].nbytes
    there = np.frombuffer(pages, np.float32, rows[name].size, offset).reshape(rows[name].shape)
    there[:] = rows[name]
    rows[name] = there
block.operator("float32").run(rows)
"""


def test_nothing_is_read_after_a_cache() -> None:
    assert run_python(AT_THE_END) == (0, b"")
