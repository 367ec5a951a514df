"""Splits Transduce's time by category, from the counters of the native kernels or from a profiled run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from benchmarks.engine.cases import Case
from benchmarks.engine.compare import ComparisonOptions, arguments_of
from benchmarks.engine.jobs import EngineCounters
from benchmarks.engine.weights import ModelPair
from benchmarks.engine.worker import Worker

RUNTIME = "between operators"
PYTHON = "Python and binding"


@dataclass(frozen=True)
class ProfiledTimes:
    """Seconds that a profiled case spends in ONNX Runtime and in its Python binding.

    kernels_s: in kernels, by graph and category. runs_s: in whole runs, by graph. binding_s: in the binding, which ONNX
    Runtime's profiler does not count.
    """

    kernels_s: dict[str, dict[str, float]]
    runs_s: dict[str, float]
    binding_s: float


def profile(
    prepared: ModelPair, cases: list[Case], options: ComparisonOptions
) -> tuple[list[ProfiledTimes], dict[str, str]]:
    """Run each case once with profiling. A short case has a warm-up run before it.

    Returns the seconds of each case, and the category of each operator.
    """
    spent: list[tuple[EngineCounters, EngineCounters]] = []
    with Worker("ours", {**arguments_of(prepared, options), "is_profiled": True}) as worker:
        for case in cases:
            job = replace(case.job, num_calls=1, is_warmed=False)
            warming = EngineCounters() if case.is_long else worker.translate(job).spent
            spent.append((warming, worker.translate(job).spent))
        profiled = worker.profile()
    found = []
    positions = {"encoder": 0, "decoder": 0}
    for warming, counted in spent:
        kernels: dict[str, dict[str, float]] = {}
        runs_s: dict[str, float] = {}
        for graph, position in positions.items():
            start = position + _num_runs(warming, graph)
            positions[graph] = start + _num_runs(counted, graph)
            runs = profiled[graph][start : positions[graph]]
            kernels[graph] = _sum([run["kernels_s"] for run in runs])
            runs_s[graph] = sum(run["total_s"] for run in runs)
        called_s = counted.encoder_s + counted.decoder_s
        found.append(ProfiledTimes(kernels, runs_s, max(0.0, called_s - sum(runs_s.values()))))
    return found, profiled["operators"]


def _num_runs(spent: EngineCounters, graph: str) -> int:
    return spent.num_decoder_runs if graph == "decoder" else spent.num_encoder_runs


def _sum(parts: list[dict[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for name, seconds in part.items():
            total[name] = total.get(name, 0.0) + seconds
    return total


def where_time_goes(row: dict[str, Any], profiled: ProfiledTimes, num_threads: int) -> dict[str, Any]:
    """Milliseconds per group of sentences by category, the time of a step, and three shares.

    Native kernels count their own time in the measured run. For a graph without native kernels, the kernels' times come
    from the profiled run. A graph's kernel times are scaled down if their sum exceeds the measured run's time inside
    ONNX Runtime. The rest of the time inside ONNX Runtime is "between operators". All time outside is "Python and
    binding".

    python_share: Python's share of the whole time. step_python_share: of the time of the decoder steps, the share that
    is spent outside the decoder's graph. idle_share: the share of the threads' time in which they use no processor.
    """
    spent = row["spent"]
    wall_s = row["calls_s"]
    num_calls = row["num_calls"]
    called_s = (spent["encoder_s"] + spent["decoder_s"]) / num_calls
    binding_s = min(profiled.binding_s, called_s)
    parts: dict[str, float] = {}
    for graph, profiled_s in profiled.kernels_s.items():
        counted_s = spent["blocks_s"].get(graph, {})
        kernels = {name: seconds / num_calls for name, seconds in counted_s.items()} or profiled_s
        inside_s = spent[f"{graph}_s"] / num_calls * (1 - binding_s / called_s)
        known_s = sum(kernels.values())
        scale = min(1.0, inside_s / known_s) if known_s else 0.0
        for name, seconds in kernels.items():
            parts[name] = parts.get(name, 0.0) + seconds * scale
        parts[RUNTIME] = parts.get(RUNTIME, 0.0) + inside_s - known_s * scale
    parts[PYTHON] = wall_s / num_calls - called_s + binding_s
    decoding_s = (spent["step_s"] - spent["encode_s"]) / num_calls
    step_binding_s = (
        binding_s * spent["num_decoder_runs"] / max(1, spent["num_decoder_runs"] + spent["num_encoder_runs"])
    )
    scale_ms = 1e3 / row["num_groups"]
    return {
        "parts_ms": {
            name: seconds * scale_ms for name, seconds in sorted(parts.items(), key=lambda p: -p[1])
        },
        "python_share": parts[PYTHON] / (wall_s / num_calls),
        "step_ms": decoding_s / (spent["num_steps"] / num_calls) * 1e3,
        "step_python_share": (decoding_s - spent["decoder_s"] / num_calls + step_binding_s) / decoding_s,
        "idle_share": max(0.0, 1.0 - spent["cpu_s"] / (wall_s * num_threads)),
    }
