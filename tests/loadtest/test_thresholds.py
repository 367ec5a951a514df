"""The texts of thresholds and failures: rounding never makes a missed value look like a value that is enough."""

from __future__ import annotations

from typing import cast
from unittest.mock import Mock

import pytest

from transduce.loadtest.document import find_failure, find_thresholds
from transduce.loadtest.result import RunResult
from transduce.loadtest.slo import Slo
from transduce.loadtest.sweep import SweepResult

SLO = Slo.parse("p99=500ms")


@pytest.mark.parametrize(
    ("rate", "needed", "text"),
    [(19.46, 19.5, "19.46"), (19.4999, 19.5, "19.4999"), (19.55, 19.5, "19.6"), (20.04, 20.04, "20.04")],
)
@pytest.mark.parametrize("is_sweep", [False, True])
def test_rounding_never_makes_a_missed_rate_look_met(
    rate: float, needed: float, text: str, is_sweep: bool
) -> None:
    sweep = SweepResult([str(SLO)], rate, None, [], []) if is_sweep else None
    runs = [] if is_sweep else [cast(RunResult, Mock(achieved_rate=rate))]
    (found,) = find_thresholds((), runs, sweep, needed)
    assert (found.found, found.is_met) == (f"{text} requests/s", rate >= needed)
    assert found.needed == f"at least {needed:g} requests/s"


def test_a_sweep_without_a_rate_has_none() -> None:
    (found,) = find_thresholds((SLO,), [], SweepResult([str(SLO)], None, None, [], []), None)
    assert (found.found, found.needed, found.is_met) == ("none", "some rate", False)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([(98996, 100000)], "98.996 %"),
        ([(98999999, 100000000)], "98.999999 %"),
        ([(99, 100)], "99.00 %"),
        ([(985, 1000), (999, 1000)], "98.50 %"),  # only one of two runs meets the objective
        ([(985, 1000), (999, 1000), (993, 1000)], "99.30 %"),
        ([(0, 0)], "0.00 %"),
    ],
)
def test_rounding_never_makes_a_missed_objectives_share_look_met(
    numbers: list[tuple[int, int]], text: str
) -> None:
    runs = [cast(RunResult, Mock(attained=[SLO.judge(*each)])) for each in numbers]
    (found,) = find_thresholds((SLO,), runs, None, None)
    assert (found.found, found.is_met) == (text, float(text.split(maxsplit=1)[0]) >= 99)


def test_a_failure_has_the_message_of_the_first_run_that_has_one() -> None:
    runs = [
        Mock(outcomes={"ok": 0, "http_503": 1}, num_judged=1, error_examples=examples)
        for examples in ({}, {"http_503": "first"}, {"http_503": "second"})
    ]
    failure = find_failure([cast(RunResult, run) for run in runs], 0.99)
    assert failure is not None
    assert failure.endswith("the most frequent error: 3 http_503 (first)")


@pytest.mark.parametrize(
    ("num_ok", "min_ok", "text"),
    [(9896, 0.99, "98.96%, 99 % are needed"), (9000, 0.99, "90.0%, 99 % are needed"), (0, 0.0, "0.0%")],
)
def test_rounding_never_makes_a_failures_share_look_enough(num_ok: int, min_ok: float, text: str) -> None:
    outcomes = {"ok": num_ok, "http_503": 10_000 - num_ok}
    run = Mock(outcomes=outcomes, num_judged=10_000, error_examples={})
    failure = find_failure([cast(RunResult, run)], min_ok)
    assert failure is not None
    assert f" requests were answered ({text}); " in failure
