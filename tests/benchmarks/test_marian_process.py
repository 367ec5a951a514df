"""The pipes to a process of Marian, for which a shell script stands in."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from app.bundle import load_bundle
from benchmarks.http.models import ModelFormats, best_marian_settings
from benchmarks.machine import ROOT
from benchmarks.marian import process
from benchmarks.marian.process import MarianError, MarianFiles, MarianProcess


def files(folder: Path, script: str) -> MarianFiles:
    """The files of Marian, whose program is this script."""
    program = folder / "marian-bench"
    program.write_text(f"#!/bin/sh\n{script}\n", "ascii")
    program.chmod(0o755)
    return MarianFiles(folder / "weights", folder / "vocabulary", folder)


def test_a_process_that_ends_between_two_calls_is_an_error(tmp_path: Path) -> None:
    marian = MarianProcess(files(tmp_path, "echo ready; read line; echo $line; exit 4"), [], {})
    marian.write("one\n")
    assert marian.read_line() == "one\n"
    marian._process.wait(60)
    with pytest.raises(MarianError, match="exit code 4"):
        marian.write("two\n")
    marian.close()


def test_a_process_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "CLOSE_LIMIT_S", 0.1)
    marian = MarianProcess(files(tmp_path, "echo ready; exec sleep 600"), [], {})
    with pytest.raises(subprocess.TimeoutExpired):
        marian.close()
    assert marian._process.returncode == -signal.SIGKILL


def test_an_engine_that_fails_leaves_no_process(tmp_path: Path) -> None:
    """Marian returns words that are no ids, and ends when its input is closed."""
    script = f"echo $$ > {tmp_path}/pid; echo ready; yes word | head -n 100; exec cat > {tmp_path}/input"
    bundle = load_bundle(ROOT / "bundles" / "en-de")
    served = ModelFormats(bundle, tmp_path, "not measured", files(tmp_path, script))
    with pytest.raises(ValueError, match="word") as raised:
        best_marian_settings(served, num_threads=1)
    assert raised.tb is not None  # keeps the engine alive; the garbage collector would close it
    assert not Path("/proc", (tmp_path / "pid").read_text("ascii").strip()).exists()
