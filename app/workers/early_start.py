"""Starts the fork server before the settings are read, so that both processes import at the same time.

The server imports this module first of all, so this module imports little.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

from app.runtime.machine import has_cuda_provider, num_usable_cores
from app.workers.fork_server import ForkServer

if TYPE_CHECKING:
    from app.runtime.device import Device

# The maximum default number of worker processes. If larger, a machine with many cores has more workers of fewer threads
# each, and each worker takes memory for its own caches. Larger numbers were not measured.
MAX_WORKERS = 4


def default_num_workers(device: Device, num_threads: int) -> int:
    """Return the default number of workers: on a CPU one for each thread, at most MAX_WORKERS; on a GPU one."""
    return min(num_threads, MAX_WORKERS) if device == "cpu" else 1


def start_fork_server() -> ForkServer:
    """Start the fork server. It then waits for a ModelSpec. Raises OSError if it cannot be started."""
    return ForkServer.start([sys.executable, "-P", "-m", "app.workers"])


def start_early() -> ForkServer | None:
    """Start the fork server if the environment suggests that there will be worker processes, else return None.

    The settings are not checked yet. A wrong guess costs only time.
    """
    variables = {
        name: os.environ.get(f"TRANSDUCE_{name}", "") for name in ("NUM_LANES", "NUM_THREADS", "DEVICE")
    }
    num_workers, num_threads = (
        int(variables[name]) if variables[name].isdecimal() else 0 for name in ("NUM_LANES", "NUM_THREADS")
    )
    is_cpu = variables["DEVICE"] == "cpu" or (variables["DEVICE"] in ("", "auto") and not has_cuda_provider())
    guess = num_workers or default_num_workers("cpu" if is_cpu else "cuda", num_threads or num_usable_cores())
    if guess > 1:
        with contextlib.suppress(OSError):  # `load_model` tries again and reports the error
            return start_fork_server()
    return None
