"""The coverage, which the coverage penalty weights, computed by hand (Wu et al. 2016, equation 14)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from app.decoding.options import DecodingOptions
from app.decoding.token_details import TokenDetails

SOURCE_LENGTH = 3


def recorded(*attention: tuple[float, ...]) -> TokenDetails:
    """Details of the target 4 5 6 ... with each token's attention to the source, and a column beyond the source."""
    details = TokenDetails(DecodingOptions(coverage_penalty=1.0), SOURCE_LENGTH)
    for position, row in enumerate(attention):
        details.add(
            [tuple(range(4, 4 + position))],
            ids=np.array([[0]]),
            log_probabilities=np.zeros((1, 1), np.float32),
            alignment=np.array([[*row, 99.0]], np.float32),
        )
    return details


def test_attention_above_one_counts_as_one() -> None:
    details = recorded((0.5, 0.25, 0.25), (1.0, 0.0, 0.0))
    assert details.coverage((4,), 2) == pytest.approx(2 * math.log(0.25))


def test_the_end_token_counts_if_there_is_one() -> None:
    details = recorded((0.5, 0.25, 0.25), (0.0, 0.5, 0.5))
    assert details.coverage((4,), 1) == pytest.approx(math.log(0.5) + 2 * math.log(0.25))
    assert details.coverage((4,), 2) == pytest.approx(math.log(0.5) + 2 * math.log(0.75))


def test_a_source_token_without_attention_gives_a_finite_coverage() -> None:
    assert recorded((1.0, 0.0, 0.0)).coverage((), 1) == pytest.approx(2 * math.log(1e-10))


def test_the_coverage_of_an_empty_target_is_zero() -> None:
    assert recorded((1.0, 0.0, 0.0)).coverage((), 0) == 0.0


def test_recorded_attention_is_a_copy() -> None:
    details = TokenDetails(DecodingOptions(alignment=True), SOURCE_LENGTH)
    attention = np.full((1, 4), 0.5, np.float32)
    details.add(
        [()], ids=np.array([[0]]), log_probabilities=np.zeros((1, 1), np.float32), alignment=attention
    )
    attention[:] = 0.0
    assert details.coverage((), 1) == pytest.approx(3 * math.log(0.5))
