"""Garbage collection and memory of a server process: short pauses, and little kept after loading."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys

# Thresholds of gc.set_threshold: new objects until generation 0 is collected, collections of generation 0 until
# generation 1 is, collections of generation 1 until generation 2 is. A request of 50 000 characters makes a million
# objects, nearly all freed without a collection. A full collection takes 0.1 s or more, in which no request is served:
# with smaller thresholds it comes during requests, with larger ones cyclic garbage stays longer.
COLLECT_AFTER = (5_000, 20, 1_000)
# Seconds for which a thread may hold Python's lock while the event loop's thread waits. Larger: later answers. Smaller:
# more switches.
SWITCH_INTERVAL_S = 0.001


def limit_pauses() -> None:
    """Keep pauses of this process's event loop short: fewer collections, shorter turns of other threads."""
    gc.set_threshold(*COLLECT_AFTER)
    sys.setswitchinterval(SWITCH_INTERVAL_S)


def collect_if_grown() -> None:
    """Run a full collection if generation 1 has been collected since the last one. Called when the server is idle."""
    if gc.get_count()[2] > 0:
        gc.collect()


def freeze_and_trim() -> None:
    """Exclude all loaded objects from collections, and return unused memory to the system.

    Objects are excluded only if the process started with the collector off, as `transduce serve` does.
    """
    if not gc.isenabled():
        gc.freeze()
    return_memory()


def return_memory() -> None:
    """Return freed memory to the system, if the C library can (glibc)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
