"""Checkpoints, which are folders of safetensors and JSON, without pickle. They are written atomically."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from model.config import ConfigError, ModelConfig
from model.output_files import naming
from model.output_folders import folder_behind
from model.tensor_file import save_tensors
from model.transformer import Transformer, empty_model

WEIGHTS, OPTIMIZER, CONFIG, STATE, TOKENIZER = (
    "model.safetensors",
    "optimizer.safetensors",
    "config.json",
    "state.json",
    "tokenizer.spm",
)
# Only in the checkpoint of an imported model. Its targets may have another SentencePiece model than its sources.
TARGET_TOKENIZER = "target.spm"
_REQUIRED = frozenset({WEIGHTS, CONFIG, TOKENIZER})
_ALL_FILES = _REQUIRED | {OPTIMIZER, STATE, TARGET_TOKENIZER}


class CheckpointError(ValueError):
    """The folder is not a checkpoint, or is the checkpoint of another model."""


@dataclass(frozen=True)
class Saved:
    """The content of a checkpoint.

    model: state dict. config: sizes and other facts of the model, as JSON.
    optimizer and state: what training needs to resume; empty in a checkpoint for inference only.
    """

    model: Mapping[str, Tensor]
    config: Mapping[str, Any]
    optimizer: Mapping[str, Tensor]
    state: Mapping[str, Any]


def write_folder(path: Path, files: Mapping[str, bytes | Mapping[str, Tensor] | Path]) -> None:
    """Write a folder under a temporary name, flush it to the disk, then rename it to `path`.

    files: bytes to write, tensors to store as safetensors, or a file to copy, by file name. A folder
    that exists already is replaced by two renames. If the process dies between them, the old folder is `.NAME.PID.old`.
    Raises OSError that names a file or the folder.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        with naming(path):
            for name, content in files.items():
                _write_file(temporary / name, content)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    if path.exists():
        old = path.with_name(f".{path.name}.{os.getpid()}.old")
        path.replace(old)
        temporary.replace(path)
        shutil.rmtree(old)
    else:
        temporary.replace(path)


def finish_writes(run: Path) -> None:
    """Finish or remove what killed processes of a run left in its folder. The caller has the run's lock.

    A process may have been killed between the two renames that replace a checkpoint (`write_folder`): then the new
    checkpoint, which is complete, gets the checkpoint's name. All other hidden folders of checkpoints and of the corpus
    are removed.
    """
    for old in run.glob(".step-*.old"):
        new, path = old.with_suffix(".tmp"), run / old.name[1:].partition(".")[0]
        if new.is_dir() and not path.exists():
            new.replace(path)
    for pattern in (".step-*.old", ".step-*.tmp", ".corpus.*.tmp"):
        for path in run.glob(pattern):
            shutil.rmtree(path)


def check_output(output: Path) -> Path:
    """The folder that `save` may write or replace. For a symbolic link, this is the folder that it leads to.

    The link itself stays. Raises CheckpointError for `.` and `..`, and for a link that leads to itself. Also raises it
    if the folder is neither new, empty nor a checkpoint without other files.
    """
    try:
        folder = folder_behind(output)
    except ValueError as error:
        raise CheckpointError(str(error)) from error
    if folder.exists() and not _is_replaceable(folder):
        raise CheckpointError(
            f"{output} exists and is not a checkpoint, or has other files: it is left as it is"
        )
    return folder


def _is_replaceable(folder: Path) -> bool:
    """Whether a folder is empty, or has the files of a checkpoint and no other ones."""
    if not folder.is_dir():
        return False
    names = {path.name for path in folder.iterdir()}
    return not names or _REQUIRED <= names <= _ALL_FILES


def _write_file(path: Path, content: bytes | Mapping[str, Tensor] | Path) -> None:
    """Write or copy a file of a folder, and flush it to the disk."""
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, Path):
        shutil.copyfile(content, path)
    else:
        save_tensors(path, {key: tensor.contiguous() for key, tensor in content.items()})
    with path.open("rb") as file:
        os.fsync(file.fileno())


def save(path: Path, saved: Saved, tokenizer: Path) -> None:
    """Write a checkpoint with a copy of its tokenizer."""
    files: dict[str, bytes | Mapping[str, Tensor] | Path] = {
        WEIGHTS: saved.model,
        CONFIG: json.dumps(saved.config, indent=1).encode(),
        TOKENIZER: tokenizer,
    }
    if saved.state:
        files |= {OPTIMIZER: saved.optimizer, STATE: json.dumps(saved.state).encode()}
    write_folder(path, files)


