"""Several runs of one plan with different seeds: medians, and the spread between runs."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator, Sequence

from transduce.loadtest.percentiles import PERCENTILES, merged
from transduce.loadtest.plan import RunPlan
from transduce.loadtest.result import RunResult
from transduce.loadtest.runner import OnProgress, run

FIGURES = ("offered_rate", "achieved_rate", "goodput", "tester_cpu_share")
DISTRIBUTIONS = ("latency", "uncorrected_latency", "first_text", "lag")


def with_seeds(plan: RunPlan, num_runs: int) -> Iterator[RunPlan]:
    """Yield the plan of each run. Each has another seed."""
    for number in range(num_runs):
        yield dataclasses.replace(plan, seed=plan.seed + 1000 * number)


def repeat(plan: RunPlan, num_runs: int, on_progress: OnProgress | None = None) -> list[RunResult]:
    """Execute a plan several times, each time with another seed. Raises what `run` raises."""
    return [run(each, on_progress) for each in with_seeds(plan, num_runs)]


def summary(runs: Sequence[RunResult]) -> dict[str, dict[str, float]]:
    """Median, minimum and maximum of each figure over the runs; rates per second, latencies and lag in ms."""
    values: dict[str, list[float]] = {}
    for run_ in runs:
        for name in FIGURES:
            _add(values, name, getattr(run_, name))
        for name, value in run_.per_s.items():
            _add(values, f"{name}_per_s", value)
        for name in DISTRIBUTIONS:
            found = getattr(run_, name)
            for percentile in PERCENTILES:
                _add(values, f"{name}_{percentile}_ms", found and found.percentiles[percentile])
    return {
        name: {"median": statistics.median(each), "min": min(each), "max": max(each)}
        for name, each in values.items()
    }


def _add(values: dict[str, list[float]], name: str, value: float | None) -> None:
    if value is not None:
        values.setdefault(name, []).append(value)


def latency_of_all(runs: Sequence[RunResult]) -> dict[str, float]:
    """Latency percentiles in ms over all runs together; empty without responses."""
    encoded = [run_.latency.hdr for run_ in runs if run_.latency is not None]
    return merged(encoded) if encoded else {}
