"""Which worker gets a sentence, by the rows that each worker's sentences reserve."""

from __future__ import annotations

from collections import Counter

from app.engine.worker import Worker

# Rows up to which one worker with all threads is faster than two that share them. Smaller: few sentences are split
# between workers, and each reads all weights. Larger: the other workers stay idle too long.
FEW_ROWS = 32


class Placement:
    """The workers that take sentences, and the rows that their sentences reserve, now or later."""

    def __init__(self) -> None:
        self._num_rows: dict[Worker, int] = {}
        self._rows_of_callers: Counter[tuple[Worker, str]] = Counter()

    @property
    def num_workers(self) -> int:
        """The number of workers that take sentences."""
        return len(self._num_rows)

    def add_worker(self, worker: Worker) -> None:
        """Start to give sentences to a worker that has none."""
        self._num_rows[worker] = 0

    def remove_worker(self, worker: Worker) -> None:
        """Give no more sentences to a worker, and forget those that it has."""
        del self._num_rows[worker]
        for owner in [owner for owner in self._rows_of_callers if owner[0] is worker]:
            del self._rows_of_callers[owner]

    def choose(self) -> Worker | None:
        """Return the first worker with few rows, since a batch reads the weights once, else the one with the fewest.

        None without workers.
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
        """Stop counting a sentence's rows."""
        self._num_rows[worker] -= num_rows
        self._rows_of_callers[worker, caller] -= num_rows
        if not self._rows_of_callers[worker, caller]:
            del self._rows_of_callers[worker, caller]
