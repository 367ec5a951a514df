"""Turns the translator's results into responses of the native API."""

from __future__ import annotations

from collections.abc import Sequence

from app.api.native.answers import (
    CandidateAnswer,
    DetectAnswer,
    DetectionAnswer,
    GlossaryHitAnswer,
    HypothesisAnswer,
    ModelName,
    PairScoreAnswer,
    ScoreAnswer,
    SegmentAnswer,
    SpanAnswer,
    TokenAnswer,
    TranslateAnswer,
    TranslationAnswer,
    UsageAnswer,
)
from app.text.glossary import GlossaryHit
from app.translator import (
    ModelVersion,
    PairScore,
    Ranked,
    ScoreRequest,
    ScoreResult,
    SegmentHypothesis,
    TextSpan,
    Token,
    TranslatedSegment,
    Translation,
    TranslationRequest,
    TranslationResult,
    Usage,
)


def model_name(model: ModelVersion) -> ModelName:
    """The model's name and version, for an answer."""
    return {"name": model.name, "version": model.version}


def translate_answer(
    result: TranslationResult, request: TranslationRequest, model: ModelName
) -> TranslateAnswer:
    """The answer to a translation request."""
    answer: TranslateAnswer = {
        "translations": [_translation(each, request) for each in result.translations],
        "model": model,
        "usage": _usage(result),
    }
    if result.models:
        answer["models"] = [model_name(each) for each in result.models]
    if request.options.sampling is not None:
        answer["seed"] = request.options.sampling.seed
    return answer


def detect_answer(detected: Sequence[Ranked]) -> DetectAnswer:
    """The answer to a detection request."""
    return {"detections": [_detection(ranked) for ranked in detected]}


def _detection(ranked: Ranked) -> DetectionAnswer:
    language, confidence = ranked[0] if ranked else (None, 0.0)
    candidates: list[CandidateAnswer] = [
        {"language": each, "confidence": probability} for each, probability in ranked
    ]
    return {"language": language, "confidence": confidence, "candidates": candidates}


def score_answer(result: ScoreResult, request: ScoreRequest, model: ModelName) -> ScoreAnswer:
    """The answer to a scoring request."""
    scores = [_pair_score(each, request) for each in result.scores]
    return {"scores": scores, "model": model, "usage": _usage(result)}


def _usage(usage: Usage) -> UsageAnswer:
    return {
        "source_tokens": usage.source_tokens,
        "target_tokens": usage.target_tokens,
        "sentences": usage.num_sentences,
    }


def _translation(translation: Translation, request: TranslationRequest) -> TranslationAnswer:
    answer: TranslationAnswer = {
        "text": translation.text,
        "source": translation.source,
        "segments": [_segment(segment, request) for segment in translation.segments],
    }
    if request.source is None:
        answer["confidence"] = translation.confidence
    if request.terms or request.glossary_id is not None:
        answer["glossary_hits"] = [_glossary_hit(hit) for hit in translation.glossary_hits]
    if request.options.num_hypotheses > 1:
        answer["hypotheses"] = [{"text": text} for text in translation.hypotheses]
    if translation.pivot is not None:
        answer["pivot"] = translation.pivot
    return answer


def _glossary_hit(hit: GlossaryHit) -> GlossaryHitAnswer:
    span = TextSpan(hit.span.start, hit.span.end)
    return {"source": _span(span), "term": hit.term.source, "translation": hit.replacement}


def _segment(segment: TranslatedSegment, request: TranslationRequest) -> SegmentAnswer:
    best = segment.hypotheses[0]
    answer: SegmentAnswer = {
        "source": _span(segment.source),
        "target": _span(segment.target),
        "score": best.score,
        "finish_reason": best.finish_reason.value,
    }
    if request.options.loop_guard:
        answer["has_looped"] = segment.has_looped
    if segment.is_part:
        answer["is_part"] = True
    if segment.fallbacks:
        answer["fallbacks"] = list(segment.fallbacks)
    if segment.changed_numbers:
        answer["changed_numbers"] = {
            "missing": list(segment.changed_numbers.missing),
            "added": list(segment.changed_numbers.added),
        }
    if request.returns_tokens:
        answer["log_probability"] = best.log_probability
        answer["tokens"] = _tokens(best.tokens, start=segment.target.start)
    if request.attention:
        answer["source_tokens"] = [_span(span) for span in segment.source_tokens]
    if request.options.num_hypotheses > 1:
        answer["hypotheses"] = [_hypothesis(each, request) for each in segment.hypotheses]
    return answer


def _hypothesis(hypothesis: SegmentHypothesis, request: TranslationRequest) -> HypothesisAnswer:
    answer: HypothesisAnswer = {
        "text": hypothesis.text,
        "score": hypothesis.score,
        "finish_reason": hypothesis.finish_reason.value,
    }
    if request.returns_tokens:
        answer["log_probability"] = hypothesis.log_probability
        answer["tokens"] = _tokens(hypothesis.tokens)
    return answer


def _pair_score(score: PairScore, request: ScoreRequest) -> PairScoreAnswer:
    answer: PairScoreAnswer = {
        "log_probability": score.log_probability,
        "score": score.score,
        "num_tokens": score.num_tokens,
    }
    if request.returns_tokens:
        answer["tokens"] = _tokens(score.tokens)
    if request.attention:
        answer["source_tokens"] = [_span(span) for span in score.source_tokens]
    return answer


def _tokens(tokens: Sequence[Token], *, start: int = 0) -> list[TokenAnswer]:
    """The tokens of a response. start: the offset in code points that is added to their spans."""
    return [_token(token, start) for token in tokens]


def _token(token: Token, start: int) -> TokenAnswer:
    answer: TokenAnswer = {
        "text": token.text,
        "target": _span(token.target.moved(start)),
        "log_probability": token.log_probability,
    }
    if token.source is not None and token.attention is not None:
        answer["source"] = _span(token.source)
        answer["attention"] = token.attention
    if token.weights:
        answer["weights"] = token.weights
    if token.alternatives:
        answer["alternatives"] = [
            {"text": each.text, "log_probability": each.log_probability} for each in token.alternatives
        ]
    return answer


def _span(span: TextSpan) -> SpanAnswer:
    return {"start": span.start, "end": span.end}
