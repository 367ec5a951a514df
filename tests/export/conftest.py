"""One whole bundle for all tests here; who changes it copies it first."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.export.tiny import write_tiny_bundle


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds `bundle` and the `checkpoint` that it was made from."""
    folder = tmp_path_factory.mktemp("tiny")
    write_tiny_bundle(folder)
    return folder


@pytest.fixture
def own_bundle(tiny: Path, tmp_path: Path) -> Path:
    """A copy of the bundle that a test may spoil."""
    shutil.copytree(tiny / "bundle", tmp_path / "bundle")
    return tmp_path / "bundle"
