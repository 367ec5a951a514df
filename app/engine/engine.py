"""The engine's interface on the event loop: submit a sentence and await its future.

The event loop owns the futures. Each worker owns its model and its sequences. The event loop sends messages to a worker
with `Worker.put()`. The pool of workers calls the methods of `PoolOwner` on the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Ids
from dataclasses import dataclass, field

import numpy as np

from app.decoding.options import DecodingOptions
from app.decoding.search import new_search
from app.engine.admission import Admission, Reservation
from app.engine.limits import EngineLimits, check_limits, checked_options
from app.engine.messages import Cancel, Join, Prioritize, Report, Submit
from app.engine.row_recorder import RowRecorder
from app.engine.sequence import Sequence, SequenceResult
from app.engine.speed import Cost
from app.engine.stats import Health, StepStats
from app.engine.supervisor import WorkerRestarts
from app.engine.token_deltas import OnTokens, SentTokens
from app.engine.worker import Worker
from app.engine.worker_pool import WorkerPool
from app.errors import DeadlineExceeded, EngineFailure, NotReady
from app.observability.logging import log_event
from app.runtime.interface import Limits

logger = logging.getLogger(__name__)
# Seconds that a step may still take when the engine closes; after that its worker is abandoned or killed. Larger: a
# server stops later if a step hangs. Smaller: steps that would still end are abandoned.
LAST_STEP_TIMEOUT_S = 1.0
# A sentence fails when this many workers have died in a step that began after they got it. Smaller: one unrelated death
# fails the sentence. Larger: a sentence that causes the deaths kills more workers.
MAX_DEATHS = 2


@dataclass
class _Pending:
    """The event loop's state of a sequence that is not answered yet.

    deadline: seconds of time.monotonic. tokens: the tokens that were passed on; None without an `on_tokens`.
    worker: the worker that has the sequence; None while the engine has no worker.
    placed_at: when the worker got the sequence, in seconds of time.monotonic.
    joins: the `Join` messages so far. They are sent again if another worker gets the sequence.
    num_deaths: workers that died in a step that began after they got the sequence.
    """

    future: asyncio.Future[SequenceResult]
    caller: str
    deadline: float
    timer: asyncio.TimerHandle
    tokens: SentTokens | None
    worker: Worker | None = None
    placed_at: float = 0.0
    joins: list[Join] = field(default_factory=list)
    num_deaths: int = 0


class Engine:
    """One model's engine. After `start`, every method is called on the event loop's thread.

    workers: at least one, all with the same model.
    on_steps: called on the event loop with the statistics of some steps.
    on_death: called once, on the event loop, when the engine dies. It dies when a worker dies and no replacement is
        allowed, or when no worker is left or being started. It then takes no more work.
    restarts: how dead workers are replaced, from `end_warm_up` on; None if they cannot be replaced.
    first_worker: the first worker's number in the statistics. No other engine of the server uses the same numbers.
    The attribute `recorder`, None at first, gets the sentences that end while it is on.
    """

    def __init__(
        self,
        workers: Ids[Worker],
        *,
        settings: EngineLimits,
        on_steps: Callable[[list[StepStats]], None] = lambda _steps: None,
        on_death: Callable[[], None] = lambda: None,
        restarts: WorkerRestarts | None = None,
        first_worker: int = 0,
    ) -> None:
        """Raises SettingsError as `check_limits`."""
        self._limits = workers[0].limits
        check_limits(settings, self._limits)
        self._settings = settings
        self._on_steps = on_steps
        self._on_death = on_death
        self._admission = Admission(settings, num_workers=len(workers))
        self._pool = WorkerPool(workers, self, settings, restarts=restarts, first_worker=first_worker)
        self._pending: dict[Sequence, _Pending] = {}
        self._sequences: dict[asyncio.Future[SequenceResult], Sequence] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._emptied = asyncio.Event()
        self._is_accepting = False
        self.recorder: RowRecorder | None = None

    @property
    def limits(self) -> Limits:
        """The limits of one worker's model and cache."""
        return self._limits

    def start(self) -> None:
        """Start the workers. Called once, inside the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._is_accepting = True
        self._pool.start()

    async def close(self, drain_timeout_s: float) -> None:
        """Take no more work, wait up to drain_timeout_s for accepted sentences, and fail the rest with NotReady.

        `submit` then raises NotReady, also for a request with a reservation, so drain the requests before the engine.
        Waits for sentences and steps at most drain_timeout_s + LAST_STEP_TIMEOUT_S, even if a step never returns.
        """
        self._is_accepting = False
        if self._pending and self._pool.is_running:
            self._emptied.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._emptied.wait(), drain_timeout_s)
        self._fail_all("the server is shutting down")
        await self._pool.close(LAST_STEP_TIMEOUT_S)

    def reserve(
        self,
        num_sentences: int,
        num_tokens: int,
        *,
        options: DecodingOptions | None = None,
        caller: str = "",
        deadline: float | None = None,
    ) -> Reservation:
        """Return a context manager that reserves capacity for a request. Submit and await its sentences inside it.

        num_sentences, num_tokens: sentences and source subwords, end tokens included. Before tokenisation they are
        estimates, and `Reservation.resize` replaces them later. options: those of all sentences; None: one row each.
        deadline: seconds of time.monotonic. Raises NotReady.

        Entering the context and `resize` raise Overloaded if the accepted work would exceed the bounds of
        `app.engine.admission`, or if the answer is expected after the deadline. An engine without other work accepts
        every request.
        """
        self._check_accepting()
        cost = Cost.of(num_sentences, num_tokens, options)
        return Reservation(self._admission, cost, caller=caller, deadline=deadline)

    def end_warm_up(self) -> None:
        """End the warm-up, whose steps give the first estimate of the speed. From now on replace dead workers."""
        self._admission.speed.end_warm_up()
        self._pool.start_replacing()

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
        """Submit one sentence and return the future of its result.

        source_ids: with an end token and a tag if the model's sources have them. deadline: seconds of time.monotonic.
        request_id: with `deadline` it names the request (`RequestKey`). Sentences of a request are served in order of
        submission, requests of a caller take turns, and callers take turns.
        on_tokens: called on the event loop with new tokens before the future is done, if the beam size is 1.

        The future fails with DeadlineExceeded, EngineFailure, NotReady or an exception of `on_tokens`. Cancelling it
        frees its rows after the worker's current call of the runner. Raises NotReady, and InvalidRequest when the
        sentence does not fit the model.
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
        tokens = None if on_tokens is None else SentTokens(on_tokens)
        pending = self._pending[sequence] = _Pending(future, caller, deadline, timer, tokens)
        self._sequences[future] = sequence
        future.add_done_callback(lambda done: self._on_done(sequence, done))
        self._place(sequence, pending)
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
        """Make another request wait for a submitted sentence. Does nothing if the sentence is already answered.

        The sentence is admitted at the earliest turn of the requests that wait for it, and expires at the latest of
        their deadlines. on_tokens: replaces the sentence's callback, and first gets all tokens so far.
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
            pending.tokens = SentTokens(on_tokens)
        message = Join(sequence, caller, request_id, deadline, streams=_streams(sequence.options, on_tokens))
        pending.joins.append(message)
        if pending.worker is not None:
            pending.worker.put(message)

    def prioritize_retries(self, futures: Iterable[asyncio.Future[SequenceResult]]) -> None:
        """Mark submitted sentences of one request as retries, and move the request to the front.

        A retry decodes again what the request's reservation has counted already. Each worker that has any of these
        sentences serves the request next.
        """
        first_by_worker: dict[Worker, Sequence] = {}
        for future in futures:
            if (sequence := self._sequences.get(future)) is not None:
                sequence.is_retry = True
                worker = self._pending[sequence].worker
                if worker is not None:
                    first_by_worker.setdefault(worker, sequence)
        for worker, sequence in first_by_worker.items():
            worker.put(Prioritize(sequence))

    def health(self) -> Health:
        """Return the state of the workers without waiting for a step that hangs."""
        workers = self._pool.health(self._limits.num_rows)
        step_age_s = max((worker.step_age_s for worker in workers), default=0.0)
        return Health(
            is_alive=self._pool.is_running,
            is_stalled=step_age_s > self._settings.stall_limit_s,
            step_age_s=step_age_s,
            num_pending_sentences=self._admission.num_sentences,
            num_pending_tokens=self._admission.num_tokens,
            drain_time_s=self._admission.drain_time_s(),
            has_worker=self._pool.has_worker,
            num_workers=self._pool.placement.num_workers,
            workers=workers,
            max_pending_sentences=self._settings.max_pending_sentences,
            max_pending_tokens=self._settings.max_pending_tokens,
            stall_limit_s=self._settings.stall_limit_s,
        )

    # ---- the pool's events; see `PoolOwner`

    def on_report(self, number: int, report: Report) -> None:
        """Set results and errors, and pass on tokens and statistics."""
        for delta in report.deltas:
            pending = self._pending.get(delta.sequence)
            if pending is not None and pending.tokens is not None and not pending.future.done():
                try:
                    pending.tokens.add(delta.position, delta.ids)
                except Exception as error:  # noqa: BLE001 - the report also has answers of other requests
                    pending.future.set_exception(error)
        for sequence in report.ended:
            pending = self._pending.get(sequence)
            if pending is None or pending.future.done():
                continue
            if isinstance(sequence.outcome, SequenceResult):
                pending.future.set_result(sequence.outcome)
            elif sequence.outcome is not None:
                pending.future.set_exception(sequence.outcome)
        if self.recorder is not None and self.recorder.is_on:
            self.recorder.add(number, report.ended)
        self._admission.speed.measure(report)
        for step in report.steps:
            step.worker = number
        self._on_steps(report.steps)

    def on_added(self) -> None:
        """Place the sentences that wait for a worker."""
        self._update_speed()
        for sequence, pending in self._pending.items():
            if pending.worker is None and not pending.future.done():
                self._place(sequence, pending)

    def on_lost(self, worker: Worker, step_started_at: float | None) -> tuple[int, int]:
        """Send a dead worker's sentences to other workers. Fail a sentence after MAX_DEATHS deaths.

        Returns the numbers of sentences sent again and failed.
        """
        self._update_speed()
        num_resent = num_failed = 0
        for sequence, pending in self._pending.items():
            if pending.worker is not worker:
                continue
            pending.worker = None
            if pending.future.done():
                continue
            # The sentence can be the cause only if the worker's last step began after the worker got the sentence.
            pending.num_deaths += step_started_at is not None and pending.placed_at <= step_started_at
            if pending.num_deaths >= MAX_DEATHS:
                num_failed += 1
                log_event(
                    logger, logging.ERROR, "sentence_failed", fields={"request_id": sequence.request_id}
                )
                pending.future.set_exception(
                    EngineFailure(f"{MAX_DEATHS} workers died while they held this sentence")
                )
            else:
                num_resent += 1
                if pending.tokens is not None:
                    pending.tokens.restart()
                self._place(sequence, pending)
        return num_resent, num_failed

    def on_end(self, *, has_died: bool) -> None:
        """Take no more work, and fail all that is pending."""
        self._is_accepting = False
        self._fail_all("the engine has died" if has_died else "the server is shutting down")
        if has_died:
            self._on_death()

    def _place(self, sequence: Sequence, pending: _Pending) -> None:
        """Send a sentence to a worker. Without a worker the sentence waits for `on_added`."""
        worker = self._pool.placement.choose()
        if worker is None:
            return
        pending.worker, pending.placed_at = worker, time.monotonic()
        # The worker is woken only if the caller may hold more rows. Otherwise the sentence cannot start now.
        own_rows = self._pool.placement.add(worker, pending.caller, sequence.num_reserved_rows)
        has_room = own_rows < self._limits.num_rows - self._limits.num_kept_rows
        streams = _streams(sequence.options, pending.tokens)
        worker.put(Submit(sequence, streams=streams, wakes=has_room))
        for join in pending.joins:
            worker.put(join)
        if sequence.is_retry:
            worker.put(Prioritize(sequence))

    def _update_speed(self) -> None:
        """Set the number of workers in the estimate of the speed. The measured speed of one worker stays."""
        self._admission.speed.num_workers = max(1, self._pool.placement.num_workers)

    # ---- futures

    def _check_accepting(self) -> None:
        if not self._is_accepting:
            raise NotReady("the engine takes no work: it has not started, is shutting down, or has died")

    def _expire(self, sequence: Sequence) -> None:
        """Fail a future at its deadline. The event loop's timer calls it, so it works while a step hangs."""
        pending = self._pending.get(sequence)
        if pending is not None and not pending.future.done():
            pending.future.set_exception(DeadlineExceeded("the request's time ran out"))

    def _on_done(self, sequence: Sequence, future: asyncio.Future[SequenceResult]) -> None:
        """Forget a sequence whose future is done. Cancel it in its worker if it has no outcome."""
        if not future.cancelled():
            # Marks the exception as retrieved. Otherwise asyncio logs it if no task awaits the future any more.
            future.exception()
        pending = self._pending.pop(sequence)
        pending.timer.cancel()
        del self._sequences[future]
        if pending.worker is not None:
            self._pool.placement.remove(pending.worker, pending.caller, sequence.num_reserved_rows)
            if sequence.outcome is None:
                pending.worker.put(Cancel(sequence))
        if not self._pending:
            self._emptied.set()

    def _fail_all(self, reason: str) -> None:
        for pending in self._pending.values():
            if not pending.future.done():
                pending.future.set_exception(NotReady(reason))


def _streams(options: DecodingOptions, on_tokens: OnTokens | SentTokens | None) -> bool:
    """Return whether tokens are streamed. A beam's are not, because its best hypothesis is unknown until its end."""
    return on_tokens is not None and options.beam_size == 1
