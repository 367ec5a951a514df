"""The shortlists of a native runner: which slots have one, and the tables that they are made from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.runtime import native
from app.shortlist_file import ShortlistTable

Int32s = NDArray[np.int32]
WHOLE = np.zeros(0, np.int32)


class RunnerShortlists:
    """One runner's shortlists by slot. Used by the runner's thread only."""

    def __init__(self, tables: Sequence[ShortlistTable], num_slots: int) -> None:
        """All slots have the whole vocabulary. Raises MemoryError."""
        self._tables = tables
        self._lists = native.new_shortlists(num_slots)
        self._has_list = np.zeros(num_slots, bool)

    @property
    def address(self) -> int | None:
        """The argument of `native.DecodeArgs.set_args`; None if no slot has a shortlist."""
        return self._lists.address if self._has_list.any() else None

    def set(self, slots: Int32s, sources: Sequence[Int32s], tables: Sequence[int | None]) -> None:
        """Give each slot the shortlist of its source by one of the tables, or the whole vocabulary for None."""
        lists = [
            WHOLE if table is None else self._tables[table].shortlist(source)
            for source, table in zip(sources, tables, strict=True)
        ]
        self._lists.set(slots, lists)
        self._has_list[slots] = [len(each) > 0 for each in lists]

    def clear(self, slots: NDArray[np.int32] | NDArray[np.int64]) -> None:
        """Give slots the whole vocabulary."""
        restricted = slots[self._has_list[slots]]
        if len(restricted):
            self._lists.set(restricted, [WHOLE] * len(restricted))
            self._has_list[restricted] = False
