"""A page of memory that the processes of an engine share: since when each worker's step is under way, and its bell."""

from __future__ import annotations

import math
import mmap
import os

from app.runtime.until import Bell

NUMBER_BYTES = 8


class SharedWorkerStatus:
    """One number a worker: seconds of time.monotonic, NaN while it is idle. Each worker writes its own, all read all.

    descriptor: of the memory, to be handed on to the workers' processes. bells: of each worker, which the others ring.
    """

    def __init__(self, descriptor: int, num_workers: int) -> None:
        self.descriptor = descriptor
        self.num_workers = num_workers
        self._memory = mmap.mmap(descriptor, 2 * num_workers * NUMBER_BYTES)
        self._times = memoryview(self._memory).cast("d")[:num_workers]
        self.bells = [
            Bell(self._memory, (num_workers + number) * NUMBER_BYTES) for number in range(num_workers)
        ]

    @classmethod
    def of(cls, num_workers: int) -> SharedWorkerStatus:
        """A new one, all idle. Linux only."""
        descriptor = os.memfd_create("transduce-workers")
        os.ftruncate(descriptor, 2 * num_workers * NUMBER_BYTES)
        page = cls(descriptor, num_workers)
        for number in range(num_workers):
            page.set(number, None)
        return page

    def set(self, number: int, started_at: float | None) -> None:
        """Say when a worker's step began, or that it is idle."""
        self._times[number] = math.nan if started_at is None else started_at

    def get(self, number: int) -> float | None:
        """When a worker's step began; None where it is idle."""
        started_at = self._times[number]
        return None if math.isnan(started_at) else started_at

    def num_busy(self) -> int:
        """RunningEngine at work."""
        return sum(started_at == started_at for started_at in self._times)

    def ring_others(self, number: int) -> None:
        """A worker has something to say to all others."""
        for other, bell in enumerate(self.bells):
            if other != number:
                bell.ring()

    def close_descriptor(self) -> None:
        """Nobody else is to be given it; who has the memory keeps it."""
        os.close(self.descriptor)
        self.descriptor = -1
