"""Coverage by hand (Wu et al. 2016, equation 14)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from app.decoding.notes import Notes
from app.decoding.options import DecodingOptions

SOURCE_LENGTH = 3


def noted(*attention: tuple[float, ...]) -> Notes:
    """Notes of a target 4 5 6 ..., each of whose tokens paid this to the source and what lies behind it."""
    notes = Notes(DecodingOptions(coverage_penalty=1.0), SOURCE_LENGTH)
    for position, row in enumerate(attention):
        notes.add(
            [tuple(range(4, 4 + position))],
            ids=np.array([[0]]),
            log_probabilities=np.zeros((1, 1), np.float32),
            alignment=np.array([[*row, 99.0]], np.float32),
        )
    return notes


def test_what_is_covered_more_than_once_counts_as_covered() -> None:
    notes = noted((0.5, 0.25, 0.25), (1.0, 0.0, 0.0))
    assert notes.coverage((4,), 2) == pytest.approx(2 * math.log(0.25))


def test_the_end_token_covers_too_where_there_is_one() -> None:
    notes = noted((0.5, 0.25, 0.25), (0.0, 0.5, 0.5))
    assert notes.coverage((4,), 1) == pytest.approx(math.log(0.5) + 2 * math.log(0.25))
    assert notes.coverage((4,), 2) == pytest.approx(math.log(0.5) + 2 * math.log(0.75))


def test_a_source_token_without_any_attention_is_a_number() -> None:
    assert noted((1.0, 0.0, 0.0)).coverage((), 1) == pytest.approx(2 * math.log(1e-10))


def test_a_target_without_tokens_covers_nothing_and_costs_nothing() -> None:
    assert noted((1.0, 0.0, 0.0)).coverage((), 0) == 0.0


def test_what_is_noted_outlives_the_arrays_it_came_in() -> None:
    notes = Notes(DecodingOptions(alignment=True), SOURCE_LENGTH)
    attention = np.full((1, 4), 0.5, np.float32)
    notes.add([()], ids=np.array([[0]]), log_probabilities=np.zeros((1, 1), np.float32), alignment=attention)
    attention[:] = 0.0
    assert notes.coverage((), 1) == pytest.approx(3 * math.log(0.5))
