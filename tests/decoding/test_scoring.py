"""Length penalties and scores computed by hand, and the check for invalid scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from app.decoding.options import DecodingOptions, LengthPenalty
from app.decoding.scoring import best_reachable, length_penalty, rows_without_scores, score


@pytest.mark.parametrize(
    ("length", "alpha", "formula", "expected"),
    [
        (1, 0.6, LengthPenalty.WU, 1.0),
        (7, 1.0, LengthPenalty.WU, 2.0),
        (19, 0.5, LengthPenalty.WU, 2.0),
        (9, 0.5, LengthPenalty.POWER, 3.0),
        (1, 2.0, LengthPenalty.POWER, 1.0),
        (50, 0.0, LengthPenalty.WU, 1.0),
        (50, 0.0, LengthPenalty.POWER, 1.0),
    ],
)
def test_length_penalty(length: int, alpha: float, formula: LengthPenalty, expected: float) -> None:
    assert length_penalty(length, alpha, formula) == pytest.approx(expected)


def test_a_score_is_the_sum_over_the_penalty_plus_weighted_coverage() -> None:
    options = DecodingOptions(alpha=1.0, length_penalty=LengthPenalty.POWER)
    assert score(-12.0, 4, options) == -3.0
    assert score(-12.0, 4, options, coverage=-2.0) == -3.0
    assert score(-12.0, 4, replace(options, coverage_penalty=0.5), coverage=-2.0) == -4.0
    assert score(0.0, 0, options) == 0.0  # a hypothesis without tokens


@pytest.mark.parametrize("formula", LengthPenalty)
@pytest.mark.parametrize("start_id", [None, 3])
def test_the_best_reachable_score_is_that_of_the_longest_hypothesis(
    formula: LengthPenalty, start_id: int | None
) -> None:
    options = DecodingOptions(length_penalty=formula, max_target_length=12, start_id=start_id)
    assert best_reachable(-12.0, options) == score(-12.0, 13, options)


@pytest.mark.parametrize(
    ("row", "is_broken"),
    [
        ([-0.1, -2.0], False),
        ([-0.1, -np.inf], False),
        ([-np.inf, -np.inf], True),
        ([np.inf, -1.0], True),
        ([-0.1, np.nan], True),
        ([np.nan, np.nan], True),
    ],
)
def test_rows_without_scores(row: list[float], is_broken: bool) -> None:
    sound = [-0.5, -1.0]
    scores = np.array([sound, row, sound], np.float32)
    assert rows_without_scores(scores) == (frozenset({1}) if is_broken else frozenset())
