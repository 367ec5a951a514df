"""The output path of `-o`: symbolic links, file modes, and paths that are refused before any request."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.transduce.conftest import ScriptedServer
from transduce.cli import main
from transduce.distill_output import check_output
from transduce.errors import CommandError
from transduce.translate_output import output_file

NOT_REGULAR = "is not a regular file; without -o the translation goes to stdout"


def translate(server: ScriptedServer, folder: Path, output: Path) -> int:
    source = folder / "source.txt"
    source.write_text("one\n")
    languages = ["--source", "en", "--target", "de"]
    return main(["translate", "--url", server.url, *languages, str(source), "-o", str(output)])


@pytest.mark.parametrize("exists", [True, False])
def test_a_symbolic_link_is_followed(server: ScriptedServer, tmp_path: Path, exists: bool) -> None:
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir()
    link.symlink_to("folder/out.txt")
    if exists:
        (folder / "out.txt").write_text("old")
    assert translate(server, tmp_path, link) == 0
    assert link.is_symlink()
    assert (folder / "out.txt").read_text() == "ONE\n"
    assert [path.name for path in folder.iterdir()] == ["out.txt"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_a_replaced_file_keeps_its_mode(server: ScriptedServer, tmp_path: Path, mode: int) -> None:
    output = tmp_path / "out.txt"
    output.write_text("old")
    output.chmod(mode)
    assert translate(server, tmp_path, output) == 0
    assert output.read_text() == "ONE\n"
    assert output.stat().st_mode & 0o777 == mode


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link_to_fifo(path: Path) -> None:
    os.mkfifo(path.with_name("fifo"))
    path.symlink_to("fifo")


def link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (fifo, NOT_REGULAR),
        (link_to_fifo, NOT_REGULAR),
        (link_to_itself, NOT_REGULAR),
        (Path.mkdir, "is a folder"),
    ],
)
def test_what_is_not_a_file_is_refused_before_the_work(
    server: ScriptedServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    make: object,
    problem: str,
) -> None:
    assert callable(make)
    output = tmp_path / "out"
    make(output)
    before = {*tmp_path.iterdir(), tmp_path / "source.txt"}
    kind = os.lstat(output).st_mode
    assert translate(server, tmp_path, output) == 1
    assert capsys.readouterr().err == f"transduce translate: {output} {problem}\n"
    assert os.lstat(output).st_mode == kind
    assert {*tmp_path.iterdir()} == before
    assert server.requests == []


def test_a_missing_folder_is_refused_before_the_work(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert translate(server, tmp_path, tmp_path / "none" / "out") == 1
    assert capsys.readouterr().err == f"transduce translate: the folder {tmp_path}/none does not exist\n"
    assert server.requests == []


def test_a_folder_that_is_not_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may write into any folder, so the kernel's answer is scripted."""
    asked = []

    def access(path: Path, mode: int) -> bool:
        asked.append((path, mode))
        return False

    monkeypatch.setattr(os, "access", access)
    for check in (output_file, check_output):
        with pytest.raises(CommandError, match="is not writable"):
            check(tmp_path / "out.tsv")
    assert asked == [(tmp_path, os.W_OK | os.X_OK)] * 2


@pytest.mark.parametrize("make", [fifo, link_to_itself, Path.mkdir, Path.touch])
def test_distill_refuses_whatever_exists(tmp_path: Path, make: object) -> None:
    assert callable(make)
    output = tmp_path / "out.tsv"
    make(output)
    with pytest.raises(CommandError, match=r"out\.tsv exists already"):
        check_output(output)
