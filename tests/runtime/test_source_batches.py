"""Sentences are divided into encoder calls with little padding."""

from __future__ import annotations

import numpy as np
import pytest

from app.runtime.interface import Int32s
from app.runtime.source_batches import SourceBatch, source_batches


def sources_of(*lengths: int) -> list[Int32s]:
    """Sentences whose ids are 100 times their place, plus 1, 2, 3..."""
    return [100 * place + 1 + np.arange(length, dtype=np.int32) for place, length in enumerate(lengths)]


def padding_of(batch: SourceBatch) -> int:
    return batch.ids.size - int(batch.lengths.sum())


@pytest.mark.parametrize("max_padding", [0, 1, 5, 40, 10_000])
def test_every_sentence_is_in_one_batch_and_followed_by_padding(max_padding: int) -> None:
    lengths = np.random.default_rng(1).integers(1, 30, 200)
    sources = sources_of(*lengths)
    batches = list(source_batches(sources, max_padding=max_padding))
    assert sorted(index for batch in batches for index in batch.indices) == list(range(200))
    for batch in batches:
        assert padding_of(batch) <= max_padding
        for index, ids, length in zip(batch.indices, batch.ids, batch.lengths, strict=True):
            np.testing.assert_array_equal(ids[:length], sources[index])
            assert not ids[length:].any()


def test_without_padding_a_batch_has_one_length() -> None:
    batches = list(source_batches(sources_of(3, 5, 3, 1), max_padding=0))
    assert [batch.indices for batch in batches] == [[1], [0, 2], [3]]
    assert [batch.ids.shape for batch in batches] == [(1, 5), (2, 3), (1, 1)]


def test_the_padding_of_a_batch_is_at_most_the_limit() -> None:
    """One short sentence is padded by 7, two by 14."""
    sources = sources_of(8, 1, 1, 1)
    assert [batch.indices for batch in source_batches(sources, max_padding=14)] == [[0, 1, 2], [3]]
    assert [batch.indices for batch in source_batches(sources, max_padding=13)] == [[0, 1], [2, 3]]


def test_no_sentence_gives_no_batch() -> None:
    assert list(source_batches([], max_padding=9)) == []
