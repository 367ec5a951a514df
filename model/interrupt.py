"""Signals that end a training run after its next update instead of in the middle of it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns True once SIGINT or SIGTERM has arrived.

    The same signal a second time has its usual effect: it ends the process at once. Raises ValueError outside the main
    thread, because Python sets signal handlers only there.
    """
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        received.append(number)
        name = signal.Signals(number)
        signal.signal(name, previous[name])
        print(f"{name.name}: saving after this update", file=sys.stderr)

    previous = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        for number in STOP_SIGNALS:
            signal.signal(number, handle)
        yield lambda: bool(received)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
