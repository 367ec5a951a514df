"""Cached sentences, and sentences in flight with several subscribers, of the real engine with a fake runner."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from typing import Any

import pytest

from app.decoding.options import (
    DecodingOptions,
    EarlyStop,
    LengthPenalty,
    Sampling,
)
from app.engine.engine import Engine
from app.engine.limits import EngineLimits
from app.engine.sequence import SequenceResult
from app.errors import DeadlineExceeded, EngineFailure, InvalidRequest, NotReady, Overloaded
from app.runtime.interface import StepInput, StepOutput
from app.translator.admission_ticket import MAX_PROVISIONAL
from app.translator.caching_submitter import CachingSubmitter, SubmitterSettings
from app.workers.thread_worker import ThreadWorker
from tests.engine.fake_runner import EOS, FakeRunner
from tests.engine.test_engine import (
    HANG_TIMEOUT_S,
    NARROW,
    WIDE,
    GatedRunner,
    begins_before_deadline,
    run_with_deadlines,
    running,
)

SOURCE = (5, 6, EOS)
CACHED = SubmitterSettings(cache_bytes=1_000_000)


@asynccontextmanager
async def running_submitter(
    runner: FakeRunner, settings: SubmitterSettings = CACHED, limits: EngineLimits | None = None
) -> AsyncIterator[CachingSubmitter]:
    async with running(runner, limits or EngineLimits(max_encode_tokens=64)) as engine:
        submitter = CachingSubmitter(engine, model_key="m", settings=settings)
        yield submitter
        if isinstance(runner, GatedRunner):
            runner.gate.set()
    assert submitter.stats().num_in_flight == 0
    assert submitter._in_flight == {}
    assert submitter.num_provisional == 0


def submit(
    submitter: CachingSubmitter,
    source: tuple[int, ...] = SOURCE,
    options: DecodingOptions = NARROW,
    *,
    request_id: str = "request",
    timeout_s: float = HANG_TIMEOUT_S,
    on_tokens: Any = None,
) -> asyncio.Future[SequenceResult]:
    return submitter.submit(
        source,
        options,
        request_id=request_id,
        caller="caller",
        deadline=time.monotonic() + timeout_s,
        on_tokens=on_tokens,
    )


def run_scenario(scenario: Any) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 2 * HANG_TIMEOUT_S))


def test_a_cached_sentence_is_not_decoded_again() -> None:
    async def scenario() -> None:
        runner = FakeRunner()
        async with running_submitter(runner) as submitter:
            first = await submit(submitter)
            steps = runner.calls["decode"]
            future = submit(submitter, request_id="other")
            assert future.done()
            again = future.result()
            assert again.hypotheses == first.hypotheses
            assert again.is_cached
            assert not first.is_cached
            assert (again.queue_time_s, again.encode_time_s, again.decode_time_s, again.num_steps) == (
                0,
                0,
                0,
                0,
            )
            assert runner.calls["decode"] == steps
            stats = submitter.stats()
            assert (stats.num_hits, stats.num_misses, stats.num_coalesced) == (1, 1, 0)
            assert stats.num_bytes > 0

    run_scenario(scenario)


# Options that each differ in one field from DecodingOptions(beam_size=3).
VARIANTS: dict[str, DecodingOptions] = {
    "num_hypotheses": DecodingOptions(beam_size=3, num_hypotheses=2),
    "length_penalty": DecodingOptions(beam_size=3, length_penalty=LengthPenalty.POWER),
    "alpha": DecodingOptions(beam_size=3, alpha=0.5),
    "max_target_length": DecodingOptions(beam_size=3, max_target_length=11),
    "patience": DecodingOptions(beam_size=3, patience=2.0),
    "early_stop": DecodingOptions(beam_size=3, early_stop=EarlyStop.BOUND),
    "sampling": DecodingOptions(beam_size=3, sampling=Sampling(seed=1)),
    "forced_target": DecodingOptions(beam_size=3, forced_target=(5,)),
    "coverage_penalty": DecodingOptions(beam_size=3, coverage_penalty=0.1),
    "min_target_length": DecodingOptions(beam_size=3, min_target_length=2),
    "min_target_ratio": DecodingOptions(beam_size=3, min_target_ratio=0.5),
    "max_target_ratio": DecodingOptions(beam_size=3, max_target_ratio=2.0),
    "suppress_sequences": DecodingOptions(beam_size=3, suppress_sequences=((5,),)),
    "no_repeat_ngram_size": DecodingOptions(beam_size=3, no_repeat_ngram_size=2),
    "repetition_penalty": DecodingOptions(beam_size=3, repetition_penalty=1.1),
    "target_prefix": DecodingOptions(beam_size=3, target_prefix=(5,)),
    "loop_guard": DecodingOptions(beam_size=3, loop_guard=True),
    "num_alternatives": DecodingOptions(beam_size=3, num_alternatives=1),
    "start_id": DecodingOptions(beam_size=3, start_id=7),
    "alignment": DecodingOptions(beam_size=3, alignment=True),
    "shortlist": DecodingOptions(beam_size=3, shortlist=0),
    "beam_size": DecodingOptions(beam_size=4),
}


def test_the_key_depends_on_every_option_every_id_and_the_model() -> None:
    assert set(VARIANTS) == {field.name for field in fields(DecodingOptions)}, (
        "each decoding option needs a line in VARIANTS"
    )
    base = DecodingOptions(beam_size=3)
    engine: Any = None
    submitter = CachingSubmitter(engine, model_key="m", settings=CACHED)
    keys = [submitter._key(SOURCE, options) for options in (base, *VARIANTS.values())]
    sampled = [
        Sampling(seed=2),
        Sampling(seed=1, top_k=3),
        Sampling(seed=1, top_p=0.5),
        Sampling(1.5, seed=1),
    ]
    keys += [submitter._key(SOURCE, replace(base, sampling=sampling)) for sampling in sampled]
    keys += [
        submitter._key(source, base) for source in ((5, EOS), (5, 6, 6, EOS), (6, 5, EOS), (5, 6, 256 * EOS))
    ]
    keys.append(CachingSubmitter(engine, model_key="n", settings=CACHED)._key(SOURCE, base))
    assert len(set(keys)) == len(keys)
    assert submitter._key(list(SOURCE), DecodingOptions(beam_size=3)) == keys[0]


def test_equal_sentences_in_flight_are_decoded_once() -> None:
    async def scenario() -> None:
        runner = GatedRunner()
        async with running_submitter(runner, SubmitterSettings(cache_bytes=0)) as submitter:
            futures = [submit(submitter, request_id=str(number)) for number in range(5)]
            other = submit(submitter, (7, EOS))
            await runner.wait_for_forward()
            futures.append(submit(submitter, request_id="late"))
            runner.gate.set()
            results = await asyncio.gather(*futures, other)
            assert all(result is results[0] for result in results[:-1])
            assert runner.encoded == [SOURCE, (7, EOS)]
            assert submitter.stats().num_coalesced == 5
            await submit(submitter)
            assert runner.encoded == [SOURCE, (7, EOS), SOURCE], "a cache of zero bytes stays empty"
            submitter.clear()
            assert submitter.stats().num_coalesced == 0

    run_scenario(scenario)


def test_no_sentences_are_coalesced_if_coalescing_is_off() -> None:
    async def scenario() -> None:
        runner = GatedRunner()
        async with running_submitter(
            runner, SubmitterSettings(cache_bytes=10**6, coalesces=False)
        ) as submitter:
            futures = [submit(submitter) for _ in range(2)]
            runner.gate.set()
            await asyncio.gather(*futures)
            assert runner.encoded == [SOURCE] * 2
            assert submit(submitter).done()
            assert submitter.stats().num_coalesced == 0

    run_scenario(scenario)


def test_cancelling_one_subscriber_affects_no_other_and_the_last_frees_the_rows() -> None:
    async def scenario() -> None:
        runner = GatedRunner()
        async with running_submitter(runner) as submitter:
            first, second, third = (submit(submitter, options=WIDE, request_id=name) for name in "abc")
            await runner.wait_for_forward()
            first.cancel()
            await asyncio.sleep(0)
            assert not second.done()
            second.cancel()
            runner.gate.set()
            assert (await third).hypotheses
            runner.gate.clear()
            runner.forward_began.clear()
            cancelled = [submit(submitter, (8, EOS), WIDE, request_id=name) for name in "ab"]
            await runner.wait_for_forward()
            steps = runner.calls["decode"]
            for future in cancelled:
                future.cancel()
            await asyncio.sleep(0.01)  # until the cancellation is in the engine's inbox
            runner.gate.set()
            await submit(submitter, (9, EOS), DecodingOptions(beam_size=1, max_target_length=1))
            assert runner.calls["decode"] <= steps + 2 + 2, (
                "two steps of the sentence itself, and at most two of the cancelled sentence"
            )
            assert runner.batches[-1] == 1, "the sixteen rows of the cancelled sentence are free"
            assert not submitter.has((8, EOS), WIDE), "a cancelled sentence is not cached"

    run_scenario(scenario)


def test_each_subscriber_has_its_own_deadline() -> None:
    async def scenario(timeout_s: float) -> bool:
        runner = GatedRunner()
        async with running_submitter(runner) as submitter:
            short = submit(submitter, options=WIDE, timeout_s=timeout_s)
            if not await begins_before_deadline(runner, short):
                return False
            long = submit(submitter, options=WIDE, request_id="long")
            shorter = submit(submitter, options=WIDE, request_id="shorter", timeout_s=0.02)
            for future in (shorter, short):
                with pytest.raises(DeadlineExceeded):
                    await future
            assert not long.done()
            runner.gate.set()
            assert (await long).hypotheses
            assert runner.encoded == [SOURCE], "decoded once, although the first deadline has passed"
            late = submit(submitter, (8, EOS), timeout_s=-1.0)
            with pytest.raises(DeadlineExceeded):
                await late
        return True

    run_with_deadlines(scenario)


def test_subscribing_to_a_sentence_that_the_engine_has_dropped_submits_it_again() -> None:
    """The engine sets DeadlineExceeded, and then a request that has time left subscribes."""

    async def scenario() -> None:
        runner = GatedRunner()
        runner.gate.set()
        async with running_submitter(runner) as submitter:
            first = submit(submitter)
            in_flight = next(iter(submitter._in_flight.values()))
            in_flight.future.set_exception(DeadlineExceeded("the request's time ran out"))
            second = submit(submitter, request_id="b")
            assert (await second).hypotheses
            assert (await first).hypotheses, "the first subscriber had time left, too"
            assert submitter.has(SOURCE, NARROW)

    run_scenario(scenario)


def test_errors_reach_all_subscribers_and_are_not_cached() -> None:
    class FailingRunner(GatedRunner):
        is_broken = True

        def decode(self, step: StepInput) -> StepOutput:
            output = super().decode(step)
            if self.is_broken:
                raise EngineFailure("broken")
            return output

    async def scenario() -> None:
        runner = FailingRunner()
        async with running_submitter(runner) as submitter:
            futures = [submit(submitter, request_id=name) for name in "ab"]
            runner.gate.set()
            for future in futures:
                with pytest.raises(EngineFailure):
                    await future
            assert submitter.stats().num_entries == 0
            runner.is_broken = False
            assert (await submit(submitter)).hypotheses
            with pytest.raises(InvalidRequest):
                submit(submitter, (), NARROW)
            assert submitter._in_flight == {}

    run_scenario(scenario)


def test_samples_are_shared_only_if_the_caller_chose_the_seed() -> None:
    async def scenario() -> None:
        runner = GatedRunner()
        drawn = replace(NARROW, sampling=Sampling(seed=4, is_seeded=False))
        chosen = replace(NARROW, sampling=Sampling(seed=4))
        async with running_submitter(runner) as submitter:
            futures = [submit(submitter, options=options) for options in (drawn, drawn, chosen, chosen)]
            runner.gate.set()
            await asyncio.gather(*futures)
            assert len(runner.encoded) == 3
            assert submitter.has(SOURCE, chosen)
            assert not submitter.has(SOURCE, drawn)

    run_scenario(scenario)


def test_every_subscriber_gets_all_tokens_from_the_first_on() -> None:
    async def scenario() -> None:
        runner = GatedRunner()
        received: dict[str, list[int]] = {"a": [], "b": [], "c": []}

        def listener(name: str) -> Any:
            def on_tokens(position: int, ids: tuple[int, ...]) -> None:
                received[name][position:] = ids
                if name == "a" and len(received["a"]) == 4:
                    submit(submitter, request_id="c", on_tokens=listener("c"))

            return on_tokens

        async with running_submitter(runner) as submitter:
            silent = submit(submitter, request_id="silent")
            await runner.wait_for_forward()
            futures = [submit(submitter, request_id=name, on_tokens=listener(name)) for name in "ab"]
            runner.gate.set()
            ids = (await silent).hypotheses[0].ids
            await asyncio.gather(*futures)
            assert received["a"] == received["b"] == received["c"] == list(ids)[: len(received["a"])]
            assert len(received["a"]) >= len(ids) - 1

    run_scenario(scenario)


def test_cached_sentences_have_no_cost_and_are_answered_with_a_full_queue() -> None:
    async def scenario() -> None:
        runner = GatedRunner()
        limits = EngineLimits(max_encode_tokens=64, max_pending_sentences=2)
        async with running_submitter(runner, limits=limits) as submitter:
            runner.gate.set()
            await submit(submitter)
            deadline = time.monotonic() + HANG_TIMEOUT_S
            engine: Engine = submitter.engine
            with submitter.reserve(2, 20, deadline=deadline) as full:
                full.finalize([((7, EOS), NARROW, 1), ((8, EOS), NARROW, 1)])
                assert engine.health().num_pending_sentences == 2
                with submitter.reserve(1, 3, deadline=deadline) as ticket:
                    assert submitter.num_provisional == 1
                    ticket.finalize([(SOURCE, NARROW, 1)])
                    assert submitter.num_provisional == 0
                    assert submit(submitter).done()
                    assert engine.health().num_pending_sentences == 2
                with pytest.raises(Overloaded), submitter.reserve(2, 6, deadline=deadline) as ticket:
                    ticket.finalize([(SOURCE, NARROW, 1), ((9, EOS), NARROW, 1)])
                provisional = [
                    submitter.reserve(1, 3, deadline=deadline).__enter__() for _ in range(MAX_PROVISIONAL)
                ]
                with pytest.raises(Overloaded), submitter.reserve(1, 3, deadline=deadline):
                    pass
                for ticket in provisional:
                    ticket.__exit__(None, None, None)
            with submitter.reserve(3, 30, deadline=deadline) as ticket:
                ticket.finalize([(SOURCE, NARROW, 1), ((9, EOS), NARROW, 1), (SOURCE, NARROW, 1)])
                assert engine.health().num_pending_sentences == 1
                assert engine.health().num_pending_tokens == 2
            assert engine.health().num_pending_sentences == 0
            assert engine.health().num_pending_tokens == 0

    run_scenario(scenario)


def test_without_a_cache_a_full_queue_refuses_before_any_work() -> None:
    async def scenario() -> None:
        limits = EngineLimits(max_encode_tokens=64, max_pending_sentences=2)
        async with running_submitter(FakeRunner(), SubmitterSettings(), limits) as submitter:
            deadline = time.monotonic() + HANG_TIMEOUT_S
            with submitter.reserve(2, 2, deadline=deadline), pytest.raises(Overloaded):
                submitter.reserve(1, 1, deadline=deadline).__enter__()

    run_scenario(scenario)


def test_closing_the_engine_fails_all_subscribers() -> None:
    async def scenario() -> None:
        runner = GatedRunner()
        engine = Engine([ThreadWorker(runner)], settings=EngineLimits(max_encode_tokens=64))
        engine.start()
        submitter = CachingSubmitter(engine, settings=CACHED)
        futures = [submit(submitter, request_id=name) for name in "ab"]
        await runner.wait_for_forward()
        closing = asyncio.create_task(engine.close(0.0))
        for future in futures:
            with pytest.raises(NotReady):
                await future
        runner.gate.set()
        await closing

    run_scenario(scenario)
