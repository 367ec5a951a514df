"""The engine as the event loop sees it: submit a sentence, await its future.

The event loop owns the futures, each lane owns its model and its sentences. Two crossings only: `Lane.put()` in, the
listener's callbacks, on the event loop, out.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Ids
from dataclasses import dataclass
from functools import partial

import numpy as np

from app.decoding.options import DecodingOptions
from app.decoding.search import new_search
from app.engine.admission import Admission, Reservation
from app.engine.lane import Lane, Listener
from app.engine.limits import EngineLimits, check_limits, checked_options
from app.engine.messages import Cancel, Join, Prioritize, Report, Stop, Submit
from app.engine.sequence import Sequence, SequenceResult
from app.engine.speed import Cost
from app.engine.stats import Health, StepStats
from app.errors import DeadlineExceeded, NotReady
from app.runtime.interface import Limits

# A step that is under way when the engine closes gets this long to end before its lane is left behind.
LAST_STEP_TIMEOUT_S = 1.0
# Rows up to which one lane with all threads is quicker than two that share them.
FEW_ROWS = 32
# Told of a sentence's tokens as they come: the position of the first of them, and they; see `TokenNews`.
OnTokens = Callable[[int, tuple[int, ...]], None]


@dataclass
class _Pending:
    """What the event loop holds of a sentence that is not answered yet."""

    future: asyncio.Future[SequenceResult]
    lane: Lane
    caller: str
    deadline: float  # seconds of time.monotonic
    timer: asyncio.TimerHandle
    on_tokens: OnTokens | None


class Engine:
    """One model's engine. Every method is called from the event loop's thread, after start().

    lanes: at least one, all with the same model.
    on_steps: is given the facts of each step, several at a time, on the event loop.
    on_death: is called once, on the event loop, when a lane has died of an error: then the engine takes no more work.
    """

    def __init__(
        self,
        lanes: Ids[Lane],
        *,
        settings: EngineLimits,
        on_steps: Callable[[list[StepStats]], None] = lambda _steps: None,
        on_death: Callable[[], None] = lambda: None,
    ) -> None:
        """Raises SettingsError where the settings contradict one another or the lanes' limits."""
        self._lanes = list(lanes)
        self._limits = self._lanes[0].limits
        check_limits(settings, self._limits)
        self._settings = settings
        self._on_steps = on_steps
        self._on_death = on_death
        self._admission = Admission(settings, num_lanes=len(self._lanes))
        self._num_rows = dict.fromkeys(self._lanes, 0)  # that a lane's sentences reserve or will
        self._rows_of_callers: Counter[tuple[Lane, str]] = Counter()  # of these, whose
        self._pending: dict[Sequence, _Pending] = {}
        self._sequences: dict[asyncio.Future[SequenceResult], Sequence] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._num_running = 0  # lanes
        self._exited = asyncio.Event()
        self._emptied = asyncio.Event()
        self._is_accepting = False
        self._has_died = False

    @property
    def limits(self) -> Limits:
        """What the model can hold."""
        return self._limits

    def start(self) -> None:
        """Start the lanes. Called once, inside the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._is_accepting = True
        self._num_running = len(self._lanes)
        for number, lane in enumerate(self._lanes):
            lane.start(self._settings, Listener(partial(self._on_report, number), self._on_exit))

    async def close(self, drain_timeout_s: float) -> None:
        """Take no more work, let what was accepted end for at most drain_timeout_s, fail the rest with NotReady.

        Who holds a place and has submitted nothing yet is refused then: drain the requests before the engine.
        Returns within drain_timeout_s and one second more, even when a step never returns.
        """
        self._is_accepting = False
        if self._pending and self.health().is_alive:
            self._emptied.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._emptied.wait(), drain_timeout_s)
        self._fail_all("the server is shutting down")
        if self._num_running:
            for lane in self._lanes:
                lane.put(Stop())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._exited.wait(), LAST_STEP_TIMEOUT_S)
        for lane in self._lanes:
            lane.leave()

    def reserve(
        self,
        num_sentences: int,
        num_tokens: int,
        *,
        options: DecodingOptions | None = None,
        caller: str = "",
        deadline: float | None = None,
    ) -> Reservation:
        """A place in the queue, to be held with `with` around the whole of a request's work.

        num_tokens: source subwords, end tokens counted. Where they are not known yet, an estimate that
        `Reservation.resize` puts right. options: of all sentences. Raises NotReady. Entering raises Overloaded when
        sentences or tokens accepted and not yet answered would pass the caller's part of their bounds, and entering and
        `resize` where its answer is foreseen to come after `deadline` (seconds of time.monotonic); a request that finds
        the engine empty always enters.
        """
        self._check_accepting()
        cost = Cost.of(num_sentences, num_tokens, options)
        return Reservation(self._admission, cost, caller=caller, deadline=deadline)

    def end_warm_up(self) -> None:
        """What was decoded so far tells how quick the engine is, before its rows were ever full."""
        self._admission.speed.end_guessing()

    def submit(
        self,
        source_ids: Ids[int],
        options: DecodingOptions,
        *,
        request_id: str,
        caller: str,
        deadline: float,
        on_tokens: OnTokens | None = None,
    ) -> asyncio.Future[SequenceResult]:
        """Have one sentence translated, in any company.

        source_ids: with the end token last. request_id: sentences of one request are served in the order
        of their submission, requests of a caller in turn, and callers in turn. deadline: seconds of
        time.monotonic. on_tokens: called on the event loop where the search is greedy, before the future is done.
        The future fails with DeadlineExceeded, EngineFailure or NotReady; cancelling it frees its rows at the
        next step. Raises InvalidRequest where the sentence does not fit the model, and NotReady.
        """
        self._check_accepting()
        assert self._loop is not None
        options = checked_options(source_ids, options, self._limits)
        ids = np.asarray(source_ids, dtype=np.int32)
        future: asyncio.Future[SequenceResult] = self._loop.create_future()
        now = time.monotonic()
        if deadline <= now:
            future.set_exception(DeadlineExceeded("the request's time ran out before it started"))
            return future
        limits = self._limits
        search = new_search(options, bos_id=limits.bos_id, eos_id=limits.eos_id, source_ids=source_ids)
        sequence = Sequence(ids, options, request_id, caller, deadline, now, search)
        timer = self._loop.call_later(deadline - now, self._expire, sequence)
        lane = self._next_lane()
        self._num_rows[lane] += sequence.num_reserved_rows
        self._pending[sequence] = _Pending(future, lane, caller, deadline, timer, on_tokens)
        self._sequences[future] = sequence
        future.add_done_callback(lambda done: self._on_done(sequence, done))
        own_rows = self._rows_of_callers[lane, caller]
        self._rows_of_callers[lane, caller] += sequence.num_reserved_rows
        has_room = own_rows < limits.num_rows - limits.num_kept_rows
        lane.put(Submit(sequence, listens=_listens(options, on_tokens), wakes=has_room))
        return future

    def join(
        self,
        future: asyncio.Future[SequenceResult],
        *,
        request_id: str,
        caller: str,
        deadline: float,
        on_tokens: OnTokens | None = None,
    ) -> None:
        """Another request waits for a sentence that was submitted, with its future.

        It is served in the turn of whichever comes first, and fails at the later of the deadlines. on_tokens: takes
        the place of what was given before, and is told from the first token on. Without effect where it is answered.
        """
        sequence = self._sequences.get(future)
        if sequence is None or future.done():
            return
        assert self._loop is not None
        pending = self._pending[sequence]
        if deadline > pending.deadline:
            pending.deadline = deadline
            pending.timer.cancel()
            pending.timer = self._loop.call_later(deadline - time.monotonic(), self._expire, sequence)
        if on_tokens is not None:
            pending.on_tokens = on_tokens
        listens = _listens(sequence.options, on_tokens)
        pending.lane.put(Join(sequence, caller, request_id, deadline, listens=listens))

    def prioritize_retries(self, futures: Iterable[asyncio.Future[SequenceResult]]) -> None:
        """Sentences of one request that were submitted are second decodings, of what its place was counted for before.

        It has waited its turn, and is next, in each lane that has any of them, with the first that is not answered yet.
        """
        first_by_lane: dict[Lane, Sequence] = {}
        for future in futures:
            if (sequence := self._sequences.get(future)) is not None:
                sequence.is_retry = True
                first_by_lane.setdefault(self._pending[sequence].lane, sequence)
        for lane, sequence in first_by_lane.items():
            lane.put(Prioritize(sequence))

    def health(self) -> Health:
        """The truth about the lanes, from outside of them: nothing waits for a step that hangs."""
        began_at = [lane.step_started_at for lane in self._lanes]
        now = time.monotonic()
        step_age_s = max(0.0 if at is None else max(0.0, now - at) for at in began_at)
        return Health(
            is_alive=all(lane.is_alive for lane in self._lanes),
            is_stalled=step_age_s > self._settings.stall_limit_s,
            step_age_s=step_age_s,
            num_pending_sentences=self._admission.num_sentences,
            num_pending_tokens=self._admission.num_tokens,
            drain_time_s=self._admission.drain_time_s(),
        )

    # ---- the event loop's side of the crossing

    def _next_lane(self) -> Lane:
        """The first one with few rows, since together they read the weights once, else the one with the fewest."""
        rows = self._num_rows
        for lane in self._lanes:
            if rows[lane] < FEW_ROWS:
                return lane
        return min(self._lanes, key=rows.__getitem__)

    def _check_accepting(self) -> None:
        if not self._is_accepting:
            raise NotReady("the engine takes no work: it has not started, is shutting down, or has died")

    def _expire(self, sequence: Sequence) -> None:
        """The deadline holds even while a step hangs: its timer is the event loop's."""
        pending = self._pending.get(sequence)
        if pending is not None and not pending.future.done():
            pending.future.set_exception(DeadlineExceeded("the request's time ran out"))

    def _on_done(self, sequence: Sequence, future: asyncio.Future[SequenceResult]) -> None:
        """Tell the lane where a future ended for another reason than its report."""
        if not future.cancelled():
            future.exception()  # marks it as seen: a caller that left does not read it
        pending = self._pending.pop(sequence)
        pending.timer.cancel()
        del self._sequences[future]
        self._num_rows[pending.lane] -= sequence.num_reserved_rows
        place = pending.lane, pending.caller
        self._rows_of_callers[place] -= sequence.num_reserved_rows
        if not self._rows_of_callers[place]:
            del self._rows_of_callers[place]
        if sequence.outcome is None:
            pending.lane.put(Cancel(sequence))
        if not self._pending:
            self._emptied.set()

    def _on_report(self, number: int, report: Report) -> None:
        """Hand out what a lane reports."""
        for news in report.news:
            pending = self._pending.get(news.sequence)
            if pending is not None and pending.on_tokens is not None and not pending.future.done():
                pending.on_tokens(news.position, news.ids)
        for sequence in report.ended:
            pending = self._pending.get(sequence)
            if pending is None or pending.future.done():
                continue
            if isinstance(sequence.outcome, SequenceResult):
                pending.future.set_result(sequence.outcome)
            elif sequence.outcome is not None:
                pending.future.set_exception(sequence.outcome)
        self._admission.speed.measure(report)
        for step in report.steps:
            step.lane = number
        self._on_steps(report.steps)

    def _fail_all(self, reason: str) -> None:
        for pending in self._pending.values():
            if not pending.future.done():
                pending.future.set_exception(NotReady(reason))

    def _on_exit(self, has_died: bool) -> None:
        self._is_accepting = False
        self._num_running -= 1
        if not self._num_running:
            self._exited.set()
        if has_died or not self._num_running:
            self._fail_all("the engine has died" if has_died else "the server is shutting down")
        if has_died and not self._has_died:
            self._has_died = True
            self._on_death()


def _listens(options: DecodingOptions, on_tokens: OnTokens | None) -> bool:
    """Whether the engine thread is to tell tokens: a beam's best hypothesis is known only at its end."""
    return on_tokens is not None and options.beam_size == 1
