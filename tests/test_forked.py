"""A process of `ForkedProcess` behaves as `python -W error -m`."""

from __future__ import annotations

import importlib
import signal
import subprocess
from pathlib import Path

import pytest

from tests.forked import ForkedProcess

pytestmark = pytest.mark.server
PROBE = """
import os, sys, tempfile, time, warnings
print(sys.argv, os.getcwd(), os.environ.get("PROBE"), "PATH" in os.environ, __name__, tempfile.gettempdir(), flush=True)
print("to stderr", file=sys.stderr)
if sys.argv[1] == "wait": time.sleep(600)
if sys.argv[1] == "warn": warnings.warn("a warning")
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the module `probe`."""
    importlib.import_module("torch")  # so a fork server that starts now also imports what training needs
    (tmp_path / "tmp").mkdir()
    (tmp_path / "probe.py").write_text(PROBE, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def probe(folder: Path, *arguments: str) -> ForkedProcess:
    return ForkedProcess(["probe", *arguments], cwd=folder, env={"PROBE": "ß", "TMPDIR": str(folder / "tmp")})


def test_the_process_has_the_arguments_folder_environment_and_exit_code(folder: Path) -> None:
    process = probe(folder, "end", "3")
    stdout, stderr = process.communicate()
    assert process.wait() == process.poll() == 3
    assert stdout == f"['{folder / 'probe.py'}', 'end', '3'] {folder} ß False __main__ {folder}/tmp\n"
    assert stderr == "to stderr\n"


def test_a_warning_is_an_error(folder: Path) -> None:
    process = probe(folder, "warn", "0")
    assert "UserWarning: a warning" in process.communicate()[1]
    assert process.wait() == 1


def test_a_signal_ends_the_process(folder: Path) -> None:
    process = probe(folder, "wait", "0")
    with process.stdout, process.stderr:
        assert "wait" in process.stdout.readline()
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == -signal.SIGTERM
