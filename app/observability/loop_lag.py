"""Measures how late the event loop calls a timer: while it is late, no request is read and no answer is sent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

# Seconds between two measurements. A pause of the event loop that is longer than this is always seen. If smaller, an
# idle server wakes more often.
INTERVAL_S = 0.1


class LoopLag:
    """Measures the running event loop. Every method is called on it."""

    def __init__(self, observe: Callable[[float], None]) -> None:
        """observe: called with each measurement, in seconds."""
        self._observe = observe
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Measure until `stop`."""
        due_at = time.monotonic() + INTERVAL_S
        self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._on_timer, due_at)

    def stop(self) -> None:
        """End the measurements."""
        if self._timer is not None:
            self._timer.cancel()

    def _on_timer(self, due_at: float) -> None:
        self._observe(max(0.0, time.monotonic() - due_at))
        self.start()
