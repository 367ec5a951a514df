"""Our own engine, asked as the server asks it: sentences as they come, decoded in one another's company."""

from __future__ import annotations

import asyncio
import time

from app.bundle import Bundle
from app.decoding.options import DecodingOptions, EarlyStop
from app.engine.engine import Engine
from app.engine.limits import EngineLimits
from app.runtime.ort_runner import load_runner
from benchmarks.oracles.answers import Answer, Task

NUM_ROWS = 64
DEADLINE_S = 3600.0


class OwnEngine:
    """A bundle's fp32 variant on the CPU."""

    name = "Transduce"

    def __init__(self, bundle: Bundle, *, num_threads: int) -> None:
        self._runner = load_runner(
            bundle, precision="fp32", device="cpu", num_rows=NUM_ROWS, num_threads=num_threads
        )

    def rule(self, early_stop: EarlyStop) -> str:
        """As `Oracle.rule`."""
        return f"early_stop={early_stop}, alpha=0"

    def answer(self, task: Task) -> list[Answer]:
        """As `Oracle.answer`."""
        return asyncio.run(self._answer(task))

    async def _answer(self, task: Task) -> list[Answer]:
        options = DecodingOptions(
            beam_size=task.beam_size,
            alpha=0.0,
            max_target_length=task.max_target_length,
            early_stop=task.early_stop,
        )
        engine = Engine(self._runner, settings=EngineLimits())
        engine.start()
        deadline = time.monotonic() + DEADLINE_S
        futures = [
            engine.submit(source, options, request_id=str(number), caller="", deadline=deadline)
            for number, source in enumerate(task.sources)
        ]
        try:
            best = [(await future).hypotheses[0] for future in futures]
        finally:
            await engine.close(drain_timeout_s=0.0)
        return [Answer(hypothesis.ids, hypothesis.log_probability) for hypothesis in best]
