"""How the translator handles the engine's futures. The fake engine only returns futures."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Sequence
from itertools import pairwise
from typing import Any, cast

import pytest

from app.decoding.option_changes import OptionChanges
from app.decoding.options import EXTRA_TARGET_LENGTH, DecodingOptions, FinishReason, Hypothesis, LengthPenalty
from app.engine.engine import Engine
from app.engine.sequence import SequenceResult
from app.engine.speed import Cost
from app.errors import (
    DeadlineExceeded,
    EngineFailure,
    InvalidRequest,
    PayloadTooLarge,
    SourceTooLong,
    UnsupportedLanguages,
)
from app.text.tokenizer import Tokenizer
from app.translator import AnswerLimits, Extras, ScoreRequest, TranslationRequest, Translator
from app.translator.caching_submitter import CachingSubmitter, SubmitterSettings
from app.translator.jobs import Part, SegmentJob
from app.translator.text_threads import TextThreads
from app.translator.translator import MAX_SUBMITTED
from tests.api.echo import Behaviour, echo_model
from tests.model.sentences import write_tokenizer

TEXT = "Anna draws. Nobody sees the cats.\nThe baker forgets."


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer(write_tokenizer(tmp_path_factory.mktemp("translator") / "tokenizer.spm"))


class FutureEngine:
    """Returns futures and records the submitted sentences.

    sizes: the sentences and tokens of each reservation and each resize. num_reservations: reservations in force.
    """

    def __init__(self, limits: Any) -> None:
        self.limits = limits
        self.futures: list[asyncio.Future[SequenceResult]] = []
        self.submitted: list[tuple[tuple[int, ...], DecodingOptions]] = []
        self.num_reservations = 0
        self.sizes: list[tuple[int, int]] = []

    def reserve(self, num_sentences: int, num_tokens: int, **_: object) -> FutureEngine:
        self.sizes.append((num_sentences, num_tokens))
        return self

    def __enter__(self) -> FutureEngine:
        self.num_reservations += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.num_reservations -= 1

    def prioritize_retries(self, *_: object) -> None:
        """This has no effect, because there is no queue."""

    def join(self, *_: object, **__: object) -> None:
        """This has no effect, because no tokens are streamed and deadlines are fixed."""

    def resize(self, cost: Cost, *, longest: int, checks_bounds: bool = True) -> None:
        self.sizes.append((cost.num_sentences, cost.num_tokens))

    def submit(
        self, source_ids: tuple[int, ...], options: DecodingOptions, *, deadline: float, **_: object
    ) -> asyncio.Future[SequenceResult]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[SequenceResult] = loop.create_future()

        def expire() -> None:
            if not future.done():
                future.set_exception(DeadlineExceeded("as the engine does"))

        loop.call_later(deadline - time.monotonic(), expire)
        self.submitted.append((source_ids, options))
        self.futures.append(future)
        return future


class FutureTranslator:
    """A translator with a `FutureEngine`."""

    def __init__(self, tokenizer: Tokenizer, *, max_sentences: int = 10, max_token_lists: int = 100) -> None:
        model = echo_model(tokenizer, Behaviour(), num_rows=16)
        self.engine = FutureEngine(model.limits)
        self.text_threads = TextThreads(1)
        engine = cast("Engine", self.engine)
        self.translator = Translator(
            model.manifest,
            engine,
            source_tokenizer=tokenizer,
            target_tokenizer=tokenizer,
            text_threads=self.text_threads,
            extras=Extras(
                submitter=CachingSubmitter(engine, settings=SubmitterSettings(coalesces=False)),
                limits=AnswerLimits(max_sentences=max_sentences, max_token_lists=max_token_lists),
            ),
        )

    async def started(self, num_futures: int, **changes: Any) -> asyncio.Task[Any]:
        """Start a request. Wait until num_futures sentences are submitted or the request has ended."""
        task = asyncio.create_task(self.translator.translate(request(**changes)))
        while len(self.engine.futures) < num_futures:
            if task.done():  # refused or expired
                break
            await asyncio.sleep(0.001)
        return task


def test_large_requests_submit_one_slice_in_an_iteration_of_the_event_loop(tokenizer: Tokenizer) -> None:
    """A slice has MAX_SUBMITTED sentences. Submitting thousands without a pause blocks the event loop for 0.1 s."""

    async def run() -> None:
        setup = FutureTranslator(tokenizer, max_sentences=300)
        futures = setup.engine.futures
        large = request(texts=("Anna draws. " * 300,))
        tasks = [asyncio.create_task(setup.translator.translate(large)) for _ in range(4)]
        seen = [0]
        while len(futures) < 300 * len(tasks) and not any(task.done() for task in tasks):
            seen.append(len(futures))
            await asyncio.sleep(0)
        assert max(later - earlier for earlier, later in pairwise(seen)) == MAX_SUBMITTED
        for task in tasks:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert all(future.cancelled() for future in futures)

    asyncio.run(run())


@pytest.mark.parametrize("num_sentences", [MAX_SUBMITTED, MAX_SUBMITTED + 1])
def test_another_thread_processes_the_results_of_many_sentences(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, num_sentences: int
) -> None:
    """On the event loop, sixteen such requests that end together would block it for 0.1 s."""
    threads: set[int] = set()
    add_phases = SegmentJob.add_phases

    def record(job: SegmentJob, decoded: Sequence[Part]) -> None:
        threads.add(threading.get_ident())
        add_phases(job, decoded)

    async def run() -> None:
        setup = FutureTranslator(tokenizer, max_sentences=num_sentences)
        task = await setup.started(num_sentences, texts=("Anna draws. " * num_sentences,))
        for future in setup.engine.futures:
            future.set_result(result(tokenizer.id_of("a"), tokenizer.id_of("n")))
        assert (await task).num_sentences == num_sentences

    monkeypatch.setattr(SegmentJob, "add_phases", record)
    asyncio.run(run())
    is_on_loop = threads == {threading.get_ident()}
    assert len(threads) == 1
    assert is_on_loop == (num_sentences <= MAX_SUBMITTED)


def request(**changes: Any) -> TranslationRequest:
    fields: dict[str, Any] = {
        "texts": (TEXT,),
        "source": "en",
        "target": "de",
        "request_id": "r",
        "caller": "",
        "deadline": time.monotonic() + 120,
    }
    return TranslationRequest(**{**fields, **changes})


def result(*ids: int) -> SequenceResult:
    hypothesis = Hypothesis(ids=ids, log_probability=-1.0, score=-1.0, finish_reason=FinishReason.STOP)
    return SequenceResult([hypothesis], queue_time_s=0.1, encode_time_s=0.2, decode_time_s=0.3, num_steps=1)


def test_the_first_failure_cancels_the_other_sentences(tokenizer: Tokenizer) -> None:
    async def run() -> None:
        setup = FutureTranslator(tokenizer)
        task = await setup.started(3)
        setup.engine.futures[1].set_exception(EngineFailure("failed"))
        with pytest.raises(EngineFailure):
            await task
        assert [future.cancelled() for future in setup.engine.futures] == [True, False, True]
        assert setup.engine.num_reservations == 0

    asyncio.run(run())


def test_cancelling_a_request_cancels_all_sentences(tokenizer: Tokenizer) -> None:
    async def run() -> None:
        setup = FutureTranslator(tokenizer)
        task = await setup.started(3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert all(future.cancelled() for future in setup.engine.futures)
        assert setup.engine.num_reservations == 0

    asyncio.run(run())


def test_the_reservation_is_resized_after_tokenising(tokenizer: Tokenizer) -> None:
    async def run() -> None:
        setup = FutureTranslator(tokenizer)
        task = await setup.started(3)
        num_tokens = sum(len(ids) for ids, _ in setup.engine.submitted)
        assert [size[0] for size in setup.engine.sizes] == [1, 3]
        assert setup.engine.sizes[1][1] == num_tokens
        for future in setup.engine.futures:
            future.set_result(result(tokenizer.id_of("a"), tokenizer.id_of("n")))
        answer = await task
        assert (answer.source_tokens, answer.target_tokens, answer.num_sentences) == (num_tokens, 9, 3)
        assert (answer.timings.queue, answer.timings.encode, answer.timings.decode) == (100, 200, 300)

    asyncio.run(run())


def test_a_request_fails_if_one_sentence_has_no_result_at_the_deadline(tokenizer: Tokenizer) -> None:
    async def run() -> None:
        for limit_s in (0.2, 2.0, 20.0):  # until the machine submits three sentences in time
            setup = FutureTranslator(tokenizer)
            task = await setup.started(3, deadline=time.monotonic() + limit_s)
            if not task.done():
                break
        for future in setup.engine.futures[:2]:
            future.set_result(result(10))
        await asyncio.sleep(1.5 * limit_s)
        with pytest.raises(DeadlineExceeded):
            await task
        assert isinstance(setup.engine.futures[2].exception(), DeadlineExceeded)

    asyncio.run(run())


def test_options_that_the_request_does_not_set_come_from_the_model(tokenizer: Tokenizer) -> None:
    setup = FutureTranslator(tokenizer)
    plain = setup.translator.options(request(), num_source_tokens=7)
    assert (plain.beam_size, plain.alpha, plain.length_penalty) == (4, 0.6, LengthPenalty.WU)
    assert plain.max_target_length == 7 + EXTRA_TARGET_LENGTH
    longest = setup.engine.limits.max_target_length - 1
    assert setup.translator.options(request(), num_source_tokens=60).max_target_length == longest
    changes = OptionChanges.of(beam_size=2, alpha=0.0, max_target_length=5)
    explicit = request(options=changes, extra_target_length=None)
    chosen = setup.translator.options(explicit, num_source_tokens=7)
    assert chosen == DecodingOptions(beam_size=2, alpha=0.0, max_target_length=5)


@pytest.mark.parametrize(
    ("changes", "num_forced", "longest"),
    [
        ({}, 0, 7 + EXTRA_TARGET_LENGTH),
        ({"min_target_length": 62}, 0, 62),
        ({"min_target_ratio": 10.5}, 0, 63),
        ({}, 61, 61),
        # The requested maximum holds. `translate` refuses this contradiction before admission.
        ({"min_target_length": 62, "max_target_length": 60}, 0, 60),
    ],
)
def test_the_default_length_limit_does_not_cut_requested_lengths(
    tokenizer: Tokenizer, changes: dict[str, Any], num_forced: int, longest: int
) -> None:
    setup = FutureTranslator(tokenizer)
    options = OptionChanges.of(**changes)
    chosen = setup.translator.options(request(options=options), num_source_tokens=7, num_forced=num_forced)
    assert chosen.max_target_length == longest


@pytest.mark.parametrize(("source", "target"), [("de", "en"), ("en", "en"), ("EN", "de")])
def test_an_unknown_pair_is_refused_before_admission(tokenizer: Tokenizer, source: str, target: str) -> None:
    setup = FutureTranslator(tokenizer)
    with pytest.raises(UnsupportedLanguages, match="en to de"):
        asyncio.run(setup.translator.translate(request(source=source, target=target)))
    assert setup.engine.sizes == []


def test_the_limit_of_sentences_applies_to_all_texts_together(tokenizer: Tokenizer) -> None:
    setup = FutureTranslator(tokenizer, max_sentences=5)
    with pytest.raises(PayloadTooLarge, match="more than 5 sentences"):
        asyncio.run(setup.translator.translate(request(texts=(TEXT, TEXT))))
    assert setup.engine.submitted == []


def test_no_submitted_part_is_longer_than_the_model_takes(tokenizer: Tokenizer) -> None:
    async def run() -> None:
        setup = FutureTranslator(tokenizer, max_sentences=1000)
        text = (
            "Anna sees the river and nobody draws the old tree, " * 30
            + "\U0001f600 a " * 30
            + "e\u0301" * 3000
        )
        task = await setup.started(10, texts=(text,))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        lengths = [len(ids) for ids, _ in setup.engine.submitted]
        assert max(lengths) <= setup.engine.limits.max_source_length
        assert sum(lengths) > 600

    asyncio.run(run())


def test_a_prefix_applies_to_the_first_sentence_and_suppression_to_all(tokenizer: Tokenizer) -> None:
    async def run() -> None:
        setup = FutureTranslator(tokenizer)
        texts = (TEXT, "Anna draws.")
        task = await setup.started(
            4, texts=texts, suppress=("Fluss", "den alten Baum"), target_prefixes=(" mein Bruder ", "")
        )
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        prefix = tokenizer.encode_target("mein Bruder")[:-1]
        assert [options.target_prefix for _, options in setup.engine.submitted] == [prefix, (), (), ()]
        runs = tuple(tokenizer.encode_target(phrase)[:-1] for phrase in ("Fluss", "den alten Baum"))
        assert all(runs)
        assert all(options.suppress_sequences == runs for _, options in setup.engine.submitted)

    asyncio.run(run())


def run_without_answers(work: Coroutine[Any, Any, Any]) -> None:
    """Run a call that must end without the engine's answer, because the fake engine never answers."""

    async def run() -> None:
        await asyncio.wait_for(work, 5)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("num_hypotheses", "num_alternatives", "ways"),
    [(2, 2, "or lower num_hypotheses, or lower num_alternatives"), (1, 5, "or lower num_alternatives")],
)
def test_too_many_token_lists_are_refused_before_decoding(
    tokenizer: Tokenizer, num_hypotheses: int, num_alternatives: int, ways: str
) -> None:
    setup = FutureTranslator(tokenizer, max_token_lists=17)
    options = OptionChanges.of(num_hypotheses=num_hypotheses, num_alternatives=num_alternatives)
    factors = f"3 sentences, {num_hypotheses} hypotheses each, with {num_alternatives} alternatives"
    message = f"{factors} makes 18 lists, the limit is 17; send fewer sentences, {ways}$"
    with pytest.raises(PayloadTooLarge, match=message):
        run_without_answers(setup.translator.translate(request(options=options)))
    assert setup.engine.submitted == []


