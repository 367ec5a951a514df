"""Forbidden subwords in hand-made examples, and the best subwords of a row with ties."""

from __future__ import annotations

import numpy as np
import pytest

from app.decoding.constraints import (
    best_candidates,
    constrained,
    forbidden,
    repeated_ngram_ends,
    suppressed_ends,
)
from app.decoding.options import DecodingOptions

EOS = 1


@pytest.mark.parametrize(
    ("prefix", "runs", "ends"),
    [
        ((), ((4,), (5, 6)), [4]),
        ((5,), ((4,), (5, 6)), [4, 6]),
        ((6, 5), ((5, 6), (6, 5, 7), (6, 6, 8)), [6, 7]),
        ((5,), ((4, 5, 6),), []),
        ((5,), ((5, 5, 5),), []),
        ((5, 5), ((5, 5, 5),), [5]),
        ((5, 6), (), []),
    ],
)
def test_suppressed_ends(prefix: tuple[int, ...], runs: tuple[tuple[int, ...], ...], ends: list[int]) -> None:
    assert suppressed_ends(prefix, runs) == ends


@pytest.mark.parametrize(
    ("prefix", "ngram_size", "ends"),
    [
        ((4, 5, 6), 0, []),
        ((), 1, []),
        ((4, 5), 1, [4, 5]),
        ((4,), 2, []),
        ((4, 5, 4), 2, [5]),
        ((4, 5, 4, 6, 4), 2, [5, 6]),
        ((4, 4), 2, [4]),
        ((4, 5, 6, 4, 5), 3, [6]),
        ((4, 5, 6, 5), 3, []),
        ((4, 5), 3, []),
    ],
)
def test_repeated_ngram_ends(prefix: tuple[int, ...], ngram_size: int, ends: list[int]) -> None:
    assert repeated_ngram_ends(prefix, ngram_size) == ends


def test_the_end_token_is_forbidden_below_min_target_length() -> None:
    options = DecodingOptions(min_target_length=2)
    assert forbidden((4,), options, EOS) == [EOS]
    assert forbidden((4, 5), options, EOS) == []


def test_constrained_returns_new_scores_and_does_not_change_its_input() -> None:
    scores = np.log(np.full((2, 6), 1 / 6, np.float32))
    before = scores.copy()
    options = DecodingOptions(suppress_sequences=((5,), (4, 2)), repetition_penalty=2.0)
    changed = constrained(scores, [(4, 4), (3,)], options, eos_id=EOS)
    one = float(scores[0, 0])
    expected = [[one, one, -np.inf, one, 2 * one, -np.inf], [one, one, one, 2 * one, one, -np.inf]]
    np.testing.assert_allclose(changed, expected, rtol=1e-6)
    assert (scores == before).all()


@pytest.mark.parametrize("num_candidates", [1, 2, 5, 11, 30])
def test_best_candidates_equal_a_stable_sort(num_candidates: int) -> None:
    rng = np.random.default_rng(num_candidates)
    scores = -rng.integers(0, 5, (7, 20)).astype(np.float32)  # many equal
    scores[2, 3:] = -np.inf
    scores[3] = -np.inf
    best, ids = best_candidates(scores, num_candidates)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :num_candidates]
    assert (ids == order).all()
    assert (best == np.take_along_axis(scores, order, axis=1)).all()
