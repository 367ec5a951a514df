"""The benchmark of the engine's Python time refuses numbers with which it would measure nothing."""

from __future__ import annotations

import json

import pytest

from benchmarks import scheduler_overhead


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--num-steps", "2"], "argument --num-steps: '2' is less than 3"),
        (["--num-steps", "0"], "argument --num-steps: '0' is not a whole number of at least 1"),
        (["--num-runs", "0"], "argument --num-runs: '0' is not a whole number of at least 1"),
    ],
)
def test_numbers_with_which_nothing_is_measured_are_refused(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        scheduler_overhead.main(arguments)
    assert problem in capsys.readouterr().err


def test_the_smallest_numbers_measure_every_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert scheduler_overhead.main(["--num-steps", "3", "--num-runs", "1", "--json"]) == 0
    cases = json.loads(capsys.readouterr().out)
    assert {case["option"] for case in cases} == set(scheduler_overhead.OPTIONS)
    assert all(case["step_us"] > 0 for case in cases)
