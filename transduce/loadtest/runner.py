"""Executes one run: begins requests on schedule and follows each to its outcome."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import uvloop

from transduce.loadtest.arrivals import Arrivals, ClosedLoop
from transduce.loadtest.connection import (
    ConnectFailedError,
    ConnectionLostError,
    ConnectionPool,
    RawResponse,
    allow_open_files,
    head,
)
from transduce.loadtest.dialects import BadAnswerError, ParsedResponse, StreamError, error_message
from transduce.loadtest.pacing import Clock, LoopProbe, wait_until
from transduce.loadtest.plan import RunPlan
from transduce.loadtest.quality import Expectation, compare
from transduce.loadtest.result import RunRecord, RunResult, make_result
from transduce.loadtest.sample import (
    BAD_ANSWER,
    CONNECT_FAILED,
    CONNECTION_LOST,
    DISCONNECTED,
    OK,
    OPEN,
    STATUS_PREFIX,
    STREAM_ERROR,
    TESTER_FAILED,
    TIMEOUT,
    Sample,
)
from transduce.loadtest.workload import RequestSequence, RunRequest

# Seconds between progress reports.
PROGRESS_S = 0.5
# Seconds between the preparation of a run and its first request.
HEAD_START_S = 0.05
# After the run, the tester waits for the open requests as long as the time limit and this many seconds more.
GRACE_S = 1.0
# Seconds that a client of a closed loop pauses after a failure. If too small, clients flood a failing server.
AFTER_FAILURE_S = 0.05
HTTP_OK = 200


@dataclass(slots=True)
class Progress:
    """Progress of a run. elapsed_s: negative in the warm-up. samples: all that have ended, in order of ending."""

    elapsed_s: float
    duration_s: float
    num_sent: int
    num_failed: int
    num_open: int
    samples: list[Sample]


OnProgress = Callable[[Progress], None]


def run(
    plan: RunPlan, on_progress: OnProgress | None = None, *, expected: Expectation | None = None
) -> RunResult:
    """Execute a plan in a new event loop, after `allow_open_files`.

    expected: the translations to compare with, by workload entry.

    Raises:
        ConservationError: a bug in the tester.
        ModuleNotFoundError: translations are to be compared, and sacrebleu is not installed.
    """
    allow_open_files()
    return uvloop.run(run_async(plan, on_progress, expected=expected))


async def run_async(
    plan: RunPlan, on_progress: OnProgress | None = None, *, expected: Expectation | None = None
) -> RunResult:
    """Execute a plan in the running event loop, which should have no other work."""
    if expected is None:
        return make_result(plan, await observe(plan, on_progress))
    plan = dataclasses.replace(plan, keeps_texts=True)
    record = await observe(plan, on_progress)
    return dataclasses.replace(make_result(plan, record), quality=compare(record.samples, expected))


async def observe(
    plan: RunPlan, on_progress: OnProgress | None = None, *, clock: Clock = time.perf_counter
) -> RunRecord:
    """Execute a plan and return its raw data.

    clock: the clock of the schedule and of all measured times. It must advance with the running event loop's timers.
    """
    with _no_collections():
        current = _Run(plan, clock)
        cpu_s = time.process_time()
        wall_at = clock()
        background = [asyncio.create_task(current.probe.run())]
        if on_progress is not None:
            background.append(asyncio.create_task(current.report_progress(on_progress)))
        try:
            await (current.open_loop() if isinstance(plan.load, Arrivals) else current.closed_loop(plan.load))
            await current.drain()
        finally:
            for task in background:
                task.cancel()
            current.pool.close()
    current.record.cpu_share = (time.process_time() - cpu_s) / (clock() - wall_at)
    current.record.loop_late_s = current.probe.late_s
    current.record.num_connections = current.pool.num_opened
    return current.record


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """Disable garbage collection: a collection may take longer than the permitted lag, and a run creates few cycles."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Run:
    """The state of one run. Everything happens on the event loop.

    The constructor prepares first and then sets `started_at`, because slow preparation would delay the first request.
    """

    def __init__(self, plan: RunPlan, clock: Clock) -> None:
        self.plan = plan
        self.now = clock
        self.pool = ConnectionPool(plan.target, plan.max_connections, clock=clock)
        self.sequence: RequestSequence = plan.workload.sequence(plan.seed)
        self.times_s = plan.times_s()
        self.started_at = self.now() + HEAD_START_S + plan.warm_up_s
        self.probe = LoopProbe(self.started_at, clock)
        self.record = RunRecord(
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        self.tasks: set[asyncio.Task[Any]] = set()
        self.bugs: list[BaseException] = []
        self.under_way: dict[int, Sample] = {}
        self.num_prepared = 0
        self.num_failed = 0

    async def open_loop(self) -> None:
        """Begin each request at its due time."""
        prepared = (self._prepare(index) for index in range(len(self.times_s)))
        for moment, (request, content) in zip(self.times_s, prepared, strict=True):
            await wait_until(self.started_at + moment, self.now)
            task = asyncio.create_task(self._send_one(request, content, moment))
            self.tasks.add(task)
            task.add_done_callback(self._ended)
            await asyncio.sleep(0)  # let the task start before the next request is prepared
        await wait_until(self.started_at + self.plan.duration_s, self.now)

    async def closed_loop(self, loop: ClosedLoop) -> None:
        """Run clients until the time is over or all requests are sent.

        Each client sends its next request as soon as the previous one is answered, or AFTER_FAILURE_S after it failed.
        """
        until = self.started_at + loop.duration_s

        async def client() -> None:
            while self.now() < until and self.num_prepared != loop.num_requests:
                request, content = self._prepare(self.num_prepared)
                if not await self._send_one(request, content, self.now() - self.started_at):
                    await asyncio.sleep(AFTER_FAILURE_S)

        await wait_until(self.started_at - self.plan.warm_up_s, self.now)
        self.tasks = {asyncio.create_task(client()) for _ in range(loop.num_clients)}
        await asyncio.wait(self.tasks, timeout=until - self.now())

    async def drain(self) -> None:
        """Wait for the remaining requests; those without a response after the time limit and GRACE_S stay `open`.

        Raises the first error of a task, which is a bug in the tester.
        """
        if self.tasks:
            _, pending = await asyncio.wait(self.tasks, timeout=self.plan.timeout_s + GRACE_S)
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
        for task in list(self.tasks):
            self._ended(task)
        if self.bugs:
            raise self.bugs[0]

    async def report_progress(self, on_progress: OnProgress) -> None:
        """Report the progress repeatedly until cancelled."""
        while True:
            await asyncio.sleep(PROGRESS_S)
            on_progress(
                Progress(
                    self.now() - self.started_at,
                    self.plan.duration_s,
                    self.record.num_sent,
                    self.num_failed,
                    len(self.under_way),
                    self.record.samples,
                )
            )

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.bugs.append(error)

    def _prepare(self, index: int) -> tuple[RunRequest, bytes]:
        """Build the request's bytes before it is due."""
        self.num_prepared = index + 1
        target = self.plan.target
        request = self.sequence(index)
        body = target.dialect.body(request.spec, target.source, target.target, target.api_key)
        return request, head(target, len(body)) + body

    async def _send_one(self, request: RunRequest, content: bytes, scheduled_s: float) -> bool:
        """Send one request and record its outcome. Returns whether it was answered."""
        begun_s = self.now() - self.started_at
        index = self.record.num_sent
        self.record.num_sent += 1
        sample = Sample(index, request.number, scheduled_s, request.num_words, begun_s)
        self.under_way[index] = sample
        self.record.max_open = max(self.record.max_open, len(self.under_way))
        try:
            sample.outcome = await self._outcome(sample, request, content)
        except asyncio.CancelledError:
            sample.outcome = OPEN
            raise
        finally:
            if not sample.ended_s:
                sample.ended_s = self.now() - self.started_at
            del self.under_way[index]
            self.record.samples.append(sample)
            has_failed = sample.outcome not in {OK, DISCONNECTED}
            self.num_failed += has_failed
        return not has_failed

    def _failed(self, outcome: str, message: str) -> str:
        """Record the outcome's first error message and return the outcome."""
        self.record.error_examples.setdefault(outcome, message)
        return outcome

    async def _outcome(self, sample: Sample, request: RunRequest, content: bytes) -> str:
        """Send the request, store the times in the sample, and return the outcome."""
        left_s = self.plan.timeout_s + sample.scheduled_s - sample.begun_s
        disconnect_s = request.disconnect_after_s
        is_disconnect = disconnect_s is not None and disconnect_s < left_s
        limit_s = disconnect_s if is_disconnect and disconnect_s is not None else left_s
        response = RawResponse()
        try:
            async with asyncio.timeout(limit_s):
                sent_at, _ = await self.pool.exchange(content, response)
        except TimeoutError:
            if not is_disconnect:
                return TIMEOUT
            self._note_first_text(sample, response)
            return DISCONNECTED
        except ConnectFailedError as error:
            return self._failed(TESTER_FAILED if error.is_own else CONNECT_FAILED, str(error))
        except ConnectionLostError:
            return CONNECTION_LOST
        sample.sent_s = sent_at - self.started_at
        sample.ended_s = response.ended_at - self.started_at
        return self._read(sample, request, response)

    def _note_first_text(self, sample: Sample, response: RawResponse) -> None:
        if response.first_text_at:
            sample.first_text_s = response.first_text_at - self.started_at

    def _read(self, sample: Sample, request: RunRequest, response: RawResponse) -> str:
        """The outcome of a complete response; the times of its request and of its end are already recorded."""
        if response.status != HTTP_OK:
            return self._failed(f"{STATUS_PREFIX}{response.status}", error_message(bytes(response.body)))
        self._note_first_text(sample, response)
        sample.server_timing = response.server_timing
        sample.num_cached = response.num_cached
        try:
            parsed = self.plan.target.dialect.read(bytes(response.body))
        except BadAnswerError as error:
            return self._failed(BAD_ANSWER, str(error))
        except StreamError:
            return STREAM_ERROR
        num_translations, num_texts = len(parsed.texts), len(request.spec.texts)
        if num_translations != num_texts:
            return self._failed(BAD_ANSWER, f"{num_texts} texts have {num_translations} translations")
        if not self.plan.keeps_texts:
            parsed = ParsedResponse(
                (), parsed.num_source_tokens, parsed.num_target_tokens, parsed.num_sentences
            )
        sample.response = parsed
        return OK
