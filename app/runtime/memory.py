"""Keeps the garbage collector's pauses short, and returns memory to the system after loading."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
import traceback

# Arguments of gc.set_threshold. The first is the number of new objects that starts a collection of generation 0. The
# others are numbers of collections of one generation; after more than these, the next generation is collected. A
# request of 50,000 characters makes a million objects, and nearly all of them are freed without a collection. No
# request is served during a collection. A collection of generation 1 visits up to 20,000 new objects (those of three
# collections of generation 0, and 5,000 more) in up to 20 ms. A full collection takes 0.1 s or more. If the first two
# are larger, the pauses are longer. If the third is smaller, full collections come during requests. If it is larger,
# cyclic garbage stays longer.
COLLECT_AFTER = (5_000, 2, 10_000)
# Seconds for which a thread may hold the GIL while the event loop's thread waits. If larger, responses are later. If
# smaller, threads switch more often.
SWITCH_INTERVAL_S = 0.001


def limit_pauses() -> None:
    """Shorten the pauses of this process's event loop: rarer collections, and shorter turns of other threads."""
    gc.set_threshold(*COLLECT_AFTER)
    sys.setswitchinterval(SWITCH_INTERVAL_S)


def collect_if_grown() -> None:
    """Run a full collection if generation 1 was collected since the last full one. For times without requests."""
    if gc.get_count()[2] > 0:
        gc.collect()


def freeze_and_trim() -> None:
    """Exclude all loaded objects from collections, and return unused memory to the system.

    Objects are excluded only while the garbage collector is off. `transduce serve` turns it off until it is ready, and
    a worker process until its model is loaded.
    """
    if not gc.isenabled():
        gc.freeze()
    return_memory()


def return_memory() -> None:
    """Return freed memory to the system, if the C library can (glibc)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def release_memory() -> None:
    """Free objects in reference cycles, and return the memory to the system. Takes 0.1 s or more."""
    gc.collect()
    return_memory()


def release_frames(error: BaseException) -> None:
    """Clear the local variables of the calls that an error and its cause have ended, such as a model that was loaded.

    Else these live as long as the error. That may be until the next full collection of garbage, because the error of a
    future or a task is often in a reference cycle with it.
    """
    traceback.clear_frames(error.__traceback__)
    if error.__cause__ is not None:
        release_frames(error.__cause__)
