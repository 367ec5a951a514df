"""Finds this process's cores, and whether ONNX Runtime supports CUDA, without loading it. Imported first at start."""

from __future__ import annotations

import contextlib
import os
from importlib.util import find_spec
from pathlib import Path

CUDA_PROVIDER = "capi/libonnxruntime_providers_cuda.so"


def num_usable_cores() -> int:
    """How many cores this process may use, by its affinity and its cgroup's quota; at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:  # noqa: PTH123 - one line of a pseudo file
            quota, period = file.read().split()
        cores = min(cores, max(1, int(quota) // int(period)))  # "max" means no quota: int() raises
    return cores


def has_cuda_provider() -> bool:
    """Whether the installed onnxruntime has a CUDA provider. It is not loaded: that takes memory and time."""
    spec = find_spec("onnxruntime")
    return (
        spec is not None and spec.origin is not None and (Path(spec.origin).parent / CUDA_PROVIDER).exists()
    )
