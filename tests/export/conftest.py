"""The fixture `own_bundle`, for tests that change a bundle."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def own_bundle(tiny: Path, tmp_path: Path) -> Path:
    """A copy of the tiny bundle that a test may change."""
    shutil.copytree(tiny / "bundle", tmp_path / "bundle")
    return tmp_path / "bundle"
