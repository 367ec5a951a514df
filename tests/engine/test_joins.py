"""Sentences that several requests share, and the streaming of tokens."""

from __future__ import annotations

import asyncio
import time
from collections import abc
from dataclasses import replace

import pytest

from app.decoding.options import DecodingOptions
from app.engine.messages import Join
from app.engine.sequence import Sequence
from app.errors import EngineFailure
from app.runtime.interface import Floats, Int32s, StepInput, StepOutput
from tests.engine.core_driver import CoreDriver, expected, hypotheses_of
from tests.engine.fake_runner import EOS, LIMITS, FakeRunner
from tests.engine.test_engine import (
    HANG_TIMEOUT_S,
    NARROW,
    GatedRunner,
    begins_before_deadline,
    run_with_deadlines,
    running,
    submit,
)

GREEDY = DecodingOptions(beam_size=1, max_target_length=12)
WIDE = DecodingOptions(beam_size=16, max_target_length=4)  # takes two thirds of the fake runner's rows


class LateGate(GatedRunner):
    """Closes its gate after three steps."""

    def decode(self, step: StepInput) -> StepOutput:
        return FakeRunner.decode(self, step) if self.calls["decode"] < 3 else super().decode(step)


class RepeatingRunner(FakeRunner):
    """Repeats subword 9 unless the options prevent it."""

    def next_scores(self, source: Int32s, prefix: Int32s) -> Floats:
        scores = super().next_scores(source, prefix)
        scores[9] = 5.0
        return scores


class FailingRunner(FakeRunner):
    """Fails in its fourth call of `decode`."""

    def decode(self, step: StepInput) -> StepOutput:
        output = super().decode(step)
        if self.calls["decode"] == 4:
            raise EngineFailure("out of memory")
        return output


class BadShortlistRunner(FakeRunner):
    """Every result with a shortlist is bad, so its sentence is decoded again with the whole vocabulary.

    The first call that lifts the restriction to a shortlist fails.
    """

    def __init__(self) -> None:
        super().__init__(replace(LIMITS, num_shortlists=1, min_log_probability=9.0), eos_bonus=-30.0)
        self.has_failed = False

    def restrict(
        self, _rows: abc.Sequence[int], _sources: abc.Sequence[Int32s], tables: abc.Sequence[int | None]
    ) -> None:
        if tables == [None] and not self.has_failed:
            self.has_failed = True
            raise EngineFailure("out of memory")

    def next_scores(self, source: Int32s, prefix: Int32s) -> Floats:
        scores = super().next_scores(source, prefix)
        if not self.has_failed:
            scores[9] = 5.0
        return scores


def deltas_of(driver: CoreDriver, sequence: Sequence) -> list[tuple[int, tuple[int, ...]]]:
    return [(n.position, n.ids) for r in driver.reports for n in r.deltas if n.sequence is sequence]


def tokens_of(deltas: list[tuple[int, tuple[int, ...]]]) -> list[int]:
    """The tokens that a client has after these deltas. Each replaces the tokens from its position on."""
    ids: list[int] = []
    for position, new in deltas:
        assert position <= len(ids)
        ids[position:] = new
    return ids


@pytest.mark.parametrize("prefix", [(), (7, 8)])
def test_tokens_are_streamed_one_a_step(prefix: tuple[int, ...]) -> None:
    runner = FakeRunner(eos_bonus=-2.0)
    driver = CoreDriver(runner)
    options = DecodingOptions(beam_size=1, max_target_length=12, target_prefix=prefix)
    streamed = driver.submit([5, 9, EOS], options, streams=True)
    driver.submit([6, EOS], GREEDY)
    driver.run()
    (reference,) = expected([5, 9, EOS], options, runner)
    deltas = deltas_of(driver, streamed)
    assert tokens_of(deltas) == list(reference.ids[: len(tokens_of(deltas))])
    assert len(tokens_of(deltas)) >= len(reference.ids) - 1, "the last token may arrive with the result"
    assert [position for position, _ in deltas] == list(range(len(deltas)))
    assert {id(n.sequence) for r in driver.reports for n in r.deltas} == {id(streamed)}


def test_without_streaming_all_steps_are_in_one_report() -> None:
    driver = CoreDriver(FakeRunner(eos_bonus=-30.0))
    driver.submit([5, 9, EOS], GREEDY)
    steps = driver.run()
    assert steps > 10
    assert len(driver.reports) == 1


def test_a_second_attempt_withdraws_the_sent_tokens() -> None:
    driver = CoreDriver(RepeatingRunner(replace(LIMITS, max_target_length=60), eos_bonus=-30.0))
    options = DecodingOptions(beam_size=1, max_target_length=50, loop_guard=True)
    streamed = driver.submit([5, EOS], options, streams=True)
    driver.run()
    deltas = deltas_of(driver, streamed)
    restarts = [index for index, (position, _) in enumerate(deltas) if position == 0]
    assert len(restarts) >= 2
    assert deltas[restarts[1]] == (0, ()), "the tokens are withdrawn before the next token is sent"
    final = hypotheses_of(streamed)[0].ids
    assert tokens_of(deltas) == list(final[: len(tokens_of(deltas))])
    assert len(tokens_of(deltas)) >= len(final) - 1


def test_after_a_failed_forward_the_same_tokens_are_sent_again() -> None:
    runner = FailingRunner(eos_bonus=-30.0)
    driver = CoreDriver(runner)
    streamed = driver.submit([5, 9, EOS], GREEDY, streams=True)
    driver.submit([6, EOS], GREEDY)
    driver.run()
    final = hypotheses_of(streamed)[0].ids
    deltas = deltas_of(driver, streamed)
    assert tokens_of(deltas) == list(final[: len(tokens_of(deltas))])
    assert [position for position, _ in deltas].count(0) == 2


