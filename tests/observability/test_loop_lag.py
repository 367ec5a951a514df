"""The lag of the event loop."""

from __future__ import annotations

import asyncio
import time

from app.observability.loop_lag import INTERVAL_S, LoopLag
from tests.api.server_process import HANG_TIMEOUT_S

PAUSE_S = 0.3


def test_a_pause_of_the_event_loop_is_seen() -> None:
    found: list[float] = []

    async def run() -> None:
        is_measured = asyncio.Event()

        def observe(seconds: float) -> None:
            found.append(seconds)
            is_measured.set()

        lag = LoopLag(observe)
        lag.start()
        asyncio.get_running_loop().call_soon(time.sleep, PAUSE_S)
        await asyncio.wait_for(is_measured.wait(), HANG_TIMEOUT_S)
        lag.stop()
        await asyncio.sleep(2 * INTERVAL_S)

    asyncio.run(run())
    (seen,) = found
    assert seen >= PAUSE_S - INTERVAL_S - 0.001
