"""The sentences of a dead worker are decoded again by another worker. Fake workers record the messages they get."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from app.decoding.options import DecodingOptions
from app.engine import supervisor
from app.engine.engine import Engine
from app.engine.limits import EngineLimits
from app.engine.messages import Cancel, Join, Message, Prioritize, Report, Stop, Submit
from app.engine.sequence import Sequence, SequenceResult
from app.engine.speed import MIN_WARM_UP_ROWS
from app.engine.stats import StepStats
from app.engine.supervisor import RestartBudget, WorkerRestarts
from app.engine.token_deltas import SentTokens, TokenDelta
from app.engine.worker import Worker, WorkerExit, WorkerListener
from app.errors import BundleError, DeadlineExceeded, EngineFailure, NotReady
from app.runtime.interface import Limits
from tests.engine.fake_runner import EOS, LIMITS

GREEDY = DecodingOptions(beam_size=1, max_target_length=12)
TIMEOUT_S = 60.0
RESULT = SequenceResult([], 0.0, 0.0, 0.0, num_steps=1)


class RecordingWorker:
    """A worker that decodes nothing. dies_at_stop: whether a Stop makes it die."""

    def __init__(self) -> None:
        self.dies_at_stop = False
        self.sent: list[Message] = []
        self.is_alive = False
        self.is_closed = False
        self.step_started_at: float | None = None

    @property
    def limits(self) -> Limits:
        return LIMITS

    def start(self, settings: EngineLimits, listener: WorkerListener) -> None:
        self.is_alive, self._listener = True, listener

    def put(self, message: Message) -> None:
        self.sent.append(message)
        if isinstance(message, Stop) and self.dies_at_stop:
            self.die()
        elif isinstance(message, Stop) and self.is_alive:
            self.is_alive = False
            self._listener.on_exit(WorkerExit(has_died=False))

    def close(self) -> None:
        self.is_alive, self.is_closed = False, True

    def die(self, *, in_step: bool = True, step_age_s: float = 0.0) -> None:
        """Die in a step that began step_age_s seconds ago, or while idle."""
        self.is_alive = False
        began_at = time.monotonic() - step_age_s if in_step else None
        self._listener.on_exit(WorkerExit(has_died=True, process_exit="signal 9", step_started_at=began_at))

    def send_tokens(self, position: int, *ids: int) -> None:
        self._listener.on_report(Report([], [], [TokenDelta(self.sequences[-1], position, ids)]))

    def report_steps(self, *steps: StepStats) -> None:
        self._listener.on_report(Report([], [*steps]))

    def answer(self, sequence: Sequence) -> None:
        sequence.outcome = RESULT
        self._listener.on_report(Report([sequence], []))

    @property
    def sequences(self) -> list[Sequence]:
        return [message.sequence for message in self.sent if isinstance(message, Submit)]


class Scenario:
    """A started engine. The test completes `starts`, the futures of new workers."""

    def __init__(self, num_workers: int = 2, *, max_restarts: int = 10, is_warm: bool = True) -> None:
        self.workers = [RecordingWorker() for _ in range(num_workers)]
        self.starts: list[asyncio.Future[Worker]] = []
        self.restarted: list[int] = []
        self.deaths: list[bool] = []
        restarts = WorkerRestarts(RestartBudget(max_restarts, 1e9), self._start, self.restarted.append)
        self.engine = Engine(
            self.workers,
            settings=EngineLimits(),
            on_death=lambda: self.deaths.append(True),
            restarts=restarts,
            first_worker=7,
        )
        self.engine.start()
        if is_warm:
            self.engine.end_warm_up()

    def _start(self, dead: Worker) -> asyncio.Future[Worker]:
        assert not dead.is_alive
        self.starts.append(asyncio.get_running_loop().create_future())
        return self.starts[-1]

    def submit(self, **changes: Any) -> asyncio.Future[SequenceResult]:
        request: dict[str, Any] = {
            "request_id": "a",
            "caller": "b",
            "deadline": time.monotonic() + TIMEOUT_S,
        } | changes
        return self.engine.submit([5, EOS], GREEDY, **request)

    async def complete_start(self, outcome: Worker | Exception) -> None:
        """Complete the last start."""
        await asyncio.sleep(0)  # lets the supervisor's task begin it
        if isinstance(outcome, Exception):
            self.starts[-1].set_exception(outcome)
        else:
            self.starts[-1].set_result(outcome)
        for _ in range(4):
            await asyncio.sleep(0)


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S))


def test_another_worker_decodes_a_dead_workers_sentence_and_a_new_worker_joins() -> None:
    async def scenario() -> None:
        found = Scenario()
        first, second = found.workers
        future = found.submit()
        found.engine.join(future, request_id="c", caller="d", deadline=time.monotonic() + TIMEOUT_S)
        found.engine.prioritize_retries([future])
        found.submit().cancel()  # the engine processes this after the death
        sequence, _ = first.sequences
        first.die()
        assert first.is_closed
        assert [type(message) for message in second.sent] == [Submit, Join, Prioritize]
        assert second.sequences == [sequence]
        assert found.engine.health().is_alive
        assert found.engine._admission.speed.num_workers == 1
        new = RecordingWorker()
        await found.complete_start(new)
        assert found.restarted == [7]
        assert found.engine._admission.speed.num_workers == 2
        second.answer(sequence)
        assert await future is RESULT
        second.die()
        assert found.submit() in found.engine._sequences
        assert len(new.sequences) == 1
        await found.engine.close(0.0)
        assert found.deaths == []

    run(scenario)


def test_without_a_worker_sentences_wait_for_the_new_one_until_their_deadlines() -> None:
    async def scenario() -> None:
        found = Scenario(1)
        futures = [found.submit()]
        found.workers[0].die()
        health = found.engine.health()
        assert (health.is_alive, health.is_stalled, health.has_worker) == (True, False, False)
        futures += [found.submit(), found.submit(deadline=time.monotonic() + 0.01), found.submit()]
        futures[3].cancel()
        found.engine.join(futures[1], request_id="c", caller="d", deadline=time.monotonic() + TIMEOUT_S)
        with pytest.raises(DeadlineExceeded):
            await futures[2]
        new = RecordingWorker()
        cancelled = found.submit()
        found.starts[0].set_result(new)
        cancelled.cancel()  # the engine processes this after it has added the new worker
        for _ in range(4):
            await asyncio.sleep(0)
        assert found.engine.health().has_worker
        assert [type(message) for message in new.sent] == [Submit, Submit, Join]
        for sequence in new.sequences:
            new.answer(sequence)
        assert await asyncio.gather(*futures[:2]) == [RESULT] * 2
        assert not any(isinstance(message, Cancel) for message in new.sent)
        await asyncio.sleep(0)  # the rows of the cancelled sentence are free
        assert set(found.engine._pool.placement._num_rows.values()) == {0}
        await found.engine.close(0.0)

    run(scenario)


def test_without_a_worker_the_drain_time_is_that_of_one_worker() -> None:
    async def scenario() -> None:
        found = Scenario(1, is_warm=False)
        (worker,) = found.workers
        worker.report_steps(StepStats(num_rows=MIN_WARM_UP_ROWS, step_time_s=0.01))
        found.engine.end_warm_up()
        with found.engine.reserve(1, 64):
            worker.die()
            assert found.engine.health().drain_time_s == pytest.approx(64 / MIN_WARM_UP_ROWS * 0.01)
        await found.engine.close(0.0)

    run(scenario)


def test_a_step_that_begins_later_than_the_look_at_it_has_no_age() -> None:
    async def scenario() -> None:
        found = Scenario(1)
        found.workers[0].step_started_at = time.monotonic() + TIMEOUT_S
        assert found.engine.health().workers[0].step_age_s == 0.0
        await found.engine.close(0.0)

    run(scenario)


def test_only_a_sentence_that_was_in_two_dying_steps_fails() -> None:
    async def scenario() -> None:
        found = Scenario()
        first, second = found.workers
        poison = found.submit()
        first.die()
        second.die(in_step=False)  # an idle worker, which never decoded the sentence
        third, fourth = RecordingWorker(), RecordingWorker()
        await asyncio.sleep(0)
        found.starts[0].set_result(third)
        await found.complete_start(fourth)
        await asyncio.sleep(0.001)  # the step begins after the sentence has arrived
        assert len(third.sequences) == 1
        other = found.submit()
        third.die()
        with pytest.raises(EngineFailure):
            await poison
        assert len(fourth.sequences) == 1
        fourth.answer(fourth.sequences[0])
        assert await other is RESULT
        await found.engine.close(0.0)

    run(scenario)


def test_a_step_that_began_before_a_sentence_arrived_does_not_count_against_it() -> None:
    async def scenario() -> None:
        found = Scenario()
        future = found.submit()
        for worker in found.workers:
            worker.die(step_age_s=1.0)
        assert not future.done()
        await found.engine.close(0.0)

    run(scenario)


def test_a_stream_has_each_token_once() -> None:
    async def scenario() -> None:
        found = Scenario()
        first, second = found.workers
        received: list[tuple[int, tuple[int, ...]]] = []
        found.submit(on_tokens=lambda position, ids: received.append((position, ids)))
        first.send_tokens(0, 5, 6)
        first.send_tokens(2, 7)
        first.die()
        (message,) = second.sent
        assert isinstance(message, Submit)
        assert message.streams
        second.send_tokens(0, 5)
        second.send_tokens(1, 6, 7)
        second.send_tokens(3, 8)
        second.send_tokens(4, 9)
        assert received == [(0, (5, 6)), (2, (7,)), (3, (8,)), (4, (9,))]
        await found.engine.close(0.0)

    run(scenario)


@pytest.mark.parametrize(
    ("again", "received"),
    [
        ([(0, (5, 6)), (2, (7, 8))], [(3, (8,))]),
        ([(0, (5, 6)), (2, (9,))], [(0, (5, 6, 9))]),
        ([(0, (5,)), (0, (5, 6, 7, 8))], [(3, (8,))]),
        ([(0, (5, 6, 7))], []),
    ],
    ids=["repeated", "other tokens", "restarted meanwhile", "no new token"],
)
def test_after_a_second_decoding_only_the_changes_are_sent(again: list[Any], received: list[Any]) -> None:
    found: list[Any] = []
    tokens = SentTokens(lambda position, ids: found.append((position, ids)))
    tokens.add(0, (5, 6, 7))
    tokens.restart()
    for position, ids in again:
        tokens.add(position, ids)
    assert found[1:] == received


def test_failed_starts_are_repeated_until_the_budget_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "RETRY_DELAY_S", 0.0)

    async def scenario() -> None:
        found = Scenario(max_restarts=2)
        future = found.submit()
        found.workers[0].die()
        await found.complete_start(RuntimeError("killed"))
        assert found.engine.health().is_alive
        await found.complete_start(RuntimeError("killed"))
        assert (found.restarted, found.deaths) == ([7, 7], [True])
        assert not found.engine.health().is_alive
        with pytest.raises(NotReady):
            await future
        await found.engine.close(0.0)

    run(scenario)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_with_a_bundle_that_has_changed_the_other_workers_go_on(num_workers: int) -> None:
    async def scenario() -> None:
        found = Scenario(num_workers)
        found.submit()
        found.workers[0].die()
        await found.complete_start(BundleError("a", ["it has changed"]))
        assert found.restarted == [7]
        assert found.engine.health().is_alive == (num_workers == 2)
        assert len(found.deaths) == (num_workers == 1)
        await found.engine.close(0.0)

    run(scenario)


def test_a_worker_that_dies_before_the_warm_up_is_over_ends_the_engine() -> None:
    async def scenario() -> None:
        found = Scenario(is_warm=False)
        found.workers[0].die()
        assert (found.restarted, found.deaths) == ([], [True])
        await found.engine.close(0.0)

    run(scenario)


def test_an_engine_that_has_ended_replaces_no_worker() -> None:
    async def scenario() -> None:
        found = Scenario(is_warm=False)
        found.workers[0].die()
        found.engine.end_warm_up()
        found.workers[1].die()
        await asyncio.sleep(0)
        assert (found.restarted, found.deaths) == ([], [True])
        await found.engine.close(0.0)

    run(scenario)


def test_a_worker_that_dies_while_the_engine_closes_is_not_replaced() -> None:
    async def scenario() -> None:
        found = Scenario(1)
        found.workers[0].dies_at_stop = True
        await found.engine.close(0.0)
        await asyncio.sleep(0)
        assert found.restarted == []

    run(scenario)


@pytest.mark.parametrize("is_loaded", [True, False])
def test_a_close_while_a_worker_starts_leaves_no_worker(is_loaded: bool) -> None:
    async def scenario() -> None:
        found = Scenario()
        found.workers[0].die()
        await asyncio.sleep(0)
        new = RecordingWorker()
        if is_loaded:
            found.starts[0].set_result(new)
        found.workers[1].is_alive = False
        await found.engine.close(0.0)
        assert found.starts[0].cancelled() == (not is_loaded)
        assert new.is_closed == is_loaded
        assert found.deaths == []

    run(scenario)


def test_the_budget_counts_restarts_within_its_window() -> None:
    now = 0.0
    budget = RestartBudget(2, 10.0, clock=lambda: now)
    assert [budget.take() for _ in range(3)] == [True, True, False]
    now = 9.0
    assert not budget.take()
    now = 10.0
    assert [budget.take() for _ in range(3)] == [True, True, False]
    assert not RestartBudget(0, 10.0).take()
