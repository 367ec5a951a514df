"""Translators of a segment that are no models: what they do to a text is known."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import numpy as np

from app.text.alignment import Alignment, words
from app.text.blocks import STAND_INS
from app.text.passage import FinishedText, PassageOptions, read_passage
from app.text.segments import SegmentTranslation

Model = Callable[[str], SegmentTranslation]


def copied(source: str) -> SegmentTranslation:
    """The source, every word aligned to itself."""
    spans = tuple((word.start, word.end) for word in words(source))
    return SegmentTranslation(source, Alignment(spans, spans, np.eye(len(spans))))


def reversed_words(source: str) -> SegmentTranslation:
    """The words in the opposite order, aligned."""
    return _ordered(source, list(range(len(words(source))))[::-1])


def shuffled_words(seed: int) -> Model:
    """The words in some order, aligned."""

    def translate(source: str) -> SegmentTranslation:
        order = list(range(len(words(source))))
        random.Random(f"{seed} {source}").shuffle(order)
        return _ordered(source, order)

    return translate


def _ordered(source: str, order: list[int]) -> SegmentTranslation:
    spans = words(source)
    parts, target, place = [], [], 0
    for index in order:
        word = spans[index].of(source)
        parts.append(word)
        target.append((place, place + len(word)))
        place += len(word) + 1
    weights = np.zeros((len(order), len(spans)))
    weights[range(len(order)), order] = 1
    alignment = Alignment(tuple((word.start, word.end) for word in spans), tuple(target), weights)
    return SegmentTranslation(" ".join(parts), alignment)


def without_stand_ins(model: Model, *, is_aligned: bool) -> Model:
    """A model that loses all it cannot read."""

    def translate(source: str) -> SegmentTranslation:
        text = model(source).text
        kept = "".join(character for character in text if ord(character) not in STAND_INS)
        spans = tuple((word.start, word.end) for word in words(kept))
        sources = tuple((word.start, word.end) for word in words(source))
        weights = np.ones((len(spans), len(sources)))
        return SegmentTranslation(kept, Alignment(sources, spans, weights) if is_aligned else None)

    return translate


def through(text: str, options: PassageOptions, model: Model = copied, limit: int = 300) -> FinishedText:
    """A text's whole way. limit: characters that the model takes at once."""
    passage = read_passage(text, options)
    segments = passage.segments(lambda source: len(source) <= limit)
    return passage.finish(segments, [model(segment.source) for segment in segments])


def squeezed(text: str) -> str:
    """The text with every run of spaces and line breaks as one space."""
    return re.sub(r"\s+", " ", text)
