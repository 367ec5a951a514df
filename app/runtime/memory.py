"""What a process keeps once it has loaded, and when its garbage is looked for."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys

# New objects after which the young ones are looked through, and how often until the older ones are, and all. A request
# of fifty thousand characters makes a million objects, nearly all of which end without a collection: to look through
# all that are alive took a tenth of a second and more, in which no request is served.
COLLECT_AFTER = (5_000, 20, 1_000)
# Seconds for which a thread that works on texts may keep Python from the event loop's.
SWITCH_INTERVAL_S = 0.001


def limit_pauses() -> None:
    """Have neither the collector of garbage nor another thread keep this process's event loop waiting for long."""
    gc.set_threshold(*COLLECT_AFTER)
    sys.setswitchinterval(SWITCH_INTERVAL_S)


def collect_if_grown() -> None:
    """Look through all objects, where enough have grown old since that was done. Called when the server is idle."""
    if gc.get_count()[2] > 0:
        gc.collect()


def freeze_and_trim() -> None:
    """What is loaded by now stays: give back what loading it took, and have no collection walk through it again.

    The last only where the process was started with the collector off, as `transduce serve` is.
    """
    if not gc.isenabled():
        gc.freeze()
    return_memory()


def return_memory() -> None:
    """Give the system back what loading took and no longer uses, where the C library can (glibc)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
