"""All targets give the same bits. Each is compared with the fastest.

A target is a build of the native kernels for one set of instructions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from app.graphs import Precision
from app.runtime import native
from tests.runtime.native.graphs import random_floats
from tests.runtime.native.reference import random_table
from tests.runtime.native.test_encoder import CrossCache
from tests.runtime.native.test_encoder import SelfAttention as EncoderAttention
from tests.runtime.native.test_feed_forward import Block
from tests.runtime.native.test_step_attention import CrossAttention, SelfAttention
from tests.runtime.native.test_vocabulary import Vocabulary, embed
from tests.runtime.native.test_whole import NUM_ROWS, first_step, load_new, sources

Array = NDArray[Any]
# Numbers of rows. A tile has 1 to 6 rows (TILE_ROWS of linear.h). So these are one tile of each size, and several tiles
# of equal and of different sizes.
ROW_COUNTS = [1, 2, 3, 4, 5, 6, 7, 11, 13, 18, 25, 80]
# Widths: multiples of 16, smaller and larger than FLOAT_DEPTH_BLOCK of linear.cpp.
WIDTHS = [(16, 48), (64, 80), (96, 208), (512, 528)]
# If NATIVE_LIBRARY selects a library, no targets are compared.
ALL = () if "NATIVE_LIBRARY" in os.environ else native.usable_targets()
pytestmark = [
    pytest.mark.slower_target,
    pytest.mark.parametrize("target", ALL[1:], indirect=True, scope="module"),
]


@pytest.fixture(autouse=True)
def _restored_target() -> Iterator[None]:
    yield
    native.select_target(None)


def same_as_fastest(target: str, run: Callable[[], list[Array]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare this target with the fastest one. `run` makes its own sessions."""
    assert native.used_target() == target
    found = run()
    monkeypatch.setattr(native, "usable_targets", lambda: ALL)
    native.select_target(ALL[0])
    for own, other in zip(found, run(), strict=True):
        np.testing.assert_array_equal(own, other)


@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
@pytest.mark.parametrize(("d", "f"), WIDTHS)
def test_feed_forward(
    d: int, f: int, activation: str, dtype: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> list[Array]:
        block = Block(d, f, activation=activation, dtype=dtype)
        run_rows = block.operator().run
        results = [run_rows(block.rows(n, seed=n)) for n in ROW_COUNTS]
        # Numbers for which e^x is 0, 1 or close to the largest float, and numbers that are not finite.
        rows = block.rows(8)
        for row, factor in enumerate([0, 1e-30, 1e-3, 10, 100, 1e4, 1e30, np.inf]):
            with np.errstate(invalid="ignore"):
                rows["x"][row] *= np.float32(factor)
        return [values for result in [*results, run_rows(rows)] for values in result.values()]

    same_as_fastest(target, run, monkeypatch)


@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.parametrize("cache", ["float16", "float32"])
@pytest.mark.parametrize(
    ("d", "num_heads"), [(16, 1), (32, 1), (48, 1), (128, 2), (160, 2), (192, 2), (256, 2)]
)
def test_attention_of_a_step(
    d: int, num_heads: int, cache: str, dtype: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> list[Array]:
        own = SelfAttention(d, num_heads, dtype=dtype)
        cross = CrossAttention(d, num_heads, dtype=dtype, aligned=(0,))
        results = []
        for n, capacity in [(1, 1), (2, 16), (3, 17), (9, 41)]:
            rows = own.rows(n, capacity, cache=cache)
            results += [*own.operator(cache).run(rows).values(), rows["keys"], rows["values"]]
            rows = cross.rows(n, capacity, cache=cache)
            rows["slots"] //= 2  # neighbours share a slot
            results += cross.operator(cache).run(rows).values()
        return results

    same_as_fastest(target, run, monkeypatch)


@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.parametrize(("d", "num_heads"), [(16, 1), (96, 2), (320, 4)])
def test_encoder(d: int, num_heads: int, dtype: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = [*range(1, 20), 33, 140]

    def run() -> list[Array]:
        block, cross = EncoderAttention(d, num_heads, dtype=dtype), CrossCache(d, 4, dtype=dtype)
        inputs = cross.run_inputs([3, 20, 1], [4, 0, 2], cache="float16")
        cross.operator("float16").run(inputs)
        return [*block.operator().run(block.rows(*lengths)).values(), inputs["cache"]]

    same_as_fastest(target, run, monkeypatch)


@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.parametrize("vocab_size", [*range(61, 79), 1000, 8000])
def test_vocabulary(vocab_size: int, dtype: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = random_table(1, vocab_size, 64, dtype=dtype)
    x = random_floats(2, 9, 64) * np.float32(10) ** np.arange(-4, 5, dtype=np.float32)[:, None]
    ids = np.arange(vocab_size, dtype=np.int32)

    def run() -> list[Array]:
        vocabulary = Vocabulary(table)
        found = [*vocabulary.run(x, 1).values(), *vocabulary.run(x, 61).values()]
        found += [*vocabulary.run(x, 9, wanted=False).values()][:2]
        return [
            *found,
            *embed(table, random_floats(3, 1, 64)).run({"ids": ids, "positions": ids * 0}).values(),
        ]

    same_as_fastest(target, run, monkeypatch)


@pytest.mark.parametrize("precision", ["int8", "fp32"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_whole_model(
    norm: str, precision: Precision, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> list[Array]:
        folder = tmp_path / str(native.used_target())
        folder.mkdir()
        runner = load_new(folder, precision, norm=norm)
        runner.encode(sources(), range(NUM_ROWS))
        output = runner.decode(first_step(NUM_ROWS, num_steps=12))
        return [output.log_probabilities.copy(), output.ids.copy()]

    same_as_fastest(target, run, monkeypatch)
