"""A run that is interrupted and resumed has the rows, weights and training state of an uninterrupted run."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from app.text.tokenizer import Tokenizer
from model import checkpoint
from model.batches import Position
from model.checkpoint import CheckpointError
from model.trainer import Trainer
from model.training_log import TrainingLog
from model.transformer import Transformer
from tests.model.test_trainer import dev_of, trainer_in

pytestmark = pytest.mark.training

TIMES = ("target_tokens_per_s", "elapsed_s")


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Several threads may sum in another order."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


def train(trainer: Trainer, *, stop_at: int | None = None) -> Trainer:
    """Train until the update `stop_at`, if it is given. The BLEU is lower at each evaluation."""

    def bleu(model: Transformer) -> float:
        return 50.0 - trainer.step

    trainer.train(dev_of(trainer), bleu, is_stopping=lambda: trainer.step == stop_at)
    return trainer


def rows_of(run: Path) -> list[dict[str, str]]:
    """The rows of train.csv without times."""
    with (run / "train.csv").open(encoding="utf-8") as file:
        return [
            {name: text for name, text in row.items() if name not in TIMES} for row in csv.DictReader(file)
        ]


def state_of(folder: Path) -> dict[str, Any]:
    """The training state without times."""
    state = json.loads((folder / checkpoint.STATE).read_text("utf-8"))
    del state["elapsed_s"], state["window"]["elapsed_s"]
    return dict(state)


PATIENCE = {"max_steps": 12, "patience": 1, "patience_on": "bleu"}


@pytest.fixture(scope="module", params=[{"max_steps": 6}, PATIENCE], ids=["steps", "patience"])
def limit(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(request.param)


@pytest.fixture(scope="module")
def whole(
    tmp_path_factory: pytest.TempPathFactory,
    tokenizer: Tokenizer,
    tokenizer_path: Path,
    limit: dict[str, Any],
) -> Path:
    """The folder of an uninterrupted run."""
    run = tmp_path_factory.mktemp("run") / "whole"
    train(trainer_in(run, tokenizer, tokenizer_path, **limit))
    return run


@pytest.mark.parametrize("step", [2, 3, 4, 6])
def test_an_interrupted_and_resumed_run_equals_an_uninterrupted_one(
    tmp_path: Path, tokenizer: Tokenizer, tokenizer_path: Path, whole: Path, limit: dict[str, Any], step: int
) -> None:
    parts = tmp_path / "parts"
    assert [row["step"] for row in rows_of(whole)] == ["3.0", "6.0"]
    interrupted = train(trainer_in(parts, tokenizer, tokenizer_path, **limit), stop_at=step)
    assert interrupted.step == step
    assert [float(row["step"]) for row in rows_of(parts)] == [3.0][: step > 3]
    resumed = trainer_in(parts, tokenizer, tokenizer_path, **limit)
    assert resumed.resume()
    assert train(resumed).step == 6
    assert rows_of(parts) == rows_of(whole)
    assert checkpoint.step_folders(parts)[-1].name == "step-6"
    assert state_of(parts / "step-6") == state_of(whole / "step-6")
    for name in (checkpoint.WEIGHTS, checkpoint.OPTIMIZER):
        one, other = (load_file(run / "step-6" / name) for run in (whole, parts))
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize(
    ("limit", "step"), [(PATIENCE, 6), ({"max_time_s": 1e-9}, 1), ({}, 6)], ids=["patience", "time", "steps"]
)
def test_a_run_that_has_ended_does_not_train_on(
    tmp_path: Path, tokenizer: Tokenizer, tokenizer_path: Path, limit: dict[str, Any], step: int
) -> None:
    assert train(trainer_in(tmp_path, tokenizer, tokenizer_path, **limit)).step == step
    rows, folders = rows_of(tmp_path), checkpoint.step_folders(tmp_path)
    places = [folder.stat().st_ino for folder in folders]
    resumed = trainer_in(tmp_path, tokenizer, tokenizer_path, **limit)
    assert resumed.resume()
    assert train(resumed).step == step
    assert (rows_of(tmp_path), checkpoint.step_folders(tmp_path)) == (rows, folders)
    assert [folder.stat().st_ino for folder in folders] == places, "no checkpoint is written again"
    more = trainer_in(tmp_path, tokenizer, tokenizer_path, max_steps=9)
    assert more.resume()
    assert train(more).step == 9


def test_a_row_has_the_loss_of_the_updates_since_the_row_before(
    tmp_path: Path, tokenizer: Tokenizer, tokenizer_path: Path
) -> None:
    trainer = trainer_in(tmp_path, tokenizer, tokenizer_path)
    found = []

    def bleu(model: Transformer) -> float:
        found.append(trainer.window.num_tokens)
        return 0.0

    trainer.train(dev_of(trainer), bleu)
    stream = trainer.batches.since(Position())
    first, second = ([next(stream)[0].num_target_tokens for _ in range(3)] for _ in range(2))
    assert found == [sum(first), sum(second)]


def test_the_time_of_a_resumed_run_counts_on(
    tmp_path: Path, tokenizer: Tokenizer, tokenizer_path: Path
) -> None:
    first = trainer_in(tmp_path, tokenizer, tokenizer_path)
    first.elapsed_s = 1000.0
    first.save()
    resumed = trainer_in(tmp_path, tokenizer, tokenizer_path, max_steps=1)
    assert resumed.resume()
    assert train(resumed).elapsed_s > 1000.0


def test_a_resumed_run_keeps_the_columns_of_its_log(tmp_path: Path) -> None:
    """A domain that the dev text gained later has no column."""
    (tmp_path / "train.csv").write_text("step,dev_loss\n3,2.0\n", "utf-8")
    with TrainingLog(tmp_path, ["dev_loss_news"], is_new=False) as log:
        log.write({"step": 6.0, "dev_loss": 1.5, "dev_loss_news": 1.0})
    assert (tmp_path / "train.csv").read_text("utf-8").splitlines() == ["step,dev_loss", "3,2.0", "6.0,1.5"]


def test_a_signal_before_the_due_evaluation_leaves_it_due(
    tmp_path: Path, tokenizer: Tokenizer, tokenizer_path: Path
) -> None:
    train(trainer_in(tmp_path, tokenizer, tokenizer_path), stop_at=3)
    for stop_at in (3, None):
        resumed = trainer_in(tmp_path, tokenizer, tokenizer_path)
        assert resumed.resume()
        train(resumed, stop_at=stop_at)
        assert resumed.step == (stop_at or 6)
    assert [row["step"] for row in rows_of(tmp_path)] == ["3.0", "6.0"]


def test_a_row_whose_checkpoint_was_not_written_is_written_once(
    tmp_path: Path, tokenizer: Tokenizer, tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(trainer_in(tmp_path, tokenizer, tokenizer_path), stop_at=3)

    def killed(trainer: Trainer) -> Path:
        raise KeyboardInterrupt

    for is_killed in (True, False):
        resumed = trainer_in(tmp_path, tokenizer, tokenizer_path)
        assert resumed.resume()
        if is_killed:
            with monkeypatch.context() as patch:
                patch.setattr(Trainer, "save", killed)
                with pytest.raises(KeyboardInterrupt):
                    train(resumed)
            assert [row["step"] for row in rows_of(tmp_path)] == ["3.0"]
    train(resumed)
    assert [row["step"] for row in rows_of(tmp_path)] == ["3.0", "6.0"]


def test_a_checkpoint_without_a_window_can_be_resumed(
    tmp_path: Path, tokenizer: Tokenizer, tokenizer_path: Path
) -> None:
    """The window holds the sums for the next row of the log. Older versions did not store it."""
    train(trainer_in(tmp_path, tokenizer, tokenizer_path, max_steps=3))
    file = tmp_path / "step-3" / checkpoint.STATE
    state = json.loads(file.read_text("utf-8"))
    del state["window"]
    file.write_text(json.dumps(state), "utf-8")
    resumed = trainer_in(tmp_path, tokenizer, tokenizer_path)
    assert resumed.resume()
    assert train(resumed).step == 6
    assert [row["step"] for row in rows_of(tmp_path)] == ["3.0", "6.0"]


@pytest.mark.parametrize("content", ["{\n", "[1]", "{}", '{"dev_loss": []}', '{"dev_loss": "low"}', "\xff"])
def test_the_error_of_best_folders_names_a_damaged_state_file(tmp_path: Path, content: str) -> None:
    file = tmp_path / "step-3" / checkpoint.STATE
    file.parent.mkdir()
    file.write_bytes(content.encode("latin-1"))
    with pytest.raises(CheckpointError, match=r"step-3/state\.json holds no dev loss"):
        checkpoint.best_folders(tmp_path, 1)


@pytest.mark.parametrize(("content", "reason"), [("[1]", "a JSON object"), ("{", "JSON in UTF-8")])
@pytest.mark.parametrize("name", [checkpoint.CONFIG, checkpoint.STATE])
def test_a_damaged_file_of_a_checkpoint_is_named(
    tmp_path: Path, tokenizer: Tokenizer, tokenizer_path: Path, name: str, content: str, reason: str
) -> None:
    folder = trainer_in(tmp_path, tokenizer, tokenizer_path).save()
    (folder / name).write_text(content, "utf-8")
    with pytest.raises(CheckpointError, match=rf"step-0 is not a checkpoint: {name} is not {reason}"):
        checkpoint.load(folder)
