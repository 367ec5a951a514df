"""The engine's limits are checked against the model's, and so is the table of a shortlist."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.decoding.options import DecodingOptions
from app.engine.limits import EngineLimits, check_limits, checked_options
from app.errors import InvalidRequest, SettingsError
from tests.engine.fake_runner import EOS, LIMITS

LONGEST = LIMITS.max_source_length
FIELDS = ("max_encode_tokens", "max_pending_tokens")


def test_limits_that_hold_just_the_longest_source_are_accepted() -> None:
    check_limits(EngineLimits(max_encode_tokens=LONGEST, max_pending_tokens=LONGEST), LIMITS)


@pytest.mark.parametrize("field", FIELDS)
def test_a_limit_below_the_longest_source_is_refused(field: str) -> None:
    with pytest.raises(SettingsError, match=field):
        check_limits(replace(EngineLimits(), **{field: LONGEST - 1}), LIMITS)


def test_a_shortlist_needs_a_table_of_the_model() -> None:
    limits = replace(LIMITS, num_shortlists=2)
    last = DecodingOptions(beam_size=1, max_target_length=12, shortlist=1)
    assert checked_options([5, EOS], last, limits) == last
    with pytest.raises(InvalidRequest, match="shortlist must be 0 to 1"):
        checked_options([5, EOS], replace(last, shortlist=2), limits)
