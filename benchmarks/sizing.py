"""Compare the latencies that `transduce size` simulates with those that the load tester measures, at three loads.

The server has one core and the tester another. In each pass `transduce size` measures the server's costs. Then the load
tester sends requests at shares of the saturation that is simulated with the first pass's costs. Each run is also
simulated, with the costs of its pass and the same sentences at the same times. Each pass has another seed. The
latencies and ratios of the result are medians over the passes. The costs, the saturation, the capacity and the closed
loops are those of the first pass. Writes JSON. Linux only.

A shared machine changes its speed within minutes. So each pass measures the costs again.

    python -m benchmarks.sizing --output benchmarks/results/sizing.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import measured
from benchmarks.server_process import ALL_CORES, ServeOptions, ServerProcess
from transduce.loadtest.arrivals import Arrivals
from transduce.loadtest.percentiles import rank_of
from transduce.loadtest.plan import RunPlan, Target
from transduce.loadtest.result import RunResult
from transduce.loadtest.runner import run
from transduce.loadtest.sample import OK
from transduce.loadtest.slo import Slo
from transduce.loadtest.workload import Workload, built_in
from transduce.sizing.capacity import Capacity, capacity, lengths_of
from transduce.sizing.costs import Costs
from transduce.sizing.measure import measure
from transduce.sizing.simulation import latencies_s, saturated_rate

RESULT = Path(__file__).with_name("results") / "sizing.json"
SHARES = (0.3, 0.6, 0.8)  # of the simulated saturation
TOLERANCE = 0.2
SLO = Slo.parse("p99=500ms")
PERCENTILES = (50, 99)


def simulated_ms(costs: Costs, plan: RunPlan) -> dict[str, float]:
    """Latencies of a simulated run of the plan, by percentile. They are nearest ranks, as in the load tester."""
    times_s, request = plan.times_s(), plan.workload.sequence(plan.seed)
    lengths = [costs.num_subwords(request(index).num_words) for index in range(len(times_s))]
    found = sorted(latencies_s(costs, lengths, times_s))
    return {f"p{number}": found[rank_of(len(found), number) - 1] * 1e3 for number in PERCENTILES}


def measured_ms(result: RunResult) -> dict[str, float]:
    """Latencies of a measured run, by percentile. Raises ValueError without an answer."""
    if result.latency is None:
        raise ValueError("no request was answered")
    return {f"p{number}": result.latency.percentiles[f"p{number}"] for number in PERCENTILES}


@dataclass(frozen=True)
class Run:
    """Latencies of a run at one rate in ms, by percentile.

    is_valid: whether the tester sent the requests on time, and all were answered.
    """

    simulated: dict[str, float]
    measured: dict[str, float]
    is_valid: bool

    @property
    def ratio(self) -> dict[str, float]:
        """Simulated over measured."""
        return {name: self.simulated[name] / self.measured[name] for name in self.measured}


def medians(runs: list[dict[str, float]], *, digits: int = 1) -> dict[str, float]:
    """The median of each percentile over the runs."""
    return {name: round(statistics.median(one[name] for one in runs), digits) for name in runs[0]}


def points(
    url: str, workload: Workload, first: Costs, saturated: float, *, seconds: float, num_passes: int
) -> list[dict[str, Any]]:
    """Measure and simulate each share, in passes over all shares. first: the costs of the first pass."""
    runs: dict[float, list[Run]] = {share: [] for share in SHARES}
    costs = first
    for number in range(num_passes):
        for share in SHARES:
            arrivals = Arrivals.at(share * saturated, seconds)
            plan = RunPlan(Target(url), workload, arrivals, seed=100 + number)
            result = run(plan)
            is_valid = result.is_valid and set(result.outcomes) == {OK}
            runs[share].append(Run(simulated_ms(costs, plan), measured_ms(result), is_valid))
        if number + 1 < num_passes:
            costs = measure(Target(url), workload, seconds=seconds / 4)
    return [
        {
            "share": share,
            "rate": round(share * saturated, 2),
            "simulated_ms": medians([one.simulated for one in found]),
            "measured_ms": medians([one.measured for one in found]),
            "ratio": medians([one.ratio for one in found], digits=3),
            "num_invalid_runs": sum(not one.is_valid for one in found),
        }
        for share, found in runs.items()
    ]


def agrees(points: list[dict[str, Any]]) -> bool:
    """Whether all runs of the `points` are valid, and all ratios are within TOLERANCE of 1."""
    ratios = [ratio for one in points for ratio in one["ratio"].values()]
    return not any(one["num_invalid_runs"] for one in points) and all(
        abs(ratio - 1) <= TOLERANCE for ratio in ratios
    )


def loops(costs: Costs, lengths: list[int]) -> list[dict[str, float]]:
    """The rates of the closed loops that gave the costs: measured, and simulated with the costs of all loops.

    `transduce size` merges loops with similar numbers of rows (`transduce.sizing.measure.merged`). The measured rate is
    then the mean of the merged loops, and the simulated rate is for the largest number of clients among them.
    """
    return [
        {
            "num_clients": level.num_clients,
            "measured_per_s": round(level.rate, 1),
            "simulated_per_s": round(saturated_rate(costs, lengths, num_clients=level.num_clients), 1),
        }
        for level in costs.levels
    ]


def measure_all(*, seconds: float, num_passes: int) -> dict[str, Any]:
    """Start the server on one core, measure its costs, and compare."""
    server_core, tester_core = sorted(ALL_CORES)[0], sorted(ALL_CORES)[-1]
    os.sched_setaffinity(0, {tester_core})
    workload = built_in("news")
    words = [len(spec.texts[0].split()) for spec in workload.requests]
    options = ServeOptions(sys.executable, None, cores=frozenset({server_core}))
    with ServerProcess(options) as server:
        costs = measure(Target(server.url), workload, seconds=seconds / 4)
        found: Capacity = capacity(costs, words, SLO)
        compared = points(
            server.url, workload, costs, found.saturated, seconds=seconds, num_passes=num_passes
        )
    return {
        "num_server_cores": 1,
        "costs": asdict(costs),
        "slo": str(SLO),
        "saturated_per_s": round(found.saturated, 2),
        "within_slo_per_s": round(found.rate, 2),
        "closed_loops": loops(costs, lengths_of(words, costs)),
        "points": compared,
        "agrees": agrees(compared),
    }


def main() -> None:
    """Measure, print and write. The exit code is 1 if a latency is more than TOLERANCE off, or a run is invalid."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULT, help="JSON file")
    parser.add_argument("--seconds", type=float, default=40.0, help="duration of a run (default: 40)")
    parser.add_argument("--passes", type=int, default=5, help="runs at each load (default: 5)")
    args = parser.parse_args()
    if len(ALL_CORES) < 2:
        parser.error("needs two cores: one for the server and one for the tester")
    result = measured("benchmarks.sizing", lambda: measure_all(seconds=args.seconds, num_passes=args.passes))
    print(json.dumps(result["figures"], indent=1))
    args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    if not result["figures"]["agrees"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
