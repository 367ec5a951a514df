"""Measures how the CPU time of a function grows with its input, in this thread only and without garbage collections."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

TIMES = 16
# Linear work grows by TIMES, and quadratic work by 256. CPU caches and clock may add a factor of three. A small factor
# finds quadratic work in a small input, and a small input takes little time.
MAX_GROWTH = 3 * TIMES
# A longer input may take another code path with a higher cost per unit. On that path, linear work takes 2 times as long
# for twice the input, and quadratic work 4 times.
MAX_DOUBLED = 3
NUM_TRIALS = 3


def check_near_linear(work: Callable[[int], object], size: int, *, max_growth: float = MAX_GROWTH) -> None:
    """Fail if the time of work(size) grows as quadratic work does, both up to `size` and from there to twice `size`.

    max_growth: the check passes if the time grows by less than this from a sixteenth of `size` to `size`. A lower value
        also finds quadratic work that slow linear work would hide.
    """
    small_s = _least_s(work, size // TIMES)
    for _ in range(NUM_TRIALS):
        growth = _seconds(work, size) / small_s
        if growth < max_growth:
            return
    if _least_s(work, 2 * size) > MAX_DOUBLED * _least_s(work, size):
        raise AssertionError(f"{TIMES} times the input took {growth:.0f} times the time")


def _least_s(work: Callable[[int], object], size: int) -> float:
    return min(_seconds(work, size) for _ in range(NUM_TRIALS))


def _seconds(work: Callable[[int], object], size: int) -> float:
    """CPU seconds of work(size). A garbage collection would also visit the objects of other tests, so none runs."""
    gc.disable()
    try:
        started = time.thread_time()
        work(size)
        return time.thread_time() - started
    finally:
        gc.enable()
