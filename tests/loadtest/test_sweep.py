"""The search for the highest rate, on a server with known capacity and on simulated runs."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.loadtest.simulated_clock import simulated_run
from tests.loadtest.steady_server import SteadyServer
from transduce.loadtest.arrivals import Arrivals
from transduce.loadtest.plan import RunPlan, Target
from transduce.loadtest.result import RunRecord, RunResult, make_result
from transduce.loadtest.runner import OnProgress
from transduce.loadtest.sample import OK, Sample
from transduce.loadtest.slo import Slo
from transduce.loadtest.sweep import SweepSettings, sweep
from transduce.loadtest.text_report import text_report
from transduce.loadtest.workload import built_in

SLO = Slo.parse("p99=200ms")
SETTINGS = SweepSettings(duration_s=10.0)


def plan(url: str = "http://127.0.0.1:1", **more: Any) -> RunPlan:
    made = RunPlan(Target(url), built_in("short"), Arrivals.at(1.0, 1.0), warm_up_s=0.3, slos=(SLO,))
    return dataclasses.replace(made, **more)


class SimulatedServer:
    """Simulated runs, with responses in time up to a capacity. lag_s: the tester's lag in each of the first runs."""

    def __init__(self, capacity: float, lag_s: tuple[float, ...] = ()) -> None:
        self.capacity = capacity
        self.lag_s = lag_s
        self.num_runs = 0

    def run(self, one: RunPlan, on_progress: OnProgress | None) -> RunResult:
        record = RunRecord("now")
        if isinstance(one.load, Arrivals):
            rate = one.load.phases[0].rate
            lag_s = self.lag_s[self.num_runs] if self.num_runs < len(self.lag_s) else 0.0
            self.num_runs += 1
        else:
            rate, lag_s = self.capacity, 0.0
        took_s = 0.05 if rate <= self.capacity else 0.5
        for number in range(round(rate * one.duration_s)):
            due_s = number / rate
            sample = Sample(number, 0, due_s, 3, begun_s=due_s + lag_s, sent_s=due_s, ended_s=due_s + took_s)
            sample.outcome = OK
            record.samples.append(sample)
        record.num_sent = len(record.samples)
        return make_result(one, record)


@pytest.mark.parametrize("first_rate", [None, 3.0, 100.0, 900.0])
@pytest.mark.parametrize("precision", [0.02, 0.1])
def test_the_highest_rate_is_found_and_confirmed(first_rate: float | None, precision: float) -> None:
    simulated = SimulatedServer(100.0)
    settings = dataclasses.replace(SETTINGS, first_rate=first_rate, precision=precision, max_runs=60)
    found = sweep(plan(), settings, run_one=simulated.run)
    assert found.is_valid
    assert found.max_rate is not None
    assert 100 / (1 + precision) - 0.5 <= found.max_rate <= 100.0
    assert sum(point.rate == found.max_rate for point in found.points) == 3


def test_a_server_that_never_meets_the_objective_has_no_highest_rate() -> None:
    found = sweep(plan(), dataclasses.replace(SETTINGS, first_rate=50.0), run_one=SimulatedServer(0.001).run)
    assert found.max_rate is None
    assert len(found.points) > 5


def test_a_late_run_is_repeated_once() -> None:
    once = sweep(plan(), SETTINGS, run_one=SimulatedServer(100.0, (0.5,)).run)
    assert once.is_valid
    assert once.max_rate == pytest.approx(97, abs=4)
    twice = sweep(plan(), SETTINGS, run_one=SimulatedServer(100.0, (0.5, 0.5)).run)
    assert not twice.is_valid
    assert "late" in twice.problems[0]
    assert len(twice.points) == 2, "the first problem ends the search"


def test_the_highest_rate_must_be_confirmed() -> None:
    """Above 60 requests/s only every third run meets the objective."""

    class Unsteady(SimulatedServer):
        def run(self, one: RunPlan, on_progress: OnProgress | None) -> RunResult:
            self.capacity = 100.0 if self.num_runs % 3 == 0 else 60.0
            return super().run(one, on_progress)

    settings = dataclasses.replace(SETTINGS, first_rate=70.0, max_runs=80)
    found = sweep(plan(), settings, run_one=Unsteady(100.0).run)
    assert found.max_rate is not None
    assert 50 < found.max_rate <= 60
    assert any(point.holds for point in found.points if point.rate > 65)


def test_a_late_run_does_not_count_in_the_confirmation() -> None:
    """Of the runs at 100 requests/s, two are late and repeated, one misses the objective and two meet it."""

    class MissesOnce(SimulatedServer):
        def run(self, one: RunPlan, on_progress: OnProgress | None) -> RunResult:
            self.capacity = 60.0 if self.num_runs == 5 else 100.0
            return super().run(one, on_progress)

    settings = dataclasses.replace(SETTINGS, first_rate=100.0, precision=0.9)
    found = sweep(plan(), settings, run_one=MissesOnce(100.0, (0.0, 0.0, 0.5, 0.0, 0.5)).run)
    assert found.is_valid
    assert (found.max_rate, len(found.points)) == (100.0, 6)


