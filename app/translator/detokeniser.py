"""The engine's results become texts again, with what was asked to be told of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from app.bundle import LanguagePair
from app.decoding.options import Hypothesis
from app.decoding.scoring import length_penalty
from app.engine.sequence import SequenceResult
from app.text.alignment import Alignment
from app.text.finished import FinishedSegment
from app.text.segments import SegmentTranslation, is_wordless, join_parts, source_as_translation
from app.text.spans import as_sent, target_offsets
from app.text.tokenizer import Tokenizer
from app.translator.jobs import Part, SegmentJob, TextPlan, joint_reason
from app.translator.request import (
    PairScore,
    ScoreRequest,
    SegmentHypothesis,
    TextSpan,
    Token,
    TranslatedSegment,
    Translation,
    TranslationRequest,
)
from app.translator.subwords import ScoredSource, SubwordEncoder, stripped_span
from app.translator.tokens import SourceColumns, TokenBuilder


class Detokeniser:
    """Of one model. Immutable, so any thread may use it."""

    def __init__(self, tokenizer: Tokenizer, encoder: SubwordEncoder) -> None:
        """tokenizer: of the target. cutter: what cut the sources."""
        self._tokenizer = tokenizer
        self._encoder = encoder

    def segment(self, job: SegmentJob, rank: int, *, returns_tokens: bool) -> SegmentTranslation:
        """What the text layer is given: a decoded segment's translation, the best one's rank being 0.

        returns_tokens: with the places of all its tokens, the end tokens' too, for `app.text` to follow.
        """
        translations = [self._part(job, part, rank, returns_tokens=returns_tokens) for part in job.parts]
        if not job.reasons:
            return translations[0]
        joined = join_parts(job.segment, [part.span for part in job.parts], translations)
        return joined._replace(fallbacks=job.reasons)

    def is_wordless(self, job: SegmentJob, part: Part) -> bool:
        """Whether a decoded part has letters or digits, and its best translation has none."""
        said = self._tokenizer.decode(part.hypothesis(0).ids, part.encoded.verbatim_spans)
        return is_wordless(part.span.of(job.segment.source), said.text)

    def translation(self, plan: TextPlan, request: TranslationRequest) -> Translation:
        """A text whose jobs are all decoded."""
        num_hypotheses = request.options.num_hypotheses if request.options else 1
        language = plan.language
        if not plan.jobs:
            return Translation(
                plan.text, (plan.text,) * num_hypotheses, (), language.source, language.confidence
            )
        segments = [job.segment for job in plan.jobs]
        told = request.returns_tokens
        best = [job.best or self.segment(job, 0, returns_tokens=told) for job in plan.jobs]
        whole = [plan.parsed_text.finish(segments, best)]
        for rank in range(1, num_hypotheses):
            others = [self.segment(job, rank, returns_tokens=told) for job in plan.jobs]
            whole.append(plan.parsed_text.finish(segments, others))
        found = []
        for index, job in enumerate(plan.jobs):
            sources = [self._source_places(request, job, part) for part in job.parts]
            ranked = [
                self._hypothesis(
                    request, job, rank, text.text, finished=text.segments[index], sources=sources
                )
                for rank, text in enumerate(whole[: job.num_hypotheses])
            ]
            finished = whole[0].segments[index]
            found.append(
                TranslatedSegment(
                    source=TextSpan(*finished.source),
                    target=TextSpan(*finished.target),
                    hypotheses=tuple(ranked),
                    has_looped=any(part.result is not None and part.result.has_looped for part in job.parts),
                    is_part=finished.is_part,
                    fallbacks=finished.fallbacks,
                    changed_numbers=finished.changed_numbers,
                    source_tokens=tuple(chain.from_iterable(sources)) if request.attention else (),
                )
            )
        return Translation(
            whole[0].text,
            tuple(text.text for text in whole),
            tuple(found),
            language.source,
            language.confidence,
            plan.parsed_text.glossary_hits,
        )

    def _part(self, job: SegmentJob, part: Part, rank: int, *, returns_tokens: bool) -> SegmentTranslation:
        hypothesis = part.hypothesis(rank)
        decoded = self._tokenizer.decode(hypothesis.ids, part.encoded.verbatim_spans)
        source = part.span.of(job.segment.source)
        if is_wordless(source, decoded.text):
            return source_as_translation(source, (len(hypothesis.ids) + 1) * returns_tokens)
        if not (returns_tokens or hypothesis.alignment):
            return SegmentTranslation(decoded.text, num_appended=decoded.num_appended)
        places = target_offsets(self._tokenizer, hypothesis.ids, part.encoded.verbatim_spans)
        alignment = self._alignment(job, part, hypothesis, places) if hypothesis.alignment else None
        end = (len(decoded.text), len(decoded.text))
        told = (*places, end) if returns_tokens else ()
        return SegmentTranslation(decoded.text, alignment, decoded.num_appended, places=told)

    def _alignment(
        self, job: SegmentJob, part: Part, hypothesis: Hypothesis, places: Sequence[tuple[int, int]]
    ) -> Alignment | None:
        """Between a part's source and its translation. places: of the target's subwords."""
        if job.language.pair is None or not places:
            return None
        source = self._encoder.source_offsets(part.span.of(job.segment.source), job.language.pair)
        weights = np.array(hypothesis.alignment[: len(places)], np.float64)
        num_columns = weights.shape[1]
        # The end token, and whatever else has no characters, counts for nothing.
        source += [(0, 0)] * (num_columns - len(source))
        return Alignment(tuple(source), tuple(places), weights)

    def _hypothesis(
        self,
        request: TranslationRequest,
        job: SegmentJob,
        rank: int,
        text: str,
        *,
        finished: FinishedSegment,
        sources: Sequence[Sequence[TextSpan]],
    ) -> SegmentHypothesis:
        """text: the whole one of this rank. sources: as of `_tokens`."""
        said = [part.hypothesis(rank) for part in job.parts]
        start = finished.target[0]
        own = text[start : finished.target[1]]
        tokens: tuple[Token, ...] = ()
        if request.returns_tokens:
            places = [(first - start, last - start) for first, last in finished.places]
            tokens = self._tokens(job, rank, own, places, sources, returns_weights=request.attention)
        return SegmentHypothesis(
            own,
            sum(each.log_probability for each in said),
            _score(job, said),
            joint_reason(said, keeps_source=finished.keeps_source, is_shortened=job.is_shortened),
            tokens,
        )

    def _tokens(
        self,
        job: SegmentJob,
        rank: int,
        text: str,
        places: Sequence[tuple[int, int]],
        sources: Sequence[Sequence[TextSpan]],
        *,
        returns_weights: bool,
    ) -> tuple[Token, ...]:
        """Of all parts in order.

        places: in `text`, for each part those of its subwords and that of its end. sources: of each part's source
        subwords in the caller's text.
        """
        told: list[Token] = []
        end, column, num_columns = 0, 0, sum(map(len, sources))
        for part, source in zip(job.parts, sources, strict=True):
            hypothesis = part.hypothesis(rank)
            start, end = end, end + len(hypothesis.ids) + 1
            shown = [job.parsed_text.preview(job.segment, run) for run in part.encoded.verbatim_spans]
            columns = SourceColumns(column, num_columns) if returns_weights else None
            builder = TokenBuilder(self._tokenizer, shown, source, columns)
            told += builder.build(hypothesis, text, places[start:end])
            column += len(source)
        return tuple(told)

    def _source_places(self, request: TranslationRequest, job: SegmentJob, part: Part) -> list[TextSpan]:
        """Of the part's subwords in the caller's text, its end token last; none without an alignment asked for."""
        is_aligned = request.options is not None and request.options.alignment
        if not is_aligned or job.language.pair is None:
            return []
        start = part.span.start
        source = part.span.of(job.segment.source)
        offsets = [*self._encoder.source_offsets(source, job.language.pair), (len(source), len(source))]
        return [
            TextSpan(*job.parsed_text.source_range(job.segment, first + start, last + start))
            for first, last in offsets
        ]

    def scores(
        self,
        request: ScoreRequest,
        pair: LanguagePair,
        pieces: Sequence[ScoredSource],
        results: Sequence[SequenceResult],
    ) -> tuple[PairScore, ...]:
        """`results`: one a pair. The tokens' places are those in the caller's translation."""
        scores = []
        for index, (piece, result) in enumerate(zip(pieces, results, strict=True)):
            text, hypothesis = request.translations[index], result.hypotheses[0]
            span = stripped_span("translation", index, text)
            tokens: tuple[Token, ...] = ()
            sources: tuple[TextSpan, ...] = ()
            if request.returns_tokens:
                is_aligned = request.options is not None and request.options.alignment
                if is_aligned:
                    sources = (
                        *self._encoder.source_spans(piece, pair),
                        TextSpan(piece.span.end, piece.span.end),
                    )
                columns = SourceColumns(0, len(sources)) if request.attention else None
                builder = TokenBuilder(self._tokenizer, piece.encoded.verbatim_spans, sources, columns)
                offsets = target_offsets(self._tokenizer, hypothesis.ids, piece.encoded.verbatim_spans)
                places = [
                    (start + span.start, end + span.start) for start, end in as_sent(span.of(text), offsets)
                ]
                tokens = builder.build(hypothesis, text, [*places, (span.end, span.end)])
            num_tokens = len(hypothesis.token_log_probabilities)
            told = sources if request.attention else ()
            scores.append(PairScore(hypothesis.log_probability, hypothesis.score, num_tokens, tokens, told))
        return tuple(scores)


def _score(job: SegmentJob, said: Sequence[Hypothesis]) -> float:
    """The engine's own; of several parts their log-probability over the length penalty of all their tokens."""
    if len(said) == 1:
        return said[0].score
    options = job.parts[0].options
    num_tokens = max(1, sum(len(each.token_log_probabilities) for each in said))
    penalty = length_penalty(num_tokens, options.alpha, options.length_penalty)
    return sum(each.log_probability for each in said) / penalty
