"""Translates a language pair that no model has.

The first model translates the source into a pivot language. The second model, which may be the same one, translates the
pivot language into the target.

A text is parsed and split once, in its source language. The first model translates each segment into the pivot
language, with all retries and repairs, so that the pivot's text has every placeholder once. That text is the source of
the second model, as one sentence if the model can take it. `pivot_results` then joins both halves, so that the answer
refers to the caller's text.

Glossary terms are placeholders in both halves. All options of the request apply to the second half, but only
SEARCH_OPTIONS apply to the first half.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from app.decoding.option_changes import OptionChanges
from app.decoding.options import EXTRA_TARGET_LENGTH, EarlyStop
from app.language_pairs import LanguagePair
from app.text.model_input import model_input
from app.text.number_format import with_numbers_rewritten
from app.text.segmentation import Span, fitting_spans
from app.text.segments import Fallback, repair
from app.text.tokenizer import Encoded
from app.translator.all_of import all_of
from app.translator.jobs import Phases, SegmentJob, Submission, TextPlan, spans_of, submissions
from app.translator.languages import Languages, ResolvedLanguage
from app.translator.live_text import LiveSegment
from app.translator.model_translator import ModelTranslator
from app.translator.observer import Observer
from app.translator.pivot_results import PivotDetokeniser, PivotJob, PivotTextPlan
from app.translator.planning import PreparedRequest
from app.translator.request import ModelVersion, Translation, TranslationRequest, TranslationResult
from app.translator.samples import samples_of
from app.translator.translator import Translator

# Options that say how to search. Both models use the value that a request sets; else each model uses its own default.
# `_checked_options` has the exceptions for beam_size.
SEARCH_OPTIONS = (
    "beam_size",
    "patience",
    "early_stop",
    "length_penalty",
    "alpha",
    "coverage_penalty",
    "loop_guard",
    "alignment",
)

UNKNOWN_ID = -1  # stands for an id that is not known yet; no subword has it


@dataclass(frozen=True)
class Leg:
    """One half of a pivoted translation: a model, and the request for it."""

    translator: Translator
    prepared: PreparedRequest

    def accept(self, jobs: Sequence[SegmentJob]) -> None:
        """Accept the translations of decoded jobs, or give these jobs new parts to decode."""
        for job in jobs:
            if job.best is None:
                self.translator.retry_policy.retry_or_accept(self.prepared, job)

    async def decode(self, jobs: Sequence[SegmentJob], live: LiveSegment | None = None) -> float:
        """Decode jobs until each has its translation. Returns the seconds of detokenising and planning retries.

        live: receives the tokens of the only part of a single job.
        """
        request, text_s, is_retry = self.prepared.request, 0.0, False
        while any(job.best is None for job in jobs):
            await self.translator.decode_pending(request, jobs, live, is_retry=is_retry)
            decoded, is_retry = time.monotonic(), True
            await self.translator.run(request, lambda: self.accept(jobs))
            text_s += time.monotonic() - decoded
            if live is not None and jobs[0].best is None:
                live.restart()
                live = None  # a second decoding is shown when it is final
        return text_s


class PivotPlan(NamedTuple):
    """The segments of a request, and both halves of their translation."""

    texts: tuple[PivotTextPlan, ...]
    first: Leg
    last: Leg

    @property
    def jobs(self) -> list[PivotJob]:
        """Return the segments of all texts, in order."""
        return [job for text in self.texts for job in text.jobs]


class PivotPairs(NamedTuple):
    """The caller's pair, and the pairs of both models."""

    whole: LanguagePair
    first: LanguagePair
    last: LanguagePair


