"""Starting the process of the lanes before the settings are read: it imports its part while the server imports its own.

This module imports little, for it is the first that a server does.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

from app.engine.origin import Origin
from app.runtime.machine import has_cuda_provider, num_usable_cores

if TYPE_CHECKING:
    from app.runtime.device import Device

# More processes for one model's engine than this were not measured.
MAX_LANES = 4


def default_num_lanes(device: Device, num_threads: int) -> int:
    """Lanes of an engine whose settings do not say how many."""
    return min(num_threads, MAX_LANES) if device == "cpu" else 1


def start_origin() -> Origin:
    """The process of the lanes, which has yet to be told what to load. Raises OSError where it cannot be started."""
    return Origin([sys.executable, "-P", "-m", "app.lane"])


def start_ahead() -> Origin | None:
    """The process of the lanes where a server will have some, as far as that can be told without reading its settings.

    A guess that costs time where it is wrong, and nothing else.
    """
    given = {name: os.environ.get(f"TRANSDUCE_{name}", "") for name in ("NUM_LANES", "NUM_THREADS", "DEVICE")}
    num_lanes, num_threads = (
        int(given[name]) if given[name].isdecimal() else 0 for name in ("NUM_LANES", "NUM_THREADS")
    )
    is_cpu = given["DEVICE"] == "cpu" or (given["DEVICE"] in ("", "auto") and not has_cuda_provider())
    guess = num_lanes or default_num_lanes("cpu" if is_cpu else "cuda", num_threads or num_usable_cores())
    if guess > 1:
        with contextlib.suppress(OSError):  # told by whoever needs it
            return start_origin()
    return None
