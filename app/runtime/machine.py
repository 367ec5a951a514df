"""What there is to run on, told without loading ONNX Runtime. Imports little: it is asked first of all."""

from __future__ import annotations

import contextlib
import os
from importlib.util import find_spec
from pathlib import Path

CUDA_PROVIDER = "capi/libonnxruntime_providers_cuda.so"


def num_usable_cores() -> int:
    """Cores that this process may run on, by its affinity and its cgroup's quota; at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:  # noqa: PTH123 - one line of a pseudo file
            quota, period = file.read().split()
        cores = min(cores, max(1, int(quota) // int(period)))  # "max" is no number: no quota
    return cores


def has_cuda_provider() -> bool:
    """Whether onnxruntime came with its CUDA provider. It is not loaded for that: it takes memory and time."""
    found = find_spec("onnxruntime")
    return (
        found is not None
        and found.origin is not None
        and (Path(found.origin).parent / CUDA_PROVIDER).exists()
    )