def load(path: Path) -> Saved:
    """Read a checkpoint. Raises CheckpointError that names what is missing or broken."""
    if missing := [name for name in (CONFIG, WEIGHTS) if not (path / name).is_file()]:
        raise CheckpointError(f"{path} is not a checkpoint: it has no {missing[0]}{_hint(path)}")
    try:
        config = _read_object(path / CONFIG)
        model = load_file(path / WEIGHTS)
        has_state = (path / STATE).exists()
        state = _read_object(path / STATE) if has_state else {}
        optimizer = load_file(path / OPTIMIZER) if has_state else {}
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(f"{path} is not a checkpoint: {error}") from error
    return Saved(model, config, optimizer, state)


def _hint(path: Path) -> str:
    """Where a folder that is no checkpoint has one: the end of an error message. Empty if it has none."""
    places = [*step_folders(path)[-1:], *(path / name for name in ("averaged", "weights"))]
    found = next((place for place in places if (place / CONFIG).is_file()), None)
    return "" if found is None else f"; {found} is one"


def _read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises OSError, and ValueError that names the file."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path.name} is not JSON in UTF-8: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} is not a JSON object")  # noqa: TRY004 - callers catch ValueError
    return found


def build_model(saved: Saved) -> Transformer:
    """The model of a checkpoint, in fp32 and evaluation mode. Raises CheckpointError if weights and sizes differ.

    The model uses the tensors of `saved` themselves. It copies only those that are not in fp32.
    """
    try:
        model = empty_model(ModelConfig.from_json(saved.config["model"]))
        model.load_state_dict({name: tensor.float() for name, tensor in saved.model.items()}, assign=True)
    except (ConfigError, KeyError, TypeError, RuntimeError) as error:
        raise CheckpointError(f"the checkpoint's weights and sizes do not agree: {error}") from error
    return model.eval()


def load_model(path: Path) -> Transformer:
    """Read a checkpoint's model, in fp32 and in evaluation mode. Raises CheckpointError."""
    return build_model(load(path))


def tokenizer_of(path: Path) -> Path:
    """The tokenizer's file in a checkpoint. Raises CheckpointError if it is missing, with the way to supply it."""
    file = path / TOKENIZER
    if not file.is_file():
        raise CheckpointError(
            f"{file} is missing: copy the model's SentencePiece model there, which is the --tokenizer of its training "
            "or, for the weights of a bundle, the bundle's source.spm"
        )
    return file


def step_folders(run: Path) -> list[Path]:
    """The checkpoints of a run, folders called step-N, in the order of their steps."""
    folders = [path for path in run.glob("step-*") if path.is_dir() and _step_of(path).isdecimal()]
    return sorted(folders, key=lambda path: int(_step_of(path)))


def _step_of(path: Path) -> str:
    return path.name.removeprefix("step-")


def remove(path: Path) -> None:
    """Delete a checkpoint atomically, so that a reader sees all of it or nothing."""
    hidden = path.with_name(f".{path.name}.{os.getpid()}.old")
    path.replace(hidden)
    shutil.rmtree(hidden)


def average(paths: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of several checkpoints' weights (section 6.1), summed in fp64.

    Raises CheckpointError, also for checkpoints whose tokenizers differ.
    """
    if not paths:
        raise CheckpointError("there is no checkpoint to average")
    total: dict[str, Tensor] = {}
    tokenizer = tokenizer_of(paths[0]).read_bytes()
    for path in paths:
        if tokenizer_of(path).read_bytes() != tokenizer:
            raise CheckpointError(f"{paths[0]} and {path} have different tokenizers")
        model = load(path).model
        if total and (names := sorted(model.keys() ^ total.keys())):
            raise CheckpointError(f"only one of {paths[0]} and {path} has {names[0]}")
        for name, tensor in model.items():
            if name in total and total[name].shape != tensor.shape:
                raise CheckpointError(f"{path}: {name} has another shape")
            total[name] = total.get(name, torch.zeros((), dtype=torch.float64)) + tensor.double()
    return {name: (tensor / len(paths)).float() for name, tensor in total.items()}


def best_folders(run: Path, count: int) -> list[Path]:
    """The `count` checkpoints of a run with the lowest dev loss.

    A checkpoint has the loss that was measured last before its save. Checkpoints without a measured loss come last.
    Raises CheckpointError if a state file is damaged or missing, or lacks the field `dev_loss`.
    """

    def dev_loss(path: Path) -> float:
        try:
            measured = _read_object(path / STATE)["dev_loss"]
            return math.inf if measured is None else float(measured)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{path / STATE} holds no dev loss: {error}") from error

    return sorted(step_folders(run), key=dev_loss)[:count]
