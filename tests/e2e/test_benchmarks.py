"""The command that measures serving, on a bundle of random weights: it runs to its end, and what it counts is true."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NUM_SENTENCES = 12


@pytest.mark.slow
def test_serving_is_measured(tiny_bundle: Path, tmp_path: Path) -> None:
    output = tmp_path / "results" / "serving.json"
    command = [
        sys.executable,
        "-m",
        "benchmarks.serving",
        "--bundle",
        str(tiny_bundle),
        "--output",
        str(output),
    ]
    sizes = ["--num-starts", "1", "--num-rounds", "1", "--num-sentences", str(NUM_SENTENCES)]
    done = subprocess.run(
        [*command, *sizes], cwd=ROOT, check=False, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(output.read_text("utf-8"))
    assert result["model"]["precision"] == "int8"
    assert result["start"]["medians"]["ready_s"] > 0
    for load in result["load"].values():
        assert load["one_client"]["num_sentences"] == load["many_clients"]["num_sentences"] == NUM_SENTENCES
        assert load["many_clients"]["rows_per_step"] > load["one_client"]["rows_per_step"]
    answers = result["company"]["int8"]["answers"]
    assert answers["random arrival"]["num_compared"] == 2 * NUM_SENTENCES
    assert {each["num_different"] for each in answers.values()} == {0}
    assert "skipped" not in result["company"]["fp32"]
    assert output.with_suffix(".md").read_text("utf-8").startswith("# Serving")
