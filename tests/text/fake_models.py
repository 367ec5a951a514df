"""A text's whole way in a test, with the round trip's translators and one that loses what it cannot read."""

from __future__ import annotations

import re

import numpy as np

from app.text.alignment import Alignment, words
from app.text.blocks import PLACEHOLDER_RANGE
from app.text.finished import FinishedText
from app.text.parsed_text import ParseOptions, parse_text
from app.text.segments import SegmentTranslation
from benchmarks.roundtrip_models import Model, copied


def without_placeholders(model: Model, *, is_aligned: bool) -> Model:
    """A model that loses all it cannot read."""

    def translate(source: str) -> SegmentTranslation:
        text = model(source).text
        kept = "".join(character for character in text if ord(character) not in PLACEHOLDER_RANGE)
        spans = tuple((word.start, word.end) for word in words(kept))
        sources = tuple((word.start, word.end) for word in words(source))
        weights = np.ones((len(spans), len(sources)))
        return SegmentTranslation(kept, Alignment(sources, spans, weights) if is_aligned else None)

    return translate


def through(text: str, options: ParseOptions, model: Model = copied, limit: int = 300) -> FinishedText:
    """A text's whole way, terms that lack carried in a second round. limit: characters that the model takes at once."""
    parsed_text = parse_text(text, options)
    segments = parsed_text.segments(lambda source: len(source) <= limit)
    for index, segment in enumerate(segments):
        if parsed_text.missing_terms(segment, model(segment.source).text):
            segments[index] = parsed_text.with_term_placeholders(segment)
    return parsed_text.finish(segments, [model(segment.source) for segment in segments])


def squeezed(text: str) -> str:
    """The text with every run of spaces and line breaks as one space."""
    return re.sub(r"\s+", " ", text)
