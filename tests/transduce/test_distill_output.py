"""The form of an output line of `transduce distill`, and the output file, which a second run completes."""

from __future__ import annotations

import fcntl
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import psutil
import pytest

from model.corpus import Pair, read_data
from transduce.distill_corpus import PairForm, Sentence
from transduce.distill_output import ResumableOutput
from transduce.errors import CommandError, ExitCode


def test_texts_in_a_line_have_no_tabs_or_line_breaks() -> None:
    assert PairForm().line(Sentence("a\u00a0 b", "d"), " c\td\ne ") == "d\ta b\tc d e"


def test_a_second_run_with_the_same_output_is_refused(tmp_path: Path) -> None:
    with ResumableOutput(tmp_path / "x.tsv", {"a": 1}, batch_size=1) as output:
        output.write(["1\ta\tb"])
        with (
            pytest.raises(CommandError, match=r"another run is writing .*x\.tsv\.part"),
            ResumableOutput(tmp_path / "x.tsv", {"a": 1}, batch_size=1),
        ):
            pass
        output.write(["1\tc\td"])
        assert output.finish() == 2
    assert (tmp_path / "x.tsv").read_text("utf-8") == "1\ta\tb\n1\tc\td\n"


@pytest.mark.parametrize("is_made_again", [False, True], ids=["removed", "made again"])
def test_files_that_another_run_removes_are_opened_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_made_again: bool
) -> None:
    """The other run's output is moved away. is_made_again: a third run has made the file again, and has been killed."""
    flock, other = fcntl.flock, ResumableOutput(tmp_path / "x.tsv", {}, batch_size=1)
    output = ResumableOutput(tmp_path / "x.tsv", {}, batch_size=1)

    def flock_late(file: IO[bytes], operation: int) -> None:
        """Between the opening of the file and its first lock, the other run ends."""
        monkeypatch.setattr("fcntl.flock", flock)
        other.write(["1\ta\tb"])
        other.finish()
        (tmp_path / "x.tsv").unlink()
        other.__exit__(None, None, None)
        if is_made_again:
            (tmp_path / "x.tsv.part").touch()
        flock(file, operation)

    with other:
        monkeypatch.setattr("fcntl.flock", flock_late)
        with output:
            assert output.num_done == 0
            output.write(["1\tc\td"])
    with ResumableOutput(tmp_path / "x.tsv", {}, batch_size=1) as again:
        assert again.num_done == 1


def test_a_run_that_opens_its_files_after_another_one_has_finished_is_refused(tmp_path: Path) -> None:
    first, second = (ResumableOutput(tmp_path / "x.tsv", {}, batch_size=1) for _ in range(2))
    with first:
        first.write(["1\ta\tb"])
        first.finish()
    with pytest.raises(CommandError, match=r"x\.tsv exists already"), second:
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["x.tsv"]


def test_a_run_that_is_refused_keeps_the_lines_of_an_earlier_one(tmp_path: Path) -> None:
    first, second = (ResumableOutput(tmp_path / "x.tsv", {}, batch_size=1) for _ in range(2))
    with first:
        first.write(["1\ta\tb"])
    (tmp_path / "x.tsv").touch()
    with pytest.raises(CommandError, match=r"x\.tsv exists already"), second:
        pass
    assert (tmp_path / "x.tsv.part").read_text("utf-8") == "1\ta\tb\n"


def test_a_run_that_begins_while_the_other_one_removes_its_files_keeps_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (ResumableOutput(tmp_path / "x.tsv", {}, batch_size=1) for _ in range(2))
    unlink = Path.unlink

    def unlink_and_begin(path: Path, missing_ok: bool = False) -> None:
        """The second run begins as soon as the first one has removed the locked file and its output is moved away."""
        unlink(path, missing_ok)
        if path.suffix == ".part":
            unlink(tmp_path / "x.tsv")
            second.__enter__().write(["1\ta\tb"])

    with first:
        monkeypatch.setattr(Path, "unlink", unlink_and_begin)
        first.finish()
    monkeypatch.undo()
    second.__exit__(None, None, None)
    with ResumableOutput(tmp_path / "x.tsv", {}, batch_size=1) as again:
        assert again.num_done == 1


def test_an_incomplete_batch_is_written_again(tmp_path: Path) -> None:
    key = {"a": 1, "b": ["x"]}
    with ResumableOutput(tmp_path / "x.tsv.xz", key, batch_size=2) as output:
        output.write(["1\ta\tb", ""])
        output.write(["2\ta\tb"])
    with ResumableOutput(tmp_path / "x.tsv.xz", key, batch_size=2) as output:
        assert output.num_done == 2
        output.write(["2\ta\tb"])
        assert output.finish() == 2
    assert list(read_data(str(tmp_path / "x.tsv.xz"))) == [Pair("a", "b", "1"), Pair("a", "b", "2")]
    with (
        pytest.raises(CommandError, match="exists already"),
        ResumableOutput(tmp_path / "x.tsv.xz", key, batch_size=2),
    ):
        pass
    with pytest.raises(ValueError, match="not open"):
        ResumableOutput(tmp_path / "y.tsv", key, batch_size=2).write(["x"])


@pytest.mark.parametrize("content", ["", '{"a": 1', "[1]"])
def test_a_damaged_head_belongs_to_another_run(tmp_path: Path, content: str) -> None:
    head = tmp_path / "x.tsv.part.json"
    head.write_text(content, "utf-8")
    with (
        pytest.raises(
            CommandError, match=r"belongs to a run with another a, b; delete it and x\.tsv\.part\.json"
        ),
        ResumableOutput(tmp_path / "x.tsv", {"a": 1, "b": 2}, batch_size=1),
    ):
        pass
    assert head.read_text("utf-8") == content


@pytest.mark.parametrize("suffix", ["", ".xz"])
def test_a_full_disk_leaves_no_output_and_keeps_the_lines(suffix: str, tmp_path: Path) -> None:
    """The limit on the sizes of files makes writes fail, as a full disk does."""
    lines = [f"1\ta\t{number}" for number in range(9)]
    with ResumableOutput(tmp_path / f"x.tsv{suffix}", {}, batch_size=1) as output:
        output.write(lines)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
        try:
            with pytest.raises(OSError):  # noqa: PT011 - its message is the system's
                output.finish()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        names = sorted(path.name for path in tmp_path.iterdir())
        assert names == [f"x.tsv{suffix}.part", f"x.tsv{suffix}.part.json"]
        assert output.finish() == len(lines)


@pytest.mark.slow
def test_sigterm_keeps_the_part_and_ends_the_server(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "mono.txt").write_text("".join(f"word {n}\n" for n in range(100_000)), "utf-8")
    options = ["--bundle", tiny / "bundle", "--source", "en", "--target", "de"]
    options += ["--text", tmp_path / "mono.txt"]
    command = [sys.executable, "-m", "transduce", "distill", *options, "--output", tmp_path / "out.tsv"]
    part = tmp_path / "out.tsv.part"
    with subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True) as process:
        try:
            until = time.monotonic() + 240
            while not (part.exists() and part.stat().st_size) and process.poll() is None:
                assert time.monotonic() < until
                time.sleep(0.05)
            children = psutil.Process(process.pid).children(recursive=True)
            process.terminate()
            _, error = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == ExitCode.INTERRUPTED, error
    assert children
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive
    assert part.stat().st_size
    assert not (tmp_path / "out.tsv").exists()
