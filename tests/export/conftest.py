"""The fixtures `own_bundle` and `npz`, for tests that change a bundle or Marian's own files."""

from __future__ import annotations

import gc
import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="module", autouse=True)
def _collections_are_short() -> None:
    """Exclude what earlier modules have imported from garbage collections, of which each export and import runs some.

    `transformers` and PyTorch import most of their modules when they are first used, so after the tests are collected.
    """
    gc.freeze()


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
