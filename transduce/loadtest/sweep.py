"""The highest rate at which a server keeps its objectives: the figure to plan by.

Clients that wait find out what the server can do at most; then runs on schedule close in on the rate from both sides,
and what was found has to hold with other seeds too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from transduce.loadtest.arrivals import ArrivalKind, Arrivals, ClosedLoop
from transduce.loadtest.plan import RunPlan
from transduce.loadtest.result import RunResult
from transduce.loadtest.runner import OnProgress, run

UP = 1.15
DOWN = 0.7
FIRST_SHARE = 0.8
LOWEST_SHARE = 0.02


@dataclass(frozen=True)
class SweepSettings:
    """How the rate is looked for.

    Attributes:
        duration_s: of each run.
        kind: of the arrivals.
        num_clients: that wait, to find the saturation; they also warm the server up.
        saturation_s: how long they do.
        precision: the search ends once the lowest rate that failed is so close above the highest that held.
        num_confirmations: further runs at the rate found; most of all runs at it must hold.
        max_runs: the search ends after so many.
        first_rate: where it begins; by default at 0.8 of the saturation.
    """

    duration_s: float = 20.0
    kind: ArrivalKind = "poisson"
    num_clients: int = 32
    saturation_s: float = 10.0
    precision: float = 0.05
    num_confirmations: int = 2
    max_runs: int = 24
    first_rate: float | None = None


@dataclass(frozen=True)
class SweepPoint:
    """One run at one rate. holds: valid, and every objective was met."""

    rate: float
    holds: bool
    result: RunResult


@dataclass(frozen=True)
class SweepResult:
    """What was found.

    Attributes:
        max_rate: requests/s; None where no rate held.
        saturation: of the clients that waited; None where a first rate was given.
        points: all runs, in order.
        problems: why the figure is not to be trusted; empty where it is.
    """

    slos: list[str]
    max_rate: float | None
    saturation: RunResult | None
    points: list[SweepPoint]
    problems: list[str]

    @property
    def is_valid(self) -> bool:
        """Whether the figure is the server's."""
        return not self.problems

    def as_json(self) -> dict[str, Any]:
        """Its fields."""
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
    on_progress: OnProgress | None = None,
    run_one: Run = run,
) -> SweepResult:
    """Look for the highest rate at which `plan`'s objectives are met; its own load is not used.

    on_point: is told of each run. run_one: carries a plan out.

    Raises:
        ValueError: the plan has no objective.
    """
    if not plan.slos:
        raise ValueError("a sweep needs an objective such as p99=500ms")
    search = _Search(plan, settings, on_point, lambda one: run_one(one, on_progress))
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
            "runs are shorter than ten times the objective's limit: a queue that grows would not be seen"
        )
    return SweepResult([str(slo) for slo in plan.slos], found, saturation, search.points, search.problems)


@dataclass
class _Search:
    """lower: the highest rate that held; upper: the lowest that did not."""

    plan: RunPlan
    settings: SweepSettings
    on_point: OnPoint | None
    carry_out: Callable[[RunPlan], RunResult]
    points: list[SweepPoint] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    lower: float | None = None
    upper: float | None = None

    def saturate(self) -> RunResult:
        load = ClosedLoop(self.settings.num_clients, self.settings.saturation_s)
        # A seed that no other run has: texts that the server knows by then would be answered from its cache.
        return self.carry_out(dataclasses.replace(self.plan, load=load, seed=self.plan.seed - 1))

    @property
    def is_spent(self) -> bool:
        return len(self.points) >= self.settings.max_runs

    def holds(self, rate: float) -> bool:
        """Carry out a run at a rate; one that the tester has spoilt is tried once more."""
        load = Arrivals.at(rate, self.settings.duration_s, self.settings.kind)
        for attempt in range(2):
            seed = self.plan.seed + 1000 * len(self.points)
            result = self.carry_out(dataclasses.replace(self.plan, load=load, seed=seed))
            point = SweepPoint(rate, result.is_valid and result.meets_slos, result)
            self.points.append(point)
            if self.on_point is not None:
                self.on_point(point)
            if result.is_valid:
                break
            if attempt:
                self.problems.append(f"at {rate:.3g} requests/s: {result.problems[0]}")
        return point.holds

    def bracket(self, rate: float) -> None:
        """Find a rate that holds and one that does not."""
        lowest = rate * LOWEST_SHARE
        while not self.is_spent and not self.problems and rate > lowest:
            if self.holds(rate):
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
        """Halve what lies between the two, until it is narrow."""
        while self.lower is not None and self.upper is not None and not self.is_spent and not self.problems:
            if self.upper - self.lower <= self.settings.precision * self.lower:
                return
            middle = (self.lower + self.upper) / 2
            if self.holds(middle):
                self.lower = middle
            else:
                self.upper = middle

    def confirm(self) -> float | None:
        """The highest rate that held in most of its runs; lower ones are tried where it did not."""
        rate = self.lower
        while rate is not None and not self.problems:
            for _ in range(self.settings.num_confirmations):
                self.holds(rate)
            held = [point.holds for point in self.points if point.rate == rate]
            if 2 * sum(held) > len(held):
                return rate
            if self.is_spent:
                self.problems.append(f"no rate was confirmed within {self.settings.max_runs} runs")
                return None
            rate *= 1 - self.settings.precision
        return rate