class PivotTranslator:
    """Translates one language pair through another language, with two loaded models.

    Its methods run on the event loop.
    """

    def __init__(
        self, first: Translator, last: Translator, *, languages: Languages, pairs: PivotPairs
    ) -> None:
        """first, last: the models into the pivot language and out of it.

        languages: resolves the source language; its only pair is the caller's.
        """
        self._first = first
        self._last = last
        self._pivot = pairs.last.source
        self._pivot_language = ResolvedLanguage(pairs.last, self._pivot, 1.0)
        self._languages = languages
        self._planner = first.planner.for_pair(pairs.whole, pairs.first, languages)
        self._detokeniser = PivotDetokeniser(first.detokeniser, last.detokeniser, self._pivot)

    async def translate(
        self, request: TranslationRequest, observer: Observer | None = None
    ) -> TranslationResult:
        """Translate every text, as `Translator.translate` does.

        The deadline covers both halves. Admission counts the work of both. The caller, `PivotedPair`, has checked the
        languages.
        """
        first_request = self._first_request(request)
        with self._first.reserve(first_request) as ticket, self._last.reserve(request) as last_ticket:
            started = time.monotonic()
            if request.source is None:
                await self._languages.wait_for_detector()
            plan = await self._last.run(request, lambda: self._plan(first_request, request))
            tokenise_s = time.monotonic() - started
            first_jobs = [job.first for job in plan.jobs]
            ticket.finalize(submissions(first_jobs))
            if observer is None:
                text_s = await plan.first.decode(first_jobs)
                text_s += await self._run(plan, lambda: self._begin_last(plan, plan.jobs))
                last_jobs = [job.last for job in plan.jobs if job.last is not None]
                # The queue's bounds were checked before the first model decoded. A refusal now would waste that work.
                last_ticket.finalize(submissions(last_jobs), checks_bounds=False)
                text_s += await plan.last.decode(last_jobs)
            else:
                last_ticket.finalize(self._expected_last(plan))
                observer.on_segments(spans_of([text.plan for text in plan.texts]))
                text_s = await self._stream(plan, observer)
            decoded = time.monotonic()
            translations = await self._last.run(
                request, lambda: tuple(self._detokeniser.translation(text, request) for text in plan.texts)
            )
            text_s += time.monotonic() - decoded
        return self._result(plan, translations, tokenise_s, text_s)

    def _first_request(self, request: TranslationRequest) -> TranslationRequest:
        """Return the request for the first model. Its languages are those of the caller's pair.

        Raises InvalidRequest as `_checked_options` does.
        """
        return request._replace(
            options=_checked_options(request.options, self._first, self._last),
            extra_target_length=EXTRA_TARGET_LENGTH,
            suppress=(),
            target_prefixes=(),
            token_scores=False,
            attention=False,
        )

    def _plan(self, first_request: TranslationRequest, request: TranslationRequest) -> PivotPlan:
        """Parse, split and tokenise the texts. Raises the errors of `Planner.plan`."""
        first = self._planner.plan(first_request, request)
        last = Leg(self._last, self._last.planner.prepare(request))
        prefixes = request.target_prefixes or ("",) * len(first.texts)
        texts = [
            PivotTextPlan(text, self._jobs(first.prepared, text, prefix.strip()))
            for text, prefix in zip(first.texts, prefixes, strict=True)
        ]
        return PivotPlan(tuple(texts), Leg(self._first, first.prepared), last)

    def _jobs(self, prepared: PreparedRequest, text: TextPlan, prefix: str) -> tuple[PivotJob, ...]:
        """Return the segments of a text, with placeholders for glossary terms."""
        whole = text.parsed_text
        to_pivot = replace(whole, options=whole.options._replace(target_language=self._pivot))
        from_pivot = replace(whole, options=whole.options._replace(source_language=self._pivot))
        jobs = []
        for index, job in enumerate(text.jobs):
            job.parsed_text = to_pivot
            if job.segment.terms:
                segment = to_pivot.with_term_placeholders(job.segment)
                encoded = self._planner.encode(segment.source, job.language)
                if encoded is not None:
                    job.segment = segment
                    self._planner.reset(prepared, job, encoded)
            jobs.append(PivotJob(whole, from_pivot, job, "" if index else prefix))
        return tuple(jobs)

    def _begin_last(self, plan: PivotPlan, jobs: Sequence[PivotJob]) -> None:
        """Make the second half of each job from its first half. Raises InvalidRequest, SourceTooLong."""
        for job in jobs:
            job.last = self._last_job(plan.last.prepared, job)

    def _last_job(self, prepared: PreparedRequest, job: PivotJob) -> SegmentJob:
        """Return a job for the pivot's text of a segment: one sentence, or as many parts as the model needs."""
        first, planner = job.first, self._last.planner
        pair = self._pivot_language.pair
        assert first.best is not None
        assert pair is not None
        repaired = repair(first.segment, first.best).text
        text, written, _ = model_input(
            with_numbers_rewritten(repaired, first.parsed_text.number_spellings(first.segment))
        )
        segment = first.segment._replace(
            source=text,
            placeholders=tuple(each for each in text if each in first.segment.placeholders),
            positions=range(len(text)),
            written=written,
            terms=(),
        )
        last = SegmentJob(job.pivot_text, self._pivot_language, segment, job.prefix)
        encoded: dict[str, Encoded] = {}
        whole, fits = Span(0, len(text)), planner.fits(pair, encoded)
        spans = list(fitting_spans(text, whole, fits))
        # A text that is too long and has no letter gives no spans. One character is decoded, and `join_parts` keeps
        # the others.
        for span in spans or [Span(0, 1)]:
            tokens = planner.subwords_of(span.of(text), self._pivot_language, encoded)
            prefix = "" if last.parts else job.prefix
            last.parts.append(planner.part(prepared, last, span, tokens, prefix=prefix))
        if spans != [whole]:
            last.part_fallbacks = (Fallback.LENGTH_SPLIT,)
        return last

    def _expected_last(self, plan: PivotPlan) -> list[Submission]:
        """Return the sentences of the second half as they are expected before the first half is decoded.

        Each is expected to be as long as its source, the sentence of the first half. Its ids are UNKNOWN_ID, so it is
        not in the cache.
        """
        return [
            Submission((UNKNOWN_ID,) * length, options, job.first.expected_decodings)
            for job in plan.jobs
            for length in (len(part.encoded.ids) for part in job.first.parts)
            for options in samples_of(
                self._last.planner.options(plan.last.prepared, num_source_tokens=length)
            )
        ]

    async def _run(self, plan: PivotPlan, work: Callable[[], None]) -> float:
        """Run `work`, as `Translator.run` does. Returns how many seconds it took."""
        started = time.monotonic()
        await self._last.run(plan.last.prepared.request, work)
        return time.monotonic() - started

    async def _stream(self, plan: PivotPlan, observer: Observer) -> float:
        """Decode each segment by itself and report it when it is final.

        Returns the maximum of the seconds that `_stream_segment` returns for the segments.
        """
        seconds = await all_of(
            [
                self._stream_segment(plan, job, observer, (text_index, segment_index))
                for text_index, text in enumerate(plan.texts)
                for segment_index, job in enumerate(text.jobs)
            ]
        )
        return max(seconds, default=0.0)

    async def _stream_segment(
        self, plan: PivotPlan, job: PivotJob, observer: Observer, indices: tuple[int, int]
    ) -> float:
        """Decode one segment. Returns the seconds of work on its text, without decoding.

        indices: of the text, and of the segment in it.
        """
        text_s = await plan.first.decode([job.first])
        text_s += await self._run(plan, lambda: self._begin_last(plan, [job]))
        first, last = job.halves

        def show(text: str) -> str:
            return job.parsed_text.preview(first.segment, text)

        is_greedy = last.parts[0].options.beam_size == 1
        live = LiveSegment(observer, indices, self._last.target_tokenizer, show, is_greedy=is_greedy)
        text_s += await plan.last.decode([last], live if len(last.parts) == 1 else None)
        live.finish(self._detokeniser.render(job), self._detokeniser.finish_reason(job))
        return text_s

    def _result(
        self, plan: PivotPlan, translations: tuple[Translation, ...], tokenise_s: float, text_s: float
    ) -> TranslationResult:
        jobs = plan.jobs
        phases = Phases.slowest([job.phases for job in jobs])
        return TranslationResult(
            source_tokens=sum(len(part.encoded.ids) for job in jobs for part in job.first.parts),
            target_tokens=sum(job.halves[1].num_target_tokens for job in jobs),
            num_sentences=len(jobs),
            num_cached=sum(all(part.is_cached for part in job.parts) for job in jobs),
            timings=phases.timings(tokenise_s, text_s),
            model=self._last.version,
            num_rows=sum(part.num_rows for job in jobs for part in job.parts),
            num_steps=phases.num_steps,
            translations=translations,
        )


