"""Bundles that benchmarks.two_models cannot measure are refused before it starts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from app.errors import BundleError
from benchmarks import two_models


@pytest.mark.parametrize(
    ("precision", "source", "problem"),
    [
        ("fp32", "en", "it has no int8 variant"),
        ("int8", "de", "its first pair translates from de, not from en"),
    ],
)
def test_a_bundle_needs_int8_and_a_first_pair_from_english(
    precision: str, source: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = SimpleNamespace(variants={precision: None}, language_pairs=[SimpleNamespace(source=source)])
    monkeypatch.setattr(two_models, "load_bundle", lambda path: SimpleNamespace(manifest=manifest))
    with pytest.raises(BundleError) as caught:
        two_models.check(Path("bundle"))
    assert caught.value.problems == (problem,)
