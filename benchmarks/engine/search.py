"""Finds CTranslate2's fastest settings for a case. A shorter job selects a few, and the whole job compares these."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.engine.cases import Case, trial_job
from benchmarks.engine.jobs import Job, JobResult, PeerSettings
from benchmarks.engine.worker import Worker

# CTranslate2 chooses its backend from the environment at import, so each backend has its own process. With Intel's MKL
# it packs the weights once. By default it uses MKL only on Intel's processors. CT2_FORCE_CPU_ISA names the instructions
# of all code but the matrix products, by default AVX2 even where there is AVX-512.
BACKENDS: dict[str, dict[str, str]] = {
    "CT2_USE_MKL=1": {"CT2_USE_MKL": "1"},
    "CT2_USE_MKL=0": {"CT2_USE_MKL": "0"},
    "CT2_USE_MKL=1 CT2_FORCE_CPU_ISA=AVX512": {"CT2_USE_MKL": "1", "CT2_FORCE_CPU_ISA": "AVX512"},
    "CT2_USE_MKL=0 CT2_FORCE_CPU_ISA=AVX512": {"CT2_USE_MKL": "0", "CT2_FORCE_CPU_ISA": "AVX512"},
}
# With these, CTranslate2 uses no instructions beyond those of a target of the native kernels. oneDNN and MKL choose the
# instructions of the matrix products. MKL's name for AVX2 with AVX-VNNI is AVX2_E1.
LIMITS: dict[str, dict[str, str]] = {
    "avx2": {"CT2_FORCE_CPU_ISA": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "avxvnni": {
        "CT2_FORCE_CPU_ISA": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2_VNNI",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2_E1",
    },
}
# The processor's flags that CTranslate2 needs for `CT2_FORCE_CPU_ISA=AVX512`.
AVX512_FLAGS = frozenset({"avx512f", "avx512cd", "avx512vl", "avx512dq", "avx512bw"})
# For small groups the best number of threads depends on the number of sentences. From STABLE_FROM sentences on, it is
# stable. So later cases of the same beam size, corpora included, try only the pairs of backend and threads that were
# fastest before.
STABLE_FROM = 8
# Settings that take more than this multiple of the best time are not compared on the whole job. From STABLE_FROM
# sentences on, later cases also drop a pair of backend and threads if all of its settings take more than this multiple.
MAX_TIMES_BEST = 1.4
# The maximum number of pairs of backend and threads that later cases try.
MAX_KEPT = 3
# The maximum number of settings that are compared on the whole job. It is two if a call is long.
MAX_FINALISTS = 4
FINAL_ROUNDS = 2
CORPUS_BATCHES = (("examples", 32), ("examples", 64), ("tokens", 1024), ("tokens", 2048), ("tokens", 4096))


@dataclass(frozen=True)
class Choice:
    """A backend of CTranslate2 with settings."""

    backend: str
    settings: PeerSettings

    def describe(self) -> str:
        """A short form for a table."""
        settings = self.settings
        batch = f", {settings.max_batch_size} {settings.batch_type}" if settings.max_batch_size else ""
        return f"{self.backend}: {settings.inter_threads} x {settings.intra_threads}{batch}"


@dataclass(frozen=True)
class SearchResult:
    """The fastest choice for a case. tried: all trials with their seconds on the shorter job, fastest first."""

    choice: Choice
    tried: list[dict[str, Any]]


class PeerPool:
    """Runs one model in CTranslate2, with a process for each backend."""

    def __init__(
        self, model: str, compute_type: str, *, num_threads: int, is_quick: bool, target: str | None = None
    ) -> None:
        self._arguments = {"model": model, "compute_type": compute_type}
        self._num_threads = num_threads
        self._backends = backends_of(frozenset() if target else cpu_flags())[: 2 if is_quick else None]
        self._environment = LIMITS[target] if target else {}
        self._workers: dict[str, Worker] = {}
        # By beam size: the pairs of a backend and a number of workers (inter_threads) that the next case tries.
        self._kept: dict[int, set[tuple[str, int]]] = {}

    def worker(self, backend: str) -> Worker:
        """The process of a backend, started on first use."""
        if backend not in self._workers:
            self._workers[backend] = Worker("peer", self._arguments, BACKENDS[backend] | self._environment)
        return self._workers[backend]

    def translate(self, job: Job, choice: Choice) -> JobResult:
        """Run a job."""
        return self.worker(choice.backend).translate(job, choice.settings)

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers.values():
            worker.close()

    def search(self, case: Case) -> SearchResult:
        """Find the fastest choice for a case.

        For each beam size, cases with fewer than STABLE_FROM sentences must come first, because a larger case limits
        what the cases after it try.
        """
        job = trial_job(case)
        found = [(min(self.translate(job, choice).times_s), choice) for choice in self._choices(case)]
        found.sort(key=lambda each: each[0])
        best = found[0][0]
        if case.num_sentences >= STABLE_FROM:
            fast = dict.fromkeys(
                (choice.backend, choice.settings.inter_threads)
                for seconds, choice in found
                if seconds <= MAX_TIMES_BEST * best
            )
            self._kept[case.beam_size] = set(list(fast)[:MAX_KEPT])
        tried = [
            {"backend": choice.backend, **asdict(choice.settings), "seconds": seconds}
            for seconds, choice in found
        ]
        finalists = [choice for seconds, choice in found if seconds <= MAX_TIMES_BEST * best]
        return SearchResult(self._final(case, finalists[: 2 if case.is_long else MAX_FINALISTS]), tried)

    def _final(self, case: Case, finalists: list[Choice]) -> Choice:
        """The fastest choice on the whole job.

        A shorter job has fewer steps or fewer sentences, so its fastest choice may be another one.
        """
        if len(finalists) == 1:
            return finalists[0]
        job = replace(case.job, num_calls=1, is_warmed=not case.is_long)
        times = [
            [self.translate(job, choice).times_s[0] for choice in finalists] for _ in range(FINAL_ROUNDS)
        ]
        best = [min(of_choice) for of_choice in zip(*times, strict=True)]
        return finalists[best.index(min(best))]

    def _choices(self, case: Case) -> Iterator[Choice]:
        kept = self._kept.get(case.beam_size)
        for backend in self._backends:
            for inter, intra in sorted({(1, self._num_threads), (self._num_threads, 1)}):
                if kept is None or (backend, inter) in kept:
                    for size, batch_type in _batches(case, inter):
                        yield Choice(backend, PeerSettings(inter, intra, size, batch_type))


def backends_of(flags: Set[str]) -> list[str]:
    """The backends that a processor with these flags can run. The backends without AVX-512 come first."""
    return [
        name
        for name, environment in BACKENDS.items()
        if "CT2_FORCE_CPU_ISA" not in environment or flags >= AVX512_FLAGS
    ]


def cpu_flags() -> frozenset[str]:
    """The flags of this processor, as Linux names them."""
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    return frozenset(next((line.partition(":")[2] for line in lines if line.startswith("flags")), "").split())


def _batches(case: Case, inter_threads: int) -> list[tuple[int, Any]]:
    """The batch sizes to try.

    For a corpus, CORPUS_BATCHES. Else one batch for each worker and, for a large group, also smaller batches.
    """
    if case.is_corpus:
        return [(size, batch_type) for batch_type, size in CORPUS_BATCHES]
    even = -(-case.num_sentences // inter_threads)
    sizes = {0 if inter_threads == 1 else even}
    # The data of smaller batches may fit a CPU cache.
    sizes |= {size for size in (16, 32) if size < even}
    return [(size, "examples") for size in sorted(sizes)]
