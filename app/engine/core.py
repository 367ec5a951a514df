"""The engine's loop: step(), again and again. Read this file first.

One thread owns the scheduler, the sequences and the runner, so there are no locks. Messages come in through `inbox`.
They are read before scheduling, and again after the forward, before its results are used. With nothing to do the
thread blocks on the empty inbox; it never polls.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection
from typing import cast

import numpy as np

from app.decoding.scoring import rows_without_best_scores, rows_without_scores
from app.decoding.search import SteppedSearch, advance
from app.engine.beams import apply_outcomes, can_offload, offload
from app.engine.caller_fairness import CallerFairness, rows_by_caller
from app.engine.limits import EngineLimits
from app.engine.messages import Cancel, Inbox, Join, LocalInbox, Message, Prioritize, Report, Submit
from app.engine.running_batch import RunningBatch
from app.engine.scheduler import Scheduler
from app.engine.sequence import Sequence, SequenceResult
from app.engine.slots import RowCopies
from app.engine.stats import StepStats
from app.engine.token_deltas import TokenStreams
from app.errors import DeadlineExceeded, EngineFailure, ServiceError
from app.runtime.interface import Floats, Runner, StepOutput
from app.runtime.stop_condition import NO_EARLY_STOP, StopCondition

logger = logging.getLogger(__name__)

# A call of several steps stops early when a new sequence can be admitted, but runs at least this many seconds. It runs
# this long at most after a sequence has ended, and from its start if no row is free or sequences wait. Smaller: calls
# become so short that the work around them counts. Larger: new and ended sequences wait longer.
MIN_CALL_S = 0.003
# Steps of many rows take longer than that. Where "at most" is said above, a call runs up to FEW_STEPS steps if they
# take at most MAX_FEW_S seconds, which lowers the work around calls from a tenth of the time to a thirtieth.
FEW_STEPS, MAX_FEW_S = 4, 0.015
# Seconds of a call at most. Cancelled and expired sequences stop it early too. Larger: reports come later.
MAX_CALL_S = 0.2
# Steps of a call at most while a sequence is streamed. Larger: tokens come in larger groups, and a client that
# disconnects frees its rows later.
MAX_STEPS_STREAMED = 2
# Steps whose statistics are held back at most, so that a step in which no sequence ends does not wake the event loop.
MAX_UNREPORTED_STEPS = 32


class EngineCore:
    """The engine's loop. Everything but `inbox` and `step_started_at` belongs to the thread that calls run().

    report: called on that thread with each report. clock: seconds, as time.monotonic.
    incoming: the source of messages instead of `inbox`.
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
        self._present: Collection[Sequence] = ()  # in the last forward
        self._runner = runner
        self._settings = settings
        self._report = report
        self._clock = clock
        self._is_stopped = False
        # Seconds of one decoder step in the last forward, and the rows that it decoded.
        self._last_step_s, self._last_num_rows = math.inf, 1
        self._has_failed = False  # a forward or a sequence, since the rows were compacted
        self._num_failures = 0  # forwards in a row without a result for any sequence
        self._ended: list[Sequence] = []
        self._steps: list[StepStats] = []
        self._batch = RunningBatch(runner.limits)
        self._tokens = TokenStreams(self._batch.greedy)

    def run(self) -> None:
        """Step until a Stop arrives. Raises EngineFailure after too many failed forwards in a row."""
        while not self._is_stopped:
            if self.scheduler.has_work:
                self.step()
            else:
                self.step_started_at = None
                self._on_step(None)
                self._receive(self._incoming.get())

    def step(self) -> None:
        """Run one iteration: schedule, encode new sequences, decode all rows, apply the results. Raises as run()."""
        now = self.step_started_at = self._clock()
        self._on_step(now)
        stats = StepStats()
        self._drain_inbox()
        self._expire(self.scheduler.expired(now), stats)
        callers = self._fairness.choose(self.scheduler.callers)
        admitted, expired = self.scheduler.schedule(now, callers)
        self._expire(expired, stats)
        if admitted:
            self._encode(admitted, stats)
            copies = self._batch.add(admitted, self.scheduler.slots)
            if copies:
                self._runner.copy_rows(*copies.arrays())
        self._compact(admitted)
        self._present = self._batch.select(self.scheduler.running, callers)
        rows = rows_by_caller(self._present, self.scheduler)
        output = self._decode(stats) if self._present else None
        self._drain_inbox()
        if output is not None:
            self._apply(output, stats)
        self._close_step(stats)
        if rows:
            self._fairness.record(rows, stats, self._clock())

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

    def _encode(self, admitted: list[Sequence], stats: StepStats) -> None:
        """Encode new sequences together; if that fails, one by one, so that only those that fail alone are failed."""
        started_at = self._clock()
        for sequence in admitted:
            if sequence.admitted_at is None:
                sequence.admitted_at = started_at
        try:
            self._runner.encode([s.source_ids for s in admitted], [s.rows[0] for s in admitted])
        except EngineFailure as error:
            self._encode_alone(admitted, error, stats)
        time_s = self._clock() - started_at
        for sequence in admitted:
            sequence.encode_time_s += time_s
        stats.num_admitted = len(admitted)
        stats.num_encode_tokens = sum(len(s.source_ids) for s in admitted)
        stats.encode_time_s = time_s

    def _encode_alone(self, admitted: list[Sequence], error: EngineFailure, stats: StepStats) -> None:
        if len(admitted) == 1:
            self._fail(admitted[0], error, stats)
            self._count_failed_forward()
            return
        stats.num_retried += len(admitted)
        for sequence in admitted:
            try:
                self._runner.encode([sequence.source_ids], [sequence.rows[0]])
            except EngineFailure as own_error:
                self._fail(sequence, own_error, stats)
                self._count_failed_forward()

    def _compact(self, admitted: list[Sequence]) -> None:
        """Close the holes between rows; after a failure all of them, so that its cause is not decoded again.

        Otherwise the holes that new beams will spread into after this step are left open: decoding them once costs
        less than copying rows.
        """
        num_soon_used = sum(one.num_reserved_rows - 1 for one in admitted if one.rows)
        num_left = 0 if self._has_failed else num_soon_used
        moves = self._batch.compact(self.scheduler.slots, self.scheduler.running, num_left)
        self._has_failed = False
        if moves:
            self._runner.copy_rows(*moves.arrays())

    def _decode(self, stats: StepStats) -> StepOutput | None:
        """Run one forward of all rows; return None when it failed."""
        slots, running, present = self.scheduler.slots, self.scheduler.running, self._present
        stats.num_rows = slots.num_occupied if self._runner.limits.skips_free_rows else slots.end
        num_reserved = slots.num_reserved
        stats.num_paused = len(running) - len(present)
        if stats.num_paused:
            stats.num_rows = sum(len(one.rows) for one in present)
            num_reserved = sum(one.num_reserved_rows for one in present)
        step = self._batch.next_input(present, slots.end, *self._step_budget(stats))
        stats.num_steps = step.num_steps
        stats.num_spared_row_steps = self._batch.num_unspread_rows
        stats.num_idle_rows = num_reserved - stats.num_rows
        started_at = self._clock()
        output = None
        try:
            output = self._runner.decode(step)
        except EngineFailure as error:
            self._has_failed = True
            if len(running) > 1:
                for sequence in running:
                    self._batch.remove(sequence)
                stats.num_retried += len(self.scheduler.split_running())
            else:
                self._fail(next(iter(running)), error, stats)
                self._count_failed_forward()
        stats.decode_time_s = self._clock() - started_at
        return output

    def _step_budget(self, stats: StepStats) -> tuple[int, StopCondition]:
        """Return how many steps the next forward may take, and what stops it earlier.

        It is one step when a sequence could be admitted right after it. A step of more rows than the last one's is
        assumed to take longer in proportion. stats: of the step, with the rows to decode.
        """
        limits, scheduler, num_rows = self._runner.limits, self.scheduler, stats.num_rows
        if limits.max_steps == 1 or scheduler.stopped_at_budget:
            return 1, NO_EARLY_STOP
        most = min(limits.max_steps, MAX_STEPS_STREAMED) if self._tokens.is_streaming else limits.max_steps
        step_s = max(self._last_step_s * max(1.0, num_rows / self._last_num_rows), 1e-6)
        min_steps = int(MIN_CALL_S / step_s)
        few = max(1, min_steps, min(FEW_STEPS, int(MAX_FEW_S / step_s)))
        if stats.num_paused:
            most = max(1, min(most, int(self._fairness.alone_s / step_s)))
        if scheduler.slots.num_reserved >= limits.num_rows:
            return min(most, few), NO_EARLY_STOP
        longest = few if scheduler.num_waiting else int(MAX_CALL_S / step_s)
        return max(1, min(most, longest)), StopCondition(few - 1, self._incoming.wake_flag, min_steps)

    def _apply(self, output: StepOutput, stats: StepStats) -> None:
        """Advance every search by a forward's output, end those that are done, and move the others' rows."""
        batch = self._batch
        num_left = self.scheduler.slots.num_occupied
        if stats.num_paused:
            num_left = sum(len(one.rows) for one in self._present)
        stats.num_wasted_rows = stats.num_rows - num_left
        # With offloaded beams the output is that of the last step only.
        is_single = stats.num_steps == 1 or bool(batch.on_runner)
        stats.num_steps = output.num_steps
        find_broken = rows_without_scores if is_single else rows_without_best_scores
        broken = find_broken(output.log_probabilities)
        if output.distributions is not None:
            broken |= self._rows_without_distributions(output.distributions)
        if broken:
            self._fail_broken(broken, stats)
        if self.scheduler.running:
            self._num_failures = 0
        if batch.on_runner:
            self._apply_beam_outcomes(output, stats)
        if len(batch.greedy):
            self._advance_greedy(output, is_single, stats)
        if waiting := batch.to_advance:
            self._advance_searches(waiting, output, stats)
        self._last_step_s, self._last_num_rows = stats.decode_time_s / stats.num_steps, stats.num_rows

    def _apply_beam_outcomes(self, output: StepOutput, stats: StepStats) -> None:
        """End sequences whose beams are done. Reclaimed ones must still take the forward's last step on the host."""
        done = apply_outcomes(self._batch.on_runner, output.num_steps, output.outcomes, self.scheduler.slots)
        for sequence, own_steps in done:
            stats.num_spared_row_steps += sequence.num_reserved_rows * (output.num_steps - own_steps)
            self._finish(sequence, stats)

    def _advance_greedy(self, output: StepOutput, is_single: bool, stats: StepStats) -> None:
        """Advance the plain greedy searches, and end those that are done."""
        scores, ids, greedy = output.log_probabilities, output.ids, self._batch.greedy
        done = greedy.advance(scores[:, :1].T, ids[:, :1].T) if is_single else greedy.advance(scores, ids)
        if not is_single and len(done) == len(greedy):
            stats.num_steps = max(one.num_last_steps for one in done)
        for one in done:
            stats.num_spared_row_steps += stats.num_steps - one.num_last_steps
            sequence = self.scheduler.slots.owner(one.row)
            sequence.num_steps += one.num_steps
            self._finish_or_retry(sequence, stats)

    def _advance_searches(self, sequences: list[Sequence], output: StepOutput, stats: StepStats) -> None:
        """Advance the searches on the host by one step."""
        advance(
            [cast(SteppedSearch, sequence.search) for sequence in sequences],
            [sequence.rows for sequence in sequences],
            log_probabilities=output.log_probabilities,
            ids=output.ids,
            distributions=output.distributions,
            alignment=output.alignment,
        )
        branching: list[Sequence] = []
        for sequence in sequences:
            sequence.num_steps += 1
            sequence.length += 1
            if sequence.search.is_done:
                self._finish_or_retry(sequence, stats)
            search = sequence.search
            if not search.is_done and (len(search.parents) > 1 or len(sequence.rows) > 1):
                branching.append(sequence)
        if branching:
            self._move_rows(branching)

    def _finish_or_retry(self, sequence: Sequence, stats: StepStats) -> None:
        """End a sequence whose search is done, or restart it when it has looped."""
        if sequence.search.has_looped:
            self._batch.remove(sequence)
            sequence.restart_guarded()
            stats.num_looped += 1
        else:
            self._finish(sequence, stats)

    def _move_rows(self, branching: list[Sequence]) -> None:
        """Give each hypothesis' row its parent's cache, then offload the beams that can be. Ended ones hold no rows."""
        reorders, spreads = RowCopies(), RowCopies()
        for sequence in branching:
            self.scheduler.slots.follow_parents(sequence, reorders=reorders, spreads=spreads)
        if reorders:
            self._runner.reorder(*reorders.columns())
        if spreads:
            self._runner.copy_rows(*spreads.arrays())
        if self._runner.limits.advances_beams:
            for sequence in filter(can_offload, branching):
                offload(sequence)

    def _rows_without_distributions(self, distributions: Floats) -> frozenset[int]:
        """Return the rows with a NaN, of those whose search reads distributions."""
        rows = [row for s in self._present if s.search.wants_distributions for row in s.rows]
        is_broken = np.isnan(distributions[rows]).any(axis=1)
        return frozenset(np.array(rows)[is_broken].tolist())

    def _fail_broken(self, broken: frozenset[int], stats: StepStats) -> None:
        """Fail the sequences whose rows have no scores."""
        failed = [one for one in self._present if not broken.isdisjoint(one.rows)]
        for sequence in failed:
            self._fail(sequence, EngineFailure("the model's scores are not numbers"), stats)
        if failed and not self.scheduler.running:
            self._count_failed_forward()

    def _finish(self, sequence: Sequence, stats: StepStats) -> None:
        admitted_at = sequence.admitted_at
        assert admitted_at is not None
        result = SequenceResult(
            hypotheses=sequence.search.hypotheses(),
            queue_time_s=admitted_at - sequence.submitted_at,
            encode_time_s=sequence.encode_time_s,
            decode_time_s=self._clock() - admitted_at - sequence.encode_time_s,
            num_steps=sequence.num_steps,
            has_looped=sequence.has_looped,
        )
        self._end(sequence, result)
        stats.num_finished += 1

    def _fail(self, sequence: Sequence, error: EngineFailure, stats: StepStats) -> None:
        logger.error("a sentence failed: %s", error.message, extra={"request_id": sequence.request_id})
        self._end(sequence, error)
        self._has_failed = True
        stats.num_failed += 1

    def _end(self, sequence: Sequence, outcome: SequenceResult | ServiceError) -> None:
        sequence.outcome = outcome
        self._release(sequence)
        self._ended.append(sequence)

    def _release(self, sequence: Sequence) -> None:
        self._batch.remove(sequence)
        self.scheduler.end(sequence)

    def _count_failed_forward(self) -> None:
        self._num_failures += 1
        if self._num_failures >= self._settings.max_consecutive_failures:
            raise EngineFailure(f"{self._num_failures} forwards in a row failed for every sentence in them")

    def _close_step(self, stats: StepStats) -> None:
        """Report when a sequence has ended, tokens are new, statistics are enough, or the loop becomes idle."""
        assert self.step_started_at is not None
        stats.num_waiting = self.scheduler.num_waiting
        stats.step_time_s = self._clock() - self.step_started_at
        self._steps.append(stats)
        deltas = self._tokens.take_deltas()
        if self._ended or deltas or len(self._steps) >= MAX_UNREPORTED_STEPS or not self.scheduler.has_work:
            report = Report(self._ended, self._steps, deltas)
            self._ended, self._steps = [], []
            self._report(report)
