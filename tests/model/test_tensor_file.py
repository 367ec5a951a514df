"""Safetensors files have the mode of other new files, although `save_file` makes them private."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from model import checkpoint
from model.config import ModelConfig
from model.tensor_file import save_tensors
from model.transformer import Transformer
from tests.export.tiny import write_checkpoint


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_all_files_of_a_checkpoint_have_the_mode_of_the_umask(tmp_path: Path, umask: int) -> None:
    config = ModelConfig(100, d_model=16, num_heads=2, d_ff=16, num_encoder_layers=1, num_decoder_layers=1)
    old = os.umask(umask)
    try:
        folder = write_checkpoint(tmp_path, Transformer(config))
    finally:
        os.umask(old)
    assert {mode_of(path) for path in folder.iterdir()} == {0o666 & ~umask}
    assert checkpoint.load(folder).model


def test_a_file_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.touch(0o640)
    path.chmod(0o640)
    save_tensors(path, {"a": torch.ones(2)})
    assert mode_of(path) == 0o640
    assert load_file(path)["a"].tolist() == [1, 1]
