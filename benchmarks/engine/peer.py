"""CTranslate2 in the comparison. It runs in its own process, because it chooses its backend at import."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ctranslate2  # type: ignore[import-untyped]

from benchmarks.engine.arrivals import WindowBatcher, submit_at_arrivals
from benchmarks.engine.jobs import ALPHA, ArrivalResult, Arrivals, Job, JobResult, PeerSettings

# The window batcher's window in seconds, and its largest batch in sentences.
WINDOW_S = 0.005
MAX_BATCH = 32


class CTranslate2Side:
    """CTranslate2 translators of one model, one for each pair of inter_threads and intra_threads."""

    def __init__(self, model: str, compute_type: str) -> None:
        self._model = str(Path(model))
        self._compute_type = compute_type
        self._translators: dict[tuple[int, int], Any] = {}

    def translate(self, job: Job, settings: PeerSettings) -> JobResult:
        """Translate a job and time its calls. The times do not include the conversion between ids and tokens."""
        groups = [[list(map(str, ids)) for ids in group] for group in job.groups]
        translator = self._translator(settings)
        results: list[Any] = []
        times = []
        for number in range(-1 if job.is_warmed else 0, job.num_calls):
            started_at = time.perf_counter()
            results = [result for group in groups for result in self._call(translator, group, job, settings)]
            if number >= 0:
                times.append(time.perf_counter() - started_at)
        ids = [[int(token) for token in result.hypotheses[0]] for result in results]
        if job.is_forced and (lengths := {len(each) for each in ids}) != {job.max_target_length}:
            raise RuntimeError(
                f"CTranslate2's outputs have {sorted(lengths)} subwords, and {job.max_target_length} are forced"
            )
        return JobResult(times, ids)

    def arrive(self, arrivals: Arrivals, settings: PeerSettings) -> ArrivalResult:
        """Translate sentences when they are due, through a window batcher."""
        return asyncio.run(self._arrive(arrivals, settings))

    async def _arrive(self, arrivals: Arrivals, settings: PeerSettings) -> ArrivalResult:
        tokens = [list(map(str, ids)) for ids in arrivals.sentences]
        translator = self._translator(settings)
        job = Job([], arrivals.beam_size, arrivals.max_target_length, is_forced=False)
        with ThreadPoolExecutor(settings.inter_threads) as executor:
            batcher = WindowBatcher(
                lambda batch: self._call(translator, batch, job, settings),
                executor=executor,
                num_workers=settings.inter_threads,
                window_s=WINDOW_S,
                max_size=MAX_BATCH,
            )
            return await submit_at_arrivals(
                lambda index: batcher.translate(tokens[index]), arrivals.gaps_s, limit_s=arrivals.limit_s
            )

    def _call(self, translator: Any, group: list[list[str]], job: Job, settings: PeerSettings) -> list[Any]:
        found: list[Any] = translator.translate_batch(
            group,
            beam_size=job.beam_size,
            length_penalty=ALPHA if job.beam_size > 1 else 0.0,
            max_decoding_length=job.max_target_length,
            min_decoding_length=job.max_target_length if job.is_forced else 1,
            max_input_length=0,
            max_batch_size=settings.max_batch_size,
            batch_type=settings.batch_type,
        )
        return found

    def _translator(self, settings: PeerSettings) -> Any:
        key = (settings.inter_threads, settings.intra_threads)
        if key not in self._translators:
            self._translators[key] = ctranslate2.Translator(
                self._model,
                device="cpu",
                compute_type=self._compute_type,
                inter_threads=settings.inter_threads,
                intra_threads=settings.intra_threads,
            )
        return self._translators[key]
