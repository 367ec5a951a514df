"""A request's texts become translations: read, split, tokenise, engine, detokenise, put together.

Knows nothing of HTTP. Everything that costs time in proportion to the text runs off the event loop; the
engine's place is reserved before that work begins and given back however the request ends.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import TypeVar

from app.bundle import LanguagePair, Manifest
from app.decoding.options import DecodingOptions
from app.decoding.validation import check_options, check_range
from app.engine.engine import Engine
from app.engine.limits import option_bounds
from app.engine.sequence import SequenceResult
from app.errors import DeadlineExceeded, SourceTooLong
from app.stores.glossaries import GlossaryStore
from app.text.detection import LazyDetector, Ranked
from app.text.tokenizer import Encoded, Tokenizer
from app.translator.decoder import SentenceDecoder
from app.translator.detokeniser import Detokeniser
from app.translator.jobs import Job, Part, Phases
from app.translator.languages import Languages
from app.translator.live_text import LiveSegment
from app.translator.observer import Observer
from app.translator.pieces import Cutter, SourcePiece, stripped
from app.translator.place import Place
from app.translator.planning import Plan, Planner
from app.translator.request import (
    AnswerLimits,
    ScoreRequest,
    ScoreResult,
    TextSpan,
    Timings,
    Translation,
    TranslationRequest,
    TranslationResult,
)
from app.translator.samples import joined, num_samples, samples_of
from app.translator.second_rounds import Reviewer

T = TypeVar("T")
Request = TranslationRequest | ScoreRequest
# English and German subwords are three to four characters long: rather too high an estimate, put right by tokenising.
CHARACTERS_PER_TOKEN = 3
# Two short sentences: a fifth of a millisecond each way.
SHORT_CHARACTERS = 256
# Languages that an answer names of one text.
MAX_DETECTED = 5
# Sentences that are submitted at once, some milliseconds of the event loop.
MAX_SUBMITTED = 64


@dataclass(frozen=True)
class Extras:
    """What a translator may have beside its model, and what one request may make it do.

    detector: None where every request names its source. glossaries: those that a request can name. decoder: None where
    no sentence is kept.
    """

    detector: LazyDetector | None = None
    glossaries: GlossaryStore | None = None
    decoder: SentenceDecoder | None = None
    limits: AnswerLimits = field(default_factory=AnswerLimits)


class Translator:
    """The texts' way through one bundle's engine. Called on the event loop."""

    def __init__(
        self,
        manifest: Manifest,
        engine: Engine,
        *,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        executor: Executor,
        extras: Extras | None = None,
    ) -> None:
        """Nothing is loaded or started here."""
        extras = extras or Extras()
        self.manifest = manifest
        self.engine = engine
        self.decoder = extras.decoder or SentenceDecoder(engine)
        self._executor = executor
        self._bounds = option_bounds(engine.limits)
        self._target_tokenizer = target_tokenizer
        self._cutter = Cutter(source_tokenizer, target_tokenizer, engine.limits.max_source_length)
        self._languages = Languages(manifest.language_pairs, extras.detector)
        self._planner = Planner(
            self._languages,
            self._cutter,
            default_options=self.default_options,
            has_alignment=engine.limits.has_alignment,
            limits=extras.limits,
            glossaries=extras.glossaries,
        )
        self._detokeniser = Detokeniser(target_tokenizer, self._cutter)
        self._reviewer = Reviewer(self._planner, self._detokeniser)

    @functools.cached_property
    def default_options(self) -> DecodingOptions:
        """The model's own; max_target_length is the longest that it can be asked for."""
        defaults = self.manifest.decoding
        return DecodingOptions(
            beam_size=defaults.beam_size,
            length_penalty=defaults.length_penalty,
            alpha=defaults.alpha,
            max_target_length=self.engine.limits.max_target_length - 1,
        )

    def encode(self, part: str, pair: LanguagePair) -> Encoded | None:
        """The subwords of a part of a text, or None where the model cannot take it at once."""
        return self._cutter.encode(part, pair)

    def options(
        self, request: TranslationRequest, *, num_source_tokens: int, num_forced: int = 0
    ) -> DecodingOptions:
        """The search's options for one sentence; `Planner.options`."""
        return self._planner.options(request, num_source_tokens=num_source_tokens, num_forced=num_forced)

    async def detect(self, texts: Sequence[str]) -> list[Ranked]:
        """The likeliest languages of each text with their probabilities, the likeliest first; empty without letters.

        All known languages, served or not; at most MAX_DETECTED of a text. Raises InvalidRequest where none is
        detected here.
        """
        self._languages.check_detector()
        await self._languages.wait_for_detector()
        return await self.off_loop(lambda: [self._languages.detect(text)[:MAX_DETECTED] for text in texts])

    async def source_of(self, text: str, target: str) -> str:
        """The language to translate a text from; the target where it stays as it is.

        Raises UnsupportedLanguages where it surely is in a language that is not translated, InvalidRequest where none
        is detected here.
        """
        self._languages.check(None, target)
        await self._languages.wait_for_detector()
        settled = await self.off_loop(lambda: self._languages.settled(text, target, field="text"))
        return target if settled.pair is None else settled.source

    async def translate(
        self, request: TranslationRequest, observer: Observer | None = None
    ) -> TranslationResult:
        """Translate every text.

        Cancelling frees the rows of all its sentences. Raises UnsupportedLanguages, PayloadTooLarge (more
        sentences than a request may have, or more tokens to tell), SourceTooLong, Overloaded, NotReady,
        DeadlineExceeded, EngineFailure, and InvalidRequest for options that contradict each other or that the model
        cannot serve, malformed XML, and a glossary that there is not.
        """
        self._languages.check(request.source, request.target)
        check_options(request.options or self.default_options, self._bounds)
        estimate = sum(len(text) // CHARACTERS_PER_TOKEN + 1 for text in request.texts)
        with self._reserved(request, estimate) as place:
            started = time.monotonic()
            if request.source is None:
                await self._languages.wait_for_detector()
            plan = await self._beside(request, lambda: self._planner.plan(request))
            tokenise_s = time.monotonic() - started
            parts = [part for job in plan.jobs for part in job.parts]
            place.settle(
                [
                    (part.encoded.ids, options, job.likely_rounds)
                    for job in plan.jobs
                    for part in job.parts
                    for options in samples_of(part.options)
                ]
            )
            if observer is not None:
                observer.planned(_spans(plan))
                await self._watched(plan, observer)
            translations, detokenise_s = await self._finished(plan)
        phases = Phases.slowest([job.phases for job in plan.jobs])
        return TranslationResult(
            source_tokens=sum(len(part.encoded.ids) for part in parts),
            target_tokens=sum(job.num_target_tokens for job in plan.jobs),
            num_sentences=len(plan.jobs),
            num_cached=sum(part.is_cached for job in plan.jobs for part in job.parts),
            timings=_timings(phases, tokenise_s, detokenise_s),
            translations=translations,
        )

    async def score(self, request: ScoreRequest) -> ScoreResult:
        """Score every pair as it stands: a text is not split.

        Raises as `translate` does; InvalidRequest names the pair with a blank side or a translation that the model
        cannot have said, SourceTooLong the one whose text is too long.
        """
        pair = self._languages.pair(request.source, request.target)
        defaults = replace(request.options or self.default_options, beam_size=1)
        check_options(defaults, self._bounds)
        estimate = sum(len(text) // CHARACTERS_PER_TOKEN + 1 for text in request.texts)
        with self._reserved(request, estimate) as place:
            started = time.monotonic()
            pieces, forced = await self.off_loop(lambda: self._prepare_pairs(request, pair))
            tokenise_s = time.monotonic() - started
            parts = [
                Part(piece.span, piece.encoded, replace(defaults, forced_target=target))
                for piece, target in zip(pieces, forced, strict=True)
            ]
            place.settle([(part.encoded.ids, part.options, 1) for part in parts])
            results = await self._decode(request, parts)
            decoded = time.monotonic()
            scores = await self.off_loop(lambda: self._detokeniser.scores(request, pair, pieces, results))
            detokenise_s = time.monotonic() - decoded
        return ScoreResult(
            source_tokens=sum(len(part.encoded.ids) for part in parts),
            target_tokens=sum(part.num_target_tokens for part in parts),
            num_sentences=len(pieces),
            num_cached=sum(part.is_cached for part in parts),
            timings=_timings(Phases.of(results), tokenise_s, detokenise_s),
            scores=scores,
        )

    def _reserved(self, request: Request, num_tokens: int) -> Place:
        """A place for so many tokens of texts. Raises NotReady, and Overloaded where it is entered."""
        times = num_samples(request.options)
        return self.decoder.reserve(
            len(request.texts) * times,
            num_tokens * times,
            options=request.options or self.default_options,
            caller=request.share or request.caller,
            deadline=request.deadline,
        )

    async def off_loop(self, work: Callable[[], T]) -> T:
        """What takes time in proportion to a text, on the threads for that; work must touch no engine."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def _beside(self, request: TranslationRequest, work: Callable[[], T]) -> T:
        """Off the event loop, but for texts so short that handing them over takes longer than the work."""
        is_short = sum(map(len, request.texts)) <= SHORT_CHARACTERS
        if is_short and request.source is not None and not request.tells_tokens:
            return work()
        return await self.off_loop(work)

    async def _finished(self, plan: Plan) -> tuple[tuple[Translation, ...], float]:
        """Decode all that waits, as often as it is needed; the texts, and the seconds that detokenising took."""

        def advance() -> tuple[Translation, ...] | None:
            """The translations, or None where there is more to decode."""
            for job in plan.jobs:
                if job.best is None:
                    self._reviewer.review(plan.asked, job)
            if any(job.waiting for job in plan.jobs):
                return None
            return tuple(self._detokeniser.translation(text, plan.asked.request) for text in plan.texts)

        translations, detokenise_s, comes_back = None, 0.0, False
        while translations is None:
            await self._round(plan, plan.jobs, comes_back=comes_back)
            comes_back = True
            decoded = time.monotonic()
            translations = await self._beside(plan.asked.request, advance)
            detokenise_s += time.monotonic() - decoded
        return translations, detokenise_s

    async def _watched(self, plan: Plan, observer: Observer) -> None:
        """Decode every segment, each as often as it needs, and tell of it as soon as it is done."""
        tasks = [
            asyncio.ensure_future(self._watched_job(plan, job, observer, (index, place)))
            for index, text in enumerate(plan.texts)
            for place, job in enumerate(text.jobs)
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _watched_job(self, plan: Plan, job: Job, observer: Observer, place: tuple[int, int]) -> None:
        """place: index of the text, and of the segment in it."""

        def show(text: str) -> str:
            return job.passage.shown(job.segment, text)

        def advance() -> str | None:
            self._reviewer.review(plan.asked, job)
            return None if job.best is None else job.passage.rendered(job.segment, job.best)

        is_greedy = job.parts[0].options.beam_size == 1
        live = LiveSegment(observer, place, self._target_tokenizer, show, is_greedy=is_greedy)
        await self._round(plan, [job], live)
        while (text := await self.off_loop(advance)) is None:
            live.begin_again()
            await self._round(plan, [job], comes_back=True)
        live.finish(text, job.finish_reason)

    async def _round(
        self, plan: Plan, jobs: Sequence[Job], live: LiveSegment | None = None, *, comes_back: bool = False
    ) -> None:
        """Decode the parts of the jobs that wait for it. live: told of the tokens of a job's only part.

        comes_back: whether the jobs were decoded before. The request is next then: it has waited its turn.
        """
        waiting = [(job, job.waiting) for job in jobs]
        parts = [part for _, own in waiting for part in own]
        if parts:
            await self._decode(plan.asked.request, parts, live, comes_back=comes_back)
            for job, own in waiting:
                job.count(own)

    async def _decode(
        self,
        request: Request,
        parts: Sequence[Part],
        live: LiveSegment | None = None,
        *,
        comes_back: bool = False,
    ) -> list[SequenceResult]:
        """Submit all parts at once and wait for all; the first failure, and a cancel, frees the others.

        Raises DeadlineExceeded also where the last result came too late.
        """
        futures: list[asyncio.Future[SequenceResult]] = []
        nums: list[int] = []
        try:
            for part in parts:
                samples = samples_of(part.options)
                nums.append(len(samples))
                for index, options in enumerate(samples):
                    if (len(futures) + 1) % MAX_SUBMITTED == 0:
                        await asyncio.sleep(0)  # others are served between
                    future = self.decoder.submit(
                        part.encoded.ids,
                        options,
                        request_id=request.request_id,
                        caller=request.share or request.caller,
                        deadline=request.deadline,
                        on_tokens=functools.partial(live.take, carried=part.encoded.carried)
                        if live is not None and index == 0
                        else None,
                    )
                    futures.append(future)
            if comes_back:
                self.decoder.come_back(future for future in futures if not future.done())
            answers = iter([await futures[0]] if len(futures) == 1 else await asyncio.gather(*futures))
        finally:
            for future in futures:
                future.cancel()
        if time.monotonic() >= request.deadline:
            raise DeadlineExceeded("the request's time ran out")
        results = [joined([next(answers) for _ in range(num)]) for num in nums]
        for part, result in zip(parts, results, strict=True):
            part.result = result
        return results

    # ---- on the executor's threads: no engine, no event loop

    def _prepare_pairs(
        self, request: ScoreRequest, pair: LanguagePair
    ) -> tuple[list[SourcePiece], list[tuple[int, ...]]]:
        """Tokenise: the sources, and the subwords of their translations.

        Raises InvalidRequest, SourceTooLong, PayloadTooLarge.
        """
        pieces, forced = [], []
        for index, (text, translation) in enumerate(zip(request.texts, request.translations, strict=True)):
            span, target = stripped("text", index, text), stripped("translation", index, translation)
            encoded = self._cutter.encode(span.of(text), pair)
            if encoded is None:
                limit = self.engine.limits.max_source_length
                raise SourceTooLong(
                    f"text[{index}] is more than one piece for the model, of at most {limit} subwords",
                    field=f"text[{index}]",
                )
            ids = self._cutter.forced(target.of(translation), encoded.carried, f"translation[{index}]")
            longest = self.default_options.max_target_length
            check_range(f"translation[{index}]", len(ids), (1, longest), unit=" subwords")
            pieces.append(SourcePiece(span, span.of(text), encoded))
            forced.append(ids)
        self._planner.check_told(request, [len(piece.encoded.ids) for piece in pieces])
        return pieces, forced


def _spans(plan: Plan) -> list[list[TextSpan]]:
    """Of every text's segments in that text."""
    return [[TextSpan(*job.passage.span(job.segment)) for job in text.jobs] for text in plan.texts]


def _timings(phases: Phases, tokenise_s: float, detokenise_s: float) -> Timings:
    """Milliseconds."""
    return Timings(
        tokenise=tokenise_s * 1000,
        queue=phases.queue * 1000,
        encode=phases.encode * 1000,
        decode=phases.decode * 1000,
        detokenise=detokenise_s * 1000,
    )
