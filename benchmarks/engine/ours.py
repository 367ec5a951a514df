"""Transduce in the comparison: the engine with the server's own runner and workers, without HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnxruntime

from app.bundle import MANIFEST, Manifest
from app.decoding.options import DecodingOptions, LengthPenalty
from app.engine.engine import Engine
from app.engine.limits import EngineLimits
from app.engine.sequence import SequenceResult
from app.engine.stats import StepStats
from app.engine.worker import Worker as EngineWorker
from app.graphs import KernelChoice, Precision
from app.runtime import native
from app.runtime.bundle_limits import limits_of
from app.runtime.interface import Runner
from app.runtime.native_runner import NativeRunner
from app.runtime.ort_runner import RunnerConfig, load_variant
from app.startup import start_processes
from app.workers.model_spec import ModelSpec
from app.workers.thread_worker import ThreadWorker
from app.workers.worker_proxy import WorkerProxy
from benchmarks.engine.arrivals import submit_at_arrivals
from benchmarks.engine.jobs import ALPHA, ArrivalResult, Arrivals, EngineCounters, Job, JobResult

# A deadline that never passes.
FOREVER = 1e18
# All sentences wait in the engine at once. The queue limits are high, so that the engine rejects none.
LIMITS = EngineLimits(max_pending_sentences=1 << 20, max_pending_tokens=1 << 30)


class RuntimeClock:
    """Counts the seconds inside ONNX Runtime's calls and the number of calls, by graph.

    It replaces a method of the session class, so it sees every session of this process. A session's inputs show which
    graph it has.
    """

    def __init__(self) -> None:
        self.seconds = {"encoder": 0.0, "decoder": 0.0}
        self.num_runs = {"encoder": 0, "decoder": 0}
        self._graphs: dict[int, str] = {}

    def install(self) -> None:
        """Time every run from now on."""
        run: Callable[..., Any] = onnxruntime.InferenceSession.run_with_iobinding

        def timed(session: Any, *arguments: Any, **named: Any) -> Any:
            started_at = time.perf_counter()
            result = run(session, *arguments, **named)
            ended_at = time.perf_counter()
            graph = self._graphs.get(id(session)) or self._graph_of(session)
            self.seconds[graph] += ended_at - started_at
            self.num_runs[graph] += 1
            return result

        onnxruntime.InferenceSession.run_with_iobinding = timed

    def _graph_of(self, session: Any) -> str:
        """The session's graph. The decoder is the graph with the input `num_candidates`."""
        is_decoder = any(value.name == "num_candidates" for value in session.get_inputs())
        graph = self._graphs[id(session)] = "decoder" if is_decoder else "encoder"
        return graph


