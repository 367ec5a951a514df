"""Transduce's engine, used as the server uses it: it batches sentences that are submitted one by one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from app.bundle import Bundle
from app.decoding.options import DecodingOptions, Hypothesis
from app.engine.engine import Engine
from app.engine.limits import EngineLimits
from app.runtime.ort_runner import load_runner
from app.workers.thread_worker import ThreadWorker
from benchmarks.oracles.answers import Answer, Ids, Task

NUM_ROWS = 64
DEADLINE_S = 3600.0


class TransduceEngine:
    """Transduce's engine with a bundle's fp32 variant on the CPU."""

    def __init__(self, bundle: Bundle, *, num_threads: int) -> None:
        self._runner = load_runner(
            bundle, precision="fp32", device="cpu", num_rows=NUM_ROWS, num_threads=num_threads
        )

    def answer(self, task: Task) -> list[Answer]:
        """As `Oracle.answer`."""
        options = DecodingOptions(
            beam_size=task.beam_size,
            alpha=0.0,
            max_target_length=task.max_target_length,
            early_stop=task.early_stop,
        )
        best = asyncio.run(self._decode([(source, options) for source in task.sources]))
        return [Answer(hypothesis.ids, hypothesis.log_probability) for hypothesis in best]

    def forced_scores(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[float]:
        """Log-probability of each target and its end token, computed with the option forced_target."""
        jobs = [
            (
                source,
                DecodingOptions(
                    beam_size=1, alpha=0.0, max_target_length=len(target) + 1, forced_target=target
                ),
            )
            for source, target in pairs
        ]
        return [hypothesis.log_probability for hypothesis in asyncio.run(self._decode(jobs))]

    async def _decode(self, jobs: Sequence[tuple[Ids, DecodingOptions]]) -> list[Hypothesis]:
        """The best hypothesis of each source."""
        engine = Engine([ThreadWorker(self._runner)], settings=EngineLimits())
        engine.start()
        deadline = time.monotonic() + DEADLINE_S
        futures = [
            engine.submit(source, options, request_id=str(number), caller="", deadline=deadline)
            for number, (source, options) in enumerate(jobs)
        ]
        try:
            return [(await future).hypotheses[0] for future in futures]
        finally:
            await engine.close(drain_timeout_s=0.0)
