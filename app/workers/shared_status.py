"""Memory that the server and its worker processes share: each worker's wake flag, and when its step began."""

from __future__ import annotations

import math
import mmap
import os
import weakref

from app.runtime.stop_condition import WakeFlag

NUMBER_BYTES = 8  # of a start time, and of a wake flag


class SharedWorkerStatus:
    """The start time of each worker's current step, and each worker's wake flag.

    A start time is in seconds of time.monotonic, and NaN while the worker is idle. Each worker writes its own start
    time, and the server resets that of a dead worker. Every process may read all start times.
    descriptor: the memory's file descriptor, which is passed to the worker processes.
    wake_flags: one for each worker. The other workers and the server set it.
    """

    def __init__(self, descriptor: int, num_workers: int) -> None:
        self.descriptor = descriptor
        self.num_workers = num_workers
        self._memory = mmap.mmap(descriptor, 2 * num_workers * NUMBER_BYTES)
        self._times = memoryview(self._memory).cast("d")[:num_workers]
        self.wake_flags = [
            WakeFlag(self._memory, (num_workers + number) * NUMBER_BYTES) for number in range(num_workers)
        ]

    @classmethod
    def create(cls, num_workers: int) -> SharedWorkerStatus:
        """Return new shared memory in which all workers are idle, and which owns its descriptor.

        Raises OSError. Linux only.
        """
        descriptor = os.memfd_create("transduce-workers")
        try:
            os.ftruncate(descriptor, 2 * num_workers * NUMBER_BYTES)
            status = cls(descriptor, num_workers)
        except OSError:
            os.close(descriptor)
            raise
        weakref.finalize(status, os.close, descriptor)
        for number in range(num_workers):
            status.set(number, None)
        return status

    def set(self, number: int, started_at: float | None) -> None:
        """Store the time when a worker's step began, or None when it is idle."""
        self._times[number] = math.nan if started_at is None else started_at

    def get(self, number: int) -> float | None:
        """Return the time when a worker's step began, or None when it is idle."""
        started_at = self._times[number]
        return None if math.isnan(started_at) else started_at

    def num_busy(self) -> int:
        """Return how many workers are not idle."""
        return sum(started_at == started_at for started_at in self._times)  # NaN is not equal to itself

    def wake_others(self, number: int) -> None:
        """Set the wake flags of all workers but one."""
        for other, wake_flag in enumerate(self.wake_flags):
            if other != number:
                wake_flag.set()
