"""The GPU benchmark, run on the CPU: it runs to the end and counts correctly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu.__main__ import PARTS
from benchmarks.gpu.report import ROWS, render

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_every_part_but_the_kernels_runs_on_a_cpu(tiny_bundle: Path, tmp_path: Path) -> None:
    data = tmp_path / "pairs.tsv"
    data.write_text("The old station is open.\tDie alte Haltestelle ist offen.\n" * 3, "utf-8")
    output = tmp_path / "gpu.json"
    options = ["--device", "cpu", "--quick", "--bundle", str(tiny_bundle), "--data", str(data)]
    done = subprocess.run(
        [str(ROOT / "benchmarks" / "gpu" / "run.sh"), *options, "--output", str(output)],
        env={**os.environ, "PYTHON": sys.executable},
        check=False,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    parts = json.loads(output.read_text("utf-8"))["parts"]
    assert {name: part["status"] for name, part in parts.items()} == {
        name: "skipped" if name == "kernels" else "ok" for name in PARTS
    }
    assert parts["placement"]["elsewhere"] == 0
    assert parts["placement"]["decoder"]["CPUExecutionProvider"] > 10
    assert parts["batch_consistency"]["sentences"] == parts["agreement"]["sentences"] == 3
    assert parts["agreement"]["largest_gap_of_likely"] < 0.05
    assert "bleu_fp16" in parts["agreement"]
    assert done.stdout.strip().endswith("|")
    assert output.with_suffix(".md").read_text("utf-8").strip() == done.stdout.strip()


def test_the_script_ends_after_its_time_limit(tmp_path: Path) -> None:
    python = tmp_path / "python"
    # The script first runs this program with the argument `-`, to find CUDA's libraries.
    python.write_text('#!/bin/sh\n[ "$1" = - ] && exit\nexec sleep 20\n', "utf-8")
    python.chmod(0o755)
    done = subprocess.run(
        [str(ROOT / "benchmarks" / "gpu" / "run.sh")],
        env={**os.environ, "PYTHON": str(python), "LIMIT_S": "0.2"},
        check=False,
        timeout=60,
    )
    assert done.returncode == 124


def test_cuda_without_a_gpu_fails_with_a_message(tiny_bundle: Path, tmp_path: Path) -> None:
    from app.runtime.session import choose_device

    if choose_device("auto") == "cuda":
        pytest.skip("there is a GPU")
    output = tmp_path / "gpu.json"
    command = [sys.executable, "-m", "benchmarks.gpu", "--parts", "placement", "--quick"]
    files = ["--bundle", str(tiny_bundle), "--output", str(output)]
    done = subprocess.run(
        [*command, *files], cwd=ROOT, check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert "device cuda is required, and" in done.stdout


def test_every_part_has_lines_in_the_report() -> None:
    assert set(ROWS) == set(PARTS)
    skipped = {name: {"status": "skipped", "reason": "there is no a|b"} for name in PARTS}
    result = {
        "device": "cuda",
        "machine": {"cpu": "a CPU"},
        "versions": {"onnxruntime-gpu": "1.31.1"},
        "commit": "0",
        "command": "c",
        "parts": skipped,
    }
    lines = render(result).splitlines()
    assert lines[0] == "# On a GPU"
    assert lines[-len(PARTS) :] == [f"| {name} | skipped: there is no a/b | |" for name in PARTS]
