"""Chooses the worker of each sentence, by the rows of the sentences that each worker has."""

from __future__ import annotations

from collections import Counter

from app.engine.worker import Worker

# Rows up to which one worker with all threads is faster than two workers that share them. Smaller: few sentences are
# split between workers, and each worker reads all weights. Larger: the other workers stay idle too long.
FEW_ROWS = 32


class Placement:
    """The workers that take sentences. For each one it counts the rows of all its sentences, running or waiting."""

    def __init__(self) -> None:
        self._num_rows: dict[Worker, int] = {}
        self._rows_of_callers: Counter[tuple[Worker, str]] = Counter()

    @property
    def num_workers(self) -> int:
        """The number of workers that take sentences."""
        return len(self._num_rows)

    def add_worker(self, worker: Worker) -> None:
        """Add a worker without sentences."""
        self._num_rows[worker] = 0

    def remove_worker(self, worker: Worker) -> None:
        """Remove a worker and the counts of its sentences. A worker that was removed before is ignored."""
        self._num_rows.pop(worker, None)
        for owner in [owner for owner in self._rows_of_callers if owner[0] is worker]:
            del self._rows_of_callers[owner]

    def choose(self) -> Worker | None:
        """Return the first worker with fewer than FEW_ROWS rows, else the one with the fewest; None without workers.

        A batch reads the weights once for all of its rows, so few rows are not split between workers.
        """
        for worker, num_rows in self._num_rows.items():
            if num_rows < FEW_ROWS:
                return worker
        return min(self._num_rows, key=self._num_rows.__getitem__, default=None)

    def add(self, worker: Worker, caller: str, num_rows: int) -> int:
        """Count a sentence's rows. Returns the rows that its caller had in this worker before."""
        before = self._rows_of_callers[worker, caller]
        self._num_rows[worker] += num_rows
        self._rows_of_callers[worker, caller] += num_rows
        return before

    def remove(self, worker: Worker, caller: str, num_rows: int) -> None:
        """Stop counting a sentence's rows, unless its worker was removed."""
        if worker not in self._num_rows:
            return
        self._num_rows[worker] -= num_rows
        self._rows_of_callers[worker, caller] -= num_rows
        if not self._rows_of_callers[worker, caller]:
            del self._rows_of_callers[worker, caller]
