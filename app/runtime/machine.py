"""Finds this process's cores, and whether ONNX Runtime supports CUDA, without loading it. Imported first at start."""

from __future__ import annotations

import contextlib
import os
from importlib.util import find_spec
from pathlib import Path

from app.observability.control_group import OWN_GROUP, ROOT, folder_of_group

CUDA_PROVIDER = "capi/libonnxruntime_providers_cuda.so"


def num_usable_cores(root: Path = ROOT, own_group: Path = OWN_GROUP) -> int:
    """How many cores this process may use, by its affinity and the quotas of its cgroup and the outer ones; at least 1.

    root, own_group: as in `folder_of_group`.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    group = folder_of_group(root, own_group)
    for folder in (group, *group.parents):
        with contextlib.suppress(OSError, ValueError):
            quota, period = (folder / "cpu.max").read_text("ascii").split()
            cores = min(cores, max(1, int(quota) // int(period)))  # "max" means no quota: int() raises
        if folder == root:
            break
    return cores


def has_cuda_provider() -> bool:
    """Whether the installed onnxruntime has a CUDA provider. It is not loaded: that takes memory and time."""
    spec = find_spec("onnxruntime")
    return (
        spec is not None and spec.origin is not None and (Path(spec.origin).parent / CUDA_PROVIDER).exists()
    )
