"""Translates and scores texts: the layer between the API, which has texts, and the engine, which has subword ids."""

from app.text.detection import Ranked
from app.translator.observer import Observer
from app.translator.request import (
    AnswerLimits,
    PairScore,
    ScoreRequest,
    ScoreResult,
    SegmentHypothesis,
    TextSpan,
    Timings,
    Token,
    TranslatedSegment,
    Translation,
    TranslationRequest,
    TranslationResult,
    Usage,
)
from app.translator.translator import Extras, Translator

__all__ = [
    "AnswerLimits",
    "Extras",
    "Observer",
    "PairScore",
    "Ranked",
    "ScoreRequest",
    "ScoreResult",
    "SegmentHypothesis",
    "TextSpan",
    "Timings",
    "Token",
    "TranslatedSegment",
    "Translation",
    "TranslationRequest",
    "TranslationResult",
    "Translator",
    "Usage",
]
