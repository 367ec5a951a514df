"""Precise timing: waking at a set moment, and measuring how late the event loop is.

Timers of an event loop are accurate to about a millisecond. So in the last two milliseconds before a request is due,
the task that waits does not sleep. Meanwhile the event loop still reads and writes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

# Seconds without sleep before a moment. If smaller, requests may be late. If larger, CPU time is wasted.
SPIN_S = 0.002
# Seconds between two measurements of `LoopProbe`.
PROBE_S = 0.02

# Returns seconds; only differences between two calls have a meaning.
Clock = Callable[[], float]


async def wait_until(moment: float, clock: Clock = time.perf_counter) -> None:
    """Wait until the clock reaches `moment`; returns immediately if it is past."""
    left_s = moment - clock()
    if left_s > SPIN_S:
        await asyncio.sleep(left_s - SPIN_S)
    while clock() < moment:  # noqa: ASYNC110 - a timer would be a millisecond late
        await asyncio.sleep(0)


class LoopProbe:
    """Measures how late the event loop fires a timer every 20 ms; the resolution is a millisecond.

    late_s: for each timer that is due at or after `started_at`, the seconds by which it was late.
    """

    def __init__(self, started_at: float, clock: Clock = time.perf_counter) -> None:
        self._started_at = started_at
        self._clock = clock
        self.late_s: list[float] = []

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            due_at = self._clock() + PROBE_S
            await asyncio.sleep(PROBE_S)
            woken_at = self._clock()
            if due_at >= self._started_at:
                self.late_s.append(max(0.0, woken_at - due_at))
