"""Ends a decoder call of several steps early, after a row or beam ends, or when a thread or process sets a flag."""

from __future__ import annotations

import mmap
from typing import NamedTuple

import numpy as np

# More steps than any call takes.
NO_LIMIT = 1 << 30


class WakeFlag:
    """An int32 in memory that any thread or process sets to end a decoder call early.

    A sender first writes its message, then sets the flag. The reader first clears the flag, then reads the messages.
    """

    def __init__(self, memory: mmap.mmap | bytearray | None = None, offset: int = 0) -> None:
        """Use 4 bytes of `memory` at `offset` bytes without changing them. None: allocate zeroed memory."""
        self._number = np.frombuffer(bytearray(4) if memory is None else memory, np.int32, 1, offset)
        self.address: int = self._number.ctypes.data

    def set(self) -> None:
        """End the call under way, or the next one, early."""
        self._number[0] = 1

    def clear(self) -> None:
        """Clear the flag, before the messages are read."""
        self._number[0] = 0

    @property
    def is_set(self) -> bool:
        """Whether the flag is set."""
        return bool(self._number[0])


class StopCondition(NamedTuple):
    """The conditions that end a call of several steps early. A call takes at least one step.

    steps_after_end: maximum number of steps after the earliest step in which a row ends or a beam is done. Steps that
        other threads have begun by then are taken, too. If the thread pool is busy with another model, the first rows
        may take all steps before a later row ends, and the call then takes all steps.
    wake_flag: read between steps. Once it is set, no further step is begun. None for no flag.
    min_steps: steps before the flag is read for the first time; 0 counts as 1.
    """

    steps_after_end: int = NO_LIMIT
    wake_flag: WakeFlag | None = None
    min_steps: int = 0


# A call with this condition takes every step that it may.
NO_EARLY_STOP = StopCondition()