def test_a_failure_after_a_second_attempt_withdraws_the_sent_tokens() -> None:
    """The first attempt has sent one token. The third attempt also has one token when its tokens are first read.

    So the number of tokens does not show that the sent token must be replaced.
    """
    runner = BadShortlistRunner()
    driver = CoreDriver(runner)
    options = DecodingOptions(beam_size=1, max_target_length=1, shortlist=0)
    streamed = driver.submit([5, 9, EOS], options, streams=True)
    driver.submit([6, EOS], GREEDY)
    driver.run()
    assert runner.has_failed
    final = hypotheses_of(streamed)[0].ids
    assert final[0] != 9
    assert deltas_of(driver, streamed) == [(0, (9,)), (0, final)]


def test_a_joining_request_has_its_own_turn() -> None:
    """A short request joins the last sentence of a long request. The sentence is served in the short request's turn."""
    driver = CoreDriver(FakeRunner())
    long = [driver.submit([10 + number, EOS], WIDE, request_id="long") for number in range(8)]
    shared = long[-1]
    driver.core.inbox.put(Join(shared, "caller", "short", 1e9))
    driver.run()
    served = driver.ended
    assert served.index(shared) == 1
    assert len(served) == 8
    assert driver.core.scheduler.num_waiting == 0


@pytest.mark.parametrize("end", ["cancel", "serve"])
def test_a_sentence_of_several_requests_leaves_all_their_queues(end: str) -> None:
    driver = CoreDriver(FakeRunner())
    driver.submit([9, EOS], WIDE, request_id="first")
    shared = driver.submit([10, EOS], WIDE, request_id="first")
    for request_id in ("second", "third", "second"):
        driver.core.inbox.put(Join(shared, "other", request_id, 1e9))
    driver.step()
    assert driver.core.scheduler.num_waiting == 1
    if end == "cancel":
        driver.cancel(shared)
    driver.run()
    assert len(driver.ended) == (1 if end == "cancel" else 2)
    assert driver.core.scheduler._queue._callers == {}


def test_a_join_with_a_later_deadline_extends_the_deadline() -> None:
    driver = CoreDriver(FakeRunner(eos_bonus=-30.0))
    decoding = driver.submit([5, EOS], WIDE, deadline=1.0)
    queued = driver.submit([6, EOS], WIDE, deadline=1.0)
    driver.step()
    for sequence in (decoding, queued):
        driver.core.inbox.put(Join(sequence, "caller", "later", 5.0))
    driver.now = 2.0
    driver.run()
    assert len(hypotheses_of(decoding)) == len(hypotheses_of(queued)) == 1
    late = driver.submit([7, EOS], WIDE, deadline=3.0)
    driver.core.inbox.put(Join(late, "caller", "earlier", 1.0))  # an earlier deadline has no effect
    driver.run()
    assert len(hypotheses_of(late)) == 1


def test_the_event_loops_timer_follows_the_later_deadline() -> None:
    async def scenario(timeout_s: float) -> bool:
        runner = GatedRunner()
        async with running(runner) as engine:
            future = submit(engine, [5, EOS], timeout_s=timeout_s)
            if not await begins_before_deadline(runner, future):
                return False
            engine.join(future, request_id="b", caller="", deadline=time.monotonic() + HANG_TIMEOUT_S)
            await asyncio.sleep(2 * timeout_s)
            runner.gate.set()
            assert (await future).hypotheses
            # Without effect, because the sentence is answered.
            engine.join(future, request_id="c", caller="", deadline=time.monotonic() + HANG_TIMEOUT_S)
            runner.gate.clear()
            late = submit(engine, [6, EOS])
            engine.join(late, request_id="b", caller="", deadline=time.monotonic() + 0.01)
            await asyncio.sleep(0.05)
            runner.gate.set()
            assert (await late).hypotheses, "an earlier deadline has no effect"
        return True

    run_with_deadlines(scenario)


def test_a_stream_that_joins_late_starts_with_the_first_token() -> None:
    async def scenario() -> None:
        runner = LateGate()
        received: list[tuple[int, tuple[int, ...]]] = []
        async with running(runner) as engine:
            future = submit(engine, [5, EOS])
            await runner.wait_for_forward()
            deadline = time.monotonic() + HANG_TIMEOUT_S
            engine.join(
                future,
                request_id="b",
                caller="",
                deadline=deadline,
                on_tokens=lambda *deltas: received.append(deltas),
            )
            runner.gate.set()
            result = await future
        ids = result.hypotheses[0].ids
        assert tokens_of(received) == list(ids)[: len(tokens_of(received))]
        assert len(tokens_of(received)) >= len(ids) - 1

    asyncio.run(scenario())


def test_a_beam_search_streams_no_tokens() -> None:
    async def scenario() -> None:
        received: list[object] = []
        async with running(FakeRunner()) as engine:
            for options in (DecodingOptions(beam_size=2, max_target_length=12), NARROW):
                await engine.submit(
                    [5, EOS],
                    options,
                    request_id="a",
                    caller="",
                    deadline=time.monotonic() + HANG_TIMEOUT_S,
                    on_tokens=lambda *deltas, beam=options.beam_size: received.append(beam),
                )
        assert received
        assert set(received) == {1}

    asyncio.run(scenario())
