"""The engine's loop: step(), again and again. Read this file first.

One thread owns the scheduler, the sequences and the runner, so there are no locks. Messages arrive in the inbox. The
thread reads them before it schedules, and again between a forward and the use of its results. Without work the thread
blocks on the empty inbox; it never polls.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from app.engine.call_length import CallLength
from app.engine.caller_fairness import CallerFairness, rows_by_caller
from app.engine.decoding_batch import DecodingBatch
from app.engine.limits import EngineLimits
from app.engine.messages import Cancel, Inbox, Join, LocalInbox, Message, Prioritize, Report, Submit
from app.engine.reporter import Reporter
from app.engine.scheduler import Scheduler
from app.engine.sequence import Sequence, SequenceResult
from app.engine.stats import StepStats
from app.engine.token_deltas import TokenStreams
from app.errors import DeadlineExceeded, EngineFailure, ServiceError
from app.observability.logging import Field, log_event
from app.runtime.interface import Runner, StepOutput

logger = logging.getLogger(__name__)


class EngineCore:
    """The engine's loop. The thread that calls run() owns all of it except `inbox` and `step_started_at`.

    report: called on that thread with each report. clock: seconds, as time.monotonic.
    incoming: the inbox that the loop reads; None: `inbox`. Threads of this process write to `inbox`.
    on_step: called on that thread with the time at which a step begins, and with None when there is nothing to do.
    step_started_at: when the current step began; None when idle. Read by other threads.
    """

    def __init__(
        self,
        runner: Runner,
        settings: EngineLimits,
        *,
        report: Callable[[Report], None],
        clock: Callable[[], float] = time.monotonic,
        incoming: Inbox | None = None,
        on_step: Callable[[float | None], None] = lambda _started_at: None,
    ) -> None:
        self.inbox = LocalInbox()
        self._incoming: Inbox = incoming or self.inbox
        self._on_step = on_step
        self.step_started_at: float | None = None
        limits = runner.limits
        self.scheduler = Scheduler(
            limits.num_rows, settings.max_encode_tokens, num_kept_rows=limits.num_kept_rows
        )
        self._fairness = CallerFairness()
        self._settings = settings
        self._reporter = Reporter(report)
        self._clock = clock
        self._is_stopped = False
        self._has_failed = False  # whether a forward or a sequence has failed since the rows were compacted
        self._num_failures = 0  # failed forwards in a row, as `EngineLimits` counts them
        self._batch = DecodingBatch(runner, self.scheduler.row_allocator)
        self._call_length = CallLength(limits.max_steps, self._incoming.wake_flag)
        self._tokens = TokenStreams(self._batch.greedy)

    def run(self) -> None:
        """Step until a Stop arrives.

        Raises EngineFailure after max_consecutive_failures failed forwards in a row.
        """
        while not self._is_stopped:
            if self.scheduler.has_work:
                self.step()
            else:
                self.step_started_at = None
                self._on_step(None)
                self._receive(self._incoming.get())

    def step(self) -> None:
        """Run one iteration: schedule, encode new sequences, decode rows, apply the results. Raises as run()."""
        started_at = self.step_started_at = self._clock()
        self._on_step(started_at)
        self._drain_inbox()
        stats = StepStats()
        self._schedule(started_at, stats)
        rows = rows_by_caller(self._batch.selected, self.scheduler)
        output = self._forward(stats) if rows else None
        self._drain_inbox()
        if output is not None:
            self._apply(output, stats)
        self._close_step(started_at, rows, stats)

    def _drain_inbox(self) -> None:
        self._incoming.wake_flag.clear()
        while not self._incoming.empty():
            self._receive(self._incoming.get())

    def _receive(self, message: Message) -> None:
        if isinstance(message, Submit):
            self.scheduler.add(message.sequence)
        elif isinstance(message, Join):
            self.scheduler.join(message.sequence, message.caller, message.request_id, message.deadline)
        elif isinstance(message, Prioritize):
            self.scheduler.prioritize(message.sequence)
        elif isinstance(message, Cancel):
            self._release(message.sequence)
        else:
            self._is_stopped = True
        if isinstance(message, Submit | Join) and message.streams:
            self._tokens.add(message.sequence)

    def _expire(self, sequences: list[Sequence], stats: StepStats) -> None:
        for sequence in sequences:
            self._end(sequence, DeadlineExceeded("the request's time ran out"))
        stats.num_expired += len(sequences)

    def _schedule(self, now: float, stats: StepStats) -> None:
        """End expired sequences, admit and encode those that fit, and choose those that the next forward decodes."""
        self._expire(self.scheduler.expired(now), stats)
        callers = self._fairness.choose(self.scheduler.callers)
        admitted, expired = self.scheduler.schedule(now, callers)
        self._expire(expired, stats)
        if admitted:
            self._encode(admitted, stats)
        all_holes, self._has_failed = self._has_failed, False
        try:
            if admitted:
                self._batch.add(admitted)
            self._batch.compact(self.scheduler.running, admitted, all_holes=all_holes)
        except EngineFailure as error:
            self._recover(error, stats)
        self._batch.select(self.scheduler.running, callers)

    def _encode(self, admitted: list[Sequence], stats: StepStats) -> None:
        started_at = self._clock()
        for sequence in admitted:
            if sequence.admitted_at is None:
                sequence.admitted_at = started_at
        failures = [*self._batch.encode(admitted, stats)]
        for sequence, error in failures:
            self._fail(sequence, error, stats)
        if len(failures) == len(admitted):  # else the encoder works, and the cause is in some sentences
            for _ in failures:
                self._count_failed_forward()
        time_s = self._clock() - started_at
        for sequence in admitted:
            sequence.encode_time_s += time_s
        stats.num_admitted = len(admitted)
        stats.num_encode_tokens = sum(len(s.source_ids) for s in admitted)
        stats.encode_time_s = time_s

    def _forward(self, stats: StepStats) -> StepOutput | None:
        """Run one forward. Returns None if it failed."""
        batch = self._batch
        batch.count_rows(stats)
        max_steps, stop = self._call_length.choose(
            stats.num_rows,
            admits_next=self.scheduler.stopped_at_budget,
            has_waiting=bool(self.scheduler.num_waiting),
            is_full=self.scheduler.row_allocator.is_full,
            is_streaming=self._tokens.is_streaming,
            pause_s=self._fairness.remaining_pause_s if stats.num_paused else None,
        )
        started_at = self._clock()
        output = None
        try:
            output = batch.forward(max_steps, stop, stats)
        except EngineFailure as error:
            self._recover(error, stats)
        stats.decode_time_s = self._clock() - started_at
        return output

    def _recover(self, error: EngineFailure, stats: StepStats) -> None:
        """Restart all running sequences after a failed call of the runner, or fail the only one."""
        running = self.scheduler.running
        self._has_failed = True
        if len(running) > 1:
            logger.error(
                "%d sentences failed together and are retried in halves: %s", len(running), error.message
            )
            for sequence in running:
                self._batch.remove(sequence)
            stats.num_retried += len(self.scheduler.split_running())
        else:
            self._fail(next(iter(running)), error, stats)
            self._count_failed_forward()

    def _apply(self, output: StepOutput, stats: StepStats) -> None:
        """Advance every search by a forward's output, and end those that are done or have no scores."""
        stats.num_wasted_rows = stats.num_rows - self._batch.num_held_rows
        invalid = self._batch.without_scores(output)
        has_result = len(invalid) < len(self._batch.selected)
        for sequence in invalid:
            self._fail(sequence, EngineFailure("the model's scores are NaN or infinite"), stats)
        if has_result:
            self._num_failures = 0
        elif invalid:
            self._count_failed_forward()
        try:
            for sequence in self._batch.advance(output, stats):
                self._end(sequence, sequence.result(self._clock()))
                stats.num_finished += 1
        except EngineFailure as error:
            self._recover(error, stats)
        self._call_length.record(stats.decode_time_s, stats.num_steps, stats.num_rows)

    def _fail(self, sequence: Sequence, error: EngineFailure, stats: StepStats) -> None:
        fields: dict[str, Field] = {"request_id": sequence.request_id, "problem": error.message}
        log_event(logger, logging.ERROR, "sentence_failed", fields=fields)
        self._end(sequence, error)
        self._has_failed = True
        stats.num_failed += 1

    def _end(self, sequence: Sequence, outcome: SequenceResult | ServiceError) -> None:
        sequence.outcome = outcome
        self._release(sequence)
        self._reporter.add_ended(sequence)

    def _release(self, sequence: Sequence) -> None:
        self._batch.remove(sequence)
        self.scheduler.end(sequence)

    def _count_failed_forward(self) -> None:
        self._num_failures += 1
        if self._num_failures >= self._settings.max_consecutive_failures:
            raise EngineFailure(f"{self._num_failures} forwards in a row failed for every sentence in them")

    def _close_step(self, started_at: float, rows: Mapping[str, int], stats: StepStats) -> None:
        """Report the step, and count its time for the callers whose rows were decoded."""
        stats.num_waiting = self.scheduler.num_waiting
        stats.num_rows_in_use = self.scheduler.row_allocator.num_reserved
        now = self._clock()
        stats.step_time_s = now - started_at
        self._reporter.add_step(stats, self._tokens.take_deltas(), is_last=not self.scheduler.has_work)
        if rows:
            self._fairness.record(rows, stats, now)
