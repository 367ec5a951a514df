"""The simulated latencies of the sizing benchmark, by percentile."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from benchmarks import sizing
from transduce.loadtest.arrivals import Arrivals
from transduce.loadtest.plan import RunPlan, Target
from transduce.loadtest.workload import built_in


def test_simulated_percentiles_are_nearest_ranks_as_in_the_load_tester(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sizing, "latencies_s", lambda *_: [number / 1000 for number in range(100, 0, -1)])
    plan = RunPlan(Target("http://127.0.0.1:1"), built_in("news"), Arrivals.at(1.0, 2.0), seed=1)
    assert sizing.simulated_ms(Mock(), plan) == pytest.approx({"p50": 50.0, "p99": 99.0})


@pytest.mark.parametrize(
    ("ratio", "num_invalid_runs", "agrees"),
    [(0.81, 0, True), (1.19, 0, True), (1.21, 0, False), (1.0, 1, False)],
)
def test_latencies_agree_within_a_fifth_if_all_runs_are_valid(
    ratio: float, num_invalid_runs: int, agrees: bool
) -> None:
    good = {"ratio": {"p50": 1.0, "p99": 1.0}, "num_invalid_runs": 0}
    other = {"ratio": {"p50": 1.0, "p99": ratio}, "num_invalid_runs": num_invalid_runs}
    assert sizing.agrees([good, other]) == agrees


@pytest.mark.parametrize(
    ("outcomes", "is_valid", "num_invalid"),
    [({"ok": 9}, True, 0), ({"ok": 9}, False, 1), ({"ok": 6, "http_429": 3}, True, 1)],
)
def test_a_run_with_a_refusal_is_not_valid(
    monkeypatch: pytest.MonkeyPatch, outcomes: dict[str, int], is_valid: bool, num_invalid: int
) -> None:
    result = Mock(outcomes=outcomes, is_valid=is_valid)
    result.latency.percentiles = {"p50": 1.0, "p99": 2.0}
    monkeypatch.setattr(sizing, "run", lambda _: result)
    monkeypatch.setattr(sizing, "latencies_s", lambda *_: [0.001])
    url = "http://127.0.0.1:1"
    found = sizing.points(url, built_in("news"), Mock(), 1.0, seconds=10.0, num_passes=1)
    assert [one["num_invalid_runs"] for one in found] == [num_invalid] * len(sizing.SHARES)


def test_one_core_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sizing, "ALL_CORES", frozenset({0}))
    monkeypatch.setattr(sizing, "measured", Mock())
    monkeypatch.setattr("sys.argv", ["sizing"])
    with pytest.raises(SystemExit):
        sizing.main()
    assert "needs two cores" in capsys.readouterr().err
