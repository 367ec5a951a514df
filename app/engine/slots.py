"""Which cache row belongs to whom. Bookkeeping only: the arrays are the runner's.

A sentence reserves the rows of its whole beam when it is admitted, and occupies one until its first
step has spread the beam. Occupied rows are 0..end-1 but for holes, which ended sentences leave; newcomers and
spreading beams take the lowest holes first, and `compact` moves the last rows into those that would be decoded for
nothing.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from app.engine.sequence import Sequence
from app.runtime.interface import Int32s

# Ways in which rows change hands that are remembered: all 256 of a beam of 4; those of a beam of 8 seldom repeat.
MAX_ASSIGNMENTS = 1024


@dataclass
class RowCopies:
    """Copies of cache rows, to be made together. No target is a source, and no row is a target twice.

    moves: of one after another source, target, length and shared columns, as `add` has them.
    """

    moves: list[int] = field(default_factory=list)

    def add(self, source: int, target: int, length: int, shared: int = 0) -> None:
        """length: columns of the self-attention cache that the source row holds.

        shared: the first of them, which the target holds alike already.
        """
        self.moves += (source, target, length, shared)

    def columns(self) -> Int32s:
        """(4, n): sources, targets, lengths, shared columns."""
        return np.array(self.moves, dtype=np.int32).reshape(-1, 4).T

    def arrays(self) -> tuple[Int32s, Int32s, Int32s]:
        """Sources, targets and lengths, each (n,)."""
        sources, targets, lengths, _ = self.columns()
        return sources, targets, lengths

    def __bool__(self) -> bool:
        return bool(self.moves)


class _RowAssignment(NamedTuple):
    """Who gets whose row, by what the hypotheses were before a step (parents) and are after it (children).

    parents: for each child, who it continues. inherited: for each child, of which parent it takes over the row; of
    spread ones, anyone's. overwritten: (parent, who died) for each row that gets another's columns. spread: (child,
    parent) for each new row. vacated: whose rows are free.
    """

    parents: tuple[int, ...]
    inherited: tuple[int, ...]
    overwritten: tuple[tuple[int, int], ...]
    spread: tuple[tuple[int, int], ...]
    vacated: tuple[int, ...]


@lru_cache(MAX_ASSIGNMENTS)
def _assign_rows(parents: tuple[int, ...], num_before: int) -> _RowAssignment:
    """A parent's first child gets its row; the others those of the dead, then new ones."""
    dead = sorted(set(range(num_before)).difference(parents), reverse=True)
    inherited = list(parents)
    overwritten, spread = [], []
    served: set[int] = set()
    for child, parent in enumerate(parents):
        if parent not in served:
            served.add(parent)
        elif dead:
            inherited[child] = dead.pop()
            overwritten.append((parent, inherited[child]))
        else:
            spread.append((child, parent))
    return _RowAssignment(parents, tuple(inherited), tuple(overwritten), tuple(spread), tuple(dead))


class Slots:
    """Rows of one runner's cache.

    num_reserved: rows promised to admitted sentences, at most num_rows.
    end: rows 0..end-1 are occupied or holes; without holes they are what a step decodes.
    """

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows
        self.num_reserved = 0
        self.end = 0
        self._owners: list[Sequence | None] = [None] * num_rows
        self._holes: list[int] = []  # a heap

    @property
    def num_occupied(self) -> int:
        """Rows that hold a live hypothesis."""
        return self.end - len(self._holes)

    def owner(self, row: int) -> Sequence:
        """Whose row it is; somebody's."""
        found = self._owners[row]
        assert found is not None
        return found

    def can_admit(self, sequence: Sequence) -> bool:
        """Whether its whole beam fits beside what is promised already."""
        return self.num_reserved + sequence.num_reserved_rows <= self.num_rows

    def admit(self, sequence: Sequence) -> None:
        """Reserve its beam's rows and occupy the first of them."""
        self.num_reserved += sequence.num_reserved_rows
        sequence.rows = [self._occupy(sequence)]

    def occupy_all(self, sequence: Sequence, copies: RowCopies) -> None:
        """Occupy the other rows that were reserved for it before it has decoded a column.

        copies: those that give them its source are added.
        """
        first = sequence.rows[0]
        for _ in range(sequence.num_reserved_rows - 1):
            row = self._occupy(sequence)
            sequence.rows.append(row)
            copies.add(first, row, 0)

    def keep_first(self, sequence: Sequence) -> None:
        """Take all its rows back but the first."""
        for row in sequence.rows[1:]:
            self._vacate(row)
        del sequence.rows[1:]

    def release(self, sequence: Sequence) -> None:
        """Take back its rows and what was reserved for it."""
        self.num_reserved -= sequence.num_reserved_rows
        for row in sequence.rows:
            self._vacate(row)
        sequence.rows, sequence.beam = [], None

    def follow_parents(self, sequence: Sequence, *, reorders: RowCopies, spreads: RowCopies) -> None:
        """Give each live hypothesis of its search a row that holds, after the copies, its parent's cache.

        A parent's first child stays in the parent's row. The others overwrite rows whose hypothesis has
        died (`reorders`: their cross-attention cache is right already) or take new rows (`spreads`).
        """
        before, length = sequence.rows, sequence.length
        assignment = _assign_rows(tuple(sequence.search.parents), len(before))
        rows = [before[index] for index in assignment.inherited]
        for parent, died in assignment.overwritten:
            shared = sequence.num_shared_columns(died, parent)
            reorders.moves += (before[parent], before[died], length, shared)
        for child, parent in assignment.spread:
            rows[child] = self._occupy(sequence)
            spreads.add(before[parent], rows[child], length)
        for index in assignment.vacated:
            self._vacate(before[index])
        sequence.rows = rows
        sequence.ancestry.append(assignment.parents)

    def compact(self, num_left: int = 0) -> RowCopies:
        """Close the holes: afterwards rows 0..end-1 are all occupied. Returns the copies to make.

        num_left: so many holes, or fewer, are left as they are.
        """
        moves = RowCopies()
        self._trim()
        if len(self._holes) <= num_left:
            return moves
        end = self.num_occupied
        targets = sorted(hole for hole in self._holes if hole < end)
        sources = [row for row in range(end, self.end) if self._owners[row] is not None]
        for source, target in zip(sources, targets, strict=True):
            owner = self.owner(source)
            owner.move_row(source, target)
            self._owners[target], self._owners[source] = owner, None
            moves.add(source, target, owner.length)
        self.end = end
        self._holes = []
        return moves

    def _trim(self) -> None:
        """Holes behind the last row that is occupied are none."""
        end = self.end
        while self.end and self._owners[self.end - 1] is None:
            self.end -= 1
        if self.end < end:
            self._holes = sorted(hole for hole in self._holes if hole < self.end)

    def _occupy(self, sequence: Sequence) -> int:
        if self._holes:
            row = heapq.heappop(self._holes)
        else:
            row = self.end
            self.end += 1
        self._owners[row] = sequence
        return row

    def _vacate(self, row: int) -> None:
        self._owners[row] = None
        heapq.heappush(self._holes, row)
