"""Turns the engine's results into translations, with scores and with the tokens that a request asks for."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from app.decoding.options import Hypothesis
from app.decoding.scoring import length_penalty
from app.engine.sequence import SequenceResult
from app.language_pairs import LanguagePair
from app.text.alignment import Alignment
from app.text.finished import FinishedSegment
from app.text.language_codes import separator
from app.text.segmentation import Offsets
from app.text.segments import Fallback, SegmentTranslation, join_parts, source_as_translation
from app.text.spans import scored_offsets, target_offsets
from app.text.tokenizer import Tokenizer
from app.text.wordless import is_wordless
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

# The format in which `Tokenizer.text_of` writes a byte.
_BYTE = re.compile("<0x([0-9A-F]{2})>")


class Detokeniser:
    """Turns the results of one model into translations. Immutable, so any thread may use it."""

    def __init__(self, tokenizer: Tokenizer, encoder: SubwordEncoder) -> None:
        """tokenizer: of the target vocabulary. encoder: the object that encoded the sources."""
        self.tokenizer = tokenizer
        self.encoder = encoder

    @functools.cached_property
    def digit_ids(self) -> tuple[int, ...]:
        """The ids of subwords that contain a digit or spell one as a byte."""
        vocab_size = self.tokenizer.vocab_size
        return tuple(index for index in range(vocab_size) if has_digit(self.tokenizer.text_of(index)))

    def segment(self, job: SegmentJob, rank: int, *, returns_tokens: bool) -> SegmentTranslation:
        """Return a segment's translation from the hypotheses of one rank. Rank 0 is the best.

        returns_tokens: whether the result has the offsets of all tokens, end tokens included. `app.text` updates them
        when it changes the text.
        """
        translations = [self._part(job, part, rank, returns_tokens=returns_tokens) for part in job.parts]
        suppresses_digits = any(part.suppresses_digits for part in job.parts)
        if not job.part_fallbacks and not suppresses_digits:
            return translations[0]
        joined = translations[0]
        if job.part_fallbacks:
            options = job.parsed_text.options
            gap = separator(options.source_language, options.target_language)
            joined = join_parts(job.segment, [part.span for part in job.parts], translations, gap)
        fallbacks = job.part_fallbacks + (Fallback.DIGITS_SUPPRESSED,) * suppresses_digits
        return joined._replace(fallbacks=fallbacks)

    def is_wordless(self, job: SegmentJob, part: Part) -> bool:
        """Whether a part's best translation has no words, by the rule of `app.text.wordless.is_wordless`."""
        decoded = self.tokenizer.decode(part.hypothesis(0).ids, part.encoded.verbatim_spans)
        return is_wordless(part.span.of(job.segment.source), decoded.text)

    def has_digit(self, ids: Sequence[int]) -> bool:
        """Whether the text of these subwords has a digit."""
        return not set(self.digit_ids).isdisjoint(ids)

    def translation(self, plan: TextPlan, request: TranslationRequest) -> Translation:
        """Return the translation of a text whose jobs are all decoded."""
        num_hypotheses = request.options.num_hypotheses
        language = plan.language
        segments = [job.segment for job in plan.jobs]
        returns_tokens = request.returns_tokens
        best = [job.best or self.segment(job, 0, returns_tokens=returns_tokens) for job in plan.jobs]
        by_rank = [plan.parsed_text.finish(segments, best)]
        for rank in range(1, num_hypotheses):
            others = [self.segment(job, rank, returns_tokens=returns_tokens) for job in plan.jobs]
            by_rank.append(plan.parsed_text.finish(segments, others))
        translated = []
        for index, job in enumerate(plan.jobs):
            sources = [self._source_spans(request, job, part) for part in job.parts]
            ranked = [
                self._hypothesis(
                    request, job, rank, text.text, finished=text.segments[index], sources=sources
                )
                for rank, text in enumerate(by_rank[: job.num_hypotheses])
            ]
            finished = by_rank[0].segments[index]
            translated.append(
                segment_of(
                    job.parts, finished, ranked, chain.from_iterable(sources) if request.attention else ()
                )
            )
        return Translation(
            by_rank[0].text,
            tuple(text.text for text in by_rank),
            tuple(translated),
            language.source,
            language.confidence,
            plan.parsed_text.glossary_hits,
        )

    def _part(self, job: SegmentJob, part: Part, rank: int, *, returns_tokens: bool) -> SegmentTranslation:
        hypothesis = part.hypothesis(rank)
        decoded = self.tokenizer.decode(hypothesis.ids, part.encoded.verbatim_spans)
        source = part.span.of(job.segment.source)
        if is_wordless(source, decoded.text):
            return source_as_translation(source, (len(hypothesis.ids) + 1) * returns_tokens)
        num_forced = len(part.options.target_prefix)
        if not (returns_tokens or hypothesis.alignment or num_forced):
            return SegmentTranslation(decoded.text, num_appended=decoded.num_appended)
        offsets = target_offsets(self.tokenizer, hypothesis.ids, part.encoded.verbatim_spans)
        alignment = self._alignment(job, part, hypothesis, offsets) if hypothesis.alignment else None
        end = (len(decoded.text), len(decoded.text))
        kept = (*offsets, end) if returns_tokens else ()
        prefix_end = max((end for _, end in offsets[:num_forced]), default=0)
        return SegmentTranslation(
            decoded.text, alignment, decoded.num_appended, token_offsets=kept, prefix_end=prefix_end
        )

    def _alignment(
        self, job: SegmentJob, part: Part, hypothesis: Hypothesis, offsets: Sequence[tuple[int, int]]
    ) -> Alignment | None:
        """Return the alignment of a part and its translation. offsets: of the target subwords.

        None if the text has no language pair or the translation has no subwords.
        """
        if job.language.pair is None or not offsets:
            return None
        source = self.encoder.subword_offsets(part.span.of(job.segment.source), job.language.pair)
        weights = np.array(hypothesis.alignment[: len(offsets)], np.float64)
        num_columns = weights.shape[1]
        # Subwords without characters, such as the end token, have no effect on the alignment.
        source += [(0, 0)] * (num_columns - len(source))
        return Alignment(tuple(source), tuple(offsets), weights)

    def source_offsets(self, job: SegmentJob, part: Part) -> list[Offsets]:
        """Return the offsets of a part's subwords in its segment's source, an end token and a tag included."""
        assert job.language.pair is not None
        source, start = part.span.of(job.segment.source), part.span.start
        offsets = self.encoder.subword_offsets(source, job.language.pair)
        return [(first + start, last + start) for first, last in offsets]

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
        """Return one translation of a segment.

        text: the whole text's translation of this rank. sources: for each part, the spans of its source subwords in the
        caller's text.
        """
        hypotheses = [part.hypothesis(rank) for part in job.parts]
        start = finished.target[0]
        segment_text = text[start : finished.target[1]]
        tokens: tuple[Token, ...] = ()
        if request.returns_tokens:
            offsets = [(first - start, last - start) for first, last in finished.token_offsets]
            tokens = self._tokens(
                job, rank, segment_text, offsets, sources, returns_weights=request.attention
            )
        return SegmentHypothesis(
            segment_text,
            sum(each.log_probability for each in hypotheses),
            score_of(job, hypotheses),
            joint_reason(hypotheses, keeps_source=finished.keeps_source, is_shortened=job.is_shortened),
            tokens,
        )

    def _tokens(
        self,
        job: SegmentJob,
        rank: int,
        text: str,
        offsets: Sequence[tuple[int, int]],
        sources: Sequence[Sequence[TextSpan]],
        *,
        returns_weights: bool,
    ) -> tuple[Token, ...]:
        """Return the tokens of all parts in order.

        offsets: the offsets in `text` of each part's subwords and of its end. sources: the spans of each part's source
        subwords in the caller's text.
        """
        tokens: list[Token] = []
        end, column, num_columns = 0, 0, sum(map(len, sources))
        for part, source in zip(job.parts, sources, strict=True):
            hypothesis = part.hypothesis(rank)
            start, end = end, end + len(hypothesis.ids) + 1
            shown = [job.parsed_text.preview(job.segment, run) for run in part.encoded.verbatim_spans]
            columns = SourceColumns(column, num_columns) if returns_weights else None
            builder = TokenBuilder(self.tokenizer, shown, source, columns)
            tokens += builder.build(hypothesis, text, offsets[start:end])
            column += len(source)
        return tuple(tokens)

    def _source_spans(self, request: TranslationRequest, job: SegmentJob, part: Part) -> list[TextSpan]:
        """Return the spans of a part's subwords in the caller's text, an end token and a tag included.

        Empty unless the request sets alignment.
        """
        is_aligned = request.options.alignment
        if not is_aligned or job.language.pair is None:
            return []
        return [
            TextSpan(*job.parsed_text.source_range(job.segment, first, last))
            for first, last in self.source_offsets(job, part)
        ]

    def scores(
        self,
        request: ScoreRequest,
        pair: LanguagePair,
        pieces: Sequence[ScoredSource],
        results: Sequence[SequenceResult],
    ) -> tuple[PairScore, ...]:
        """Return the score of each pair. pieces, results: the encoded texts and the engine's result of each pair.

        The spans of tokens are positions in the request's translation.
        """
        scores = []
        for index, (piece, result) in enumerate(zip(pieces, results, strict=True)):
            text, hypothesis = request.translations[index], result.hypotheses[0]
            span = stripped_span("translation", index, text)
            tokens: tuple[Token, ...] = ()
            sources: tuple[TextSpan, ...] = ()
            if request.returns_tokens:
                is_aligned = request.options.alignment
                if is_aligned:
                    sources = tuple(self.encoder.source_spans(piece, pair))
                columns = SourceColumns(0, len(sources)) if request.attention else None
                builder = TokenBuilder(self.tokenizer, piece.encoded.verbatim_spans, sources, columns)
                spans = scored_offsets(self.tokenizer, span.of(text), piece.encoded.verbatim_spans)
                offsets = [(start + span.start, end + span.start) for start, end in spans]
                tokens = builder.build(hypothesis, text, [*offsets, (span.end, span.end)])
            num_tokens = len(hypothesis.token_log_probabilities)
            source_tokens = sources if request.attention else ()
            scores.append(
                PairScore(hypothesis.log_probability, hypothesis.score, num_tokens, tokens, source_tokens)
            )
        return tuple(scores)


