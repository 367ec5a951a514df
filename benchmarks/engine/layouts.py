"""Chooses Transduce's faster process layout for a case: one process with all threads, or several workers.

`benchmarks.engine.search` chooses CTranslate2's workers and threads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from app.engine.placement import FEW_ROWS
from app.workers.early_start import MAX_WORKERS
from benchmarks.engine.cases import Case
from benchmarks.engine.jobs import Job, JobResult
from benchmarks.engine.worker import Worker

TRIALS = 2  # how often each layout translates the job of a case


@dataclass(frozen=True)
class Layout:
    """The number of worker processes, and the number of threads of each while all of them are busy."""

    num_workers: int
    num_threads: int

    def describe(self) -> str:
        """A short form for a table: workers x threads."""
        return f"{self.num_workers} x {self.num_threads}"


class Layouts:
    """Runs one model in every layout, each layout in its own process."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        """arguments: the arguments of `TransduceSide`, without num_workers."""
        self._arguments = arguments
        num_threads = arguments["num_threads"]
        self.alone = Layout(1, num_threads)
        num_workers = min(num_threads, MAX_WORKERS)
        self._all = list(dict.fromkeys([self.alone, Layout(num_workers, num_threads // num_workers)]))
        self._workers: dict[Layout, Worker] = {}

    def translate(self, job: Job, layout: Layout) -> JobResult:
        """Run a job."""
        if layout not in self._workers:
            self._workers[layout] = Worker("ours", {**self._arguments, "num_workers": layout.num_workers})
        return self._workers[layout].translate(job)

    def search(self, case: Case) -> Layout:
        """The fastest layout for a case. Layouts alternate on the whole job.

        A case with few rows gets one worker with all threads, because the server gives such a batch to one worker.
        """
        if case.num_sentences * case.beam_size <= FEW_ROWS or len(self._all) == 1:
            return self.alone
        job = replace(case.job, num_calls=1, is_warmed=not case.is_long)
        times = [[self.translate(job, each).times_s[0] for each in self._all] for _ in range(TRIALS)]
        best = [min(of_layout) for of_layout in zip(*times, strict=True)]
        return self._all[best.index(min(best))]

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers.values():
            worker.close()
