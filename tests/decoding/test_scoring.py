"""Length penalties by hand, and what counts as a score."""

from __future__ import annotations

import numpy as np
import pytest

from app.decoding.options import DecodingOptions, FinishReason, LengthPenalty
from app.decoding.scoring import finished, length_penalty, rows_without_scores


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


def test_the_end_token_counts_only_where_it_was_summed() -> None:
    options = DecodingOptions(alpha=1.0, length_penalty=LengthPenalty.POWER)
    assert finished((5, 6, 7), (-3.0,) * 4, -12.0, reason=FinishReason.STOP, options=options).score == -3.0
    assert finished((5, 6, 7), (-4.0,) * 3, -12.0, reason=FinishReason.LENGTH, options=options).score == -4.0


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
