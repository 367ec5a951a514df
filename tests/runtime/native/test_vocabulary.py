"""The operator that embeds subwords, and the operator that finds the most probable subwords of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.runtime.native.graphs import Operator, operator, random_floats
from tests.runtime.native.reference import Weights, quantized, random_table

Array = NDArray[Any]


def embed(table: Weights, position_table: Array) -> Operator:
    inputs: dict[str, Any] = {"ids": "int32", "positions": "int32"}
    inputs |= {"table": table.stored, "scales": table.scales, "position_table": position_table}
    return operator("Embed", inputs, {"x": "float32"})


@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.parametrize(("vocab_size", "d"), [(61, 64), (8000, 96), (100, 512)])
def test_embed_adds_table_and_position(vocab_size: int, d: int, dtype: str) -> None:
    table, position_table = random_table(1, vocab_size, d, dtype=dtype), random_floats(2, 30, d)
    random = np.random.default_rng(3)
    ids = random.integers(0, vocab_size, 40).astype(np.int32)
    ids[:2] = 0, vocab_size - 1
    positions = random.integers(0, 30, 40).astype(np.int32)
    found = embed(table, position_table).run({"ids": ids, "positions": positions})["x"]
    rows = table.stored[ids].astype(np.float32)
    expected = (rows * table.scales[ids, None] if table.is_int8 else rows) + position_table[positions]
    assert (found == expected).all()


class Vocabulary:
    """The operator Candidates with an embedding table (vocab_size, d), and its expected results."""

    def __init__(self, table: Weights) -> None:
        self.table = table
        inputs: dict[str, Any] = {"x": "float32", "table": table.stored, "scales": table.scales}
        inputs |= {"num_candidates": "int64", "wanted": "int64"}
        outputs = {"top_log_probabilities": "float32", "top_ids": "int64", "log_probabilities": "float32"}
        self._operator = operator("Candidates", inputs, outputs)

    def run(self, x: Array, k: int, *, wanted: bool = True) -> dict[str, Array]:
        """The outputs for k candidates. wanted: whether `log_probabilities` is computed."""
        return self._operator.run(
            {"x": x, "num_candidates": np.array([k]), "wanted": np.array([int(wanted)])}
        )

    def expected(self, x: Array) -> Array:
        """The log-probabilities of all subwords."""
        wide = self.table.stored.T.astype(np.float64)
        if self.table.is_int8:
            whole, scale = quantized(x)
            logits = whole.astype(np.float64) @ wide * self.table.scales * scale
        else:
            logits = x.astype(np.float64) @ wide
        logits = logits - logits.max(axis=1, keepdims=True)
        expected: Array = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return expected


def best(log_probabilities: Array, k: int) -> tuple[Array, Array]:
    """The k best candidates. Of equal scores, the smaller id comes first."""
    ids = np.argsort(-log_probabilities, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(log_probabilities, ids, axis=1), ids


@pytest.mark.seconds
@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.parametrize(("vocab_size", "d"), [(61, 64), (8000, 96), (8000, 512), (32000, 256)])
def test_log_probabilities_and_the_best_candidates(vocab_size: int, d: int, dtype: str) -> None:
    vocabulary = Vocabulary(random_table(1, vocab_size, d, dtype=dtype))
    x = random_floats(2, 5, d) / 4
    expected = vocabulary.expected(x)
    for k in (1, 8, 61):
        found = vocabulary.run(x, k)
        assert np.abs(found["log_probabilities"] - expected).max() <= 4e-5
        values, ids = best(found["log_probabilities"], k)
        assert (found["top_ids"] == ids).all()
        assert (found["top_log_probabilities"] == values).all()
        without_distributions = vocabulary.run(x, k, wanted=False)
        assert (without_distributions["top_ids"] == ids).all()
        assert (without_distributions["top_log_probabilities"] == values).all()


def test_of_equal_scores_the_smaller_id_comes_first() -> None:
    """The table repeats its seven entries, so many ids have equal scores."""
    few = random_table(1, 7, 64)
    order = np.random.default_rng(5).integers(0, 7, 1000)
    vocabulary = Vocabulary(Weights(few.stored[order], few.scales[order], few.bias))
    found = vocabulary.run(random_floats(2, 9, 64) / 4, 64)
    values, ids = best(found["log_probabilities"], 64)
    assert (found["top_ids"] == ids).all()
    assert (found["top_log_probabilities"] == values).all()


def test_of_scores_that_round_to_the_same_value_the_smaller_id_comes_first() -> None:
    """Logits far below the largest differ by less than the precision of their log-probabilities."""
    table = np.zeros((200, 16), np.float32)
    table[0, 0] = 1000
    table[1:, 0] = np.linspace(0, 1e-5, 199)
    vocabulary = Vocabulary(Weights(table, np.zeros(0, np.float32), np.zeros(0, np.float32)))
    x = np.zeros((1, 16), np.float32)
    x[0, 0] = 1
    found = vocabulary.run(x, 5, wanted=False)
    assert found["top_ids"].tolist() == [[0, 1, 2, 3, 4]]
    assert found["top_log_probabilities"].tolist() == [[0, -1000, -1000, -1000, -1000]]


def test_a_row_of_zeros_gives_equal_log_probabilities() -> None:
    found = Vocabulary(random_table(1, 61, 64)).run(np.zeros((1, 64), np.float32), 3)
    assert found["top_ids"].tolist() == [[0, 1, 2]]
    assert found["log_probabilities"] == pytest.approx(np.full((1, 61), -np.log(61)), abs=1e-6)
