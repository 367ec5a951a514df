"""When a call of several steps ends before all of them are taken: somebody has ended, or somebody has come."""

from __future__ import annotations

import mmap
from typing import NamedTuple

import numpy as np

# More steps than any call takes.
NO_LIMIT = 1 << 30


class WakeFlag:
    """A number in memory that whoever has something to say sets, from any thread or process.

    What it is rung for must be there before; who answers mutes it first and looks for that then.
    """

    def __init__(self, memory: mmap.mmap | bytearray | None = None, offset: int = 0) -> None:
        """memory: where it stands, silent at first if that is new; None: in its own. offset: in it, in bytes."""
        self._number = np.frombuffer(bytearray(4) if memory is None else memory, np.int32, 1, offset)
        self.address: int = self._number.ctypes.data

    def set(self) -> None:
        """Somebody waits."""
        self._number[0] = 1

    def clear(self) -> None:
        """Who waits is about to be heard."""
        self._number[0] = 0

    @property
    def is_set(self) -> bool:
        """Whether somebody waits."""
        return bool(self._number[0])


class StopCondition(NamedTuple):
    """What ends several steps early. At least one is taken.

    steps_after_end: steps that may follow the one in which the first row says its end token, or the first beam is done.
    wake_flag: no further one follows once it wakes; None: none is listened to. min_steps: but not before so many.
    """

    steps_after_end: int = NO_LIMIT
    wake_flag: WakeFlag | None = None
    min_steps: int = 0


# All steps are taken that may be.
NO_EARLY_STOP = StopCondition()
