"""Being on time: waking at a moment that was set before, and knowing by how much the loop was late.

Timers of an event loop are as coarse as a millisecond. So the last two milliseconds before a request is due are spent
turning the loop, which reads and writes meanwhile.
"""

from __future__ import annotations

import asyncio
import time

SPIN_S = 0.002
PROBE_S = 0.02


async def wait_until(moment: float) -> None:
    """Until time.perf_counter() says `moment`; returns at once where it is past."""
    left_s = moment - time.perf_counter()
    if left_s > SPIN_S:
        await asyncio.sleep(left_s - SPIN_S)
    while time.perf_counter() < moment:  # noqa: ASYNC110 - a timer would be a millisecond late
        await asyncio.sleep(0)


class LoopProbe:
    """By how much the event loop is late with a timer that goes off every 20 ms; a millisecond is its resolution.

    late_s: one value a timer, in seconds, those from `started_at` on.
    """

    def __init__(self, started_at: float) -> None:
        self._started_at = started_at
        self.late_s: list[float] = []

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            due_at = time.perf_counter() + PROBE_S
            await asyncio.sleep(PROBE_S)
            woken_at = time.perf_counter()
            if due_at >= self._started_at:
                self.late_s.append(max(0.0, woken_at - due_at))
