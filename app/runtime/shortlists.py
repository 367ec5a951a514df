"""The shortlists of a native runner: which slots have one, and the tables that they are made from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.runtime import native
from app.runtime.interface import Int32s, Int64s
from app.shortlist_file import ShortlistTable

# The list that stands for the whole vocabulary.
WHOLE = np.zeros(0, np.int32)


class RunnerShortlists:
    """One runner's shortlists by slot. Used by the runner's thread only."""

    def __init__(self, tables: Sequence[ShortlistTable], num_slots: int) -> None:
        """Give all slots the whole vocabulary. Raises MemoryError."""
        self._tables = tables
        self._lists = native.new_shortlists(num_slots)
        self._has_list = np.zeros(num_slots, bool)

    @property
    def address(self) -> int | None:
        """The argument of `native.DecodeArgs.set_args`; None if no slot has a shortlist."""
        return self._lists.address if self._has_list.any() else None

    def set(self, slots: Int32s, sources: Sequence[Int32s], tables: Sequence[int | None]) -> None:
        """Give each slot the shortlist that its table makes for its source.

        sources, tables: at least one, as many as slots. A table is an index; None: the whole vocabulary. Raises
        MemoryError.
        """
        lists = [
            WHOLE if table is None else self._tables[table].shortlist(source)
            for source, table in zip(sources, tables, strict=True)
        ]
        self._has_list[slots] = True  # if there is no memory, the slots have undefined lists until `clear`
        self._lists.set(slots, lists)
        self._has_list[slots] = [len(each) > 0 for each in lists]

    def clear(self, slots: Int32s | Int64s) -> None:
        """Give slots the whole vocabulary. Raises MemoryError."""
        restricted = slots[self._has_list[slots]]
        if len(restricted):
            self._lists.set(restricted, [WHOLE] * len(restricted))
            self._has_list[restricted] = False
