"""Finds the highest rate at which a server meets its objectives: the figure for capacity planning.

Without a first rate, a closed loop first measures the saturation, which is its throughput. Runs on a schedule then
narrow down the rate from both sides, and runs with further seeds must confirm the result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from transduce.loadtest.arrivals import DEFAULT_BURSTINESS, ArrivalKind, Arrivals, ClosedLoop, Phase
from transduce.loadtest.plan import RunPlan
from transduce.loadtest.result import RunResult
from transduce.loadtest.runner import OnProgress, run

# Factors on the rate after a run that met, or missed, the objectives.
UP = 1.15
DOWN = 0.7
# The first rate tested, as a share of the saturation.
FIRST_SHARE = 0.8
# The lowest rate tested, as a share of the first rate.
LOWEST_SHARE = 0.02


@dataclass(frozen=True)
class SweepSettings:
    """The parameters of the search.

    Attributes:
        duration_s: length of each run.
        kind: distribution of the arrivals.
        burstiness: shape of `bursty` arrivals, as in `Arrivals`.
        num_clients: clients of the closed loop that measures the saturation and warms the server up.
        saturation_s: length of the closed loop.
        precision: the search ends when the lowest rate that failed is at most this share above the highest rate that
            held. It is less than 1.
        num_confirmations: further runs at the rate found. More than half of all valid runs at this rate must hold.
        max_runs: maximum number of runs on a schedule. Bisection leaves enough of them for the confirmations.
        first_rate: the first rate; None for 0.8 of the saturation.
    """

    duration_s: float = 20.0
    kind: ArrivalKind = "poisson"
    burstiness: float = DEFAULT_BURSTINESS
    num_clients: int = 32
    saturation_s: float = 10.0
    precision: float = 0.05
    num_confirmations: int = 2
    max_runs: int = 24
    first_rate: float | None = None


@dataclass(frozen=True)
class SweepPoint:
    """One run at one rate. holds: the run is valid and met every objective."""

    rate: float
    holds: bool
    result: RunResult


@dataclass(frozen=True)
class SweepResult:
    """The result of a sweep.

    Attributes:
        max_rate: requests/s; None if no rate held or none was confirmed. It may be unconfirmed if there are problems.
        saturation: the closed loop's run; None if `first_rate` was set.
        points: all runs on a schedule, in the order of their execution.
        problems: reasons not to trust the figure; empty without any.
    """

    slos: list[str]
    max_rate: float | None
    saturation: RunResult | None
    points: list[SweepPoint]
    problems: list[str]

    @property
    def is_valid(self) -> bool:
        """Whether there is no reason to distrust the figure."""
        return not self.problems

    def as_json(self) -> dict[str, Any]:
        """The fields as JSON."""
        return {
            "slos": self.slos,
            "max_rate": self.max_rate,
            "is_valid": self.is_valid,
            "problems": self.problems,
            "saturation": self.saturation.as_json() if self.saturation else None,
            "points": [
                {"rate": point.rate, "holds": point.holds, "result": point.result.as_json()}
                for point in self.points
            ],
        }


Run = Callable[[RunPlan, OnProgress | None], RunResult]
OnPoint = Callable[[SweepPoint], None]


def sweep(
    plan: RunPlan,
    settings: SweepSettings,
    *,
    on_point: OnPoint | None = None,
    run_one: Run = run,
) -> SweepResult:
    """Find the highest rate at which `plan`'s objectives are met; the plan's own load is not used.

    on_point: called after each run on a schedule. run_one: executes a plan.

    Raises:
        ValueError: the plan has no objective, or the precision is 1 or more.
    """
    if not plan.slos:
        raise ValueError("a sweep needs an objective such as p99=500ms")
    if settings.precision >= 1:
        raise ValueError(
            f"the precision is {settings.precision:g}: it must be less than 1, such as 0.05 for 5 %"
        )
    search = _Search(plan, settings, on_point, lambda one: run_one(one, None))
    saturation = search.saturate() if settings.first_rate is None else None
    first = settings.first_rate or (FIRST_SHARE * saturation.achieved_rate if saturation else 0.0)
    found = None
    if first > 0:
        search.bracket(first)
        search.bisect()
        found = search.confirm()
    else:
        search.problems.append("no request was answered")
    if settings.duration_s < 10 * max(slo.limit_s for slo in plan.slos):
        search.problems.append(
            "runs are shorter than ten times the objective's limit, too short to show a growing queue"
        )
    return SweepResult([str(slo) for slo in plan.slos], found, saturation, search.points, search.problems)


@dataclass
class _Search:
    """The state of the search. lower: the highest rate that held; upper: the lowest that did not."""

    plan: RunPlan
    settings: SweepSettings
    on_point: OnPoint | None
    run_plan: Callable[[RunPlan], RunResult]
    points: list[SweepPoint] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    lower: float | None = None
    upper: float | None = None

    def saturate(self) -> RunResult:
        load = ClosedLoop(self.settings.num_clients, self.settings.saturation_s)
        # A seed that no other run uses: a server may answer repeated texts from its cache.
        return self.run_plan(dataclasses.replace(self.plan, load=load, seed=self.plan.seed - 1))

    @property
    def num_left(self) -> int:
        """How many runs are left of `max_runs`."""
        return self.settings.max_runs - len(self.points)

    def try_rate(self, rate: float) -> bool:
        """Run at a rate and return whether it held.

        A run that is not valid, because the tester was late, is repeated once if a run is left.
        """
        settings = self.settings
        load = Arrivals((Phase(rate, settings.duration_s),), settings.kind, settings.burstiness)
        for attempt in range(2):
            seed = self.plan.seed + 1000 * len(self.points)
            result = self.run_plan(dataclasses.replace(self.plan, load=load, seed=seed))
            point = SweepPoint(rate, result.is_valid and result.meets_slos, result)
            self.points.append(point)
            if self.on_point is not None:
                self.on_point(point)
            if result.is_valid:
                break
            if attempt or not self.num_left:
                self.problems.append(f"at {rate:.3g} requests/s: {result.problems[0]}")
                break
        return point.holds

    def bracket(self, rate: float) -> None:
        """Find a rate that holds and one that does not."""
        lowest = rate * LOWEST_SHARE
        while self.num_left and not self.problems and rate > lowest:
            if self.try_rate(rate):
                self.lower = rate
                if self.upper is not None:
                    return
                rate *= UP
            else:
                self.upper = rate
                if self.lower is not None:
                    return
                rate *= DOWN

    def bisect(self) -> None:
        """Halve the interval between `lower` and `upper` until it is narrow enough."""
        while self.lower is not None and self.upper is not None and not self.problems:
            is_narrow = self.upper - self.lower <= self.settings.precision * self.lower
            if is_narrow or self.num_left <= self.settings.num_confirmations:
                return
            middle = (self.lower + self.upper) / 2
            if self.try_rate(middle):
                self.lower = middle
            else:
                self.upper = middle

    def confirm(self) -> float | None:
        """Run at `lower`, then at lower rates, until more than half of the valid runs at a rate hold; return this rate.

        None if there is no such rate. If the search has a problem, such as a late tester, the rate is returned without
        a confirmation.
        """
        rate = self.lower
        while rate is not None and not self.problems:
            for _ in range(self.settings.num_confirmations):
                if not self.num_left:
                    self.problems.append(f"no rate was confirmed within {self.settings.max_runs} runs")
                    return None
                self.try_rate(rate)
            valid = [point for point in self.points if point.rate == rate and point.result.is_valid]
            held = [point.holds for point in valid]
            if 2 * sum(held) > len(held):
                return rate
            rate *= 1 - self.settings.precision
        return rate