class TransduceSide:
    """One engine with one variant of a model, on its own event loop."""

    def __init__(
        self,
        bundle: str,
        precision: Precision,
        num_rows: int,
        num_threads: int,
        *,
        num_workers: int = 1,
        kernels: KernelChoice = "auto",
    ) -> None:
        """num_workers: the number of workers that share the threads. kernels: as TRANSDUCE_KERNELS.

        A single worker is a thread of this process. Several workers are processes, and their counters are not read.
        """
        self._clock = RuntimeClock()
        self._clock.install()
        self._num_workers = num_workers
        workers: Sequence[EngineWorker]
        if num_workers > 1:
            self._is_native = False
            workers = processes_of(
                bundle, precision, num_rows, num_threads, num_workers=num_workers, kernels=kernels
            )
        else:
            runner = runner_of(bundle, precision, num_rows, num_threads, kernels)
            self._is_native = isinstance(runner, NativeRunner)
            workers = [ThreadWorker(runner)]
        self._steps: list[StepStats] = []
        self._asyncio = asyncio.Runner()
        self._engine = Engine(workers, settings=LIMITS, on_steps=self._steps.extend)
        self._asyncio.run(self._start())

    async def _start(self) -> None:
        self._engine.start()

    def close(self) -> None:
        """Stop the engine and its workers."""
        self._asyncio.run(self._engine.close(drain_timeout_s=0.0))
        self._asyncio.close()

    def translate(self, job: Job) -> JobResult:
        """Translate a job and time its calls. Submits all sentences of a group at once."""
        return self._asyncio.run(self._translate(job))

    async def _translate(self, job: Job) -> JobResult:
        options = options_of(job.beam_size, job.max_target_length)
        if job.has_shortlist:
            options = replace(options, shortlist=0)
        times: list[float] = []
        results: list[SequenceResult] = []
        if job.is_warmed:
            await self._call(job.groups, options)
        before, cpu_before = self._reset_counters(), time.process_time()
        for _ in range(job.num_calls):
            started_at = time.perf_counter()
            results = await self._call(job.groups, options)
            times.append(time.perf_counter() - started_at)
        cpu_s = time.process_time() - cpu_before
        if job.is_forced and (steps := {result.num_steps for result in results}) != {job.max_target_length}:
            raise RuntimeError(
                f"Transduce's sentences took {sorted(steps)} steps, and {job.max_target_length} are forced"
            )
        ids = [list(result.hypotheses[0].ids) for result in results]
        return JobResult(times, ids, self._spent(before, cpu_s))

    async def _call(self, groups: list[list[list[int]]], options: DecodingOptions) -> list[SequenceResult]:
        results = []
        for number, group in enumerate(groups):
            futures = [
                self._engine.submit(ids, options, request_id=str(number), caller="", deadline=FOREVER)
                for ids in group
            ]
            results += await asyncio.gather(*futures)
        return results

    def _reset_counters(self) -> EngineCounters:
        """Clear the steps. Returns the present values of the counters that cannot be cleared."""
        self._steps.clear()
        return EngineCounters(
            encoder_s=self._clock.seconds["encoder"],
            decoder_s=self._clock.seconds["decoder"],
            num_encoder_runs=self._clock.num_runs["encoder"],
            num_decoder_runs=self._clock.num_runs["decoder"],
            blocks_s=native.block_times() if self._is_native else {},
        )

    def _spent(self, before: EngineCounters, cpu_s: float) -> EngineCounters:
        if self._num_workers == 1 and self._clock.num_runs["decoder"] == before.num_decoder_runs:
            raise RuntimeError("no decoder run was counted: the runner calls ONNX Runtime in another way")
        return EngineCounters(
            num_steps=sum(step.num_steps for step in self._steps if step.num_rows),
            num_rows=sum(step.num_row_steps for step in self._steps),
            step_s=sum(step.step_time_s for step in self._steps),
            encode_s=sum(step.encode_time_s for step in self._steps),
            encoder_s=self._clock.seconds["encoder"] - before.encoder_s,
            decoder_s=self._clock.seconds["decoder"] - before.decoder_s,
            num_encoder_runs=self._clock.num_runs["encoder"] - before.num_encoder_runs,
            num_decoder_runs=self._clock.num_runs["decoder"] - before.num_decoder_runs,
            cpu_s=cpu_s,
            blocks_s={
                stack: {kind: now - before.blocks_s[stack][kind] for kind, now in kinds.items()}
                for stack, kinds in (native.block_times() if self._is_native else {}).items()
            },
        )

    def arrive(self, arrivals: Arrivals) -> ArrivalResult:
        """Submit each sentence when it is due."""
        options = options_of(arrivals.beam_size, arrivals.max_target_length)
        self._steps.clear()

        async def translate(index: int) -> object:
            ids = arrivals.sentences[index]
            return await self._engine.submit(ids, options, request_id=str(index), caller="", deadline=FOREVER)

        return self._asyncio.run(submit_at_arrivals(translate, arrivals.gaps_s, limit_s=arrivals.limit_s))


def runner_of(
    bundle: str, precision: Precision, num_rows: int, num_threads: int, kernels: KernelChoice
) -> Runner:
    """Load a bundle's variant, and its shortlist if it has one, into this process."""
    manifest = manifest_of(bundle)
    config = RunnerConfig(
        precision,
        manifest.variants[precision],
        limits_of(manifest, num_rows),
        has_shortlist=manifest.shortlist is not None,
    )
    return load_variant(Path(bundle), config, device="cpu", kernels=kernels, num_threads=num_threads)


def processes_of(
    bundle: str,
    precision: Precision,
    num_rows: int,
    num_threads: int,
    *,
    num_workers: int,
    kernels: KernelChoice,
) -> list[WorkerProxy]:
    """Start worker processes as the server does, and load the model in each."""
    manifest = manifest_of(bundle)
    spec = ModelSpec(
        folder=str(Path(bundle).resolve()),
        precision=precision,
        variant=manifest.variants[precision],
        limits=limits_of(manifest, num_rows),
        device="cpu",
        kernels=kernels,
        num_threads=num_threads,
        num_workers=num_workers,
        log_level="warning",
    )
    workers = start_processes(spec)
    for worker in workers:
        worker.load()
    return workers


def manifest_of(bundle: str) -> Manifest:
    """A bundle's manifest."""
    return Manifest.model_validate_json((Path(bundle) / MANIFEST).read_bytes())


def options_of(beam_size: int, max_target_length: int) -> DecodingOptions:
    """Search options that match CTranslate2's: scores normalised by length^alpha, and the same number of steps.

    Transduce's last step allows only the end token, so the limit in subwords is one less.
    """
    return DecodingOptions(
        beam_size=beam_size,
        length_penalty=LengthPenalty.POWER,
        alpha=ALPHA if beam_size > 1 else 0.0,
        max_target_length=max_target_length - 1,
    )
