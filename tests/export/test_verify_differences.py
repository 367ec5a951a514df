"""Which differences of log-probabilities from PyTorch's `verify` accepts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.runtime.interface import Floats
from app.runtime.ort_runner import LoadedRunner
from export.parity import ParityPair, stepwise_log_probabilities
from export.verify import VerifyOptions, verify
from tests.export.tiny import verify_few_sentences


@pytest.fixture(autouse=True)
def _few_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    verify_few_sentences(monkeypatch)


@pytest.mark.seconds
def test_a_log_probability_that_is_no_number_fails(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in the second of several pairs."""

    def with_a_nan(runner: LoadedRunner, pairs: Sequence[ParityPair]) -> list[Floats]:
        found = stepwise_log_probabilities(runner, pairs)
        found[1][0, 0] = math.nan
        return found

    monkeypatch.setattr("export.parity.stepwise_log_probabilities", with_a_nan)
    checks = [check for check in verify(tiny / "bundle", VerifyOptions()).checks if "log-prob" in check.name]
    assert len(checks) >= 4
    assert [check.name for check in checks if check.is_passed] == []


@pytest.mark.seconds
@pytest.mark.parametrize(("difference", "is_passed"), [(1e-3, True), (1.0, False)])
def test_fp32_may_differ_by_rounding_at_a_single_position(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, difference: float, is_passed: bool
) -> None:
    """In a model that was trained on few sentences, rounding changes single log-probabilities by up to 1e-3."""

    def changed(runner: LoadedRunner, pairs: Sequence[ParityPair]) -> list[Floats]:
        found = stepwise_log_probabilities(runner, pairs)
        found[-1][0, 0] += difference
        return found

    monkeypatch.setattr("export.parity.stepwise_log_probabilities", changed)
    options = VerifyOptions(checkpoint=tiny / "checkpoint")
    checks = {check.name: check.is_passed for check in verify(tiny / "bundle", options).checks}
    assert checks["fp32 log-probabilities"] is is_passed
