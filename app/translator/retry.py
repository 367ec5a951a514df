"""What is decoded a second time: no end or no word was found, a term lacks, a number changed, a placeholder is missing.

Where one is missing and the model gives its attention, which says where it goes, the same is decoded with that: few
sentences lose one, and greedily a search that tells attention is several times slower.

Each of them at most once a segment, so that a request ends; called off the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from app.decoding.options import DecodingOptions, FinishReason
from app.decoding.validation import MAX_SUPPRESSED_TOKENS
from app.text.glossary import GlossaryHit
from app.text.segmentation import Span, best_cut, trimmed
from app.text.segments import Fallback, has_lost_spans, lost_spans, repair, spans_between_placeholders
from app.text.tokenizer import Encoded
from app.translator.detokeniser import Detokeniser
from app.translator.jobs import Attempt, Part, SegmentJob
from app.translator.planning import Planner, PreparedRequest

# Halvings of a segment whose translation found no end: at most 16 parts.
MAX_SPLITS = 4


class RetryPolicy:
    """Of one model. Immutable, so any thread may use it."""

    def __init__(self, planner: Planner, detokeniser: Detokeniser) -> None:
        self._planner = planner
        self._detokeniser = detokeniser

    def retry_or_accept(self, prepared: PreparedRequest, job: SegmentJob) -> None:
        """Give a decoded job new parts to decode, or its best translation."""
        if self._split_at_limit(prepared, job) or self._retry_wordless(prepared, job):
            return
        job.best = self._detokeniser.segment(job, 0, returns_tokens=prepared.request.returns_tokens)
        if (
            self._retry_terms(prepared, job)
            or self._retry_numbers(prepared, job)
            or self._retry_aligned(job)
            or self._retry_around_placeholders(prepared, job)
        ):
            job.best = None

    def _split_at_limit(self, prepared: PreparedRequest, job: SegmentJob) -> bool:
        """Halve the parts that reached the limit of the length, where that is the server's own."""
        if job.num_splits == MAX_SPLITS or not _has_own_length(prepared, job):
            return False
        halved = [self._halve(prepared, job, part) for part in job.parts]
        if not any(halved):
            return False
        job.parts = [
            own for part, halves in zip(job.parts, halved, strict=True) for own in (halves or [part])
        ]
        job.num_splits += 1
        if Fallback.LENGTH_SPLIT not in job.reasons:
            job.reasons += (Fallback.LENGTH_SPLIT,)
        return True

    def _halve(self, prepared: PreparedRequest, job: SegmentJob, part: Part) -> list[Part]:
        """Of a part that reached the limit; empty for others, and for one of a single letter."""
        if part.hypothesis(0).finish_reason is not FinishReason.LENGTH or part.span.end - part.span.start < 2:
            return []
        source = job.segment.source
        cut = best_cut(source, part.span)
        spans = (trimmed(source, part.span.start, cut), trimmed(source, cut, part.span.end))
        halves = [span for span in spans if span is not None]
        return self._parts(prepared, job, halves, num_splits=job.num_splits + 1)

    def _retry_wordless(self, prepared: PreparedRequest, job: SegmentJob) -> bool:
        """Decode once more those parts of which nothing with a letter or digit was said, without what was said."""
        silent = [
            index
            for index, part in enumerate(job.parts)
            if not part.is_wordless_retry and self._detokeniser.is_wordless(job, part)
        ]
        for index in silent:
            part = job.parts[index]
            options = _suppressing(part.options, part.hypothesis(0).ids)
            job.parts[index] = Part(part.span, part.encoded, options, is_wordless_retry=True)
        return bool(silent)

    def _retry_terms(self, prepared: PreparedRequest, job: SegmentJob) -> bool:
        """Give the model the segment with stand-ins for terms that its translation lacks, or for all, until none lacks.

        Where several hypotheses are told and any lacks one, with stand-ins for all.
        """
        if job.terms_done or job.best is None:
            return False
        if not job.attempts:
            lacking = job.parsed_text.missing_terms(job.segment, job.best.text)
            num_told = prepared.request.options.num_hypotheses if prepared.request.options else 1
            others = (
                self._detokeniser.segment(job, rank, returns_tokens=False) for rank in range(1, num_told)
            )
            is_whole = not lacking and not any(
                job.parsed_text.missing_terms(job.segment, each.text) for each in others
            )
            if is_whole:
                job.terms_done = True
                return False
            self._queue_candidates(job, [*[lacking] * (num_told == 1), job.segment.terms])
            if num_told > 1 and job.candidates:
                job.terms_done = True
                return self._start_next(prepared, job)
        job.terms_done = not self._try_next(prepared, job, _term_faults)
        return not job.terms_done

    def _queue_candidates(self, job: SegmentJob, verbatim_spans: Sequence[Sequence[GlossaryHit]]) -> None:
        """Try the segment with stand-ins for these terms, one choice after the other, each once."""
        segments = [job.parsed_text.with_term_placeholders(job.segment, only) for only in verbatim_spans]
        for segment in {each.source: each for each in segments}.values():
            encoded = self._planner.encode(segment.source, job.language)
            if encoded is not None:
                job.candidates.append((segment, encoded))

    def _retry_numbers(self, prepared: PreparedRequest, job: SegmentJob) -> bool:
        """Give the model the segment with placeholders for numbers, where it changed one, until one attempt is right.

        Where none is, the best stays: no number lost, then as little as possible put in or taken out afterwards.
        """
        pair = job.language.pair
        if job.numbers_done or job.prefix or job.best is None or pair is None:
            return False
        if not job.attempts:
            encoded: dict[str, Encoded] = {}
            fits = self._planner.fits(pair, encoded)
            carrying = job.parsed_text.number_retries(job.segment, job.best, fits)
            job.candidates = [(segment, encoded[segment.source]) for segment in carrying]
        job.numbers_done = not self._try_next(prepared, job, _number_faults)
        return not job.numbers_done

    def _try_next(
        self,
        prepared: PreparedRequest,
        job: SegmentJob,
        faults: Callable[[SegmentJob, Attempt], tuple[int, int]],
    ) -> bool:
        """Keep what was decoded and begin what is planned; where it is right or nothing is, choose the best."""
        job.attempts.append(job.as_attempt())
        if job.candidates and any(faults(job, job.attempts[-1])):
            return self._start_next(prepared, job)
        job.choose(min(job.attempts, key=lambda attempt: faults(job, attempt)))
        return False

    def _start_next(self, prepared: PreparedRequest, job: SegmentJob) -> bool:
        job.segment, tokens = job.candidates.pop(0)
        self._planner.begin(prepared, job, tokens)
        return True

    def _retry_aligned(self, job: SegmentJob) -> bool:
        """Give the model the same again, to tell its attention, where something is missing whose place that tells."""
        is_aligned = all(part.options.alignment for part in job.parts)
        if is_aligned or not self._planner.has_alignment or job.best is None:
            return False
        if not has_lost_spans(job.segment, job.best):
            return False
        job.parts = [
            replace(part, options=replace(part.options, alignment=True), result=None) for part in job.parts
        ]
        return True

    def _retry_around_placeholders(self, prepared: PreparedRequest, job: SegmentJob) -> bool:
        """Give the model the parts around the placeholders, where one is missing and nothing says where it goes."""
        if job.reasons or job.best is None:
            return False
        parts = self._parts(
            prepared, job, spans_between_placeholders(job.segment, job.best), prefix=job.prefix
        )
        if not parts:
            return False
        job.parts, job.reasons = parts, (Fallback.PLACEHOLDER_SPLIT,)
        return True

    def _parts(
        self,
        prepared: PreparedRequest,
        job: SegmentJob,
        spans: list[Span],
        *,
        prefix: str = "",
        num_splits: int = 0,
    ) -> list[Part]:
        """New parts, the first with the prefix; empty where the model does not take one of them at once."""
        made: list[Part] = []
        for span in spans:
            encoded = self._planner.encode(span.of(job.segment.source), job.language)
            if encoded is None:
                return []
            own_prefix = "" if made else prefix
            made.append(
                self._planner.part(prepared, job, span, encoded, prefix=own_prefix, num_splits=num_splits)
            )
        return made


