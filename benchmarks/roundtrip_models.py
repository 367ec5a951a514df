"""Fake segment translators, which copy, reorder, drop or repeat words."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np

from app.text.alignment import Alignment, words
from app.text.segments import SegmentTranslation

Model = Callable[[str], SegmentTranslation]
DROPPED_SHARE = 0.3


def copied(source: str) -> SegmentTranslation:
    """The source, every word aligned to itself."""
    spans = tuple((word.start, word.end) for word in words(source))
    return SegmentTranslation(source, Alignment(spans, spans, np.eye(len(spans))))


def reversed_words(source: str) -> SegmentTranslation:
    """The words in the opposite order."""
    return in_order(source, range(len(words(source)))[::-1])


def shuffled(source: str) -> SegmentTranslation:
    """The words in a shuffled order, the same for equal sources."""
    order = list(range(len(words(source))))
    random.Random(source).shuffle(order)
    return in_order(source, order)


def dropping(source: str) -> SegmentTranslation:
    """The source without about 30 % of its words, the same words for equal sources.

    A placeholder is a word, so it may be left out.
    """
    draw = random.Random(source)
    kept = [index for index in range(len(words(source))) if draw.random() >= DROPPED_SHARE]
    return in_order(source, kept)


def repeating(source: str) -> SegmentTranslation:
    """Every word twice."""
    return in_order(source, [index for index in range(len(words(source))) for _ in range(2)])


def in_order(source: str, order: Sequence[int]) -> SegmentTranslation:
    """The source's words at these indices, joined by spaces. Each is aligned to the source word that it copies."""
    spans = words(source)
    parts: list[str] = []
    target: list[tuple[int, int]] = []
    place = 0
    for index in order:
        parts.append(spans[index].of(source))
        target.append((place, place + len(parts[-1])))
        place += len(parts[-1]) + 1
    weights = np.zeros((len(order), len(spans)))
    weights[np.arange(len(order)), list(order)] = 1
    alignment = Alignment(tuple((word.start, word.end) for word in spans), tuple(target), weights)
    return SegmentTranslation(" ".join(parts), alignment)


def without_alignment(model: Model) -> Model:
    """The same translator without an alignment."""
    return lambda source: SegmentTranslation(model(source).text)


MODELS: dict[str, Model] = {
    "copied": copied,
    "reversed": reversed_words,
    "shuffled": shuffled,
    "dropping": dropping,
    "repeating": repeating,
    "shuffled, no alignment": without_alignment(shuffled),
    "dropping, no alignment": without_alignment(dropping),
}
