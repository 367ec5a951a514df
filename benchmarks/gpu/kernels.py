"""Profiles the kernels of decoder steps and of an encoder call on a GPU: how much time each kind takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from app.runtime.cuda_choice import OWN_ATTENTION
from benchmarks.gpu.speed import step_of
from benchmarks.gpu.subject import GpuBenchmarkOptions, SkipError, load, make_random_bundle, natural_lengths

NUM_CALLS, NUM_ENCODED, NUM_LISTED = 20, 64, 25


def kernels(options: GpuBenchmarkOptions) -> dict[str, Any]:
    """Microseconds and launches of the costliest kernels in one call: steps of 1 and 512 rows, and an encoder call.

    Steps are measured with ONNX Runtime's attention and, under the names own_attention_*, with the project's. CUDA
    graphs are off, so that each kernel has its own record. PyTorch's profiler also records kernels of other libraries
    in the process. Raises SkipError without a GPU or without PyTorch.
    """
    if options.device != "cuda":
        raise SkipError("a CPU runs no kernels of a GPU")
    try:
        import torch
    except ImportError as error:
        raise SkipError(f"not installed: {error.name}") from error
    bundle = make_random_bundle(options)
    runner, own = (
        load(options, bundle, num_rows=512, has_graphs=False, switches=switches)
        for switches in ((), (OWN_ATTENTION,))
    )
    random_numbers = np.random.default_rng(3)
    lengths, _ = natural_lengths(NUM_ENCODED)
    sources = [random_numbers.integers(8, runner.limits.vocab_size, n).astype(np.int32) for n in lengths]
    calls: dict[str, Callable[[], object]] = {
        f"encode_{NUM_ENCODED}": lambda: runner.encode(sources, list(range(NUM_ENCODED)))
    }
    calls |= {
        f"rows_{num_rows}_beam_{beam_size}": step_of(runner, num_rows, beam_size)
        for num_rows, beam_size in ((1, 1), (512, 1), (512, 4))
    }
    calls |= {f"own_attention_rows_{num_rows}": step_of(own, num_rows, 1) for num_rows in (1, 512)}
    found = {}
    for name, call in calls.items():
        call()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            for _ in range(NUM_CALLS):
                call()
            torch.cuda.synchronize()
        found[name] = _summary(profiler)
    return found


def _summary(profiler: Any) -> dict[str, Any]:
    """The time of all kernels in a call, and the NUM_LISTED kernels that take the longest."""
    rows = [
        {
            "kernel": event.key[:160],
            "us": round(event.self_device_time_total / NUM_CALLS, 2),
            "launches": event.count / NUM_CALLS,
        }
        for event in profiler.key_averages()
        if event.self_device_time_total > 0
    ]
    rows.sort(key=lambda row: -row["us"])
    return {
        "us": round(sum(row["us"] for row in rows), 1),
        "launches": sum(row["launches"] for row in rows),
        "kernels": rows[:NUM_LISTED],
    }