def _suppressing(options: DecodingOptions, ids: Sequence[int]) -> DecodingOptions:
    """The options under which a search says something else than `ids`, or more."""
    runs = tuple((token,) for token in sorted(set(ids)) if (token,) not in options.suppress_sequences)
    room = MAX_SUPPRESSED_TOKENS - sum(map(len, options.suppress_sequences))
    return replace(options, suppress_sequences=options.suppress_sequences + runs[:room])


def _number_faults(job: SegmentJob, attempt: Attempt) -> tuple[int, int]:
    """Numbers that are lost or added; and stand-ins that are to be put in (twice) or swapped."""
    segment, best = attempt.segment, attempt.best
    changed = job.parsed_text.changed_numbers(segment, repair(segment, best).text)
    places = [place for placeholder, _ in segment.numbers if (place := best.text.find(placeholder)) >= 0]
    num_swapped = sum(one > other for one, other in pairwise(places))
    num_repeated = sum(best.text.count(placeholder) > 1 for placeholder, _ in segment.numbers)
    num_faults = 2 * len(lost_spans(segment, best)) + num_swapped + num_repeated
    return len(changed.missing) + len(changed.added), num_faults


def _term_faults(job: SegmentJob, attempt: Attempt) -> tuple[int, int]:
    """Terms that its translation lacks; and stand-ins that are to be put in."""
    segment, best = attempt.segment, attempt.best
    return len(job.parsed_text.missing_terms(segment, best.text)), len(lost_spans(segment, best))


def _has_own_length(prepared: PreparedRequest, job: SegmentJob) -> bool:
    """Whether the caller left the length to the server."""
    options = prepared.request.options
    is_forced = options is not None and (options.min_target_length > 0 or options.min_target_ratio > 0)
    return prepared.request.extra_target_length is not None and not is_forced and not job.prefix
