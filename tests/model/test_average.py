"""`transduce average`: the folders that it writes, replaces and refuses, and checkpoints that have no average."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from model import checkpoint
from model.checkpoint import CheckpointError, Saved
from tests.model.sentences import write_tokenizer
from transduce.cli import main

pytestmark = pytest.mark.training


@pytest.fixture
def run(tmp_path: Path, tokenizer_path: Path) -> Path:
    """A run with two checkpoints. All weights are 2 in the first, and 6 in the second."""
    for step, value in ((1, 2.0), (2, 6.0)):
        write(tmp_path / "run" / f"step-{step}", value, tokenizer_path)
    return tmp_path / "run"


def write(folder: Path, value: float, tokenizer: Path) -> None:
    state = {"step": 1}
    checkpoint.save(
        folder,
        Saved({"w": torch.full((3,), value)}, {"model": {}}, {"rng": torch.zeros(1)}, state),
        tokenizer,
    )


def average(run: Path, output: Path | str) -> int:
    return main(["average", "--run", str(run), "--last", "2", "--output", str(output)])


def weights(folder: Path) -> list[float]:
    found: list[float] = checkpoint.load(folder).model["w"].tolist()
    return found


def content(folder: Path) -> dict[str, bytes | None]:
    """All files and folders, hidden ones too."""
    found = {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}
    return {str(path.relative_to(folder)): each for path, each in found.items()}


def test_a_new_an_empty_and_an_averaged_folder_are_written(run: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("new", "empty", "new"):
        assert average(run, tmp_path / name) == 0
        assert weights(tmp_path / name) == [4.0, 4.0, 4.0]
    assert not list(tmp_path.glob(".*"))


def test_the_last_checkpoints_are_the_newest(run: Path, tmp_path: Path) -> None:
    assert main(["average", "--run", str(run), "--last", "1", "--output", str(tmp_path / "new")]) == 0
    assert weights(tmp_path / "new") == [6.0, 6.0, 6.0]


def test_named_checkpoints_of_several_runs_are_averaged(
    run: Path, tmp_path: Path, tokenizer_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "tuned", 9.0, tokenizer_path)
    named = ["--checkpoint", str(run / "step-2"), "--checkpoint", str(tmp_path / "tuned")]
    assert main(["average", *named, "--output", str(tmp_path / "new")]) == 0
    assert weights(tmp_path / "new") == [7.5, 7.5, 7.5]
    capsys.readouterr()
    for arguments in (["--run", str(run), *named], ["--last", "1"]):
        assert main(["average", *arguments, "--output", str(tmp_path / "other")]) == 1
        message = "--last and --best need --run, and --checkpoint stands without it"
        assert capsys.readouterr().err == f"transduce average: {message}\n"
        assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("name", ["folder", "file", "run", "full", "noted", "bundle"])
def test_an_output_that_is_no_checkpoint_or_has_other_files_is_left_as_it_is(
    name: str, run: Path, tmp_path: Path, tokenizer_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("precious", "utf-8")
    (tmp_path / "file").touch()
    write(tmp_path / "full", 1.0, tokenizer_path)  # a checkpoint that is also the folder of a run
    write(tmp_path / "full" / "step-3", 1.0, tokenizer_path)
    write(tmp_path / "noted", 1.0, tokenizer_path)
    (tmp_path / "noted" / "notes.txt").write_text("precious", "utf-8")
    write(tmp_path / "bundle", 1.0, tokenizer_path)
    (tmp_path / "bundle" / checkpoint.TOKENIZER).unlink()
    before = content(tmp_path)
    assert average(run, tmp_path / name) == 1
    message = f"{tmp_path / name} exists and is not a checkpoint, or has other files: it is left as it is"
    assert capsys.readouterr().err == f"transduce average: {message}\n"
    assert content(tmp_path) == before


@pytest.mark.parametrize("name", [".", ".."])
def test_the_current_folder_and_its_parent_are_refused_as_output(
    name: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    assert average(run, name) == 1
    assert f"{name} cannot be replaced: name another folder" in capsys.readouterr().err


def test_the_folder_behind_a_link_is_written_and_the_link_stays(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "averaged")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for _ in range(2):  # first a new folder, then a folder to replace
        assert average(run, tmp_path / "link") == 0
        assert (tmp_path / "link").is_symlink()
        assert weights(tmp_path / "averaged") == [4.0, 4.0, 4.0]
    assert average(run, tmp_path / "loop") == 1
    assert "leads to itself" in capsys.readouterr().err
    assert not list(tmp_path.glob(".*"))


def test_checkpoints_with_different_tokenizers_have_no_average(run: Path, tmp_path: Path) -> None:
    write(run / "step-2", 6.0, write_tokenizer(tmp_path / "other.spm", vocab_size=399))
    with pytest.raises(CheckpointError, match=r"step-1 and .*step-2 have different tokenizers"):
        checkpoint.average(checkpoint.step_folders(run))


def test_a_folder_without_checkpoints_is_named(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert average(tmp_path / "none", tmp_path / "new") == 1
    assert f"{tmp_path / 'none'} has no checkpoint, a folder step-N" in capsys.readouterr().err
    with pytest.raises(checkpoint.CheckpointError, match=f"it has no config.json; {run / 'step-2'} is one$"):
        checkpoint.load(run)
