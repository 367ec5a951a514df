"""Translates and scores texts: the layer between the API (texts) and the engine (subword ids)."""

from app.text.detection import Ranked
from app.translator.model_pool import ModelPool, PooledModel, PoolListener
from app.translator.model_translator import ModelTranslator
from app.translator.models import Models, ServedModel
from app.translator.observer import Observer
from app.translator.on_demand import OnDemandTranslator
from app.translator.pivot import PairTranslator, PivotedPair
from app.translator.request import (
    AnswerLimits,
    ModelVersion,
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
    "ModelPool",
    "ModelTranslator",
    "ModelVersion",
    "Models",
    "Observer",
    "OnDemandTranslator",
    "PairScore",
    "PairTranslator",
    "PivotedPair",
    "PoolListener",
    "PooledModel",
    "Ranked",
    "ScoreRequest",
    "ScoreResult",
    "SegmentHypothesis",
    "ServedModel",
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