class PivotedPair:
    """A language pair without a model, and the two models that translate it, loaded or not."""

    def __init__(
        self, first: ModelTranslator, last: ModelTranslator, languages: tuple[str, str, str]
    ) -> None:
        """first, last: the models into the pivot and out of it. languages: source, pivot and target."""
        self._first, self.last = first, last
        source, self.pivot, target = languages
        to_pivot = first.languages.pair(source, self.pivot)
        self.pair = to_pivot.model_copy(update={"source": source, "target": target})
        self._pairs = PivotPairs(self.pair, to_pivot, last.languages.pair(self.pivot, target))
        self._languages = first.languages.of_pairs([self.pair])

    @property
    def version(self) -> ModelVersion:
        """The model that writes the translation."""
        return self.last.version

    @property
    def versions(self) -> tuple[ModelVersion, ...]:
        """The models of both halves, in order; one if the same model has both."""
        return tuple(dict.fromkeys((self._first.version, self.last.version)))

    def checked_options(self, changes: OptionChanges) -> OptionChanges:
        """Return the options that a request sets for the first model, as `_checked_options` does."""
        return _checked_options(changes, self._first, self.last)

    async def translate(
        self, request: TranslationRequest, observer: Observer | None = None
    ) -> TranslationResult:
        """Translate every text, as `PivotTranslator.translate` does. Loads the models that are not loaded."""
        # Unsupported languages or options load no model.
        self._languages.check(request.source, request.target)
        self.checked_options(request.options)
        needs_load = not (self._first.is_loaded and self.last.is_loaded)
        started = time.monotonic()
        async with self._first.held_with(self.last, request.deadline) as (first, last):
            load_s = time.monotonic() - started
            translator = PivotTranslator(first, last, languages=self._languages, pairs=self._pairs)
            result = await translator.translate(request, observer)
        if needs_load:
            result = replace(result, timings=result.timings._replace(load=load_s * 1000))
        return replace(result, models=self.versions)


