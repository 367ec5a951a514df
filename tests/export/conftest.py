"""The fixtures `own_bundle` and `npz`, for tests that change a bundle or Marian's own files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def own_bundle(tiny: Path, tmp_path: Path) -> Path:
    """A copy of the tiny bundle that a test may change."""
    shutil.copytree(tiny / "bundle", tmp_path / "bundle")
    return tmp_path / "bundle"


@pytest.fixture(scope="module")
def untrained_npz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with Marian's own files of an untrained model."""
    from tests.export.marian_folder import write_marian, write_npz  # only here: it imports torch

    folder = tmp_path_factory.mktemp("untrained")
    write_marian(folder / "theirs")
    write_npz(folder / "theirs", folder / "npz")
    return folder / "npz"


@pytest.fixture
def npz(untrained_npz: Path, tmp_path: Path) -> Path:
    """A copy of `untrained_npz` that a test may change."""
    return Path(shutil.copytree(untrained_npz, tmp_path / "npz"))
