"""Compares the results of operators between processors of different architectures, bit for bit.

python -m tests.runtime.native.results FILE writes the results to FILE if it does not exist. Otherwise it compares the
results with FILE, and exit status 1 says that one differs. `.ci/check-aarch64` does both. test_targets.py compares the
targets of one architecture.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.runtime import native
from tests.runtime.native.graphs import random_floats
from tests.runtime.native.reference import random_table
from tests.runtime.native.test_encoder import CrossCache
from tests.runtime.native.test_encoder import SelfAttention as EncoderAttention
from tests.runtime.native.test_feed_forward import Block
from tests.runtime.native.test_step_attention import CrossAttention, SelfAttention
from tests.runtime.native.test_vocabulary import Vocabulary, embed

Array = NDArray[Any]


def feed_forward(dtype: str) -> Iterator[Array]:
    for activation in ("relu", "gelu", "silu"):
        for d, f in ((16, 48), (96, 208), (512, 528)):
            block = Block(d, f, activation=activation, dtype=dtype)
            operator = block.operator()
            for n in (1, 3, 6, 13):
                yield from operator.run(block.rows(n, seed=n)).values()
            # Rows that are 0, very small, very large and not finite.
            rows = block.rows(8)
            with np.errstate(invalid="ignore"):
                rows["x"] *= np.array(
                    [[0], [1e-30], [1e-3], [10], [100], [1e4], [1e30], [np.inf]], np.float32
                )
            yield from operator.run(rows).values()


def attention_of_a_step(dtype: str) -> Iterator[Array]:
    for cache in ("float16", "float32"):
        for d, num_heads in ((16, 1), (48, 1), (128, 2), (256, 2)):
            own = SelfAttention(d, num_heads, dtype=dtype)
            cross = CrossAttention(d, num_heads, dtype=dtype, aligned=(0,))
            for n, capacity in ((1, 1), (3, 17), (9, 41)):
                rows = own.rows(n, capacity, cache=cache)
                yield from own.operator(cache).run(rows).values()
                yield from (rows["keys"], rows["values"])
                yield from cross.operator(cache).run(cross.rows(n, capacity, cache=cache)).values()


def encoder(dtype: str) -> Iterator[Array]:
    block, cross = EncoderAttention(96, 2, dtype=dtype), CrossCache(96, 4, dtype=dtype)
    inputs = cross.run_inputs([3, 20, 1], [4, 0, 2], cache="float16")
    cross.operator("float16").run(inputs)
    yield from block.operator().run(block.rows(1, 2, 5, 19, 33, 70)).values()
    yield inputs["cache"]


def vocabulary(dtype: str) -> Iterator[Array]:
    x = random_floats(2, 9, 64) * np.float32(10) ** np.arange(-4, 5, dtype=np.float32)[:, None]
    for vocab_size in (61, 64, 77, 1000):
        table = random_table(1, vocab_size, 64, dtype=dtype)
        operator = Vocabulary(table)
        yield from operator.run(x, 1).values()
        yield from operator.run(x, 61).values()
        ids = np.arange(vocab_size, dtype=np.int32)
        yield from embed(table, random_floats(3, 1, 64)).run({"ids": ids, "positions": ids * 0}).values()


def main(path: Path) -> int:
    """Write or compare the results; returns the exit status."""
    found: dict[str, Any] = {
        f"{run.__name__} {dtype} {index}": values
        for run in (feed_forward, attention_of_a_step, encoder, vocabulary)
        for dtype in ("int8", "float32")
        for index, values in enumerate(run(dtype))
    }
    if not path.exists():
        with path.open("wb") as file:  # savez would add .npz to a path without it
            np.savez(file, allow_pickle=False, **found)
        return 0
    with np.load(path) as expected:
        different = [
            name
            for name in {*found, *expected.files}
            if name not in found
            or name not in expected.files
            or not np.array_equal(found[name], expected[name], equal_nan=found[name].dtype.kind == "f")
        ]
    for name in sorted(different):
        print(f"differs: {name}", file=sys.stderr)
    numbers = sum(values.size for values in found.values())
    print(f"{native.used_target()}: {len(found)} results, {numbers} numbers, {len(different)} results differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
