"""Describes the machine, the package versions and the commit of a measurement."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable
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
    """Describe the machine, call `measure`, and return the content of a result file.

    module: of the benchmark, as in `python -m MODULE`. The command line is that of this process.
    """
    machine = describe_machine()
    figures = measure()
    return {
        "command": shlex.join(["python", "-m", module, *sys.argv[1:]]),
        "commit": commit(),
        "machine": machine,
        "versions": versions(sys.executable),
        "figures": figures,
    }


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
    """The processor's name, as the operating system reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
    )


def versions(python: str) -> dict[str, str]:
    """Versions of Python and of the serving packages, as the interpreter `python` reports them."""
    done = subprocess.run(
        [python, "-c", _VERSIONS, *PACKAGES], check=True, capture_output=True, text=True, timeout=60
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


def commit() -> str:
    """The short commit hash, with `+` if tracked files are modified. `unknown` without git."""
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
