"""The engine thread: step(), again and again. Read this one first.

One thread owns the scheduler, the sentences and the runner: no locks. Messages come in through
`inbox` and are read before scheduling and again after the forward, before its results are used. The
thread blocks on an empty inbox when there is nothing to do; nothing polls.
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
from app.engine.beams import can_be_led, follow_beams, hand_over
from app.engine.company import Company
from app.engine.limits import EngineLimits
from app.engine.messages import Cancel, Inbox, Join, LocalInbox, Message, Prioritize, Report, Submit
from app.engine.scheduler import Scheduler
from app.engine.sequence import Sequence, SequenceResult
from app.engine.slots import RowCopies
from app.engine.stats import StepStats
from app.engine.token_news import TokenLog
from app.engine.turns import Turns, rows_by_caller
from app.errors import DeadlineExceeded, EngineFailure, ServiceError
from app.runtime.interface import Floats, Runner, StepOutput
from app.runtime.stop_condition import NO_EARLY_STOP, StopCondition

logger = logging.getLogger(__name__)

# A call of several steps ends for who comes and could be admitted, but not before so long, lest there be many short
# ones. Who has ended waits for its end, and so does who could not be admitted before a row is free: so long, ...
MAX_AHEAD_S = 0.003
# ... or a few steps that take no longer: of many rows' steps, which are long, what is around a call is not a tenth then
# but a thirtieth.
FEW_STEPS, MAX_FEW_S = 4, 0.015
# And no call takes longer, though whose time runs out leaves, which rings too.
MAX_CALL_S = 0.2
# Of those steps at most while somebody follows a sentence's subwords: they come one by one or in pairs, and a follower
# who leaves gives the rows back within two steps.
MAX_STEPS_FOLLOWED = 2
# Steps whose facts are kept back at most, so that a step in which nobody ends does not wake the event loop.
MAX_UNREPORTED_STEPS = 32


class EngineCore:
    """The engine's loop. Everything but `inbox` and `step_started_at` belongs to the thread that calls run().

    report: called on that thread. clock: seconds, as time.monotonic.
    incoming: where messages come from instead of `inbox`.
    on_step: called on that thread with the time at which a step begins, and with None when there is nothing to do.
    step_started_at: when the step under way began; None when idle. Read by other threads.
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
        self._turns = Turns()
        self._present: Collection[Sequence] = ()  # those in the last forward
        self._runner = runner
        self._settings = settings
        self._report = report
        self._clock = clock
        self._is_stopped = False
        # Of one decoder step, in the last forward, and the rows that it decoded.
        self._last_step_s, self._last_num_rows = math.inf, 1
        self._has_failed = False  # a forward or a sentence, since holes were closed
        self._num_failures = 0  # forwards in a row that were of use to nobody
        self._ended: list[Sequence] = []
        self._steps: list[StepStats] = []
        self._company = Company(runner.limits)
        self._tokens = TokenLog(self._company.greedy)

    def run(self) -> None:
        """Step until a Stop arrives. Raises EngineFailure after too many useless forwards in a row."""
        while not self._is_stopped:
            if self.scheduler.has_work:
                self.step()
            else:
                self.step_started_at = None
                self._on_step(None)
                self._receive(self._incoming.get())

    def step(self) -> None:
        """One iteration: who runs, one subword for every row, what follows from it. Raises as run()."""
        now = self.step_started_at = self._clock()
        self._on_step(now)
        stats = StepStats()
        self._drain_inbox()
        self._expire(self.scheduler.expired(now), stats)
        favoured = self._turns.favoured(self.scheduler.callers)
        admitted, expired = self.scheduler.schedule(now, favoured)
        self._expire(expired, stats)
        if admitted:
            self._encode(admitted, stats)
            copies = self._company.join(admitted, self.scheduler.slots)
            if copies:
                self._runner.copy_rows(*copies.arrays())
        self._close_holes(admitted)
        self._present = self._company.present(self.scheduler.running, favoured)
        rows = rows_by_caller(self._present, self.scheduler)
        output = self._decode(stats) if self._present else None
        self._drain_inbox()
        if output is not None:
            self._use(output, stats)
        self._close_step(stats)
        if rows:
            self._turns.note(rows, stats, self._clock())

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
        if isinstance(message, Submit | Join) and message.listens:
            self._tokens.listen(message.sequence)

    def _expire(self, sequences: list[Sequence], stats: StepStats) -> None:
        for sequence in sequences:
            self._end(sequence, DeadlineExceeded("the request's time ran out"))
        stats.num_expired += len(sequences)

    def _encode(self, admitted: list[Sequence], stats: StepStats) -> None:
        """Encode newcomers together; where that fails, one by one, so that only who fails alone is failed."""
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
            self._count_useless_forward()
            return
        stats.num_retried += len(admitted)
        for sequence in admitted:
            try:
                self._runner.encode([sequence.source_ids], [sequence.rows[0]])
            except EngineFailure as own_error:
                self._fail(sequence, own_error, stats)
                self._count_useless_forward()

    def _close_holes(self, admitted: list[Sequence]) -> None:
        """Close the holes between rows; after a failure all, lest what is left of its cause be decoded again.

        Those that newcomers' beams spread into after the next step are left: to decode them once costs less than to
        copy rows there and to take others at the end.
        """
        num_soon_taken = sum(one.num_reserved_rows - 1 for one in admitted if one.rows)
        num_left = 0 if self._has_failed else num_soon_taken
        moves = self._company.close_holes(self.scheduler.slots, self.scheduler.running, num_left)
        self._has_failed = False
        if moves:
            self._runner.copy_rows(*moves.arrays())

    def _decode(self, stats: StepStats) -> StepOutput | None:
        """One forward of every row; None where it failed."""
        slots, running, present = self.scheduler.slots, self.scheduler.running, self._present
        stats.num_rows = slots.num_occupied if self._runner.limits.skips_unused_rows else slots.end
        num_reserved = slots.num_reserved
        stats.num_paused = len(running) - len(present)
        if stats.num_paused:
            stats.num_rows = sum(len(one.rows) for one in present)
            num_reserved = sum(one.num_reserved_rows for one in present)
        step = self._company.next_step(present, slots.end, *self._ahead(stats))
        stats.num_steps = step.num_steps
        stats.num_spared_row_steps = self._company.num_unspread_rows
        stats.num_idle_rows = num_reserved - stats.num_rows
        started_at = self._clock()
        output = None
        try:
            output = self._runner.decode(step)
        except EngineFailure as error:
            self._has_failed = True
            if len(running) > 1:
                for sequence in running:
                    self._company.leave(sequence)
                stats.num_retried += len(self.scheduler.halve_running())
            else:
                self._fail(next(iter(running)), error, stats)
                self._count_useless_forward()
        stats.decode_time_s = self._clock() - started_at
        return output

    def _ahead(self, stats: StepStats) -> tuple[int, StopCondition]:
        """How many steps the next forward may take, and what ends them: one where a sentence could be admitted then.

        stats: what it decodes. Where these are more rows than in the last one a step takes at most so much longer.
        """
        limits, scheduler, num_rows = self._runner.limits, self.scheduler, stats.num_rows
        if limits.max_steps == 1 or scheduler.stopped_at_budget:
            return 1, NO_EARLY_STOP
        most = min(limits.max_steps, MAX_STEPS_FOLLOWED) if self._tokens.has_listeners else limits.max_steps
        step_s = max(self._last_step_s * max(1.0, num_rows / self._last_num_rows), 1e-6)
        ahead = int(MAX_AHEAD_S / step_s)
        few = max(1, ahead, min(FEW_STEPS, int(MAX_FEW_S / step_s)))
        if stats.num_paused:
            most = max(1, min(most, int(self._turns.left_s / step_s)))
        if scheduler.slots.num_reserved >= limits.num_rows:
            return min(most, few), NO_EARLY_STOP
        longest = few if scheduler.num_waiting else int(MAX_CALL_S / step_s)
        return max(1, min(most, longest)), StopCondition(few - 1, self._incoming.wake_flag, ahead)

    def _use(self, output: StepOutput, stats: StepStats) -> None:
        """Take every search through a forward's candidates, end who is done, and give the rest their rows."""
        company = self._company
        num_left = self.scheduler.slots.num_occupied
        if stats.num_paused:
            num_left = sum(len(one.rows) for one in self._present)
        stats.num_wasted_rows = stats.num_rows - num_left
        is_single = stats.num_steps == 1 or bool(company.led)  # with beams the last of several
        stats.num_steps = output.num_steps
        find_broken = rows_without_scores if is_single else rows_without_best_scores
        broken = find_broken(output.log_probabilities)
        if output.distributions is not None:
            broken |= self._rows_without_distributions(output.distributions)
        if broken:
            self._fail_broken(broken, stats)
        if self.scheduler.running:
            self._num_failures = 0
        if company.led:
            self._follow_beams(output, stats)
        if len(company.greedy):
            self._follow_greedy(output, is_single, stats)
        if asked := company.asked:
            self._ask(asked, output, stats)
        self._last_step_s, self._last_num_rows = stats.decode_time_s / stats.num_steps, stats.num_rows

    def _follow_beams(self, output: StepOutput, stats: StepStats) -> None:
        """End whose beams are done. Those that run and have none then have the forward's last step before them."""
        done = follow_beams(self._company.led, output.num_steps, output.outcomes, self.scheduler.slots)
        for sequence, own_steps in done:
            stats.num_spared_row_steps += sequence.num_reserved_rows * (output.num_steps - own_steps)
            self._finish(sequence, stats)

    def _follow_greedy(self, output: StepOutput, is_single: bool, stats: StepStats) -> None:
        """Take the plain greedy searches on, and end who is done."""
        scores, ids, greedy = output.log_probabilities, output.ids, self._company.greedy
        done = greedy.advance(scores[:, :1].T, ids[:, :1].T) if is_single else greedy.advance(scores, ids)
        if not is_single and len(done) == len(greedy):
            stats.num_steps = max(one.num_last_steps for one in done)
        for one in done:
            stats.num_spared_row_steps += stats.num_steps - one.num_last_steps
            sequence = self.scheduler.slots.owner(one.row)
            sequence.num_steps += one.num_steps
            self._finish_or_begin_again(sequence, stats)

    def _ask(self, asked: list[Sequence], output: StepOutput, stats: StepStats) -> None:
        """Take the searches one step on that are nobody else's."""
        advance(
            [cast(SteppedSearch, sequence.search) for sequence in asked],
            [sequence.rows for sequence in asked],
            log_probabilities=output.log_probabilities,
            ids=output.ids,
            distributions=output.distributions,
            alignment=output.alignment,
        )
        branching: list[Sequence] = []
        for sequence in asked:
            sequence.num_steps += 1
            sequence.length += 1
            if sequence.search.is_done:
                self._finish_or_begin_again(sequence, stats)
            search = sequence.search
            if not search.is_done and (len(search.parents) > 1 or len(sequence.rows) > 1):
                branching.append(sequence)
        if branching:
            self._move_rows(branching)

    def _finish_or_begin_again(self, sequence: Sequence, stats: StepStats) -> None:
        """What follows from a search that is done."""
        if sequence.search.has_looped:
            self._company.leave(sequence)
            sequence.begin_again_guarded()
            stats.num_looped += 1
        else:
            self._finish(sequence, stats)

    def _move_rows(self, branching: list[Sequence]) -> None:
        """Each hypothesis' row gets its parent's cache; ended sentences' rows are free already."""
        reorders, spreads = RowCopies(), RowCopies()
        for sequence in branching:
            self.scheduler.slots.follow_parents(sequence, reorders=reorders, spreads=spreads)
        if reorders:
            self._runner.reorder(*reorders.columns())
        if spreads:
            self._runner.copy_rows(*spreads.arrays())
        if self._runner.limits.advances_beams:
            for sequence in filter(can_be_led, branching):
                hand_over(sequence)

    def _rows_without_distributions(self, distributions: Floats) -> frozenset[int]:
        """Of the rows whose search reads them, those with a NaN."""
        rows = [row for s in self._present if s.search.wants_distributions for row in s.rows]
        is_broken = np.isnan(distributions[rows]).any(axis=1)
        return frozenset(np.array(rows)[is_broken].tolist())

    def _fail_broken(self, broken: frozenset[int], stats: StepStats) -> None:
        """Fail the sentences whose rows have no scores."""
        failed = [one for one in self._present if not broken.isdisjoint(one.rows)]
        for sequence in failed:
            self._fail(sequence, EngineFailure("the model's scores are not numbers"), stats)
        if failed and not self.scheduler.running:
            self._count_useless_forward()

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
        self._company.leave(sequence)
        self.scheduler.end(sequence)

    def _count_useless_forward(self) -> None:
        self._num_failures += 1
        if self._num_failures >= self._settings.max_consecutive_failures:
            raise EngineFailure(f"{self._num_failures} forwards in a row failed for every sentence in them")

    def _close_step(self, stats: StepStats) -> None:
        """Report, if anybody waits for it: sentences that ended, or enough facts, or all there is before idling."""
        assert self.step_started_at is not None
        stats.num_waiting = self.scheduler.num_waiting
        stats.step_time_s = self._clock() - self.step_started_at
        self._steps.append(stats)
        news = self._tokens.news()
        if self._ended or news or len(self._steps) >= MAX_UNREPORTED_STEPS or not self.scheduler.has_work:
            report = Report(self._ended, self._steps, news)
            self._ended, self._steps = [], []
            self._report(report)
