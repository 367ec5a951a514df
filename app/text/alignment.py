"""Word alignment of a source and its translation, from attention weights between their subwords."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from app.text.scripts import is_unspaced
from app.text.segmentation import Offsets, Span, is_attached

Floats = NDArray[np.float64]
# Combining marks, joiners and soft hyphens belong to the word before them. A zero-width space, which an imported
# model may write, separates words.
_INNER_CATEGORIES = frozenset({"Mn", "Mc", "Me", "Cf"})
_ZERO_WIDTH_SPACE = "\u200b"
_NUMBER_MARKS = frozenset(".,:")  # part of a number if they are between two digits
_INNER = frozenset("'\u2019_")  # part of a word if they are between two letters or digits


@dataclass(frozen=True)
class Alignment:
    """Weights between the subwords of a source and of its translation.

    source, target: start and end of every subword in its text, in code points. A subword without characters (the end
    token) is ignored.
    weights: (num_target_subwords, num_source_subwords), not negative. They are attention, or a 0/1 alignment.
    """

    source: tuple[tuple[int, int], ...]
    target: tuple[tuple[int, int], ...]
    weights: NDArray[np.floating]

    def __post_init__(self) -> None:
        """Raises ValueError if the shapes do not match."""
        if self.weights.shape != (len(self.target), len(self.source)):
            raise ValueError(
                f"weights of shape {self.weights.shape} for {len(self.target)} target "
                f"and {len(self.source)} source subwords"
            )


def join_alignments(
    alignments: Sequence[Alignment], sources: Sequence[int], targets: Sequence[int]
) -> Alignment:
    """Return the alignment of concatenated texts. sources, targets: the start of each part in the whole."""
    shapes = np.array([alignment.weights.shape for alignment in alignments])
    weights = np.zeros(shapes.sum(axis=0))
    row = column = 0
    for alignment, (num_rows, num_columns) in zip(alignments, shapes, strict=True):
        weights[row : row + num_rows, column : column + num_columns] = alignment.weights
        row, column = row + num_rows, column + num_columns
    parts = list(zip(alignments, sources, targets, strict=True))
    return Alignment(
        tuple(span for alignment, start, _ in parts for span in shifted(alignment.source, start)),
        tuple(span for alignment, _, start in parts for span in shifted(alignment.target, start)),
        weights,
    )


def shifted(spans: Sequence[Offsets], distance: int) -> list[Offsets]:
    """Return the offsets plus `distance`."""
    return [(start + distance, end + distance) for start, end in spans]


def words(text: str) -> tuple[Span, ...]:
    """Return the words of a text.

    A word is a run of letters and digits with the marks inside it, such as `don't` and `3.14`, or any other single
    character except white space. In scripts without spaces between words, each letter is a word, with the marks and
    vowels that belong to it.
    """
    return tuple(_words(text))


def _words(text: str) -> Iterator[Span]:
    start, is_letter = None, False  # is_letter: whether the word is one letter of a script without spaces
    for index, character in enumerate(text):
        if character.isalnum():
            is_alone = is_unspaced(character)
            if start is not None and (is_letter or is_alone) and not is_attached(text, index):
                yield Span(start, index)
                start = None
            if start is None:
                start, is_letter = index, is_alone
            continue
        if start is not None:
            is_mark = unicodedata.category(character) in _INNER_CATEGORIES and character != _ZERO_WIDTH_SPACE
            if is_mark or (not is_letter and _is_inner(text, index)):
                continue
            yield Span(start, index)
            start = None
        if not (character.isspace() or character == _ZERO_WIDTH_SPACE):
            yield Span(index, index + 1)
    if start is not None:
        yield Span(start, len(text))


def _is_inner(text: str, index: int) -> bool:
    """Whether the mark at `index`, after a letter or digit, is within a word or a number."""
    following = text[index + 1 : index + 2]
    if text[index] in _NUMBER_MARKS:
        return text[index - 1].isdigit() and following.isdigit()
    return text[index] in _INNER and following.isalnum() and not is_unspaced(following)


class WordAlignment:
    """The words of a target text, and how much attention each of them has to a part of the source."""

    def __init__(self, target: str, alignment: Alignment) -> None:
        self.words = words(target)
        spans = np.array([(word.start, word.end) for word in self.words], dtype=np.float64).reshape(-1, 2)
        self._source = np.array(alignment.source, dtype=np.float64).reshape(-1, 2)
        subwords = np.array(alignment.target, dtype=np.float64).reshape(-1, 2)
        # (num_words, num_target_subwords): how many characters a word and a subword share.
        shared = np.minimum(spans[:, 1:], subwords[:, 1]) - np.maximum(spans[:, :1], subwords[:, 0])
        has_characters = self._source[:, 1] > self._source[:, 0]
        weights = np.where(has_characters, np.nan_to_num(alignment.weights.astype(np.float64)), 0.0)
        by_word = np.maximum(shared, 0.0) @ weights
        total = by_word.sum(axis=1, keepdims=True)
        # (num_words, num_source_subwords): rows sum to 1, or to 0 for a word without alignment.
        self._weights: Floats = np.divide(by_word, total, out=np.zeros_like(by_word), where=total > 0)

    @cached_property
    def known(self) -> Floats:
        """An array (num_words,) that is 1 if the alignment has weight for the word, else 0."""
        rounded: Floats = np.round(self._weights.sum(axis=1))
        return rounded

    def share(self, start: int, end: int) -> Floats:
        """An array (num_words,): the fraction, 0 to 1, of each word's weight that lies on source[start:end]."""
        lengths = self._source[:, 1] - self._source[:, 0]
        shared = np.minimum(self._source[:, 1], end) - np.maximum(self._source[:, 0], start)
        part = np.divide(np.maximum(shared, 0.0), lengths, out=np.zeros_like(lengths), where=lengths > 0)
        result: Floats = self._weights @ part
        return result

    def cut(self, position: int, first: int, last: int) -> int:
        """Return where a position of the source divides the words first..last-1 of the target.

        The result g, in first..last, maximises a sum. Each word before g adds its weight on the source before the
        position. Each word from g on adds its weight on the source after the position. Of equally good results the
        first is returned.
        """
        before = self.share(0, position)[first:last]
        gain = 2 * before - self.known[first:last]
        return first + int(np.argmax(np.concatenate(([0.0], np.cumsum(gain)))))

    def best_run(self, start: int, end: int, first: int, last: int) -> tuple[int, int, float]:
        """Return the run of words within first..last-1 that is aligned to source[start:end].

        Returns its first word, the word after its last, and its score, the sum of (`share` - 1/2) over its words. A
        word without alignment counts 0. The run has at least one word and the greatest score. Raises ValueError if
        first >= last.
        """
        gains = (self.share(start, end) - self.known / 2)[first:last]
        sums = np.concatenate(([0.0], np.cumsum(gains)))
        best: tuple[float, int, int] | None = None
        lowest = 0
        for stop in range(1, len(sums)):
            if sums[stop - 1] <= sums[lowest]:
                lowest = stop - 1
            gain = float(sums[stop] - sums[lowest])
            if best is None or gain > best[0]:
                best = (gain, lowest, stop)
        if best is None:
            raise ValueError("a run needs at least one word to choose from")
        return first + best[1], first + best[2], best[0]
