"""Measures how the CPU time of a function grows with its input, in this thread only."""

from __future__ import annotations

import time
from collections.abc import Callable

TIMES = 16
# Linear work grows by TIMES, and quadratic work by 256. CPU caches and clock may add a factor of five.
MAX_GROWTH = 5 * TIMES
NUM_TRIALS = 3


def check_near_linear(work: Callable[[int], object], size: int) -> None:
    """Fail if the work on `size` takes much more than TIMES the time of the work on `size` / TIMES."""
    small_s = min(_seconds(work, size // TIMES) for _ in range(NUM_TRIALS))
    for _ in range(NUM_TRIALS):
        growth = _seconds(work, size) / small_s
        if growth < MAX_GROWTH:
            return
    raise AssertionError(f"{TIMES} times the input took {growth:.0f} times the time")


def _seconds(work: Callable[[int], object], size: int) -> float:
    started = time.thread_time()
    work(size)
    return time.thread_time() - started