def segment_of(
    parts: Iterable[Part],
    finished: FinishedSegment,
    hypotheses: Iterable[SegmentHypothesis],
    source_tokens: Iterable[TextSpan],
) -> TranslatedSegment:
    """Return a segment of the result. parts: all parts that were decoded for it. hypotheses: best first."""
    return TranslatedSegment(
        source=TextSpan(*finished.source),
        target=TextSpan(*finished.target),
        hypotheses=tuple(hypotheses),
        has_looped=any(part.result is not None and part.result.has_looped for part in parts),
        is_part=finished.is_part,
        fallbacks=finished.fallbacks,
        changed_numbers=finished.changed_numbers,
        source_tokens=tuple(source_tokens),
    )


def score_of(job: SegmentJob, hypotheses: Sequence[Hypothesis]) -> float:
    """Return the score of a segment: the engine's, if the segment was decoded as one part.

    For several parts it is the sum of their log-probabilities, divided by the length penalty of all their tokens,
    without a coverage penalty.
    """
    if len(hypotheses) == 1:
        return hypotheses[0].score
    options = job.parts[0].options
    num_tokens = max(1, sum(len(each.token_log_probabilities) for each in hypotheses))
    penalty = length_penalty(num_tokens, options.alpha, options.length_penalty)
    return sum(each.log_probability for each in hypotheses) / penalty


def has_digit(text: str) -> bool:
    """Whether the text of a subword, by `Tokenizer.text_of`, holds a digit."""
    byte = _BYTE.fullmatch(text)
    return any(map(str.isdecimal, chr(int(byte[1], 16)) if byte else text))
