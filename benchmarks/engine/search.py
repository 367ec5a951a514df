"""Finds CTranslate2's best settings for a case: all on a shorter job, the fastest on the whole job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks.engine.cases import Case, shorter
from benchmarks.engine.jobs import Done, Job, PeerSettings
from benchmarks.engine.worker import Worker

# CTranslate2 chooses its backend from the environment at import, so each backend is a separate process.
BACKENDS: dict[str, dict[str, str]] = {
    "default": {},
    "CT2_USE_MKL=0": {"CT2_USE_MKL": "0"},
    "CT2_FORCE_CPU_ISA=AVX2": {"CT2_FORCE_CPU_ISA": "AVX2"},
    "CT2_USE_MKL=0 CT2_FORCE_CPU_ISA=AVX2": {"CT2_USE_MKL": "0", "CT2_FORCE_CPU_ISA": "AVX2"},
}
# For small groups the best number of threads depends on the group. A group of more than SETTLED_FROM sentences tries
# only the MOST_HOPEFUL fastest of the group before, and none that took more than HOPELESS times the best time.
SETTLED_FROM = 8
HOPELESS = 1.4
MOST_HOPEFUL = 3
# The number of settings that are compared on the whole job.
MOST_FINALISTS = 4
FINAL_ROUNDS = 2
CORPUS_BATCHES = (("examples", 32), ("examples", 64), ("tokens", 1024), ("tokens", 2048), ("tokens", 4096))


@dataclass(frozen=True)
class Choice:
    """A backend with settings."""

    backend: str
    settings: PeerSettings

    def describe(self) -> str:
        """A short form for a table."""
        own = self.settings
        batch = f", {own.max_batch_size} {own.batch_type}" if own.max_batch_size else ""
        return f"{self.backend}: {own.inter_threads} x {own.intra_threads}{batch}"


@dataclass(frozen=True)
class Found:
    """The choice for a case, and all trials, best first: seconds on the shorter job."""

    choice: Choice
    tried: list[dict[str, Any]]


class PeerPool:
    """CTranslate2 with one model, in a process for each backend."""

    def __init__(self, model: str, compute_type: str, *, num_threads: int, is_quick: bool) -> None:
        self._arguments = {"model": model, "compute_type": compute_type}
        self._num_threads = num_threads
        self._backends = list(BACKENDS)[:2] if is_quick else list(BACKENDS)
        self._workers: dict[str, Worker] = {}
        self._hopeful: dict[int, set[tuple[str, int]]] = {}

    def worker(self, backend: str) -> Worker:
        """The process of a backend, started on first use."""
        if backend not in self._workers:
            self._workers[backend] = Worker("peer", self._arguments, BACKENDS[backend])
        return self._workers[backend]

    def translate(self, job: Job, choice: Choice) -> Done:
        """Run a job."""
        return self.worker(choice.backend).translate(job, choice.settings)

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers.values():
            worker.close()

    def search(self, case: Case) -> Found:
        """Try every choice that is not far behind. Cases are in order of size, by beam."""
        job = shorter(case)
        found = [(min(self.translate(job, choice).times_s), choice) for choice in self._choices(case)]
        found.sort(key=lambda each: each[0])
        best = found[0][0]
        if case.num_sentences >= SETTLED_FROM:
            hopeful = dict.fromkeys(
                (choice.backend, choice.settings.inter_threads)
                for seconds, choice in found
                if seconds <= HOPELESS * best
            )
            self._hopeful[case.beam_size] = set(list(hopeful)[:MOST_HOPEFUL])
        tried = [
            {"backend": choice.backend, **asdict(choice.settings), "seconds": seconds}
            for seconds, choice in found
        ]
        finalists = [choice for seconds, choice in found if seconds <= HOPELESS * best]
        return Found(self._final(case, finalists[: 2 if case.is_long else MOST_FINALISTS]), tried)

    def _final(self, case: Case, finalists: list[Choice]) -> Choice:
        """The fastest on the whole job, where choices take turns. The shorter job overweights the encoder."""
        if len(finalists) == 1:
            return finalists[0]
        job = replace(case.job, num_calls=1, is_warmed=not case.is_long)
        times = [
            [self.translate(job, choice).times_s[0] for choice in finalists] for _ in range(FINAL_ROUNDS)
        ]
        best = [min(own) for own in zip(*times, strict=True)]
        return finalists[best.index(min(best))]

    def _choices(self, case: Case) -> Iterator[Choice]:
        hopeful = self._hopeful.get(case.beam_size)
        for backend in self._backends:
            for inter, intra in sorted({(1, self._num_threads), (self._num_threads, 1)}):
                if hopeful is None or (backend, inter) in hopeful:
                    for size, batch_type in _batches(case, inter):
                        yield Choice(backend, PeerSettings(inter, intra, size, batch_type))


def _batches(case: Case, inter_threads: int) -> list[tuple[int, Any]]:
    """Ways to split a group: one part for each worker, and for a large group also smaller parts."""
    if case.is_corpus:
        return [(size, batch_type) for batch_type, size in CORPUS_BATCHES]
    even = -(-case.num_sentences // inter_threads)
    sizes = {0 if inter_threads == 1 else even}
    # Smaller batches may stay in a cache.
    sizes |= {size for size in (16, 32) if size < even}
    return [(size, "examples") for size in sorted(sizes)]
