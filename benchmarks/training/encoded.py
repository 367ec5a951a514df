"""A file of encoded sentence pairs. Every trainer reads it, so all train on the same subwords. Imports only NumPy."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

PAD_ID, BOS_ID, EOS_ID = 0, 1, 2
# The preset `small` of `model.config`.
D_MODEL, NUM_HEADS, D_FF, NUM_ENCODER_LAYERS, NUM_DECODER_LAYERS, DROPOUT = 256, 4, 1024, 6, 3, 0.1
# Sentences in a batch of the trainers with random batches: 128, as in PyTorch's translation tutorial.
NUM_SENTENCES = 128


@dataclass(frozen=True)
class Encoded:
    """Encoded sentence pairs.

    ids: all sentences in one array. Sources and targets alternate, and each has its end token. starts: (2 * pairs +
    1,), the index at which each sentence begins.
    """

    ids: NDArray[np.int32]
    starts: NDArray[np.int64]
    vocab_size: int

    @staticmethod
    def load(path: Path) -> Encoded:
        """Read what `save` wrote."""
        with np.load(path) as arrays:
            return Encoded(arrays["ids"], arrays["starts"], int(arrays["vocab_size"]))

    def save(self, path: Path) -> None:
        """Write an .npz."""
        np.savez(path, ids=self.ids, starts=self.starts, vocab_size=self.vocab_size)

    def side(self, number: int) -> NDArray[np.int64]:
        """Sentence `number`: 2 * pair is its source, 2 * pair + 1 its target."""
        return self.ids[self.starts[number] : self.starts[number + 1]].astype(np.int64)

    def pairs(self) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Every source with its target."""
        return [(self.side(number), self.side(number + 1)) for number in range(0, len(self.starts) - 1, 2)]


def padded(sentences: list[NDArray[np.int64]], fill: int = PAD_ID) -> NDArray[np.int64]:
    """The sentences, right-padded to the longest: (sentences, length)."""
    result = np.full((len(sentences), max(map(len, sentences))), fill, np.int64)
    for row, one in zip(result, sentences, strict=True):
        row[: len(one)] = one
    return result


def random_batches(encoded: Encoded) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Endless batches (source, labels) of NUM_SENTENCES random sentences, padded as by a plain data loader."""
    pairs, numbers = encoded.pairs(), random.Random(1)
    while True:
        numbers.shuffle(pairs)
        for start in range(0, len(pairs) - NUM_SENTENCES + 1, NUM_SENTENCES):
            sources, targets = zip(*pairs[start : start + NUM_SENTENCES], strict=True)
            yield padded(list(sources)), padded(list(targets))
