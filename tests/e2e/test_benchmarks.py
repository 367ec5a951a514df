"""Three benchmark commands, on models with random weights: they run to the end and count correctly."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from tests.forked import run_forked

NUM_SENTENCES = 12


@pytest.mark.slow
def test_the_serving_benchmark(tiny_bundle: Path, tmp_path: Path) -> None:
    output = tmp_path / "results" / "serving.json"
    sizes = ["--num-starts", "1", "--num-rounds", "1", "--num-sentences", str(NUM_SENTENCES)]
    done = run_forked("tests.e2e.quick_serving", "--bundle", tiny_bundle, "--output", output, *sizes)
    assert done.returncode == 0, done.stderr
    result = json.loads(output.read_text("utf-8"))
    assert result["model"]["precision"] == "int8"
    assert result["start"]["medians"]["ready_s"] > 0
    for load in result["load"].values():
        assert load["one_client"]["num_sentences"] == load["many_clients"]["num_sentences"] == NUM_SENTENCES
        assert load["many_clients"]["rows_per_step"] > load["one_client"]["rows_per_step"]
    answers = result["batch_consistency"]["int8"]["answers"]
    assert answers["random arrival"]["num_compared"] == 2 * NUM_SENTENCES
    assert {each["num_different"] for each in answers.values()} == {0}
    assert "skipped" not in result["batch_consistency"]["fp32"]
    assert output.with_suffix(".md").read_text("utf-8").startswith("# Serving")


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ctranslate2") is None, reason="CTranslate2 is not installed")
def test_the_engine_comparison(tiny_bundle: Path, tmp_path: Path) -> None:
    output = tmp_path / "engine.json"
    command = ["benchmarks.engine", "--quick", "--preset", "tiny"]
    sizes = ["--vocab-sizes", "400", "--sizes", "8", "--num-corpus", "24", "--precisions", "fp32"]
    sizes += ["--num-rounds", "1", "--case-budget", "0.1"]
    files = ["--bundle", str(tiny_bundle), "--output", str(output)]
    done = run_forked(*command, *sizes, *files, "--num-threads", "1")
    assert done.returncode == 0, done.stderr
    result = json.loads(output.read_text("utf-8"))
    assert len(result["cases"]) == 2 + 2 + 2, "forced lengths, sentences and a corpus, each with 2 beam sizes"
    for case in result["cases"]:
        assert case["ratio"] == pytest.approx(case["peer_ms"] / case["ours_ms"], rel=1e-2)
        where = case["where"]
        assert sum(where["parts_ms"].values()) == pytest.approx(
            case["calls_s"] / case["num_calls"] * 1e3 / case["num_groups"], rel=1e-2
        )
        assert 0 < where["step_python_share"] < 1
    forced = [case for case in result["cases"] if case["equal_ids"] is None]
    greedy = [case for case in result["cases"] if case not in forced and case["beam_size"] == 1]
    assert {case["equal_ids"] for case in greedy} == {1.0}, "equal weights must give equal ids"
    # A forced target has 30 subwords.
    assert {case["spent"]["num_steps"] / case["num_calls"] for case in forced} == {30}
    assert result["arrivals"] == [], "trials of arrivals take minutes"
    assert output.with_suffix(".md").read_text("utf-8").startswith("# Engine")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads memory as Linux reports it")
def test_the_import_benchmark(tmp_path: Path) -> None:
    output = tmp_path / "imports.json"
    options = ["--preset", "tiny", "--vocab-size", "400", "--formats", "ctranslate2", "--output", str(output)]
    done = run_forked("benchmarks.imports", *options)
    assert done.returncode == 0, done.stderr
    result = json.loads(output.read_text("utf-8"))["ctranslate2"]
    stages = ["read", "int8 graphs", "fp16 graphs", "golden sentences", "checking"]
    assert list(result["peak_mb"]) == stages
    assert result["largest_peak_mb"] == max(result["peak_mb"].values()) > 0
