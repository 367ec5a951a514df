"""What a killed process leaves of its checkpoints, and how the next process removes or finishes it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from model import checkpoint
from model.checkpoint import Saved

pytestmark = pytest.mark.training


def save(path: Path, value: float, tokenizer: Path) -> None:
    checkpoint.save(path, Saved({"w": torch.full((1,), value)}, {"model": {}}, {}, {}), tokenizer)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_unfinished_folders_of_a_run_are_removed(tmp_path: Path, tokenizer_path: Path) -> None:
    save(tmp_path / "step-3", 3.0, tokenizer_path)
    for name in (
        ".step-3.71.old",
        ".step-3.71.tmp",
        ".step-6.71.tmp",
        ".step-1.72.old",
        ".corpus.71.tmp",
        ".averaged.73.tmp",
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").touch()
    (tmp_path / ".lock").touch()
    checkpoint.finish_writes(tmp_path)
    assert names(tmp_path) == [".averaged.73.tmp", ".lock", "step-3"], "`average` may run: it takes no lock"
    assert checkpoint.load(tmp_path / "step-3").model["w"].item() == 3.0


def test_a_replacement_that_was_killed_between_its_renames_is_finished(
    tmp_path: Path, tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "step-3", 3.0, tokenizer_path)
    replace = Path.replace

    def killed(path: Path, target: Path) -> Path:
        if path.name.endswith(".tmp"):
            raise KeyboardInterrupt
        return replace(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            save(tmp_path / "step-3", 4.0, tokenizer_path)
    assert names(tmp_path) == [f".step-3.{os.getpid()}.old", f".step-3.{os.getpid()}.tmp"]
    checkpoint.finish_writes(tmp_path)
    assert names(tmp_path) == ["step-3"]
    assert checkpoint.load(tmp_path / "step-3").model["w"].item() == 4.0
