"""Which cache row belongs to whom. Bookkeeping only: the arrays are the runner's.

A sentence reserves the rows of its whole beam when it is admitted, and occupies one until its first
step has spread the beam. Occupied rows are 0..end-1 but for holes, which ended sentences leave; newcomers and
spreading beams take the lowest holes first, and `compact` moves the last rows into those that remain.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np

from app.decoding.options import MAX_BEAM_SIZE
from app.engine.sequence import Sequence
from app.runtime.interface import Int32s

# Parents of hypotheses each of which goes on as it was.
STAYED = list(range(MAX_BEAM_SIZE))


@dataclass
class RowCopies:
    """Copies of cache rows, to be made together. No target is a source, and no row is a target twice."""

    sources: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    shared: list[int] = field(default_factory=list)

    def add(self, source: int, target: int, length: int, *, shared: int = 0) -> None:
        """length: columns of the self-attention cache that the source row holds.

        shared: the first of them, which the target holds alike already.
        """
        self.sources.append(source)
        self.targets.append(target)
        self.lengths.append(length)
        self.shared.append(shared)

    def arrays(self) -> tuple[Int32s, Int32s, Int32s]:
        """Sources, targets and lengths, each (n,)."""
        columns = np.array((self.sources, self.targets, self.lengths), dtype=np.int32)
        return columns[0], columns[1], columns[2]

    def shared_columns(self) -> Int32s:
        """(n,), for `Runner.reorder`."""
        return np.array(self.shared, dtype=np.int32)

    def __bool__(self) -> bool:
        return bool(self.sources)


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

    def can_admit(self, sequence: Sequence) -> bool:
        """Whether its whole beam fits beside what is promised already."""
        return self.num_reserved + sequence.num_reserved_rows <= self.num_rows

    def admit(self, sequence: Sequence) -> None:
        """Reserve its beam's rows and occupy the first of them."""
        self.num_reserved += sequence.num_reserved_rows
        sequence.rows = [self._occupy(sequence)]

    def release(self, sequence: Sequence) -> None:
        """Take back its rows and what was reserved for it."""
        self.num_reserved -= sequence.num_reserved_rows
        for row in sequence.rows:
            self._vacate(row)
        sequence.rows = []

    def follow_parents(self, sequence: Sequence, *, reorders: RowCopies, spreads: RowCopies) -> None:
        """Give each live hypothesis of its search a row that holds, after the copies, its parent's cache.

        A parent's first child stays in the parent's row. The others overwrite rows whose hypothesis has
        died (`reorders`: their cross-attention cache is right already) or take new rows (`spreads`).
        """
        parents = sequence.search.parents
        num_before = len(sequence.rows)
        if parents == STAYED[:num_before]:
            return
        dead = set(range(num_before))  # as hypotheses before the step
        rows = []
        for parent in parents:
            rows.append(sequence.rows[parent] if parent in dead else -1)
            dead.discard(parent)
        for index, parent in enumerate(parents):
            if rows[index] >= 0:
                continue
            source = sequence.rows[parent]
            if dead:
                died = dead.pop()
                rows[index] = sequence.rows[died]
                shared = sequence.shared_columns[died][parent]
                reorders.add(source, rows[index], sequence.length, shared=shared)
            else:
                rows[index] = self._occupy(sequence)
                spreads.add(source, rows[index], sequence.length)
        for index in dead:
            self._vacate(sequence.rows[index])
        sequence.rows = rows
        sequence.follow_parents(parents)

    def compact(self) -> RowCopies:
        """Close the holes: afterwards rows 0..end-1 are all occupied. Returns the copies to make."""
        moves = RowCopies()
        if not self._holes:
            return moves
        end = self.num_occupied
        targets = sorted(hole for hole in self._holes if hole < end)
        sources = [row for row in range(end, self.end) if self._owners[row] is not None]
        for source, target in zip(sources, targets, strict=True):
            owner = self._owners[source]
            assert owner is not None
            owner.rows[owner.rows.index(source)] = target
            self._owners[target], self._owners[source] = owner, None
            moves.add(source, target, owner.length)
        self.end = end
        self._holes = []
        return moves

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
