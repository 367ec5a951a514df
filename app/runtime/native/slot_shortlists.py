"""The shortlists of a runner's slots, in the memory of the native library (native/shortlists.h)."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class SlotShortlists:
    """The subwords that the rows of each slot choose among. Used by one thread only, between its decoder calls.

    address: the argument of `DecodeArgs.set_args`, valid as long as this object lives.
    """

    def __init__(self, library: ctypes.CDLL, num_slots: int) -> None:
        """Give all slots the whole vocabulary. library: the decoder's native library. Raises MemoryError."""
        self._set = library.transduce_set_shortlists
        address = library.transduce_new_shortlists(num_slots)
        if address is None:
            raise MemoryError("no memory for shortlists")
        self.address: int = address
        weakref.finalize(self, library.transduce_delete_shortlists, address)

    def set(self, slots: NDArray[Any], lists: Sequence[NDArray[np.int32]]) -> None:
        """Replace the lists of some slots. slots: must be in range.

        lists: at least one, each of ascending ids; an empty one stands for the whole vocabulary. The first decoder call
        that needs a list checks that its ids are in the vocabulary. Raises MemoryError; the slots then have undefined
        lists.
        """
        ids = np.concatenate(lists, dtype=np.int32)
        counts, numbers = np.array([len(each) for each in lists], np.int64), slots.astype(np.int64)
        addresses = numbers.ctypes.data, counts.ctypes.data, ids.ctypes.data
        if not self._set(self.address, len(counts), *addresses):
            raise MemoryError("no memory for shortlists")


def declare_shortlists(library: ctypes.CDLL) -> None:
    """Declare the types of the library's functions for shortlists."""
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    library.transduce_new_shortlists.argtypes = (size,)
    library.transduce_new_shortlists.restype = pointer
    library.transduce_delete_shortlists.argtypes = (pointer,)
    library.transduce_delete_shortlists.restype = None
    library.transduce_set_shortlists.argtypes = (pointer, size, pointer, pointer, pointer)
    library.transduce_set_shortlists.restype = ctypes.c_int32
