"""The head of a result file: the command, and the state of the machine before the measurement."""

from __future__ import annotations

import sys

import pytest

from benchmarks.machine import commit, describe_run, measured


def test_a_run_is_described_before_it_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    load = 0.5
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(sys, "argv", ["x", "--seconds", "2"])

    def measure() -> dict[str, int]:
        nonlocal load
        load = 2.0
        return {"answers": 7}

    result = measured("benchmarks.x", measure)
    assert list(result) == ["command", "commit", "machine", "versions", "figures"]
    assert result["command"] == "python -m benchmarks.x --seconds 2"
    assert result["machine"]["load_average_before"] == 0.5
    assert result["figures"] == {"answers": 7}


def test_a_run_can_be_described_with_other_arguments_and_without_versions() -> None:
    run = describe_run("benchmarks.x", ["--data", "a b"], python=None)
    assert list(run) == ["command", "commit", "machine"]
    assert run["command"] == "python -m benchmarks.x --data 'a b'"


def test_the_commit_of_sources_without_git_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("BENCHMARK_COMMIT", raising=False)
    monkeypatch.setattr("benchmarks.machine.ROOT", "/")
    assert commit() == "unknown"
    monkeypatch.setenv("BENCHMARK_COMMIT", "0123456789ab")
    assert commit() == "0123456789ab"
