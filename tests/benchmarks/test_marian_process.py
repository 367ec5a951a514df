"""The pipes to a process of Marian, for which a shell script stands in."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.marian.process import MarianError, MarianFiles, MarianProcess


def test_a_process_that_ends_between_two_calls(tmp_path: Path) -> None:
    program = tmp_path / "marian-bench"
    program.write_text("#!/bin/sh\necho ready; read line; echo $line; exit 4\n", "ascii")
    program.chmod(0o755)
    process = MarianProcess(MarianFiles(tmp_path / "weights", tmp_path / "vocabulary", tmp_path), [], {})
    process.write("one\n")
    assert process.read_line() == "one\n"
    process._process.wait(60)
    with pytest.raises(MarianError, match="exit code 4"):
        process.write("two\n")
    process.close()
