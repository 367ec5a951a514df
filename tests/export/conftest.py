"""One valid bundle for all tests of this folder; a test that changes it uses a copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.export.tiny import write_tiny_bundle


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `bundle` and its `checkpoint`."""
    folder = tmp_path_factory.mktemp("tiny")
    write_tiny_bundle(folder)
    return folder


@pytest.fixture
def own_bundle(tiny: Path, tmp_path: Path) -> Path:
    """A copy of the bundle that a test may change."""
    shutil.copytree(tiny / "bundle", tmp_path / "bundle")
    return tmp_path / "bundle"
