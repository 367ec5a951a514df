"""The simulated latencies of the sizing benchmark, by percentile."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from benchmarks import sizing
from transduce.loadtest.arrivals import Arrivals
from transduce.loadtest.plan import RunPlan, Target
from transduce.loadtest.workload import built_in


def test_simulated_percentiles_have_the_nearest_rank_as_the_load_testers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sizing, "latencies_s", lambda *_: [number / 1000 for number in range(100, 0, -1)])
    plan = RunPlan(Target("http://127.0.0.1:1"), built_in("news"), Arrivals.at(1.0, 2.0), seed=1)
    assert sizing.simulated_ms(Mock(), plan) == pytest.approx({"p50": 50.0, "p99": 99.0})


@pytest.mark.parametrize(
    ("ratio", "num_invalid_runs", "expected"),
    [(0.81, 0, True), (1.19, 0, True), (1.21, 0, False), (1.0, 1, False)],
)
def test_an_invalid_run_does_not_agree(ratio: float, num_invalid_runs: int, expected: bool) -> None:
    good = {"ratio": {"p50": 1.0, "p99": 1.0}, "num_invalid_runs": 0}
    other = {"ratio": {"p50": 1.0, "p99": ratio}, "num_invalid_runs": num_invalid_runs}
    assert sizing.agrees([good, other]) == expected
