"""Our side's process layouts: one process with all threads, or several workers; the faster one is chosen.

The other side's workers and threads are chosen in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from app.engine.engine import FEW_ROWS
from app.workers.early_start import MAX_WORKERS
from benchmarks.engine.cases import Case
from benchmarks.engine.jobs import Done, Job
from benchmarks.engine.worker import Worker

TRIALS = 2


@dataclass(frozen=True)
class Layout:
    """The number of processes, and of threads of each."""

    num_lanes: int
    num_threads: int

    def describe(self) -> str:
        """A short form for a table, as the other side's."""
        return f"{self.num_lanes} x {self.num_threads}"


class Layouts:
    """Our side with one model, in a separate process for each layout."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        """arguments: of `Ours`, without the number of workers."""
        self._arguments = arguments
        num_threads = arguments["num_threads"]
        self.alone = Layout(1, num_threads)
        num_lanes = min(num_threads, MAX_WORKERS)
        self._all = list(dict.fromkeys([self.alone, Layout(num_lanes, num_threads // num_lanes)]))
        self._workers: dict[Layout, Worker] = {}

    def translate(self, job: Job, layout: Layout) -> Done:
        """Run a job."""
        if layout not in self._workers:
            self._workers[layout] = Worker("ours", {**self._arguments, "num_lanes": layout.num_lanes})
        return self._workers[layout].translate(job)

    def search(self, case: Case) -> Layout:
        """The fastest layout on the whole job; layouts take turns. A few rows go to one worker with all threads."""
        if case.num_sentences * case.beam_size <= FEW_ROWS or len(self._all) == 1:
            return self.alone
        job = replace(case.job, num_calls=1, is_warmed=not case.is_long)
        times = [[self.translate(job, each).times_s[0] for each in self._all] for _ in range(TRIALS)]
        best = [min(own) for own in zip(*times, strict=True)]
        return self._all[best.index(min(best))]

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers.values():
            worker.close()
