"""Translates the texts of a request with one model: read, split, tokenise, decode, detokenise, join.

Independent of HTTP. Work whose time grows with the text runs on an executor, except for short texts (`Translator.run`).
A request holds an admission ticket of the engine from before that work begins until the request ends, however it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeVar

from app.bundle import Manifest
from app.decoding.options import DecodingOptions
from app.engine.engine import Engine
from app.engine.sequence import SequenceResult
from app.engine.stats import Health
from app.errors import DeadlineExceeded
from app.language_pairs import LanguagePair
from app.loop_turns import take_turn
from app.stores.glossaries import GlossaryStore
from app.text.detection import LazyDetector
from app.text.tokenizer import Encoded, Tokenizer
from app.translator.admission_ticket import AdmissionTicket
from app.translator.all_of import all_of
from app.translator.caching_submitter import CachingSubmitter
from app.translator.detokeniser import Detokeniser
from app.translator.jobs import Part, Phases, SegmentJob, Submission, add_phases, spans_of, submissions
from app.translator.live_text import LiveSegment
from app.translator.model_translator import ModelTranslator
from app.translator.observer import Observer
from app.translator.planning import ModelAbilities, Planner, RequestPlan
from app.translator.request import (
    AnswerLimits,
    ScoreRequest,
    ScoreResult,
    TranslationRequest,
    TranslationResult,
)
from app.translator.retry import RetryPolicy
from app.translator.samples import join_samples, num_samples, samples_of
from app.translator.subwords import SubwordEncoder
from app.translator.text_threads import TextThreads
from app.translator.unknown_tokens import UnknownTokens

T = TypeVar("T")
Request = TranslationRequest | ScoreRequest
# Characters per subword, for the estimate before tokenising. English and German subwords have three to four. If larger,
# the estimate is too low, and requests enter a queue that is too long for them. If smaller, requests are refused
# needlessly.
CHARACTERS_PER_TOKEN = 3
# Texts of at most this many characters (two short sentences) are handled on the event loop, which takes 0.2 ms. If
# larger, other requests wait for that work. If smaller, handing the work to a thread takes longer than the work.
SHORT_CHARACTERS = 256
# The number of searches that a request submits, in up to two milliseconds, before another request may submit some. It
# is also the maximum number of sentences whose short work runs on the event loop. If larger, other requests wait
# longer. If smaller, requests with fewer sentences take turns, too.
MAX_SUBMITTED = 16


@dataclass(frozen=True)
class Extras:
    """Optional parts of a translator, and the limits of one request.

    detector: if None, every request must name its source language. glossaries: stored ones, which a request can name by
    id. submitter: if None, no result is cached; equal sentences in flight are coalesced all the same.
    """

    detector: LazyDetector | None = None
    glossaries: GlossaryStore | None = None
    submitter: CachingSubmitter | None = None
    limits: AnswerLimits = field(default_factory=AnswerLimits)


class Translator(ModelTranslator):
    """Translates and scores texts with the engine of one bundle. Its public methods run on the event loop."""

    def __init__(
        self,
        manifest: Manifest,
        engine: Engine,
        *,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        text_threads: TextThreads,
        extras: Extras | None = None,
    ) -> None:
        """The constructor loads and starts nothing."""
        extras = extras or Extras()
        super().__init__(manifest, engine.limits, text_threads=text_threads, detector=extras.detector)
        self.engine = engine
        self.submitter = extras.submitter or CachingSubmitter(engine)
        self.target_tokenizer = target_tokenizer
        self.encoder = SubwordEncoder(
            source_tokenizer,
            target_tokenizer,
            engine.limits.max_source_length,
            None if manifest.has_distinct_placeholders else UnknownTokens(target_tokenizer),
        )
        self.planner = Planner(
            self.languages,
            self.encoder,
            default_options=self.default_options,
            abilities=ModelAbilities.of(manifest, engine.limits),
            limits=extras.limits,
            glossaries=extras.glossaries,
        )
        self.detokeniser = Detokeniser(target_tokenizer, self.encoder)
        self.retry_policy = RetryPolicy(self.planner, self.detokeniser)

    @property
    def is_loaded(self) -> bool:
        """As `ModelTranslator.is_loaded`."""
        return True

    def health(self) -> Health:
        """As `ModelTranslator.health`."""
        return self.engine.health()

    @contextlib.asynccontextmanager
    async def held(self, deadline: float) -> AsyncIterator[Translator]:
        """As `ModelTranslator.held`."""
        yield self

    @contextlib.asynccontextmanager
    async def held_with(
        self, last: ModelTranslator, deadline: float
    ) -> AsyncIterator[tuple[Translator, Translator]]:
        """As `ModelTranslator.held_with`."""
        assert isinstance(last, Translator)
        yield self, last

    def encode(self, part: str, pair: LanguagePair) -> Encoded | None:
        """As `SubwordEncoder.encode`."""
        return self.encoder.encode(part, pair)

    def options(
        self, request: TranslationRequest, *, num_source_tokens: int, num_forced: int = 0
    ) -> DecodingOptions:
        """As `Planner.options`."""
        prepared = self.planner.prepare(request)
        return self.planner.options(prepared, num_source_tokens=num_source_tokens, num_forced=num_forced)

    async def translate(
        self, request: TranslationRequest, observer: Observer | None = None
    ) -> TranslationResult:
        """Translate every text.

        Cancelling the task frees the engine rows of all its sentences. Raises UnsupportedLanguages, PayloadTooLarge
        (too many sentences or token lists), SourceTooLong, Overloaded, NotReady, DeadlineExceeded, EngineFailure, and
        InvalidRequest (contradictory or unsupported options, no source and no detector, and as `Planner.plan`).
        """
        self.languages.check(request.source, request.target)
        self.checked_options(request.options)
        with self.reserve(request) as ticket:
            started = time.monotonic()
            if request.source is None:
                await self.languages.wait_for_detector()

            plan, sentences = await self.run(request, lambda: self._plan(request))
            tokenise_s = time.monotonic() - started
            ticket.finalize(sentences)
            if observer is not None:
                observer.on_segments(spans_of(plan.texts))
                await self._stream(plan, observer)  # afterwards nothing is left to decode
            result, detokenise_s = await self._decode_all(plan)
        if len(plan.jobs) > MAX_SUBMITTED:
            # A thread frees the plan's many objects, which takes up to 10 ms.
            unused: list[object] = [plan, sentences]
            del plan, sentences
            self.text_threads.submit(unused.clear)
        timings = result.timings._replace(tokenise=tokenise_s * 1000, detokenise=detokenise_s * 1000)
        return replace(result, timings=timings)

    async def score(self, request: ScoreRequest) -> ScoreResult:
        """Score every pair of text and translation. A text is not split.

        Raises the errors of `translate`. InvalidRequest names the pair that has a blank side or a translation that the
        model cannot produce; SourceTooLong names the pair whose text is too long.
        """
        language_pair = self.languages.pair(request.source, request.target)
        options = self.checked_options(request.options)
        options = replace(options, start_id=self.encoder.start_id(language_pair))
        with self.reserve(request) as ticket:
            started = time.monotonic()
            pieces, forced = await self.text_threads.run_for(
                request, lambda: self.planner.scored_pairs(request, language_pair)
            )
            tokenise_s = time.monotonic() - started
            parts = [
                Part(
                    piece.span,
                    piece.encoded,
                    replace(options, forced_target=self.encoder.as_written(target)),
                )
                for piece, target in zip(pieces, forced, strict=True)
            ]
            ticket.finalize([(part.encoded.ids, part.options, 1) for part in parts])
            results = await self._decode(request, parts)
            decoded = time.monotonic()
            scores = await self.text_threads.run_for(
                request, lambda: self.detokeniser.scores(request, language_pair, pieces, results)
            )
            detokenise_s = time.monotonic() - decoded
        phases = Phases.of(results)
        return ScoreResult(
            source_tokens=sum(len(part.encoded.ids) for part in parts),
            target_tokens=sum(part.num_target_tokens for part in parts),
            num_sentences=len(pieces),
            num_cached=sum(part.is_cached for part in parts),
            timings=phases.timings(tokenise_s, detokenise_s),
            model=self.version,
            num_rows=sum(part.num_rows for part in parts),
            num_steps=phases.num_steps,
            scores=scores,
        )

    def reserve(self, request: Request) -> AdmissionTicket:
        """Return a request's admission ticket, for an estimate of its cost. Raises NotReady.

        Entering the ticket raises Overloaded.
        """
        num_tokens = sum(len(text) // CHARACTERS_PER_TOKEN + 1 for text in request.texts)
        num_searches = num_samples(request.options)
        return self.submitter.reserve(
            len(request.texts) * num_searches,
            num_tokens * num_searches,
            options=request.options.merged(self.default_options),
            caller=request.share or request.caller,
            deadline=request.deadline,
        )

    async def run(self, request: TranslationRequest, work: Callable[[], T]) -> T:
        """Run `work` on the event loop if handing it to a thread takes longer, else on a thread.

        Handing it over takes longer if the texts are short, their language is known and no tokens are returned.
        """
        is_short = sum(map(len, request.texts)) <= SHORT_CHARACTERS
        if is_short and request.source is not None and not request.returns_tokens:
            return work()
        return await self.text_threads.run_for(request, work)

    async def _run_brief(self, request: Request, num_sentences: int, work: Callable[[], T]) -> T:
        """Run `work`, which takes microseconds a sentence: on a thread for more than MAX_SUBMITTED sentences."""
        return work() if num_sentences <= MAX_SUBMITTED else await self.text_threads.run_for(request, work)

    def _plan(self, request: TranslationRequest) -> tuple[RequestPlan, list[Submission]]:
        plan = self.planner.plan(request)
        return plan, submissions(plan.jobs)

    async def _decode_all(self, plan: RequestPlan) -> tuple[TranslationResult, float]:
        """Decode until every segment is final. Returns the result, and the seconds of work after the decodings."""

        def advance() -> TranslationResult | None:
            """Accept or retry each decoded segment. Returns the result; None while parts are left to decode."""
            for job in plan.jobs:
                if job.best is None:
                    self.retry_policy.retry_or_accept(plan.prepared, job)
            if any(job.pending_parts for job in plan.jobs):
                return None
            return self._result(plan)

        result, detokenise_s, is_retry = None, 0.0, False
        while result is None:
            await self.decode_pending(plan.prepared.request, plan.jobs, is_retry=is_retry)
            is_retry = True
            decoded = time.monotonic()
            result = await self.run(plan.prepared.request, advance)
            detokenise_s += time.monotonic() - decoded
        return result, detokenise_s

    def _result(self, plan: RequestPlan) -> TranslationResult:
        """Return the result of a plan whose segments are final, with the engine's timings only."""
        phases = Phases.slowest([job.phases for job in plan.jobs])
        parts = [part for job in plan.jobs for part in job.parts]
        return TranslationResult(
            source_tokens=plan.num_source_tokens,
            target_tokens=sum(job.num_target_tokens for job in plan.jobs),
            num_sentences=len(plan.jobs),
            num_cached=sum(part.is_cached for part in parts),
            timings=phases.timings(tokenise_s=0.0, detokenise_s=0.0),
            model=self.version,
            num_rows=sum(part.num_rows for part in parts),
            num_steps=phases.num_steps,
            translations=tuple(
                self.detokeniser.translation(text, plan.prepared.request) for text in plan.texts
            ),
        )

    async def _stream(self, plan: RequestPlan, observer: Observer) -> None:
        """Decode each segment by itself, with its retries, and report each to the observer when it is final."""
        await all_of(
            [
                self._stream_segment(plan, job, observer, (text_index, segment_index))
                for text_index, text in enumerate(plan.texts)
                for segment_index, job in enumerate(text.jobs)
            ]
        )

    async def _stream_segment(
        self, plan: RequestPlan, job: SegmentJob, observer: Observer, indices: tuple[int, int]
    ) -> None:
        """Decode one segment. indices: of the text, and of the segment in it."""

        def advance() -> str | None:
            self.retry_policy.retry_or_accept(plan.prepared, job)
            return None if job.best is None else job.parsed_text.render(job.segment, job.best)

        show = functools.partial(job.parsed_text.preview, job.segment)
        is_greedy = job.parts[0].options.beam_size == 1
        live = LiveSegment(observer, indices, self.target_tokenizer, show, is_greedy=is_greedy)
        await self.decode_pending(plan.prepared.request, [job], live)
        while (text := await self.text_threads.run_for(plan.prepared.request, advance)) is None:
            live.restart()
            await self.decode_pending(plan.prepared.request, [job], is_retry=True)
        live.finish(text, job.finish_reason)

    async def decode_pending(
        self,
        request: TranslationRequest,
        jobs: Sequence[SegmentJob],
        live: LiveSegment | None = None,
        *,
        is_retry: bool = False,
    ) -> None:
        """Decode the pending parts of jobs. live: receives the tokens of the first search.

        is_retry: whether the jobs were decoded before. Their sentences then go to the head of the queue.
        """
        pending = [(job, job.pending_parts) for job in jobs]
        parts = [part for _, job_parts in pending for part in job_parts]
        if parts:
            await self._decode(request, parts, live, is_retry=is_retry)
            await self._run_brief(request, len(parts), functools.partial(add_phases, pending))

    async def _decode(
        self,
        request: Request,
        parts: Sequence[Part],
        live: LiveSegment | None = None,
        *,
        is_retry: bool = False,
    ) -> list[SequenceResult]:
        """Submit all parts, and wait for all results. The first failure, or a cancellation, cancels the rest.

        Raises DeadlineExceeded, also if the last result arrives after the deadline.
        """
        futures: list[asyncio.Future[SequenceResult]] = []
        samples = [samples_of(part.options) for part in parts]
        searches = [(part, options) for part, each in zip(parts, samples, strict=True) for options in each]
        try:
            for begin in range(0, len(searches), MAX_SUBMITTED):
                if len(searches) > MAX_SUBMITTED:
                    await take_turn()
                some = searches[begin : begin + MAX_SUBMITTED]
                self._submit(request, some, futures, None if begin else live)
            if is_retry:
                self.submitter.prioritize_retries(future for future in futures if not future.done())
            answers = iter([await futures[0]] if len(futures) == 1 else await asyncio.gather(*futures))
        finally:
            for future in futures:
                future.cancel()
        if time.monotonic() >= request.deadline:
            raise DeadlineExceeded("the request's time ran out")

        def store_results() -> list[SequenceResult]:
            results = [join_samples(list(islice(answers, len(each)))) for each in samples]
            for part, result in zip(parts, results, strict=True):
                part.result = self.encoder.matched(result, part.encoded)
            return results

        return await self._run_brief(request, len(searches), store_results)

    def _submit(
        self,
        request: Request,
        searches: Sequence[tuple[Part, DecodingOptions]],
        futures: list[asyncio.Future[SequenceResult]],
        live: LiveSegment | None = None,
    ) -> None:
        """Submit searches, and append their futures. live: receives the tokens of the first search."""
        for index, (part, options) in enumerate(searches):
            on_tokens = None
            if live is not None and index == 0:
                on_tokens = functools.partial(live.on_tokens, verbatim_spans=part.encoded.verbatim_spans)
            future = self.submitter.submit(
                part.encoded.ids,
                options,
                request_id=request.request_id,
                caller=request.share or request.caller,
                deadline=request.deadline,
                on_tokens=on_tokens,
            )
            futures.append(future)
