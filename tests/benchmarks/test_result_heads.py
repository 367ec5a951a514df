"""A result file says from which command, commit and machine it comes."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from app.runtime import native as kernels
from benchmarks import alignment, native


def written(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return content


def test_a_result_of_benchmarks_alignment_has_a_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def report(args: argparse.Namespace) -> dict[str, Any]:
        return {"held_out": [], "alignment": {"layer": 1, "heads": [0]}}

    monkeypatch.setattr(alignment, "report", report)
    path = tmp_path / "alignment.json"
    assert alignment.main(["--bundle", "b", "--data", "d.tsv", "--json", str(path)]) == 0
    result = written(path)
    assert result["command"] == f"python -m benchmarks.alignment --bundle b --data d.tsv --json {path}"
    assert {"commit", "machine", "versions", "alignment"} <= set(result)


def test_a_result_of_benchmarks_native_has_a_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "library_path", lambda: tmp_path)
    monkeypatch.setattr(kernels, "is_supported", lambda: True)
    monkeypatch.setattr(native, "measure", lambda options: iter(()))
    path = tmp_path / "native.json"
    assert native.main(["--rows", "1", "--json", str(path)]) == 0
    result = written(path)
    assert result["command"] == f"python -m benchmarks.native --rows 1 --json {path}"
    assert {"commit", "machine", "versions", "peak_bytes_per_s", "cases"} <= set(result)