@pytest.mark.parametrize("lag_s", [(), (0.0,) * 9 + (0.5, 0.0)])
def test_a_sweep_has_at_most_max_runs(lag_s: tuple[float, ...]) -> None:
    """At this precision, bisection would take more runs. A late run leaves one run too few for the confirmation."""
    settings = dataclasses.replace(SETTINGS, precision=1e-6, max_runs=11)
    found = sweep(plan(), settings, run_one=SimulatedServer(100.0, lag_s).run)
    assert len(found.points) == 11
    if lag_s:
        assert (found.max_rate, found.problems) == (None, ["no rate was confirmed within 11 runs"])
    else:
        assert found.is_valid
        assert found.max_rate == pytest.approx(100, abs=1)


def test_runs_that_are_too_short_for_the_objective_are_a_problem() -> None:
    found = sweep(plan(), dataclasses.replace(SETTINGS, duration_s=1.0), run_one=SimulatedServer(100.0).run)
    assert any("ten times" in problem for problem in found.problems)
    settings = dataclasses.replace(SETTINGS, duration_s=10 * SLO.limit_s)
    assert sweep(plan(), settings, run_one=SimulatedServer(100.0).run).is_valid


def test_a_sweep_needs_an_objective() -> None:
    with pytest.raises(ValueError, match="objective"):
        sweep(plan(slos=()), SETTINGS, run_one=SimulatedServer(1.0).run)


def test_a_precision_in_percent_is_refused_before_the_first_run() -> None:
    simulated = SimulatedServer(100.0)
    with pytest.raises(ValueError, match=r"the precision is 5: .* 0\.05 for 5 %"):
        sweep(plan(), dataclasses.replace(SETTINGS, precision=5.0), run_one=simulated.run)
    assert simulated.num_runs == 0


def test_the_capacity_of_a_server_is_found() -> None:
    """One request takes 10 ms, so the capacity is 100 requests/s.

    At 105 requests/s, a run of 4 s still meets the objective, because its queue reaches only 0.2 s.
    """
    settings = SweepSettings(
        duration_s=4.0, kind="constant", saturation_s=2.0, precision=0.02, num_confirmations=1
    )

    def run_one(one: RunPlan, on_progress: OnProgress | None) -> RunResult:
        return simulated_run(one, service_ms=10.0)

    found = sweep(plan(), settings, run_one=run_one)
    assert found.is_valid, found.problems
    assert found.saturation is not None
    assert found.saturation.achieved_rate == pytest.approx(100.0, abs=1)
    assert found.max_rate is not None
    assert 100.0 < found.max_rate < 107.0


def test_a_sweep_runs_each_rate_with_a_seed_of_its_own() -> None:
    """Every response takes at least 10 ms, so no rate meets an objective of 5 ms on any machine."""
    settings = SweepSettings(duration_s=0.3, kind="constant", saturation_s=0.5, num_clients=4)
    with SteadyServer(service_ms=10.0) as server:
        one = plan(server.url, warm_up_s=0.0, max_lag_s=600.0, timeout_s=120.0, slos=(Slo.parse("p99=5ms"),))
        found = sweep(one, settings)
    assert found.is_valid
    assert found.max_rate is None
    assert found.saturation is not None
    first = 0.8 * found.saturation.achieved_rate
    assert [point.rate for point in found.points] == pytest.approx(
        [first * 0.7**n for n in range(len(found.points))]
    )
    assert len(found.points) == 11
    assert [point.result.outcomes for point in found.points] == [
        {"ok": max(1, round(0.3 * point.rate))} for point in found.points
    ]
    seeds = [found.saturation.seed, *(point.result.seed for point in found.points)]
    assert len(set(seeds)) == len(seeds)


def test_the_report_tells_a_late_tester_from_a_missed_objective() -> None:
    states = [(True, True), (False, True), (False, False)]
    points = [
        {"rate": 1.0 + number, "holds": holds, "result": {"is_valid": is_valid, "latency": None}}
        for number, (holds, is_valid) in enumerate(states)
    ]
    document: dict[str, Any] = {
        "label": "x", "verdict": "invalid", "failure": None, "problems": [], "thresholds": [], "runs": [],
        "sweep": {"saturation": None, "points": points}, "plan": {"seed": 75},
    }  # fmt: skip
    *lines, seed = text_report(document).splitlines()[1:]
    verdicts = ["meets the objective", "misses the objective", "not valid"]
    assert [verdict for verdict, line in zip(verdicts, lines, strict=True) if verdict in line] == verdicts
    assert seed.split() == ["seed", "75"]
