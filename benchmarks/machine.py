"""Describes the machine, the package versions and the commit of a measurement."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (
    "onnxruntime",
    "onnxruntime-gpu",
    "numpy",
    "sentencepiece",
    "fastapi",
    "uvicorn",
    "uvloop",
    "httptools",
)
# Flags of /proc/cpuinfo and what they stand for, from the narrowest vectors to the widest.
_INSTRUCTIONS = {
    "avx2": "AVX2",
    "avx512f": "AVX-512",
    "avx512_vnni": "AVX-512 VNNI",
    "amx_int8": "tile registers",
}
# The Python under test runs this code. It may be another interpreter than this one.
_VERSIONS = """
import json, platform, sys
from importlib import metadata
found = {"python": platform.python_version()}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def measured(module: str, measure: Callable[[], object]) -> dict[str, Any]:
    """Describe the run, call `measure`, and return the content of a result file, with the result as `figures`."""
    return {**describe_run(module), "figures": measure()}


def describe_run(
    module: str, arguments: Sequence[str] | None = None, *, python: str | None = sys.executable
) -> dict[str, Any]:
    """The head of a result file: command, commit, machine and versions. Call it before the measurement.

    A later call would record the load average that the measurement itself causes. module: of the benchmark, as in
    `python -m MODULE`. arguments: of the recorded command; None for this process's own. python: the interpreter
    whose package versions are recorded; None for none.
    """
    command_line = sys.argv[1:] if arguments is None else arguments
    head = {
        "command": shlex.join(["python", "-m", module, *command_line]),
        "commit": commit(),
        "machine": describe_machine(),
    }
    return head if python is None else {**head, "versions": versions(python)}


def describe_machine() -> dict[str, object]:
    """CPU, number of usable cores, memory in GB, kernel, 1-minute load average, and the time in UTC."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": cpu_name(),
        "num_cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory_bytes / 1e9, 1),
        "kernel": platform.release(),
        "load_average_before": round(os.getloadavg()[0], 2),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def cpu_name() -> str:
    """The processor's name from the operating system, and its widest two vector instructions: `AMD EPYC (AVX2)`."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    facts = {
        name.strip(): value.strip() for name, _, value in reversed([line.partition(":") for line in lines])
    }
    flags = facts.get("flags", "").split()
    instructions = [name for flag, name in _INSTRUCTIONS.items() if flag in flags][-2:]
    name = facts.get("model name", "unknown")
    return f"{name} ({', '.join(instructions)})" if instructions else name


def versions(python: str) -> dict[str, str]:
    """Versions of Python and of the serving packages, as the interpreter `python` reports them."""
    done = subprocess.run(
        [python, "-c", _VERSIONS, *PACKAGES], check=True, capture_output=True, text=True, timeout=60
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


def commit() -> str:
    """The short commit hash, with `+` if tracked files are modified. `unknown` without git.

    The environment variable BENCHMARK_COMMIT overrides it, for a copy of the sources without git.
    """
    if given := os.environ.get("BENCHMARK_COMMIT"):
        return given
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        return head + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout.strip()
