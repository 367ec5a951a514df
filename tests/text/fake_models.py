"""Translates texts with fake models: those of the round-trip benchmark, and one that loses placeholders."""

from __future__ import annotations

import re

import numpy as np

from app.text.alignment import Alignment, words
from app.text.finished import FinishedText
from app.text.parsed_text import ParseOptions, parse_text
from app.text.protected_spans import PLACEHOLDER_CODE_POINTS
from app.text.segments import SegmentTranslation
from benchmarks.roundtrip_models import Model, copied


def without_placeholders(model: Model, *, is_aligned: bool) -> Model:
    """Return a model that translates as `model` does, and then deletes all placeholders.

    is_aligned: whether the new model returns an alignment of every word to every word.
    """

    def translate(source: str) -> SegmentTranslation:
        text = model(source).text
        text = "".join(character for character in text if ord(character) not in PLACEHOLDER_CODE_POINTS)
        spans = tuple((word.start, word.end) for word in words(text))
        sources = tuple((word.start, word.end) for word in words(source))
        weights = np.ones((len(spans), len(sources)))
        return SegmentTranslation(text, Alignment(sources, spans, weights) if is_aligned else None)

    return translate


def translate_with(text: str, options: ParseOptions, model: Model = copied, limit: int = 300) -> FinishedText:
    """Translate a text with a fake model.

    If a segment's translation lacks glossary terms, translate that segment again with placeholders.
    limit: the maximum number of characters in a segment.
    """
    parsed_text = parse_text(text, options)
    segments = parsed_text.segments(lambda source: len(source) <= limit)
    for index, segment in enumerate(segments):
        if parsed_text.missing_terms(segment, model(segment.source).text):
            segments[index] = parsed_text.with_term_placeholders(segment)
    return parsed_text.finish(segments, [model(segment.source) for segment in segments])


def squeezed(text: str) -> str:
    """Return the text with one space in the place of every run of white space."""
    return re.sub(r"\s+", " ", text)
