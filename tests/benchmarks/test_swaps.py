"""The benchmark that replaces a served model refuses two bundles of one version.

An answer names only the model and its version, so it would not show which bundle gave the answer.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import swaps


def test_two_bundles_of_one_version_are_refused_before_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = ({0: swaps.Answer("3.0.0", ("Ja.",))}, 10.0)
    monkeypatch.setattr(swaps, "answers_alone", lambda *_: alone)
    monkeypatch.setattr(swaps, "ServerProcess", None)
    with pytest.raises(SystemExit, match=r"both bundles have the version 3\.0\.0"):
        swaps.measure(Path("old"), Path("new"), seconds=1.0, num_swaps=1, share=0.5)
