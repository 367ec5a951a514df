"""Precise timing: waking at a set moment, and measuring how late the event loop is.

Timers of an event loop are as coarse as a millisecond. For the last two milliseconds before a request is due, the loop
therefore spins, and still reads and writes.
"""

from __future__ import annotations

import asyncio
import time

# Seconds of spinning before a moment. Less risks late requests; more wastes CPU time.
SPIN_S = 0.002
PROBE_S = 0.02


async def wait_until(moment: float) -> None:
    """Wait until time.perf_counter() reaches `moment`; returns immediately if it is past."""
    left_s = moment - time.perf_counter()
    if left_s > SPIN_S:
        await asyncio.sleep(left_s - SPIN_S)
    while time.perf_counter() < moment:  # noqa: ASYNC110 - a timer would be a millisecond late
        await asyncio.sleep(0)


class LoopProbe:
    """Measures how late the event loop fires a timer every 20 ms; the resolution is a millisecond.

    late_s: one value per timer from `started_at` on, in seconds.
    """

    def __init__(self, started_at: float) -> None:
        self._started_at = started_at
        self.late_s: list[float] = []

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            due_at = time.perf_counter() + PROBE_S
            await asyncio.sleep(PROBE_S)
            woken_at = time.perf_counter()
            if due_at >= self._started_at:
                self.late_s.append(max(0.0, woken_at - due_at))
