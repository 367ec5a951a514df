"""The best candidates of rows with known logits: ties, infinities, many shapes and numbers of threads."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from app.runtime import native
from tests.runtime.native.reference import Weights
from tests.runtime.native.test_vocabulary import Vocabulary, best

Array = NDArray[Any]
# Vocabulary sizes around 16 ids (a vector), 64 ids (a panel) and 512 ids (a span), and sizes of several spans.
VOCAB_SIZES = [5, 16, 61, 64, 200, 511, 512, 513, 1030, 1600, 3001, 8000]
CANDIDATE_COUNTS = [*range(1, 18), 33, 64]


def shapes(vocab_size: int) -> dict[str, Array]:
    """Logits of rows, (vocab_size,) each."""
    random = np.random.default_rng(vocab_size)
    noise, ids = random.standard_normal(vocab_size), np.arange(vocab_size)
    close = -1000 + random.permutation(vocab_size) * 1e-9
    return {
        "noise": noise * 5,
        "another": random.standard_normal(vocab_size) * 2 + 10,
        "few values": random.integers(-3, 4, vocab_size).astype(float),
        "all the same": np.full(vocab_size, -2.5),
        "up": ids / 100,
        "down": -ids / 100,
        "one above ids that round to the same": np.where(ids == vocab_size // 2, 1.0, close / 1e3),
        "the last above ids that round to the same": np.where(ids == vocab_size - 1, 3e4, -1 + ids * 1e-4),
        "the first above ids that round to the same": np.where(ids == 0, 3e4, -1 + ids * 1e-4),
        "huge": noise * 1e30,
        "the best side by side": noise + 20 * (ids // 40 == vocab_size // 80),
        "the best in one lane": noise + 20 * (ids % 64 == 3),
        "the best at the end": noise + 20 * (ids >= vocab_size - 20),
        "tiny": noise * 1e-30,
        "far apart": random.permutation(vocab_size) * 20.0,
        "steps": -(ids // 100) * 1.0,
    }


def of_logits(logits: Array) -> tuple[Vocabulary, Array]:
    """A float32 vocabulary, and rows whose logits are exactly `logits`, (16, V)."""
    table = np.ascontiguousarray(logits.T, np.float32)
    nothing = np.zeros(0, np.float32)
    return Vocabulary(Weights(table, nothing, nothing)), np.eye(16, dtype=np.float32)


def log_softmax(logits: Array) -> Array:
    logits = logits.astype(np.float64)
    logits = logits - logits.max(axis=-1, keepdims=True)
    expected: Array = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return expected


def check_best(vocabulary: Vocabulary, x: Array, expected: Array, counts: Collection[int]) -> None:
    """Check all log-probabilities, and the k best candidates for each k of `counts`.

    expected: the exact log-probabilities, (n, V).
    """
    log_probabilities = vocabulary.run(x, 1)["log_probabilities"]
    assert np.allclose(log_probabilities, expected, rtol=3e-7, atol=1e-6)
    values, ids = best(log_probabilities, max(counts))
    for k in counts:
        found, without_distributions = vocabulary.run(x, k), vocabulary.run(x, k, wanted=False)
        assert np.array_equal(found["log_probabilities"], log_probabilities)
        for result in (found, without_distributions):
            assert (result["top_ids"] == ids[:, :k]).all()
            assert (result["top_log_probabilities"] == values[:, :k]).all()


@pytest.mark.seconds
@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("vocab_size", VOCAB_SIZES)
def test_the_best_candidates_are_found_in_rows_of_every_shape(vocab_size: int, num_threads: int) -> None:
    """If there are few rows, the threads divide their columns. If there are many, they divide the rows."""
    native.set_num_threads(num_threads)
    logits = np.stack(list(shapes(vocab_size).values())).astype(np.float32)
    vocabulary, rows = of_logits(logits)
    expected = log_softmax(logits)
    for n in (3, 16, 70):
        order = np.random.default_rng(n).integers(0, 16, n)
        check_best(vocabulary, rows[order], expected[order], {min(k, vocab_size) for k in CANDIDATE_COUNTS})


def test_no_log_probability_is_above_zero() -> None:
    """Rounding gives no log-probability above 0. The best one is 0 if all other subwords are negligible."""
    logits = np.stack([np.where(np.arange(1600) == i * 100, 0.0, -10.0 * i - 20) for i in range(16)])
    vocabulary, rows = of_logits(logits)
    found = vocabulary.run(rows, 1, wanted=False)
    assert found["top_ids"][:, 0].tolist() == [i * 100 for i in range(16)]
    assert (found["top_log_probabilities"] <= 0).all()
    assert (found["top_log_probabilities"][1:] == 0).all()


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("vocab_size", [61, 513, 1600])
@pytest.mark.parametrize("num_finite", [1, 4, 40])
def test_impossible_subwords_come_after_possible_ones(
    num_finite: int, vocab_size: int, num_threads: int
) -> None:
    native.set_num_threads(num_threads)
    random = np.random.default_rng(num_finite)
    logits = np.full(vocab_size, -np.inf)
    logits[random.permutation(vocab_size)[:num_finite]] = random.standard_normal(num_finite)
    table = np.zeros((16, vocab_size))
    table[0] = logits
    vocabulary, rows = of_logits(table)
    for n in (1, 30):
        expected = np.repeat(log_softmax(table[:1]), n, axis=0)
        check_best(vocabulary, np.repeat(rows[:1], n, axis=0), expected, (1, 5, 17, 61))


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("bad", ["nan", "inf", "nothing"])
def test_a_row_without_a_distribution_gives_nan_and_changes_no_other(bad: str, num_threads: int) -> None:
    native.set_num_threads(num_threads)
    logits = np.random.default_rng(4).standard_normal((16, 1600))
    logits[7] = -np.inf if bad == "nothing" else logits[7]
    logits[7, 900] = {"nan": np.nan, "inf": np.inf, "nothing": -np.inf}[bad]
    clean = np.delete(logits, 7, axis=0)
    damaged, rows = of_logits(logits)
    for n in (1, 30):
        for k in (1, 5, 33):
            # Only row 7 runs: other rows would multiply its infinities by 0.
            found = damaged.run(np.repeat(rows[7:8], n, axis=0), k, wanted=False)
            assert np.isnan(found["top_log_probabilities"]).all()
            assert (found["top_ids"] == np.arange(k)).all()
    vocabulary, rows = of_logits(np.vstack([clean, np.zeros((1, 1600))]))
    mixed = rows[np.arange(40) % 15].copy()
    mixed[20, 3] = np.nan if bad == "nan" else np.inf
    found, alone = vocabulary.run(mixed, 5, wanted=False), vocabulary.run(rows[:15], 5, wanted=False)
    assert np.isnan(found["top_log_probabilities"][20]).all()
    assert found["top_ids"][20].tolist() == [0, 1, 2, 3, 4]
    others = np.delete(np.arange(40), 20)
    assert (found["top_ids"][others] == alone["top_ids"][others % 15]).all()
    assert (found["top_log_probabilities"][others] == alone["top_log_probabilities"][others % 15]).all()