def _checked_options(changes: OptionChanges, first: ModelTranslator, last: ModelTranslator) -> OptionChanges:
    """Return the options that a request sets for the first model, with a beam_size that the other options allow.

    Raises InvalidRequest if either model refuses its options.
    """
    last_options = last.checked_options(changes)
    first_changes = changes.only(SEARCH_OPTIONS)
    if changes.sampling is not None:
        # Only the second model draws, with a beam of 1.
        first_changes = first_changes.only(set(SEARCH_OPTIONS) - {"beam_size"})
    elif last_options.patience != 1 or last_options.early_stop is not EarlyStop.FIRST:
        # These options need a beam_size above 1, and the first model's default may be 1.
        first_changes = first_changes.updated(beam_size=last_options.beam_size)
    else:
        beam_size = changes.merged(first.default_options).beam_size  # at least num_hypotheses
        first_changes = first_changes.updated(beam_size=beam_size)
    first.checked_options(first_changes)
    return first_changes


# An object that translates a language pair.
PairTranslator = ModelTranslator | PivotedPair


def find_pivots(
    direct: Mapping[tuple[str, str], ModelTranslator], pivots: Sequence[str]
) -> dict[tuple[str, str], PivotedPair]:
    """Return the pairs that have no model and are translated through a pivot.

    direct: the model of each pair. pivots: language codes, in order of preference.
    """
    pairs: dict[tuple[str, str], PivotedPair] = {}
    for pivot in pivots:
        for source, first in ((pair[0], each) for pair, each in direct.items() if pair[1] == pivot):
            for target, last in ((pair[1], each) for pair, each in direct.items() if pair[0] == pivot):
                if source != target and (source, target) not in direct and (source, target) not in pairs:
                    pairs[source, target] = PivotedPair(first, last, (source, pivot, target))
    return pairs