def test_contradictory_options_are_refused_before_admission(tokenizer: Tokenizer) -> None:
    setup = FutureTranslator(tokenizer)
    options = OptionChanges.of(min_target_length=9, max_target_length=8)
    with pytest.raises(
        InvalidRequest, match=r"min_target_length requires at least 9 .* max_target_length allows 8"
    ):
        run_without_answers(setup.translator.translate(request(options=options)))
    assert setup.engine.sizes == []


def score_request(**changes: Any) -> ScoreRequest:
    fields: dict[str, Any] = {
        "texts": ("Anna draws.",),
        "translations": ("Anna zeichnet.",),
        "source": "en",
        "target": "de",
        "request_id": "r",
        "caller": "",
        "deadline": time.monotonic() + 10,
    }
    return ScoreRequest(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "error", "field"),
    [
        ({"texts": (" \n",)}, InvalidRequest, "text[0]"),
        ({"translations": ("\u2028 ",)}, InvalidRequest, "translation[0]"),
        ({"texts": ("Anna draws. " * 40,)}, SourceTooLong, "text[0]"),
        ({"translations": ("Anna zeichnet. " * 40,)}, InvalidRequest, "translation[0]"),
        ({"translations": ("\ue000",)}, InvalidRequest, "translation[0]"),
    ],
)
def test_the_error_names_a_pair_that_cannot_be_scored(
    tokenizer: Tokenizer, changes: dict[str, Any], error: type[InvalidRequest], field: str
) -> None:
    setup = FutureTranslator(tokenizer)
    with pytest.raises(error) as caught:
        run_without_answers(setup.translator.score(score_request(**changes)))
    assert caught.value.field == field
    assert setup.engine.submitted == []
    assert setup.engine.num_reservations == 0
