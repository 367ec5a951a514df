"""Memory shared by the processes of an engine: when each lane's current step began, and its wake flag."""

from __future__ import annotations

import math
import mmap
import os

from app.runtime.stop_condition import WakeFlag

NUMBER_BYTES = 8


class BusyPage:
    """One number a lane: seconds of time.monotonic, NaN while it is idle. Each lane writes its own, all read all.

    descriptor: of the memory, to be handed on to the lanes' processes. wake_flags: of each lane, which the others ring.
    """

    def __init__(self, descriptor: int, num_lanes: int) -> None:
        self.descriptor = descriptor
        self.num_lanes = num_lanes
        self._memory = mmap.mmap(descriptor, 2 * num_lanes * NUMBER_BYTES)
        self._times = memoryview(self._memory).cast("d")[:num_lanes]
        self.wake_flags = [
            WakeFlag(self._memory, (num_lanes + number) * NUMBER_BYTES) for number in range(num_lanes)
        ]

    @classmethod
    def of(cls, num_lanes: int) -> BusyPage:
        """A new one, all idle. Linux only."""
        descriptor = os.memfd_create("transduce-lanes")
        os.ftruncate(descriptor, 2 * num_lanes * NUMBER_BYTES)
        page = cls(descriptor, num_lanes)
        for number in range(num_lanes):
            page.set(number, None)
        return page

    def set(self, number: int, started_at: float | None) -> None:
        """Say when a lane's step began, or that it is idle."""
        self._times[number] = math.nan if started_at is None else started_at

    def get(self, number: int) -> float | None:
        """When a lane's step began; None where it is idle."""
        started_at = self._times[number]
        return None if math.isnan(started_at) else started_at

    def num_busy(self) -> int:
        """Lanes at work."""
        return sum(started_at == started_at for started_at in self._times)

    def wake_others(self, number: int) -> None:
        """A lane has something to say to all others."""
        for other, wake_flag in enumerate(self.wake_flags):
            if other != number:
                wake_flag.set()

    def close_descriptor(self) -> None:
        """Nobody else is to be given it; who has the memory keeps it."""
        os.close(self.descriptor)
        self.descriptor = -1
