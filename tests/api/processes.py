"""Checks whether processes have ended, and waits for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

from tests.api.server_process import HANG_TIMEOUT_S


def have_ended(processes: list[psutil.Process]) -> bool:
    """Whether all these processes have ended. A zombie has ended, too."""
    return all(map(_has_ended, processes))


def _has_ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it ended between the two calls
        return True


def wait_until(condition: Callable[[], bool], timeout_s: float = HANG_TIMEOUT_S) -> None:
    """Return as soon as the condition holds. Fails if it does not hold within the time limit."""
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)
