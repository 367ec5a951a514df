"""What the translator does with an engine's futures, on an engine that is only futures."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from app.decoding.options import EXTRA_TARGET_LENGTH, DecodingOptions, FinishReason, Hypothesis, LengthPenalty
from app.engine.engine import Engine
from app.engine.sequence import SequenceResult
from app.errors import DeadlineExceeded, EngineFailure, PayloadTooLarge, UnsupportedLanguages
from app.text.tokenizer import Tokenizer
from app.translator import TranslationRequest, Translator
from tests.api.echo import Behaviour, echo_model
from tests.model.sentences import write_tokenizer

TEXT = "Anna draws. Nobody sees 42 cats.\nThe baker forgets."


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer(write_tokenizer(tmp_path_factory.mktemp("translator") / "tokenizer.spm"))


class FutureEngine:
    """Hands out futures and remembers what was asked. entered: places in the queue that are held now."""

    def __init__(self, limits: Any) -> None:
        self.limits = limits
        self.futures: list[asyncio.Future[SequenceResult]] = []
        self.asked: list[tuple[tuple[int, ...], DecodingOptions]] = []
        self.entered = 0
        self.sizes: list[tuple[int, int]] = []

    @contextlib.contextmanager
    def reserve(self, num_sentences: int, num_tokens: int) -> Iterator[FutureEngine]:
        self.entered += 1
        self.sizes.append((num_sentences, num_tokens))
        try:
            yield self
        finally:
            self.entered -= 1

    def resize(self, num_sentences: int, num_tokens: int) -> None:
        self.sizes.append((num_sentences, num_tokens))

    def submit(
        self, source_ids: tuple[int, ...], options: DecodingOptions, **_: object
    ) -> asyncio.Future[SequenceResult]:
        self.asked.append((source_ids, options))
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]


class Bench:
    """A translator on such an engine."""

    def __init__(self, tokenizer: Tokenizer, *, max_sentences: int = 10) -> None:
        model = echo_model(tokenizer, Behaviour(), num_rows=16)
        self.engine = FutureEngine(model.runner.limits)
        self.executor = ThreadPoolExecutor(1)
        self.translator = Translator(
            model.manifest,
            cast("Engine", self.engine),
            source_tokenizer=tokenizer,
            target_tokenizer=tokenizer,
            executor=self.executor,
            max_sentences=max_sentences,
        )

    async def started(self, num_futures: int, **changes: Any) -> asyncio.Task[Any]:
        """A request whose sentences have all been submitted."""
        task = asyncio.create_task(self.translator.translate(request(**changes)))
        while len(self.engine.futures) < num_futures:
            assert not task.done(), task
            await asyncio.sleep(0.001)
        return task


def request(**changes: Any) -> TranslationRequest:
    fields: dict[str, Any] = {
        "texts": (TEXT,),
        "source": "en",
        "target": "de",
        "request_id": "r",
        "caller": "",
        "deadline": time.monotonic() + 10,
    }
    return TranslationRequest(**{**fields, **changes})


def result(*ids: int) -> SequenceResult:
    hypothesis = Hypothesis(ids=ids, log_probability=-1.0, score=-1.0, finish_reason=FinishReason.STOP)
    return SequenceResult([hypothesis], queue_time_s=0.1, encode_time_s=0.2, decode_time_s=0.3, num_steps=1)


def test_the_first_failure_frees_the_others(tokenizer: Tokenizer) -> None:
    async def run() -> None:
        bench = Bench(tokenizer)
        task = await bench.started(3)
        bench.engine.futures[1].set_exception(EngineFailure("failed"))
        with pytest.raises(EngineFailure):
            await task
        assert [future.cancelled() for future in bench.engine.futures] == [True, False, True]
        assert bench.engine.entered == 0

    asyncio.run(run())


def test_a_cancel_frees_all(tokenizer: Tokenizer) -> None:
    async def run() -> None:
        bench = Bench(tokenizer)
        task = await bench.started(3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert all(future.cancelled() for future in bench.engine.futures)
        assert bench.engine.entered == 0

    asyncio.run(run())


def test_the_place_is_put_right_after_tokenising(tokenizer: Tokenizer) -> None:
    async def run() -> None:
        bench = Bench(tokenizer)
        task = await bench.started(3)
        num_tokens = sum(len(ids) for ids, _ in bench.engine.asked)
        assert [size[0] for size in bench.engine.sizes] == [1, 3]
        assert bench.engine.sizes[1][1] == num_tokens
        for future in bench.engine.futures:
            future.set_result(result(10, 11))
        answer = await task
        assert (answer.source_tokens, answer.target_tokens, answer.num_sentences) == (num_tokens, 9, 3)
        assert (answer.timings.queue, answer.timings.encode, answer.timings.decode) == (100, 200, 300)

    asyncio.run(run())


def test_a_result_that_comes_too_late_is_none(tokenizer: Tokenizer) -> None:
    async def run() -> None:
        bench = Bench(tokenizer)
        task = await bench.started(3, deadline=time.monotonic() + 0.2)
        await asyncio.sleep(0.3)
        for future in bench.engine.futures:
            future.set_result(result(10))
        with pytest.raises(DeadlineExceeded):
            await task

    asyncio.run(run())


def test_options_are_the_requests_else_the_models(tokenizer: Tokenizer) -> None:
    bench = Bench(tokenizer)
    plain = bench.translator.options(request(), num_source_tokens=7)
    assert (plain.beam_size, plain.alpha, plain.length_penalty) == (4, 0.6, LengthPenalty.WU)
    assert plain.max_target_length == 7 + EXTRA_TARGET_LENGTH
    longest = bench.engine.limits.max_target_length - 1
    assert bench.translator.options(request(), num_source_tokens=60).max_target_length == longest
    asked = request(beam_size=2, alpha=0.0, length_penalty=LengthPenalty.POWER, max_target_length=5)
    chosen = bench.translator.options(asked, num_source_tokens=7)
    assert (chosen.beam_size, chosen.alpha, chosen.length_penalty) == (2, 0.0, LengthPenalty.POWER)
    assert chosen.max_target_length == 5
    assert bench.translator.options(request(num_hypotheses=8), num_source_tokens=7).beam_size == 8


@pytest.mark.parametrize(("source", "target"), [("de", "en"), ("en", "en"), ("EN", "de")])
def test_an_unknown_pair_costs_nothing(tokenizer: Tokenizer, source: str, target: str) -> None:
    bench = Bench(tokenizer)
    with pytest.raises(UnsupportedLanguages, match="en to de"):
        asyncio.run(bench.translator.translate(request(source=source, target=target)))
    assert bench.engine.sizes == []


def test_too_many_sentences_are_counted_over_all_texts(tokenizer: Tokenizer) -> None:
    bench = Bench(tokenizer, max_sentences=5)
    with pytest.raises(PayloadTooLarge, match="more than 5 sentences"):
        asyncio.run(bench.translator.translate(request(texts=(TEXT, TEXT))))
    assert bench.engine.asked == []


def test_no_piece_is_longer_than_the_model_takes(tokenizer: Tokenizer) -> None:
    async def run() -> None:
        bench = Bench(tokenizer, max_sentences=1000)
        text = (
            "Anna sees the river and nobody draws the old tree, " * 30
            + "\U0001f600 a " * 30
            + "e\u0301" * 3000
        )
        task = await bench.started(10, texts=(text,))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        lengths = [len(ids) for ids, _ in bench.engine.asked]
        assert max(lengths) <= bench.engine.limits.max_source_length
        assert sum(lengths) > 600

    asyncio.run(run())
