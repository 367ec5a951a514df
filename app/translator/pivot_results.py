"""Joins the two halves of a pivoted translation, so that the answer refers to the caller's text.

The attention from the target to the source is a product of three matrices: the second model's attention, a mapping, and
the first model's attention. The mapping takes the second model's source subwords to the first model's target subwords,
by the characters that they share. A subword that shares none, such as an end token, is mapped to the end token of the
first model's translation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.decoding.options import FinishReason, Hypothesis
from app.text.alignment import Alignment
from app.text.finished import FinishedSegment
from app.text.number_format import with_numbers_rewritten
from app.text.parsed_text import ParsedText
from app.text.segmentation import Offsets
from app.text.segments import (
    Fallback,
    Repaired,
    SegmentTranslation,
    SourceSegment,
    repair,
    source_as_translation,
    with_numbers_restored,
)
from app.translator.detokeniser import Detokeniser, score_of, segment_of
from app.translator.jobs import Part, Phases, SegmentJob, TextPlan, joint_reason
from app.translator.request import (
    SegmentHypothesis,
    TextSpan,
    Token,
    Translation,
    TranslationRequest,
)
from app.translator.tokens import SourceColumns, TokenBuilder

Floats = NDArray[np.float64]


@dataclass(eq=False)
class PivotJob:
    """The translation of a segment through both models.

    parsed_text: the text, with the caller's languages. pivot_text: the same text with the pivot as its source language.
    first: the job into the pivot. last: the job out of it; None until `first` has its translation.
    prefix: forced beginning of the translation; "" for none.
    """

    parsed_text: ParsedText
    pivot_text: ParsedText
    first: SegmentJob
    prefix: str = ""
    last: SegmentJob | None = None

    @property
    def halves(self) -> tuple[SegmentJob, SegmentJob]:
        """Return both jobs. Requires `last`."""
        assert self.last is not None
        return self.first, self.last

    @property
    def parts(self) -> list[Part]:
        """Return the parts of both halves."""
        return [*self.first.parts, *(self.last.parts if self.last is not None else ())]

    @property
    def phases(self) -> Phases:
        """Return the engine time of both halves together."""
        first, last = self.halves
        return first.phases.followed_by(last.phases)


class PivotTextPlan(NamedTuple):
    """A text and its segments. plan: its plan for the first model."""

    plan: TextPlan
    jobs: tuple[PivotJob, ...]


class Attention(NamedTuple):
    """The attention of one model for one segment, or of two models joined by `after`.

    source: the offsets of each source subword in the segment's source.
    target: the offsets of each target subword, and of the end of each part, in the repaired translation.
    weights: (num_targets, num_sources). If a part's output has no end token, the row of the part's end is 0.
    """

    source: tuple[Offsets, ...]
    target: tuple[Offsets, ...]
    weights: Floats

    def after(self, first: Attention) -> Attention:
        """Return the attention to the source of `first`, whose translation is the source of this one.

        Each row sums to 1, or to 0 if it has no weight at all.
        """
        mapping = _shared_characters(self.source, first.target)
        mapping[mapping.sum(axis=1) == 0, -1] = 1.0
        weights = self.weights @ _normalised(mapping) @ first.weights
        return Attention(first.source, self.target, _normalised(weights))


class JoinedSegment(NamedTuple):
    """The translation of a segment from the caller's text into the target.

    hypotheses: those of the second model, one for each part. attention: None unless both models return it.
    """

    translation: SegmentTranslation
    hypotheses: Sequence[Hypothesis]
    attention: Attention | None


class PivotDetokeniser:
    """Joins the results of two models. Immutable, so any thread may use it."""

    def __init__(self, first: Detokeniser, last: Detokeniser, pivot: str) -> None:
        """pivot: the language code between the two models."""
        self._first = first
        self._last = last
        self._pivot = pivot

    def translation(self, text: PivotTextPlan, request: TranslationRequest) -> Translation:
        """Return the translation of a text whose jobs are all decoded."""
        plan, jobs = text.plan, text.jobs
        if not jobs:
            return self._first.translation(plan, request)
        num_hypotheses = request.options.num_hypotheses
        ranked = [
            [self.join(job, rank, returns_tokens=request.returns_tokens) for job in jobs]
            for rank in range(num_hypotheses)
        ]
        sources = [job.first.segment for job in jobs]
        by_rank = [
            plan.parsed_text.finish(sources, [each.translation for each in joined]) for joined in ranked
        ]
        segments = []
        for index, job in enumerate(jobs):
            hypotheses = [
                self._hypothesis(request, job, joined[index], finished.segments[index], finished.text)
                for joined, finished in zip(ranked, by_rank[: job.halves[1].num_hypotheses], strict=False)
            ]
            spans = _source_spans(request, job, ranked[0][index]) if request.attention else []
            segments.append(segment_of(job.parts, by_rank[0].segments[index], hypotheses, spans))
        return Translation(
            by_rank[0].text,
            tuple(each.text for each in by_rank),
            tuple(segments),
            plan.language.source,
            plan.language.confidence,
            plan.parsed_text.glossary_hits,
            self._pivot,
        )

    def render(self, job: PivotJob) -> str:
        """Return a segment's best translation as it will stand in the finished text."""
        joined = self.join(job, 0, returns_tokens=False)
        return job.parsed_text.render(job.first.segment, joined.translation)

    def finish_reason(self, job: PivotJob) -> FinishReason:
        """Return the finish reason of a segment's best translation; see `joint_reason`."""
        joined = self.join(job, 0, returns_tokens=False)
        return _reason(job, joined, keeps_source=joined.translation.keeps_source)

    def join(self, job: PivotJob, rank: int, *, returns_tokens: bool) -> JoinedSegment:
        """Return a segment's translation from the second model's hypotheses of one rank. Rank 0 is the best.

        Both jobs must be decoded. returns_tokens: whether the translation has the offsets of all target subwords.
        """
        first, last = job.halves
        is_aligned = _is_aligned(first, 0) and _is_aligned(last, rank)
        translation = self._last.segment(last, rank, returns_tokens=returns_tokens or is_aligned)
        repaired = repair(last.segment, translation)
        if not first.segment.numbers:  # else `ParsedText.finish` restores the numbers
            repaired = with_numbers_restored(last.segment, repaired)
        attention = None
        if is_aligned:
            pivot = repair(first.segment, self._first.segment(first, 0, returns_tokens=True))
            to_pivot = _attention(self._first, first, 0, pivot)
            attention = _attention(self._last, last, rank, repaired).after(to_pivot)
        hypotheses = [part.hypothesis(rank) for part in last.parts]
        if _keeps_all(first, first.best) or _keeps_all(last, translation):
            kept = source_as_translation(first.segment.source, len(repaired.token_offsets))
            return JoinedSegment(kept, hypotheses, attention)
        assert first.best is not None
        joined = SegmentTranslation(
            with_numbers_rewritten(repaired.text, last.parsed_text.number_spellings(last.segment)),
            None if attention is None else Alignment(attention.source, attention.target, attention.weights),
            fallbacks=_fallbacks(first.segment, repair(first.segment, first.best), repaired),
            token_offsets=repaired.token_offsets if returns_tokens else (),
            keeps_source=first.best.keeps_source or translation.keeps_source,
            prefix_end=repaired.prefix_end,
        )
        return JoinedSegment(joined, hypotheses, attention)

    def _hypothesis(
        self,
        request: TranslationRequest,
        job: PivotJob,
        joined: JoinedSegment,
        finished: FinishedSegment,
        text: str,
    ) -> SegmentHypothesis:
        """Return one translation of a segment, with the second model's score and tokens.

        text: the whole text's translation of this rank.
        """
        segment_text = text[finished.target[0] : finished.target[1]]
        return SegmentHypothesis(
            segment_text,
            sum(each.log_probability for each in joined.hypotheses),
            score_of(job.halves[1], joined.hypotheses),
            _reason(job, joined, keeps_source=finished.keeps_source),
            self._tokens(request, job, joined, finished, segment_text) if request.returns_tokens else (),
        )

    def _tokens(
        self,
        request: TranslationRequest,
        job: PivotJob,
        joined: JoinedSegment,
        finished: FinishedSegment,
        text: str,
    ) -> tuple[Token, ...]:
        """Return the tokens of all parts in order. text: the segment's translation."""
        start = finished.target[0]
        offsets = [(first - start, last - start) for first, last in finished.token_offsets]
        sources = _source_spans(request, job, joined)
        columns = SourceColumns(0, len(sources)) if request.attention else None
        tokens: list[Token] = []
        begin = 0
        for part, hypothesis in zip(job.halves[1].parts, joined.hypotheses, strict=True):
            end = begin + len(hypothesis.ids) + 1
            shown = [job.parsed_text.preview(job.first.segment, run) for run in part.encoded.verbatim_spans]
            rows = joined.attention.weights[begin:end].tolist() if sources and joined.attention else ()
            builder = TokenBuilder(self._last.tokenizer, shown, sources, columns)
            tokens += builder.build(
                replace(hypothesis, alignment=tuple(map(tuple, rows))), text, offsets[begin:end]
            )
            begin = end
        return tuple(tokens)


