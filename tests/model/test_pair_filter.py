"""Pairs at the limits of the rules for pairs."""

from __future__ import annotations

import pytest

from model.pair_filter import Reason, Rules


@pytest.mark.parametrize(
    ("rules", "at_limit", "beyond", "reason"),
    [
        (
            Rules("en", "de", max_characters=20),
            ("The old house stands", "Das alte Haus steht."),
            ("The old house stands", "Das alte Haus steht.."),
            Reason.LENGTH,
        ),
        (
            Rules("en", "de", max_ratio=2.0),
            ("House", "Ein Haus, das nicht steht"),
            ("House", "Ein Haus, das nicht steht."),
            Reason.RATIO,
        ),
        (
            Rules("en", "de", max_copied=0.5),
            ("Open the dashboard now", "Dashboard öffnen"),
            ("Open the dashboard now", "Dashboard now öffnen"),
            Reason.NEAR_COPY,
        ),
        (
            Rules("en", "ru"),
            ("A solution for Windows", "Windows: решение"),
            ("A solution for Windows", "Windows: решени"),
            Reason.SCRIPT,
        ),
    ],
    ids=["characters", "ratio", "copied words", "letters of a script"],
)
def test_a_pair_at_a_limit_is_kept(
    rules: Rules, at_limit: tuple[str, str], beyond: tuple[str, str], reason: Reason
) -> None:
    assert rules.reason_against(*at_limit) is None
    assert rules.reason_against(*beyond) is reason
