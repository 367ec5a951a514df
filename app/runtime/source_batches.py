"""Divides sentences into calls of the encoder. In a call, shorter sentences are padded to the longest one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from app.runtime.interface import Int32s, Int64s


@dataclass(frozen=True)
class SourceBatch:
    """The sentences of one call of the encoder.

    indices: their places among all sentences. ids: (sentences, longest), 0 after a sentence's end.
    lengths: (sentences,).
    """

    indices: list[int]
    ids: Int32s
    lengths: Int64s


def source_batches(sources: Sequence[Int32s], *, max_padding: int) -> Iterator[SourceBatch]:
    """Yield batches of all sentences, the longest sentences first.

    max_padding: maximum number of padding ids in a batch. With 0, all sentences of a batch have the same length.
    """
    indices: list[int] = []
    padding = 0
    for index in sorted(range(len(sources)), key=lambda index: len(sources[index]), reverse=True):
        if indices:
            padding += len(sources[indices[0]]) - len(sources[index])
        if padding > max_padding:
            yield _batch(sources, indices)
            indices, padding = [], 0
        indices.append(index)
    if indices:
        yield _batch(sources, indices)


def _batch(sources: Sequence[Int32s], indices: list[int]) -> SourceBatch:
    """The batch of the sentences with these indices, the longest one first."""
    ids = np.zeros((len(indices), len(sources[indices[0]])), np.int32)
    for row, index in enumerate(indices):
        ids[row, : len(sources[index])] = sources[index]
    return SourceBatch(indices, ids, np.array([len(sources[index]) for index in indices], np.int64))
