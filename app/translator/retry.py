"""Decides which segments are decoded again, and how. A segment gets each kind of retry only a limited number of times.

- A part that reached the length limit is halved, up to MAX_SPLITS times.
- A part whose output has no letter or digit is decoded with that output suppressed.
- A part whose output has only the source's digits, and no words, is decoded with a longer minimum length.
- A segment whose translation lacks a glossary term or changes a number is decoded with placeholders for these, up to
  twice.
- A segment that has no numeral and no number word, but whose translation has a number, is decoded with all digits
  suppressed. This retry needs a source language whose number words are known.
- A segment that lost a placeholder is decoded with attention, which shows the place of the placeholder. If the model
  returns no attention, the parts around the placeholders are decoded separately.

A retry whose source is too short for the lengths that the request sets is left out. For example, a
`min_target_length` can exceed `max_target_ratio` times the length of a source with placeholders.

Attention is not requested earlier because few sentences lose a placeholder, and a greedy search with attention is
slower. `Translator.run` decides whether the functions here run on the event loop or on a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter

from app.decoding.options import DecodingOptions, FinishReason
from app.decoding.validation import MAX_SUPPRESSED_TOKENS
from app.errors import InvalidRequest
from app.text.glossary import GlossaryHit
from app.text.number_check import has_digit, may_have_number
from app.text.segmentation import Span, best_cut, trimmed
from app.text.segments import Fallback, lost_spans, repair, spans_between_placeholders
from app.text.tokenizer import Encoded
from app.translator.detokeniser import Detokeniser
from app.translator.jobs import Attempt, Faults, Part, SegmentJob
from app.translator.planning import Planner, PreparedRequest
from app.translator.prefixes import has_placeholder

# How many times the parts of a segment are halved at most. Four times give at most 16 parts. If larger, a segment whose
# output never ends is decoded more often. If smaller, the translation of a long segment may stay cut off.
MAX_SPLITS = 4


class RetryPolicy:
    """The retries of one model. Immutable, so any thread may use it."""

    def __init__(self, planner: Planner, detokeniser: Detokeniser) -> None:
        self._planner = planner
        self._detokeniser = detokeniser

    def retry_or_accept(self, prepared: PreparedRequest, job: SegmentJob) -> None:
        """Give a decoded job new parts to decode, or accept its translation as `job.best`."""
        if self._split_cut_off_parts(prepared, job) or self._retry_parts_without_words(prepared, job):
            return
        job.best = self._detokeniser.segment(job, 0, returns_tokens=prepared.request.returns_tokens)
        if (
            self._retry_terms(prepared, job)
            or self._retry_numbers(prepared, job)
            or self._retry_without_digits(job)
            or self._retry_aligned(job)
            or self._retry_around_placeholders(prepared, job)
        ):
            job.best = None

    def _split_cut_off_parts(self, prepared: PreparedRequest, job: SegmentJob) -> bool:
        """Halve the parts that reached the length limit, unless the request set that limit."""
        if job.num_splits == MAX_SPLITS or not _has_default_length(prepared, job):
            return False
        halved = [self._halve(prepared, job, part) for part in job.parts]
        if not any(halved):
            return False
        job.parts = [
            new for part, halves in zip(job.parts, halved, strict=True) for new in (halves or [part])
        ]
        job.num_splits += 1
        if Fallback.LENGTH_SPLIT not in job.part_fallbacks:
            job.part_fallbacks += (Fallback.LENGTH_SPLIT,)
        return True

    def _halve(self, prepared: PreparedRequest, job: SegmentJob, part: Part) -> list[Part]:
        """Return the halves of a part that reached the length limit; empty for other parts and single characters."""
        if part.hypothesis(0).finish_reason is not FinishReason.LENGTH or part.span.end - part.span.start < 2:
            return []
        source = job.segment.source
        cut = best_cut(source, part.span)
        spans = (trimmed(source, part.span.start, cut), trimmed(source, cut, part.span.end))
        halves = [span for span in spans if span is not None]
        return self._new_parts(prepared, job, halves, num_splits=job.num_splits + 1)

    def _retry_parts_without_words(self, prepared: PreparedRequest, job: SegmentJob) -> bool:
        """Decode again the parts whose output has no words.

        If an output has digits, the new one must be longer. Otherwise the subwords of the output are suppressed.
        """
        wordless = [
            index
            for index, part in enumerate(job.parts)
            if not part.was_wordless and self._detokeniser.is_wordless(job, part)
        ]
        for index in wordless:
            part = job.parts[index]
            ids = part.hypothesis(0).ids
            if self._detokeniser.has_digit(ids):
                longer = min(len(ids) + 1, part.options.max_target_length)
                options = replace(part.options, min_target_length=longer)
            else:
                options = _suppressing(part.options, ids)
            job.parts[index] = Part(part.span, part.encoded, options, was_wordless=True)
        return bool(wordless)

    def _retry_terms(self, prepared: PreparedRequest, job: SegmentJob) -> bool:
        """Decode the segment with placeholders for the terms that its translation lacks, then for all of its terms.

        If several hypotheses are requested and any lacks a term, placeholders replace all terms at once.
        """
        if job.terms_done or job.best is None:
            return False
        if not job.attempts:
            missing = job.parsed_text.missing_terms(job.segment, job.best.text)
            num_hypotheses = prepared.options.num_hypotheses
            others = (
                self._detokeniser.segment(job, rank, returns_tokens=False)
                for rank in range(1, num_hypotheses)
            )
            has_all_terms = not missing and not any(
                job.parsed_text.missing_terms(job.segment, each.text) for each in others
            )
            if has_all_terms:
                job.terms_done = True
                return False
            choices = [missing, job.segment.terms] if num_hypotheses == 1 else [job.segment.terms]
            self._queue_candidates(job, choices)
            if num_hypotheses > 1 and job.candidates:
                job.terms_done = True
                return self._start_next(prepared, job)
        job.terms_done = not self._try_next(prepared, job, _term_faults)
        return not job.terms_done

    def _queue_candidates(self, job: SegmentJob, choices: Sequence[Sequence[GlossaryHit]]) -> None:
        """Queue the segment with placeholders for each of these choices of terms, without duplicates."""
        segments = [job.parsed_text.with_term_placeholders(job.segment, only) for only in choices]
        for segment in {each.source: each for each in segments}.values():
            encoded = self._planner.encode(segment.source, job.language)
            if encoded is not None:
                job.candidates.append((segment, encoded))

    def _retry_numbers(self, prepared: PreparedRequest, job: SegmentJob) -> bool:
        """If the translation changes numbers, decode with placeholders for them until an attempt has no fault.

        If every attempt has a fault, keep the attempt with the fewest lost or added numbers. Among equal attempts, keep
        the attempt whose placeholders cost the least repair, as `_number_faults` counts it.
        """
        pair = job.language.pair
        if job.numbers_done or job.prefix or job.best is None or pair is None:
            return False
        if not job.attempts:
            encoded: dict[str, Encoded] = {}
            fits = self._planner.fits(pair, encoded)
            candidates = job.parsed_text.number_retries(job.segment, job.best, fits)
            job.candidates = [(segment, encoded[segment.source]) for segment in candidates]
            if not candidates:
                job.numbers_done = True
                return False
        job.numbers_done = not self._try_next(prepared, job, _number_faults)
        return not job.numbers_done

    def _retry_without_digits(self, job: SegmentJob) -> bool:
        """Decode a segment without numbers again with digits suppressed, if its translation has a number."""
        if job.digits_done or job.prefix or job.best is None or job.language.pair is None:
            return False
        job.digits_done = True
        if not has_digit(job.best.text):
            return False
        if may_have_number(job.segment.source, job.language.pair.source):
            return False  # such as "half past two", which may become 2:30
        if not job.parsed_text.changed_numbers(job.segment, repair(job.segment, job.best).text).added:
            return False
        digits = self._detokeniser.digit_ids
        job.parts = [
            replace(part, options=_suppressing(part.options, digits), result=None, suppresses_digits=True)
            for part in job.parts
        ]
        return True

    def _try_next(
        self,
        prepared: PreparedRequest,
        job: SegmentJob,
        faults_of: Callable[[SegmentJob, Attempt], Faults],
    ) -> bool:
        """Store the attempt. If it has faults, start the next candidate if one is left, else choose the best attempt.

        faults_of: counts an attempt's faults. Returns whether a candidate was started.
        """
        attempt = job.as_attempt()
        faults = faults_of(job, attempt)
        job.attempts.append((faults, attempt))
        if any(faults) and self._start_next(prepared, job):
            return True
        _, best = min(job.attempts, key=itemgetter(0))
        job.choose(best)
        return False

    def _start_next(self, prepared: PreparedRequest, job: SegmentJob) -> bool:
        """Let the job decode the next candidate whose options are valid. Returns whether there is one."""
        decoded = job.segment
        while job.candidates:
            job.segment, tokens = job.candidates.pop(0)
            try:
                self._planner.reset(prepared, job, tokens)
            except InvalidRequest:
                job.segment = decoded
            else:
                return True
        return False

    def _retry_aligned(self, job: SegmentJob) -> bool:
        """Decode the segment again with attention, if it lost something whose place attention can show."""
        is_aligned = all(part.options.alignment for part in job.parts)
        if is_aligned or not self._planner.has_alignment or job.best is None:
            return False
        if not lost_spans(job.segment, job.best):
            return False
        job.parts = [
            replace(part, options=replace(part.options, alignment=True), result=None) for part in job.parts
        ]
        return True

    def _retry_around_placeholders(self, prepared: PreparedRequest, job: SegmentJob) -> bool:
        """Decode the parts around the placeholders, if one is lost and no attention can place it.

        Does nothing if the prefix has a placeholder, because these parts have none. Does nothing with a prefix if the
        source begins with a placeholder, because the prefix would be after it.
        """
        if job.part_fallbacks or job.best is None:
            return False
        if job.prefix and has_placeholder(job.prefix, job, job.parts[0].encoded):
            return False
        spans = spans_between_placeholders(job.segment, job.best)
        if job.prefix and spans and spans[0].start > 0:
            return False
        parts = self._new_parts(prepared, job, spans, prefix=job.prefix)
        if not parts:
            return False
        job.parts, job.part_fallbacks = parts, (Fallback.PLACEHOLDER_SPLIT,)
        return True

    def _new_parts(
        self,
        prepared: PreparedRequest,
        job: SegmentJob,
        spans: list[Span],
        *,
        prefix: str = "",
        num_splits: int = 0,
    ) -> list[Part]:
        """Return parts for these spans, the first with the prefix.

        Empty if the model cannot take one of them, or the options of one are invalid.
        """
        new_parts: list[Part] = []
        for span in spans:
            encoded = self._planner.encode(span.of(job.segment.source), job.language)
            if encoded is None:
                return []
            own_prefix = "" if new_parts else prefix
            try:
                new = self._planner.part(
                    prepared, job, span, encoded, prefix=own_prefix, num_splits=num_splits
                )
            except InvalidRequest:
                return []
            new_parts.append(new)
        return new_parts


def _suppressing(options: DecodingOptions, ids: Sequence[int]) -> DecodingOptions:
    """Return options with these subwords suppressed, up to MAX_SUPPRESSED_TOKENS."""
    runs = tuple((token,) for token in sorted(set(ids)) if (token,) not in options.suppress_sequences)
    room = MAX_SUPPRESSED_TOKENS - sum(map(len, options.suppress_sequences))
    return replace(options, suppress_sequences=options.suppress_sequences + runs[:room])


def _number_faults(job: SegmentJob, attempt: Attempt) -> Faults:
    """Return the count of lost or added numbers, and the cost of repairing placeholders.

    A lost placeholder costs 2. A placeholder that is repeated or swapped with its neighbour costs 1.
    """
    segment, best = attempt.segment, attempt.best
    changed = job.parsed_text.changed_numbers(segment, repair(segment, best).text)
    positions = [
        position for placeholder, _ in segment.numbers if (position := best.text.find(placeholder)) >= 0
    ]
    num_swapped = sum(one > other for one, other in pairwise(positions))
    num_repeated = sum(best.text.count(placeholder) > 1 for placeholder, _ in segment.numbers)
    num_faults = 2 * len(lost_spans(segment, best)) + num_swapped + num_repeated
    return len(changed.missing) + len(changed.added), num_faults


def _term_faults(job: SegmentJob, attempt: Attempt) -> Faults:
    """Return the count of missing terms, and of lost placeholders."""
    segment, best = attempt.segment, attempt.best
    return len(job.parsed_text.missing_terms(segment, best.text)), len(lost_spans(segment, best))


def _has_default_length(prepared: PreparedRequest, job: SegmentJob) -> bool:
    """Whether the server alone sets the length limit: the request forces neither a length nor a prefix."""
    options = prepared.options
    is_forced = options.min_target_length > 0 or options.min_target_ratio > 0
    return prepared.request.extra_target_length is not None and not is_forced and not job.prefix
