"""What a process keeps once it has loaded."""

from __future__ import annotations

import contextlib
import ctypes
import gc


def settle_memory() -> None:
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