def _source_spans(request: TranslationRequest, job: PivotJob, joined: JoinedSegment) -> list[TextSpan]:
    """Return the spans of the source's subwords in the caller's text. Empty unless the request sets alignment."""
    if not request.options.alignment or joined.attention is None:
        return []
    return [
        TextSpan(*job.parsed_text.source_range(job.first.segment, start, end))
        for start, end in joined.attention.source
    ]


def _reason(job: PivotJob, joined: JoinedSegment, *, keeps_source: bool) -> FinishReason:
    """Return the joint finish reason of both halves; see `joint_reason`."""
    first, last = job.halves
    return joint_reason(
        [*(part.hypothesis(0) for part in first.parts), *joined.hypotheses],
        keeps_source=keeps_source,
        is_shortened=first.is_shortened or last.is_shortened,
    )


def _is_aligned(job: SegmentJob, rank: int) -> bool:
    return all(part.hypothesis(rank).alignment for part in job.parts)


def _keeps_all(job: SegmentJob, translation: SegmentTranslation | None) -> bool:
    """Whether the source replaces a whole translation, because the model returned no words."""
    return translation is not None and translation.keeps_source and len(job.parts) == 1


def _fallbacks(segment: SourceSegment, first: Repaired, last: Repaired) -> tuple[Fallback, ...]:
    """Return the repairs of both halves, each once.

    NUMBERS_CARRIED is left out if the segment has placeholders of numbers: it is added when the text is written.
    """
    both = dict.fromkeys((*first.fallbacks, *last.fallbacks))
    return tuple(each for each in both if not (segment.numbers and each is Fallback.NUMBERS_CARRIED))


