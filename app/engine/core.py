"""The engine's loop: step(), again and again. Read this file first.

One thread owns the scheduler, the sequences and the runner, so there are no locks. Messages arrive in the inbox. The
thread reads them before it schedules, and again between a forward and the use of its results. Without work the thread
blocks on the empty inbox; it never polls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from app.engine.call_length import CallLength
from app.engine.caller_fairness import CallerFairness, rows_by_caller
from app.engine.decoding_batch import DecodingBatch
from app.engine.limits import EngineLimits
from app.engine.messages import Cancel, Inbox, Join, LocalInbox, Message, Prioritize, Report, Submit
from app.engine.outcomes import Outcomes
from app.engine.reporter import Reporter
from app.engine.scheduler import Scheduler
from app.engine.sequence import Sequence
from app.engine.stats import StepStats
from app.engine.token_deltas import TokenStreams
from app.errors import EngineFailure
from app.runtime.interface import Runner, StepOutput


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
        self._reporter = Reporter(report)
        self._clock = clock
        self._is_stopped = False
        self._batch = DecodingBatch(runner, self.scheduler.row_allocator)
        self._call_length = CallLength(limits.max_steps, self._incoming.wake_flag)
        self._tokens = TokenStreams(self._batch.greedy)
        self._outcomes = Outcomes(
            self.scheduler,
            self._batch,
            self._reporter,
            max_consecutive_failures=settings.max_consecutive_failures,
        )

    def run(self) -> None:
        """Step until a Stop arrives.

        Raises EngineFailure after max_consecutive_failures consecutive failed forwards.
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
        stats = self._schedule(started_at)
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
            self._outcomes.release(message.sequence)
        else:
            self._is_stopped = True
        if isinstance(message, Submit | Join) and message.streams:
            self._tokens.add(message.sequence)

    def _schedule(self, now: float) -> StepStats:
        """End expired sequences, admit and encode those that fit, and choose those that the next forward decodes.

        Returns the statistics of the step that begins.
        """
        stats = StepStats()
        self._outcomes.expire(self.scheduler.expired(now), stats)
        callers = self._fairness.choose(self.scheduler.callers)
        admitted, expired = self.scheduler.schedule(now, callers)
        self._outcomes.expire(expired, stats)
        if admitted:
            self._encode(admitted, stats)
        closes_all, self._outcomes.has_failed = self._outcomes.has_failed, False
        try:
            if admitted:
                self._batch.add(admitted)
            self._batch.compact(self.scheduler.running, admitted, closes_all=closes_all)
        except EngineFailure as error:
            self._outcomes.recover(error, stats)
        self._batch.select(self.scheduler.running, callers)
        return stats

    def _encode(self, admitted: list[Sequence], stats: StepStats) -> None:
        started_at = self._clock()
        for sequence in admitted:
            if sequence.admitted_at is None:
                sequence.admitted_at = started_at
        self._outcomes.fail_encodings(self._batch.encode(admitted, stats), len(admitted), stats)
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
            self._outcomes.recover(error, stats)
        stats.decode_time_s = self._clock() - started_at
        return output

    def _apply(self, output: StepOutput, stats: StepStats) -> None:
        """Advance every search by a forward's output, and end those that are done or have no scores."""
        stats.num_wasted_rows = stats.num_rows - self._batch.num_held_rows
        invalid = self._batch.without_scores(output)
        self._outcomes.fail_invalid(invalid, len(self._batch.selected), stats)
        try:
            for sequence in self._batch.advance(output, stats):
                self._outcomes.end(sequence, sequence.result(self._clock()))
                stats.num_finished += 1
        except EngineFailure as error:
            self._outcomes.recover(error, stats)
        self._call_length.record(stats.decode_time_s, stats.num_steps, stats.num_rows)

    def _close_step(self, started_at: float, rows: Mapping[str, int], stats: StepStats) -> None:
        """Report the step, and count its time for the callers whose rows were decoded."""
        stats.num_waiting = self.scheduler.num_waiting
        stats.num_rows_in_use = self.scheduler.row_allocator.num_reserved
        now = self._clock()
        stats.step_time_s = now - started_at
        self._reporter.add_step(stats, self._tokens.take_deltas(), is_last=not self.scheduler.has_work)
        if rows:
            self._fairness.record(rows, stats, now)
