"""Starts the fork server before the settings are read, so that it imports while the server does.

This module imports little, for it is the first that a server does.
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

# More processes for one model's engine than this were not measured.
MAX_WORKERS = 4


def default_num_workers(device: Device, num_threads: int) -> int:
    """RunningEngine of an engine whose settings do not say how many."""
    return min(num_threads, MAX_WORKERS) if device == "cpu" else 1


def start_fork_server() -> ForkServer:
    """The process of the workers, which has yet to be told what to load. Raises OSError where it cannot be started."""
    return ForkServer([sys.executable, "-P", "-m", "app.workers"])


def start_early() -> ForkServer | None:
    """Start the fork server if the environment suggests that there will be worker processes; else return None.

    A guess that costs time where it is wrong, and nothing else.
    """
    given = {name: os.environ.get(f"TRANSDUCE_{name}", "") for name in ("NUM_LANES", "NUM_THREADS", "DEVICE")}
    num_workers, num_threads = (
        int(given[name]) if given[name].isdecimal() else 0 for name in ("NUM_LANES", "NUM_THREADS")
    )
    is_cpu = given["DEVICE"] == "cpu" or (given["DEVICE"] in ("", "auto") and not has_cuda_provider())
    guess = num_workers or default_num_workers("cpu" if is_cpu else "cuda", num_threads or num_usable_cores())
    if guess > 1:
        with contextlib.suppress(OSError):  # told by whoever needs it
            return start_fork_server()
    return None
