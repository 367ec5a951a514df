"""The benchmark of start and memory."""

from __future__ import annotations

from pathlib import Path

from benchmarks.footprint import MARK, measure_steps


def test_the_loading_steps_run_in_the_servers_python(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho '{MARK}|numpy|1.5|2.5'\n", "utf-8")
    python.chmod(0o755)
    assert measure_steps(str(python)) == [{"step": "numpy", "ms": 1.5, "rss_mb": 2.5}]
