"""The comparison of two checkouts: it starts each checkout's own program, and each turn measures both."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import two_checkouts
from benchmarks.http import traffic
from benchmarks.machine import ROOT

pytestmark = pytest.mark.server


def test_two_servers_answer_in_turns(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(two_checkouts, "WARM_UP_S", 0.2)
    monkeypatch.setattr(traffic, "WARM_UP_S", 0.2)
    # A run that is repeated with a longer duration takes seconds.
    monkeypatch.setattr(traffic, "LEAST_ANSWERS", 1)
    monkeypatch.setattr(traffic, "FEW_ANSWERS", 1)
    other = tmp_path / "other"
    (other / ".venv").mkdir(parents=True)
    (other / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    output = tmp_path / "result.json"
    arguments = ["--other", str(other), "--bundle", str(tiny_bundle), "--output", str(output)]
    options = ["--num-turns", "2", "--seconds", "0.3", "--clients", "2", "--commit", "abc"]
    assert two_checkouts.main([*arguments, *options]) == 0
    result = json.loads(output.read_text("utf-8"))
    assert result["other_commit"] == "abc"
    assert [sorted(turn) for turn in result["turns"]] == [["other", "this"]] * 2
    assert all(figures["num_answers"] >= 1 for turn in result["turns"] for figures in turn.values())


def test_a_server_runs_the_program_beside_the_given_interpreter(tmp_path: Path) -> None:
    command = two_checkouts.subject("other", str(tmp_path / "bin" / "python"), ROOT).command
    assert command.arguments(80)[0] == str(tmp_path / "bin" / "transduce")
    assert command.environment == {"TRANSDUCE_SENTENCE_CACHE_BYTES": "0", "TRANSDUCE_COALESCE": "false"}


def test_a_ratio_compares_two_figures_of_the_same_turn() -> None:
    def figures(per_s: float) -> dict[str, float]:
        return {"per_s": per_s, "p50_ms": 1000 / per_s, "p99_ms": 2000 / per_s}

    turns = [{"other": figures(10), "this": figures(9)}, {"other": figures(40), "this": figures(38)}]
    found = two_checkouts.summary([*turns, {"other": figures(20), "this": figures(19)}])
    assert found["per_s_ratio"] == 0.95
    assert (found["other_per_s"], found["this_per_s"]) == (20, 19)
    assert found["p99_ms_ratio"] == round(20 / 19, 3)
