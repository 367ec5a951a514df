"""Bundles that benchmarks.two_models cannot measure are refused before it starts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from app.errors import BundleError
from benchmarks import two_models


@pytest.mark.parametrize(
    ("precision", "source", "has_starts", "longest", "problem"),
    [
        ("fp32", "en", False, 256, "it has no int8 variant"),
        ("int8", "de", False, 256, "its first pair translates from de, not from en"),
        ("int8", "en", True, 256, "it has a start token for each target"),
        ("int8", "en", False, 99, "its max_target_length is 99, not at least 100"),
    ],
)
def test_a_bundle_that_cannot_be_measured_is_refused(
    precision: str,
    source: str,
    has_starts: bool,
    longest: int,
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manifest = SimpleNamespace(
        variants={precision: None},
        language_pairs=[SimpleNamespace(source=source)],
        has_target_starts=has_starts,
        max_target_length=longest,
    )
    monkeypatch.setattr(two_models, "load_bundle", lambda path: SimpleNamespace(manifest=manifest))
    with pytest.raises(BundleError) as caught:
        two_models.check(Path("bundle"))
    assert caught.value.problems == (problem,)
