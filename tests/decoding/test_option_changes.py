"""A request's options and a model's defaults."""

from __future__ import annotations

from typing import Any

import pytest

from app.decoding.option_changes import NO_CHANGES, OptionChanges
from app.decoding.options import DecodingOptions, LengthPenalty, Sampling
from app.decoding.validation import Bounds
from app.errors import InvalidRequest

# The default options of two models.
FIRST = DecodingOptions(beam_size=5, length_penalty=LengthPenalty.POWER, alpha=0.3, max_target_length=90)
SECOND = DecodingOptions(beam_size=1, alpha=0.0, max_target_length=40)


@pytest.mark.parametrize("defaults", [FIRST, SECOND])
def test_options_that_are_not_set_come_from_the_model(defaults: DecodingOptions) -> None:
    assert NO_CHANGES.merged(defaults) == defaults
    merged = OptionChanges.of(alpha=1.0).merged(defaults)
    assert (merged.alpha, merged.length_penalty) == (1.0, defaults.length_penalty)
    assert merged.max_target_length == defaults.max_target_length


@pytest.mark.parametrize(
    ("values", "beam_sizes"),
    [
        ({}, (5, 1)),
        ({"num_hypotheses": 3}, (5, 3)),
        ({"num_hypotheses": 7}, (6, 6)),
        ({"num_hypotheses": 3, "beam_size": 4}, (4, 4)),
        ({"beam_size": 8}, (8, 8)),
        ({"sampling": Sampling(seed=3)}, (1, 1)),
        ({"sampling": Sampling(seed=3), "num_hypotheses": 4}, (1, 1)),
    ],
)
def test_a_beam_that_is_not_set_fits_the_other_options(
    values: dict[str, Any], beam_sizes: tuple[int, int]
) -> None:
    # max_beam_size limits only a beam size that the request does not set.
    changes = OptionChanges(max_beam_size=6).updated(**values)
    assert tuple(changes.merged(each).beam_size for each in (FIRST, SECOND)) == beam_sizes


def test_updates_add_to_earlier_changes() -> None:
    changes = OptionChanges.of(alpha=1.0, beam_size=2).updated(beam_size=3, num_alternatives=1)
    assert changes == OptionChanges.of(alpha=1.0, beam_size=3, num_alternatives=1)
    assert changes.only(["alpha", "patience"]) == OptionChanges.of(alpha=1.0)
    assert (changes.num_alternatives, changes.num_hypotheses, changes.sampling) == (1, 1, None)
    assert not changes.alignment
    assert not changes.loop_guard
    assert OptionChanges(max_beam_size=6).updated(sampling=Sampling()).max_beam_size == 6


def test_the_limits_are_those_of_the_model() -> None:
    changes = OptionChanges.of(max_target_length=60)
    first, second = (
        Bounds(vocab_size=9, eos_id=2, max_target_length=each.max_target_length) for each in (FIRST, SECOND)
    )
    assert changes.checked(FIRST, first).max_target_length == 60
    with pytest.raises(InvalidRequest, match="max_target_length must be 1 to 40 subwords, and is 60"):
        changes.checked(SECOND, second)
