"""Coverage by hand (Wu et al. 2016, equation 14)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from app.decoding.options import DecodingOptions
from app.decoding.token_details import TokenDetails

SOURCE_LENGTH = 3


def recorded(*attention: tuple[float, ...]) -> TokenDetails:
    """Notes of a target 4 5 6 ..., each of whose tokens paid this to the source and what lies behind it."""
    details = TokenDetails(DecodingOptions(coverage_penalty=1.0), SOURCE_LENGTH)
    for position, row in enumerate(attention):
        details.add(
            [tuple(range(4, 4 + position))],
            ids=np.array([[0]]),
            log_probabilities=np.zeros((1, 1), np.float32),
            alignment=np.array([[*row, 99.0]], np.float32),
        )
    return details


def test_what_is_covered_more_than_once_counts_as_covered() -> None:
    details = recorded((0.5, 0.25, 0.25), (1.0, 0.0, 0.0))
    assert details.coverage((4,), 2) == pytest.approx(2 * math.log(0.25))


def test_the_end_token_covers_too_where_there_is_one() -> None:
    details = recorded((0.5, 0.25, 0.25), (0.0, 0.5, 0.5))
    assert details.coverage((4,), 1) == pytest.approx(math.log(0.5) + 2 * math.log(0.25))
    assert details.coverage((4,), 2) == pytest.approx(math.log(0.5) + 2 * math.log(0.75))


def test_a_source_token_without_any_attention_is_a_number() -> None:
    assert recorded((1.0, 0.0, 0.0)).coverage((), 1) == pytest.approx(2 * math.log(1e-10))


def test_a_target_without_tokens_covers_nothing_and_costs_nothing() -> None:
    assert recorded((1.0, 0.0, 0.0)).coverage((), 0) == 0.0


def test_what_is_noted_outlives_the_arrays_it_came_in() -> None:
    details = TokenDetails(DecodingOptions(alignment=True), SOURCE_LENGTH)
    attention = np.full((1, 4), 0.5, np.float32)
    details.add(
        [()], ids=np.array([[0]]), log_probabilities=np.zeros((1, 1), np.float32), alignment=attention
    )
    attention[:] = 0.0
    assert details.coverage((), 1) == pytest.approx(3 * math.log(0.5))