def _attention(detokeniser: Detokeniser, job: SegmentJob, rank: int, repaired: Repaired) -> Attention:
    """Return one model's attention for a segment. repaired: its translation of that rank, with all token offsets."""
    source: list[Offsets] = []
    blocks: list[Floats] = []
    for part in job.parts:
        hypothesis = part.hypothesis(rank)
        weights = np.array(hypothesis.alignment, np.float64)
        num_missing = len(hypothesis.ids) + 1 - len(weights)
        blocks.append(np.pad(weights, ((0, num_missing), (0, 0))))
        source += detokeniser.source_offsets(job, part)
    weights = np.zeros((sum(len(block) for block in blocks), len(source)))
    row = column = 0
    for block in blocks:
        weights[row : row + len(block), column : column + block.shape[1]] = block
        row, column = row + len(block), column + block.shape[1]
    return Attention(tuple(source), tuple(repaired.token_offsets), weights)


def _shared_characters(spans: Sequence[Offsets], others: Sequence[Offsets]) -> Floats:
    """Return how many characters each span shares with each other span of the same text: (len(spans), len(others))."""
    one = np.array(spans, np.float64).reshape(-1, 1, 2)
    other = np.array(others, np.float64).reshape(1, -1, 2)
    shared: Floats = np.minimum(one[..., 1], other[..., 1]) - np.maximum(one[..., 0], other[..., 0])
    return np.maximum(shared, 0.0)


def _normalised(weights: Floats) -> Floats:
    """Return the weights with rows that sum to 1; a row of zeros stays."""
    total = weights.sum(axis=1, keepdims=True)
    result: Floats = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return result
