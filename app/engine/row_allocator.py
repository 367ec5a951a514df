"""Decides which sequence holds which cache row, and which rows to copy. The runner owns the arrays.

A sequence reserves the rows of its whole beam when it is admitted. It occupies one of them until its first step has
spread the beam. A beam that is offloaded to the runner occupies all of its rows before the first step.

Each of the rows 0..end-1 is occupied or a hole. A sequence that ends leaves holes, and so does a beam that becomes
narrower. New sequences and spreading beams take the lowest holes first. `compact` moves the last rows into the
remaining holes, so that no holes are decoded.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from app.engine.sequence import Sequence
from app.runtime.interface import Int32s

# Entries of the cache of row assignments. Smaller: more assignments are computed again. Larger: the cache takes more
# memory. A beam of 4 has 256 different assignments. The assignments of a beam of 8 seldom repeat.
MAX_ASSIGNMENTS = 1024


@dataclass
class RowCopies:
    """Copies of cache rows that the runner makes together. No target is a source, and no row is a target twice.

    moves: the four arguments of `add` for each copy, one after another.
    """

    moves: list[int] = field(default_factory=list)

    def add(self, source: int, target: int, length: int, shared: int = 0) -> None:
        """Add a copy of a row.

        length: columns of the self-attention cache that the source row holds. shared: leading columns that are equal
        in both rows already.
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
    """How hypotheses after a step (children) get the rows of those before it (parents). All numbers are their indices.

    parents: the parent of each child. inherited: the parent whose row each child takes; without meaning for a child in
        `spread`.
    overwritten: (parent, dead parent) for each child that takes the row of a parent without children.
    spread: (child, parent) for each child that needs a new row.
    vacated: parents whose rows become free.
    """

    parents: tuple[int, ...]
    inherited: tuple[int, ...]
    overwritten: tuple[tuple[int, int], ...]
    spread: tuple[tuple[int, int], ...]
    vacated: tuple[int, ...]


@lru_cache(MAX_ASSIGNMENTS)
def _assign_rows(parents: tuple[int, ...], num_before: int) -> _RowAssignment:
    """Give each parent's row to its first child. The other children take rows of dead parents, then new rows."""
    dead = sorted(set(range(num_before)).difference(parents), reverse=True)
    inherited = list(parents)
    overwritten, spread = [], []
    continued: set[int] = set()
    for child, parent in enumerate(parents):
        if parent not in continued:
            continued.add(parent)
        elif dead:
            inherited[child] = dead.pop()
            overwritten.append((parent, inherited[child]))
        else:
            spread.append((child, parent))
    return _RowAssignment(parents, tuple(inherited), tuple(overwritten), tuple(spread), tuple(dead))


class RowAllocator:
    """Allocates the rows of one runner's cache.

    num_reserved: rows reserved for admitted sequences, at most num_rows.
    end: rows 0..end-1 are occupied or holes. A step decodes all of them, or skips the holes if the runner can.
    """

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows
        self.num_reserved = 0
        self.end = 0
        self._owners: list[Sequence | None] = [None] * num_rows
        self._holes: list[int] = []  # a heap

    @property
    def num_occupied(self) -> int:
        """Rows that sequences hold."""
        return self.end - len(self._holes)

    @property
    def is_full(self) -> bool:
        """Whether every row is reserved."""
        return self.num_reserved >= self.num_rows

    def owner(self, row: int) -> Sequence:
        """Return the sequence that holds an occupied row."""
        sequence = self._owners[row]
        assert sequence is not None
        return sequence

    def can_admit(self, sequence: Sequence) -> bool:
        """Whether a sequence's whole beam fits into the rows that are not reserved."""
        return self.num_reserved + sequence.num_reserved_rows <= self.num_rows

    def admit(self, sequence: Sequence) -> None:
        """Reserve the rows of a sequence's beam and occupy the first of them."""
        self.num_reserved += sequence.num_reserved_rows
        sequence.rows = [self._occupy(sequence)]

    def occupy_all(self, sequence: Sequence, copies: RowCopies) -> None:
        """Occupy all rows reserved for a sequence before its first step.

        copies: gets the copies of the cross-attention cache from the first row to the others.
        """
        first = sequence.rows[0]
        for _ in range(sequence.num_reserved_rows - 1):
            row = self._occupy(sequence)
            sequence.rows.append(row)
            copies.add(first, row, 0)

    def keep_first(self, sequence: Sequence) -> None:
        """Free all rows of a sequence except the first."""
        for row in sequence.rows[1:]:
            self._vacate(row)
        del sequence.rows[1:]

    def release(self, sequence: Sequence) -> None:
        """Free a sequence's rows and its reservation."""
        self.num_reserved -= sequence.num_reserved_rows
        for row in sequence.rows:
            self._vacate(row)
        sequence.rows, sequence.beam = [], None

    def follow_parents(self, sequence: Sequence, *, reorders: RowCopies, spreads: RowCopies) -> None:
        """Give each live hypothesis of a search a row that holds its parent's cache after the copies.

        A parent's first child stays in the parent's row. Another child overwrites the row of a dead hypothesis (one
        that no child continues), because this row has the same cross-attention cache already. Without such a row the
        child takes a new row. reorders: gets the copies to rows of dead hypotheses. spreads: gets the copies to new
        rows.
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
        """Close the holes, so that rows 0..end-1 are all occupied. Returns the copies to make.

        num_left: if there are at most this many holes, all stay open and no row is copied.
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
        """Lower `end` to one more than the last occupied row."""
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
